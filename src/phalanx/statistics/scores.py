"""Intervals of scores from 0 to 1: of a mean, of a paired difference, of a mean over tasks.

A bootstrap of values that are all alike has no width, which says "certain" of what six items
happened to show. None of these collapses so: right and wrong items have intervals of their own,
and only scores that vary are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from phalanx.statistics.base import Interval, check_share, deviations
from phalanx.statistics.resampling import paired_bootstrap
from phalanx.statistics.shares import wilson, wilson_of_share

DRAWS = 2000


def score_interval(scores: Sequence[float], seed: int) -> Interval:
    """95 % around the mean of the items' scores.

    Wilson's where every item is right or wrong; else items are resampled (one with several
    samples as a whole), and where all are alike, of which resampling knows nothing, Wilson's for
    scores between 0 and 1.
    """
    kinds = set(scores)
    if kinds <= {0, 1}:
        return wilson(int(sum(scores)), len(scores))
    if len(kinds) == 1:
        return wilson_of_share(scores[0], len(scores))
    return paired_bootstrap([0.0] * len(scores), scores, seed=seed, draws=DRAWS)[1]


def difference_interval(changes: Sequence[float], seed: int) -> Interval:
    """95 % around the mean of the items' changes, each from -1 to 1.

    :func:`tango` where every item gained, lost or stayed as a whole, and where all changes are
    alike; else items are resampled.
    """
    kinds = set(changes)
    if kinds <= {-1, 0, 1} or len(kinds) == 1:
        gained, lost = (sum(max(0.0, sign * change) for change in changes) for sign in (1, -1))
        return tango(gained, lost, len(changes))
    return paired_bootstrap([0.0] * len(changes), changes, seed=seed, draws=DRAWS)[1]


def tango(gained: float, lost: float, n: int, confidence: float = 0.95) -> Interval:
    """Tango's score interval of a difference of two paired shares (Tango 1998).

    The differences that the score test of ``gained`` and ``lost`` items among ``n`` pairs does not
    reject: to a paired difference what Wilson's is to a share. Not empty where nothing changed.
    Fractions are sums of changes that are no wholes; those vary less, so it is cautious for them.

    ValueError where counts are negative or more than ``n``, or ``n`` is 0.
    """
    if n < 1 or min(gained, lost) < 0 or gained + lost > n + 1e-9:
        raise ValueError(f"gained and lost must be parts of n, got {gained} and {lost} of {n}")
    check_share("confidence", confidence)
    z = deviations(confidence)
    seen = (gained - lost) / n

    def score(difference: float) -> float:
        """Standard deviations between what is seen and what ``difference`` expects."""
        apart = gained - lost - n * difference
        # The likeliest share of losses, were this the difference.
        b = (2 * n - gained + lost) * difference - gained - lost
        root = math.sqrt(max(0.0, b * b + 8 * n * lost * difference * (1 - difference)))
        variance = n * ((root - b) / (2 * n) + difference * (1 - difference))
        return apart / math.sqrt(variance) if variance > 1e-12 else math.copysign(math.inf, apart)

    return Interval(
        _crossing(score, -1.0, seen, z) if seen > -1 else -1.0,
        _crossing(score, seen, 1.0, -z) if seen < 1 else 1.0,
    )


def _crossing(falling: Callable[[float], float], low: float, high: float, level: float) -> float:
    """Where a falling function comes to ``level``, by halving."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return (low + high) / 2


def mean_of_parts(
    parts: Mapping[str, Sequence[float]],
    of_part: Callable[[Sequence[float], int], Interval],
    seed: int,
) -> tuple[float, Interval]:
    """The mean of the parts' means, each part the same, and its 95 % interval.

    ``of_part`` gives that of one part; distances from the means to their ends add up as errors
    that are independent of each other do, in squares (MOVER: Zou and Donner 2008). ValueError
    where there is no part.
    """
    if not parts:
        raise ValueError("there is no part to average over")
    k, value, below, above = len(parts), 0.0, 0.0, 0.0
    for scores in parts.values():
        mean, interval = sum(scores) / len(scores), of_part(scores, seed)
        value += mean / k
        below += (mean - interval.low) ** 2
        above += (interval.high - mean) ** 2
    return value, Interval(value - math.sqrt(below) / k, value + math.sqrt(above) / k)
