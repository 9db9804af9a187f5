"""Two biases of judges that show without a gold label: for the first place, and for length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from phalanx.statistics.base import Interval, check_share, deviations, finite_values
from phalanx.statistics.shares import mcnemar_exact, wilson_of_share

Slot = Literal["first", "second", "tie"]
_WORTH = {"first": 1.0, "second": 0.0, "tie": 0.5}


class PositionBias(NamedTuple):
    """How often what stood first won; see :func:`position_bias`. Shares are of ``pairs``."""

    first_share: float
    interval: Interval
    pvalue: float
    consistent: float
    pairs: int
    left_out: int


def position_bias(
    verdicts: Sequence[tuple[Slot | None, Slot | None]], confidence: float = 0.95
) -> PositionBias:
    """Share of first-place wins where every pair was judged in both orders; one half without bias.

    Each entry has the verdicts of the two orders by the slot that won; None could not be read. A
    pair with a gap is left out, since one order alone does not balance which response is better;
    ``left_out`` counts those. Ties are half a win. ``consistent`` is the share of pairs in which
    both verdicts name the same response, or both a tie.

    The interval is over pairs, not verdicts. As that of Bonett and Price (2012) for a paired
    difference, which it equals without ties, it adds one pair for each side and is therefore not
    empty where all pairs lean one way. ``pvalue`` is the exact sign test of the pairs that lean
    to the first against those that lean to the second slot.

    ValueError where no pair has two verdicts, or a verdict is another word.
    """
    check_share("confidence", confidence)
    both = [(one, other) for one, other in verdicts if one is not None and other is not None]
    if not both:
        raise ValueError(f"none of {len(verdicts)} pairs has a verdict in both orders")
    unknown = {slot for pair in both for slot in pair} - set(_WORTH)
    if unknown:
        raise ValueError(f"verdicts must be first, second or tie, got {sorted(map(str, unknown))}")
    means = np.array([(_WORTH[one] + _WORTH[other]) / 2 for one, other in both])
    padded = np.append(means, (0.0, 1.0))
    z = deviations(confidence)
    centre, half = float(padded.mean()), z * float(padded.std()) / math.sqrt(padded.size)
    return PositionBias(
        first_share=float(means.mean()),
        interval=Interval(max(0.0, centre - half), min(1.0, centre + half)),
        pvalue=mcnemar_exact(int((means > 0.5).sum()), int((means < 0.5).sum())),
        consistent=sum(_WORTH[one] + _WORTH[other] == 1 for one, other in both) / len(both),
        pairs=len(both),
        left_out=len(verdicts) - len(both),
    )


class LengthPreference(NamedTuple):
    """How often the longer response won; ``n`` comparisons had two lengths, ``same`` had one."""

    longer_share: float
    interval: Interval
    n: int
    same: int


def length_preference(
    lengths: Sequence[tuple[int, int]], scores: Sequence[float], confidence: float = 0.95
) -> LengthPreference:
    """Share of comparisons that the longer of two responses won, ties as half.

    ``lengths`` are those of the left and the right response in any one unit (characters);
    ``scores`` is 1 where the left one won, 0 where the right one did, between them for ties and
    soft preferences. Comparisons of equal lengths are left out and counted.

    One half is not the aim: longer answers may be better. Compute it once more from gold labels or
    people's preferences on the same pairs; the difference is the bias. The interval is Wilson's
    and takes comparisons for independent, one for each prompt (else use ``bootstrap``).

    ValueError where counts differ, a score lies outside [0, 1], a length is negative, or all
    lengths are equal.
    """
    check_share("confidence", confidence)
    won = finite_values("scores", scores)
    if len(lengths) != won.size:
        raise ValueError(f"there are {len(lengths)} pairs of lengths, but {won.size} scores")
    if ((won < 0) | (won > 1)).any():
        raise ValueError(f"scores must lie in [0, 1], got {won.min()} to {won.max()}")
    table = np.asarray(lengths)
    if table.shape != (won.size, 2) or (table < 0).any():
        raise ValueError("lengths must be pairs of numbers that are 0 or more")
    left, right = table.T
    for_longer = np.where(left > right, won, 1 - won)[left != right]
    n = int(for_longer.size)
    if n == 0:
        raise ValueError("both responses of every comparison have the same length")
    share = float(for_longer.mean())
    return LengthPreference(share, wilson_of_share(share, n, confidence), n, won.size - n)
