"""Means whose rows are not independent: clusters of rows, and seeds apart from items."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from phalanx.statistics.base import Interval, check_share, finite_values
from phalanx.statistics.resampling import by_cluster

_ROUNDING = 1e-12  # what sums of shares may differ by and still be the same


class Mean(NamedTuple):
    """A mean in the units of its values, its standard error and interval, and what it rests on."""

    value: float
    error: float
    interval: Interval
    clusters: int

    @property
    def pvalue(self) -> float | None:
        """Two-sided p of Student's t (clusters - 1 degrees of freedom) that the mean is 0.

        1 where all is 0. None where all clusters are alike and not 0: without a spread there is no
        test, however sure it looks.
        """
        if self.error < _ROUNDING:
            return 1.0 if abs(self.value) < _ROUNDING else None
        return float(2 * stats.t.sf(abs(self.value / self.error), self.clusters - 1))


def clustered_mean(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, confidence: float = 0.95
) -> Mean:
    """Mean of all values, with the cluster-robust standard error (Liang and Zeger 1986).

    ``clusters`` says what each value belongs to (a prompt with several samples, two orders of one
    pair); default: each value by itself, where the error is the usual s / sqrt(n). With G clusters
    the error is sqrt(G / (G - 1) * sum over clusters of (sum of deviations)^2) / n, and the
    interval has Student's t with G - 1 degrees of freedom: for G below about 20 prefer
    :func:`phalanx.statistics.bootstrap`.

    ValueError where lengths differ, values are not finite, or there are fewer than two clusters.
    """
    check_share("confidence", confidence)
    found = finite_values("values", values)
    keys = range(found.size) if clusters is None else clusters
    if len(keys) != found.size:
        raise ValueError(f"there are {found.size} values, but {len(keys)} cluster names")
    mean = float(found.mean())
    sums = [math.fsum(group) for group in by_cluster((found - mean).tolist(), keys)]
    if len(sums) < 2:
        raise ValueError("a standard error needs at least 2 clusters, got 1: it shows no spread")
    scale = len(sums) / (len(sums) - 1)
    error = math.sqrt(scale * math.fsum(total * total for total in sums)) / found.size
    return Mean(mean, error, _student(mean, error, len(sums), confidence), len(sums))


class SeedsAndItems(NamedTuple):
    """The mean over seeds and items; how far it moves with other seeds, and with other items."""

    value: float
    over_seeds: Interval
    over_items: Interval
    seed_deviation: float
    seeds: int
    items: int


def seeds_apart_from_items(
    scores: Sequence[Sequence[float]],
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> SeedsAndItems:
    """Intervals over training seeds and over items, side by side, of one table of scores.

    ``scores`` has a row for each seed and a column for each item, all items in all rows; for A
    against B hand in differences. ``over_seeds`` is Student's t on the means of the seeds (S - 1
    degrees of freedom; wide for S = 3, and rightly so): would training again give this, on these
    items? ``over_items`` is that of :func:`clustered_mean` on the items' means: would other items
    give this, for these seeds? Neither holds for both at once, and rows of (seed, item) are never
    independent. ``seed_deviation`` is the SD (S - 1) of the seeds' means, in units of the score;
    with sampled responses it has the noise of sampling in it.

    ValueError where there are fewer than two seeds or items, or rows of different lengths.
    """
    check_share("confidence", confidence)
    lengths = {len(row) for row in scores}
    if len(scores) < 2:
        raise ValueError(
            f"seeds need at least 2 rows of scores to be told apart, got {len(scores)}"
        )
    if len(lengths) != 1:
        raise ValueError(f"every seed needs a score for every item, got rows of {sorted(lengths)}")
    table = np.array([finite_values("scores of a seed", row) for row in scores])
    means = table.mean(axis=1)
    deviation = float(means.std(ddof=1))
    value = float(table.mean())
    items = clustered_mean(table.mean(axis=0).tolist(), clusters, confidence)
    over_seeds = _student(value, deviation / math.sqrt(len(means)), len(means), confidence)
    return SeedsAndItems(
        value, over_seeds, items.interval, deviation, seeds=len(means), items=table.shape[1]
    )


def _student(value: float, error: float, count: int, confidence: float) -> Interval:
    half = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * error
    return Interval(value - half, value + half)
