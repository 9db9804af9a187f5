"""Calibration: do events that were given a probability of 70 % come true 7 times in 10?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from phalanx.statistics.base import Interval, finite_values
from phalanx.statistics.shares import wilson


class Bin(NamedTuple):
    """Predictions of alike probability: mean ``predicted``, share that came true, its Wilson 95 %.

    ``low`` and ``high`` are the least and the greatest probability in the bin.
    """

    low: float
    high: float
    n: int
    predicted: float
    observed: float
    interval: Interval


def brier(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float:
    """Mean squared difference of probability and outcome (Brier 1950): 0 is best, 1 worst.

    Always saying one half gives 0.25. ValueError for what :func:`reliability` refuses.
    """
    said, came = _checked(probabilities, outcomes)
    return float(((said - came) ** 2).mean())


def reliability(
    probabilities: Sequence[float], outcomes: Sequence[bool], bins: int = 10
) -> list[Bin]:
    """The reliability table, in at most ``bins`` bins of equal mass, from low to high.

    Equal mass, because judges' probabilities crowd near 0 and 1, where bins of equal width hold
    nearly everything or nearly nothing. Equal probabilities share a bin, so that the order of the
    rows does not matter; sizes then differ, and a bin that nothing falls into is left out.

    ValueError where lengths differ, nothing is given, a probability lies outside [0, 1], an
    outcome is neither 0 nor 1, or there is no bin.
    """
    said, came = _checked(probabilities, outcomes)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    _, which, counts = np.unique(said, return_inverse=True, return_counts=True)
    # Each value goes where the middle of its block of equals lies, exactly: 2 * bins * middle.
    middles = 2 * np.cumsum(counts) - counts
    places = (middles * bins // (2 * said.size))[which]
    table = []
    for place in np.unique(places):
        inside = places == place
        n, right = int(inside.sum()), int(came[inside].sum())
        chosen = said[inside]
        table.append(
            Bin(
                low=float(chosen.min()),
                high=float(chosen.max()),
                n=n,
                predicted=float(chosen.mean()),
                observed=right / n,
                interval=wilson(right, n),
            )
        )
    return table


def expected_calibration_error(
    probabilities: Sequence[float], outcomes: Sequence[bool], bins: int = 10
) -> float:
    """Mean distance of predicted and observed over the bins of :func:`reliability`, by their size.

    Between 0 and 1. It is biased upwards: a perfect forecaster has about 0.8 sqrt(p(1 - p)
    bins / n) from chance alone, so compare only at equal n and bins, and give n beside it.
    ValueError for what :func:`reliability` refuses.
    """
    table = reliability(probabilities, outcomes, bins)
    total = sum(row.n for row in table)
    return sum(row.n * abs(row.observed - row.predicted) for row in table) / total


def _checked(
    probabilities: Sequence[float], outcomes: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    said, came = finite_values("probabilities", probabilities), finite_values("outcomes", outcomes)
    if said.size != came.size:
        raise ValueError(f"there are {said.size} probabilities, but {came.size} outcomes")
    if ((said < 0) | (said > 1)).any():
        raise ValueError(
            f"probabilities must lie in [0, 1], got {said.min()} to {said.max()}; turn logits and "
            "per cents into probabilities first"
        )
    if not np.isin(came, (0, 1)).all():
        raise ValueError("outcomes must be 0 or 1 (came true or not)")
    return said, came
