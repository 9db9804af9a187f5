"""Means whose rows are not independent: clusters of rows, and seeds apart from items."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from phalanx.statistics.base import Interval, check_share, finite_values
from phalanx.statistics.resampling import by_cluster

_ROUNDING = 1e-12  # what sums of shares may differ by and still be the same


class Mean(NamedTuple):
    """A mean in the units of its values, its standard error and interval, and what it rests on.

    ``freedom`` has the degrees of freedom of its Student's t.
    """

    value: float
    error: float
    interval: Interval
    freedom: float

    @property
    def pvalue(self) -> float | None:
        """Two-sided p of Student's t that the mean is 0.

        1 where all is 0. None where all clusters are alike and not 0: without a spread there is no
        test, however sure it looks.
        """
        if self.error < _ROUNDING:
            return 1.0 if abs(self.value) < _ROUNDING else None
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.value / self.error)))


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
    freedom = len(sums) - 1
    return Mean(mean, error, _student(mean, error, freedom, confidence), freedom)


def stratified_mean(
    rows: Sequence[Mapping[Hashable, float]],
    stratum: Mapping[Hashable, Hashable],
    confidence: float = 0.95,
) -> Mean | None:
    """Mean over rows of the mean over strata of the mean over items; error and interval over items.

    Rows (seeds) and strata (domains) are given, and each weighs the same; items are a sample of
    their stratum. An item in several rows is one cluster: its deviations from the means of its
    cells (row and stratum) are summed with their weights, and the error is sqrt(sum over strata of
    n / (n - 1) * sum over its n items of that sum squared). Degrees of freedom are those of Welch
    and Satterthwaite, n - 1 for each stratum (Cochran, Sampling Techniques, 1977, 5.4). Of one row
    and one stratum it is :func:`clustered_mean`.

    None where there is no row, or a cell has a single item, which shows no spread.
    """
    check_share("confidence", confidence)
    sums: dict[Hashable, float] = defaultdict(float)
    value = 0.0
    for row in rows:
        cells: dict[Hashable, list[Hashable]] = defaultdict(list)
        for item in row:
            cells[stratum[item]].append(item)
        for items in cells.values():
            if len(items) < 2:
                return None
            mean = math.fsum(row[item] for item in items) / len(items)
            weight = 1 / (len(rows) * len(cells))
            value += weight * mean
            for item in items:
                sums[item] += weight * (row[item] - mean) / len(items)
    if not sums:
        return None
    sizes = Counter(stratum[item] for item in sums)
    variances: dict[Hashable, float] = defaultdict(float)
    for item, total in sums.items():
        size = sizes[stratum[item]]
        variances[stratum[item]] += total * total * size / (size - 1)
    variance = math.fsum(variances.values())
    shares = math.fsum(one * one / (sizes[h] - 1) for h, one in variances.items())
    error = math.sqrt(variance)
    freedom = variance * variance / shares if shares else float(len(sums) - len(sizes))
    return Mean(value, error, _student(value, error, freedom, confidence), freedom)


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
    over_seeds = _student(value, deviation / math.sqrt(len(means)), len(means) - 1, confidence)
    return SeedsAndItems(
        value, over_seeds, items.interval, deviation, seeds=len(means), items=table.shape[1]
    )


def _student(value: float, error: float, freedom: float, confidence: float) -> Interval:
    from scipy.special import stdtrit

    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return Interval(value - half, value + half)
