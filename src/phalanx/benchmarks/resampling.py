"""The resampling that the benchmarks share: whole prompts with all their rows, never rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from phalanx.statistics import Interval


def resampled_counts(num_units: int, *, seed: int, draws: int) -> Iterator[np.ndarray]:
    """How often each of ``num_units`` units is drawn, ``draws`` times; each sums to ``num_units``.

    Raises ValueError where there is no unit or no draw.
    """
    if num_units < 1 or draws < 2:
        raise ValueError(f"a bootstrap needs units and two draws, got {num_units} and {draws}")
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.bincount(rng.integers(0, num_units, num_units), minlength=num_units)


def resampled_ratios(
    tops: Sequence[float], bottoms: Sequence[float], *, seed: int, draws: int
) -> np.ndarray:
    """``sum(tops) / sum(bottoms)`` of ``draws`` resamples of the units, shape [draws].

    A unit is a prompt: ``tops`` has the weighted sum of its scores, ``bottoms`` its weight. A
    resample without any weight has no ratio; it is left out.
    Raises ValueError where no unit has weight.
    """
    top, bottom = np.asarray(tops, dtype=float), np.asarray(bottoms, dtype=float)
    if not bottom.sum() > 0:
        raise ValueError("no unit has weight: there is nothing to resample")
    found = []
    for counts in resampled_counts(len(top), seed=seed, draws=draws):
        weight = counts @ bottom
        if weight > 0:
            found.append(float(counts @ top) / float(weight))
    return np.asarray(found)


def percentiles(values: np.ndarray, confidence: float = 0.95) -> Interval:
    """The percentile interval of bootstrap values. Raises ValueError for a share outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1 (both excluded), got {confidence}")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
