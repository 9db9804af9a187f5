"""Percentile bootstraps (Efron 1979): what is resampled is what was drawn, with all of its rows.

Two orders, several samples or the games of one prompt are not independent of each other.
Resampling them one by one makes an interval that is too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from phalanx.statistics.base import Interval, check_draws, check_share, finite_values

Cluster = TypeVar("Cluster")
Row = TypeVar("Row")


def paired_bootstrap(
    before: Sequence[float],
    after: Sequence[float],
    *,
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
) -> tuple[float, Interval]:
    """Mean of ``after - before`` over the same items, and its percentile bootstrap interval.

    Items are resampled with both of their scores, so what the two share cancels out.
    """
    first, second = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"paired scores need equal lengths, got {first.shape} and {second.shape}")
    if first.size == 0:
        raise ValueError("paired scores are empty: there is no item to compare on")
    check_draws(draws)
    check_share("confidence", confidence)
    change = second - first
    if not np.isfinite(change).all():
        raise ValueError("paired scores hold NaN or infinity; drop those items from both first")
    means = _resampled_means(change, np.random.default_rng(seed), draws)
    return float(change.mean()), percentiles(means, confidence)


def _resampled_means(values: np.ndarray, rng: np.random.Generator, draws: int) -> np.ndarray:
    """Means of ``draws`` resamples, in blocks of about a million numbers to bound memory."""
    block = max(1, 1_000_000 // values.size)
    means = np.empty(draws)
    for start in range(0, draws, block):
        stop = min(start + block, draws)
        picks = rng.integers(0, values.size, size=(stop - start, values.size))
        means[start:stop] = values[picks].mean(axis=1)
    return means


def percentiles(values: np.ndarray, confidence: float = 0.95) -> Interval:
    """The percentile interval of bootstrap values. ValueError for a share outside (0, 1)."""
    check_share("confidence", confidence)
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def sign_flip_test(differences: Sequence[float], *, seed: int, draws: int = 10_000) -> float:
    """Two-sided p-value of a paired difference whose mean is 0, by flipping signs (Fisher 1935).

    If neither side is better, each item's difference is as likely to have the other sign. p is the
    share of sign patterns whose sum is at least as far from 0 as the one seen: of all patterns
    where there are at most ``draws``, else of ``draws`` random ones and the one seen. For
    differences of -1, 0 and 1 it is exact McNemar, up to the draws. 1.0 where nothing differs.

    ValueError where there is no difference to test, or one is not finite.
    """
    check_draws(draws)
    found = finite_values("differences", differences)
    moved = found[found != 0]
    if not moved.size:
        return 1.0
    # Sums of the same numbers in another order must count as equal.
    seen = abs(moved.sum()) - 1e-12 * np.abs(moved).sum()
    if moved.size <= np.log2(draws):
        patterns = np.arange(2**moved.size)[:, None] >> np.arange(moved.size) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ moved) >= seen))
    rng, hits = np.random.default_rng(seed), 1
    block = max(1, 1_000_000 // moved.size)
    for start in range(0, draws, block):
        size = (min(block, draws - start), moved.size)
        hits += int(np.sum(np.abs((2 * rng.integers(0, 2, size) - 1) @ moved) >= seen))
    return hits / (draws + 1)


def resampled_counts(num_units: int, *, seed: int, draws: int) -> Iterator[np.ndarray]:
    """How often each of ``num_units`` units is drawn, ``draws`` times; each sums to ``num_units``.

    For what is fitted anew in every draw with counts as weights. ValueError where there is no
    unit, or fewer than two draws.
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
    resample without any weight has no ratio; it is left out. ValueError where no unit has weight.
    """
    top, bottom = np.asarray(tops, dtype=float), np.asarray(bottoms, dtype=float)
    if not bottom.sum() > 0:
        raise ValueError("no unit has weight: there is nothing to resample")
    check_draws(draws)
    rng, found = np.random.default_rng(seed), []
    block = max(1, 1_000_000 // top.size)
    for start in range(0, draws, block):
        picks = rng.integers(0, top.size, size=(min(block, draws - start), top.size))
        sums, weights = top[picks].sum(axis=1), bottom[picks].sum(axis=1)
        found.append(sums[weights > 0] / weights[weights > 0])
    return np.concatenate(found)


def by_cluster(rows: Iterable[Row], keys: Iterable[Hashable]) -> list[list[Row]]:
    """``rows`` gathered by their ``keys`` (a prompt, a document), in order of first appearance.

    ValueError where there are more of one than of the other.
    """
    gathered: dict[Hashable, list[Row]] = {}
    for row, key in zip(rows, keys, strict=True):
        gathered.setdefault(key, []).append(row)
    return list(gathered.values())


def bootstrap(
    clusters: Sequence[Cluster],
    statistic: Callable[[Sequence[Cluster]], float | None],
    *,
    seed: int,
    draws: int = 2000,
    confidence: float = 0.95,
) -> tuple[float, Interval]:
    """``statistic`` of all clusters, and its percentile interval over resampled clusters.

    A cluster is whatever was drawn as one, an item or a prompt with all of its rows; see
    :func:`by_cluster`. ``statistic`` gets as many clusters as there are, some several times and in
    no order, and computes everything anew: a model is fitted again for each draw. None from it
    means that it does not exist there. Such draws lie beyond both ends of the interval, so that
    many of them give an infinite end and never a narrower interval. Percentiles are a little too
    narrow on few clusters: a 95 % interval of a mean held the truth 94 times in 100 with 60
    clusters of unequal size, and 92 times with 40.

    ValueError where there are fewer than two clusters, where the statistic of all of them is
    None, and where it is ever NaN or infinite.
    """
    if len(clusters) < 2:
        raise ValueError(
            f"a bootstrap needs at least 2 clusters, got {len(clusters)}: one alone shows no spread"
        )
    check_draws(draws)
    check_share("confidence", confidence)
    value = _finite(statistic(clusters), "all clusters")
    if value is None:
        raise ValueError("the statistic does not exist on all clusters (it was None)")
    rng = np.random.default_rng(seed)
    found = []
    for number in range(draws):
        picks = rng.integers(0, len(clusters), size=len(clusters)).tolist()
        found.append(_finite(statistic([clusters[pick] for pick in picks]), f"draw {number}"))
    return value, _percentiles(found, confidence)


def _finite(value: float | None, where: str) -> float | None:
    if value is None:
        return None
    if not np.isfinite(value):
        raise ValueError(
            f"the statistic is {value} on {where}; it should return None where it does not exist"
        )
    return float(value)


def _percentiles(found: Sequence[float | None], confidence: float) -> Interval:
    """The interval of the draws; each None counts half below and half above all others."""
    known = np.array([value for value in found if value is not None])
    missing = (len(found) - known.size) / len(found)
    tail = (1 - confidence) / 2
    if tail <= missing / 2:
        return Interval(-np.inf, np.inf)
    # The place among the known draws of what is the tail of all of them.
    place = (tail - missing / 2) / (1 - missing)
    low, high = np.quantile(known, [place, 1 - place])
    return Interval(float(low), float(high))
