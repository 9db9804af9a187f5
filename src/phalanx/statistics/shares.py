"""Shares: intervals, tests of a change and of a win rate, what n items can show, pass@k."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from phalanx.statistics.base import Interval, check_share, deviations


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for ``successes`` of ``n`` (Wilson 1927).

    Unlike the textbook interval it stays inside [0, 1] and is not empty at 0 or ``n``.
    With ``n`` = 0 nothing is known: [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    check_share("confidence", confidence)
    if n == 0:
        return Interval(0.0, 1.0)
    return wilson_of_share(successes / n, n, confidence)


def wilson_of_share(share: float, n: int, confidence: float = 0.95) -> Interval:
    """:func:`wilson` for a mean of ``n`` scores in [0, 1], ties that count half among them.

    Such scores vary at most as much as zeros and ones of the same mean, so the interval is never
    too narrow for it. ``share`` and ``n`` are taken as checked.
    """
    z = deviations(confidence)
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(low, high)


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact McNemar p-value.

    ``b`` items were right only before, ``c`` only after; under "no change" each is a fair coin
    (McNemar 1947, binomial form). 1.0 where no item changed.
    """
    if b < 0 or c < 0:
        raise ValueError(f"discordant counts cannot be negative, got {b} and {c}")
    if b + c == 0:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(b, c), b + c, 0.5)))  # both tails are alike


def sign_test(wins: int, ties: int, losses: int) -> float:
    """Two-sided sign test of a win rate against one half, with ties as half a win each.

    Half of the ties go to either side, and one over is left out; then it is an exact test of a fair
    coin on all comparisons. With ties it is cautious (they vary less than coins): ``mcnemar_exact``
    of wins and losses, which drops them, finds more, but speaks of the decided ones alone. The
    comparisons must be independent: one for each prompt, both orders taken together.

    1.0 where there is nothing decided and no pair of ties. ValueError for negative counts.
    """
    if min(wins, ties, losses) < 0:
        raise ValueError(f"counts cannot be negative, got {wins}, {ties} and {losses}")
    return mcnemar_exact(wins + ties // 2, losses + ties // 2)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that at least one of ``k`` samples is right, from ``correct`` of ``samples`` drawn.

    Unbiased: 1 - C(samples - correct, k) / C(samples, k) (Chen et al. 2021, arXiv 2107.03374), in
    whole numbers up to the one division. The score of a task is the mean over its items, each of
    which may have another number of samples; the interval resamples items.

    ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"correct must lie between 0 and samples, got {correct} of {samples}")
    if not 1 <= k <= samples:
        raise ValueError(
            f"k must lie between 1 and the {samples} samples, got {k}: draw more or lower k"
        )
    drawn = math.comb(samples, k)
    return (drawn - math.comb(samples - correct, k)) / drawn


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Holm 1979), in the order given.

    Rejecting where the adjusted value is below 5 % keeps the chance of any false claim below 5 %.
    """
    if any(not 0 <= p <= 1 for p in pvalues):  # a NaN fails this too
        raise ValueError(f"p-values must lie between 0 and 1, got {list(pvalues)}")
    order = sorted(range(len(pvalues)), key=lambda place: pvalues[place])
    adjusted = [0.0] * len(pvalues)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[place]))
        adjusted[place] = largest
    return adjusted


def minimum_detectable(
    n: int, discordant: float = 0.2, power: float = 0.8, confidence: float = 0.95
) -> float | None:
    """Smallest difference of two shares that exact McNemar finds on ``n`` paired items.

    ``discordant`` is the share of items on which the two differ. Returns the difference (a
    share of ``n``) found with probability ``power``, or None where not even a one-sided change
    of all discordant items would be found: then measure on more items.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    check_share("discordant", discordant)
    check_share("power", power)
    check_share("confidence", confidence)
    from scipy import stats

    counts = np.arange(
        stats.binom.ppf(_RARE, n, discordant), stats.binom.isf(_RARE, n, discordant) + 1
    )
    chances = stats.binom.pmf(counts, n, discordant)
    critical = _critical(counts, 1 - confidence)
    if _mcnemar_power(counts, chances, critical, 1.0) < power:
        return None
    low, high = 0.5, 1.0  # the chance that a discordant item went the better way
    for _ in range(40):
        middle = (low + high) / 2
        if _mcnemar_power(counts, chances, critical, middle) < power:
            low = middle
        else:
            high = middle
    return discordant * (2 * high - 1)


_RARE = 1e-12  # numbers of discordant items that are rarer than this, on either side, are left out


def _critical(counts: np.ndarray, alpha: float) -> np.ndarray:
    """Largest k that is significant on one side of a fair coin, for every count; -1 for none."""
    from scipy import stats

    critical = stats.binom.ppf(alpha / 2, counts, 0.5)
    too_big = stats.binom.cdf(critical, counts, 0.5) > alpha / 2
    return np.where(too_big, critical - 1, critical)


def _mcnemar_power(
    counts: np.ndarray, chances: np.ndarray, critical: np.ndarray, better: float
) -> float:
    """Chance that exact McNemar is significant; ``chances`` are those of each count."""
    from scipy import stats

    found = stats.binom.cdf(critical, counts, better) + stats.binom.sf(
        counts - critical - 1, counts, better
    )
    found = np.where(critical < 0, 0.0, found)
    return float(np.sum(chances * found))
