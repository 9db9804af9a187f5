from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import (
    bootstrap,
    by_cluster,
    clustered_mean,
    paired_bootstrap,
    percentiles,
    resampled_ratios,
)


def mean_of_rows(clusters: Sequence[Sequence[float]]) -> float:
    rows = [value for cluster in clusters for value in cluster]
    return sum(rows) / len(rows)


def test_bootstrap_difference_and_interval() -> None:
    before = [0, 0, 1, 1, 0, 0, 1, 0] * 25
    after = [1, 0, 1, 1, 1, 0, 0, 0] * 25
    difference, interval = paired_bootstrap(before, after, seed=3)
    assert difference == pytest.approx(1 / 8)
    # (b, c) = (25, 50) of 200: normal approximation of the same interval.
    error = math.sqrt(75 - 25**2 / 200) / 200
    assert interval.low == pytest.approx(0.125 - 1.96 * error, abs=0.01)
    assert interval.high == pytest.approx(0.125 + 1.96 * error, abs=0.01)
    assert paired_bootstrap(before, after, seed=3)[1] == interval
    assert paired_bootstrap(before, after, seed=4)[1] != interval


def test_bootstrap_pairs_cancel_what_items_share() -> None:
    hard = np.random.default_rng(0).normal(0, 10, 100)
    _, interval = paired_bootstrap(hard, hard + 0.5, seed=0, draws=500)
    assert interval == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [([1], [1, 2], "equal lengths"), ([], [], "empty"), ([1.0], [math.nan], "NaN")],
)
def test_bootstrap_refuses(before: list[float], after: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(before, after, seed=0)


def test_by_cluster_keeps_the_order() -> None:
    assert by_cluster([1, 2, 3, 4], ["b", "a", "b", "a"]) == [[1, 3], [2, 4]]
    assert by_cluster([], []) == []
    with pytest.raises(ValueError, match="argument 2"):
        by_cluster([1, 2], ["a"])


def test_bootstrap_of_a_mean_has_the_textbook_width() -> None:
    values = np.random.default_rng(1).normal(5, 2, 400)
    value, interval = bootstrap(values.tolist(), np.mean, seed=0, draws=2000)
    half = 1.96 * values.std() / 20
    assert value == pytest.approx(values.mean())
    assert interval == pytest.approx((value - half, value + half), abs=0.04)
    assert bootstrap(values.tolist(), np.mean, seed=0, draws=2000)[1] == interval
    assert bootstrap(values.tolist(), np.mean, seed=1, draws=2000)[1] != interval


def test_rows_of_a_cluster_are_not_independent() -> None:
    # Five copies of each value: five times the rows, and not a bit more knowledge.
    values = np.random.default_rng(2).normal(size=100).tolist()
    _, once = bootstrap([[value] for value in values], mean_of_rows, seed=3, draws=1000)
    _, copies = bootstrap([[value] * 5 for value in values], mean_of_rows, seed=3, draws=1000)
    assert copies == pytest.approx(once)
    rows = [[value] for value in values for _ in range(5)]
    _, naive = bootstrap(rows, mean_of_rows, seed=3, draws=1000)
    assert (naive.high - naive.low) < 0.55 * (once.high - once.low)


def test_the_statistic_is_computed_anew_on_each_draw() -> None:
    # A ratio of sums, whose interval differs from that of a mean of ratios.
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 20, 150)
    clusters = [rng.binomial(1, 0.3 + 0.02 * size, size).tolist() for size in sizes]
    value, interval = bootstrap(clusters, mean_of_rows, seed=0)
    keys = [number for number, cluster in enumerate(clusters) for _ in cluster]
    theirs = clustered_mean([row for cluster in clusters for row in cluster], keys)
    assert value == pytest.approx(theirs.value)
    assert interval == pytest.approx(theirs.interval, abs=0.01)


def test_bootstrap_of_clusters_covers_and_that_of_rows_does_not() -> None:
    # 60 clusters of 1 to 5 rows that share their cluster's level; the truth is 0. Over 1500
    # tables, the interval of clusters held it 94 times in 100, that of rows 77 times.
    def mean_of_sums(clusters: Sequence[tuple[float, int]]) -> float:
        sums, sizes = zip(*clusters, strict=True)
        return sum(sums) / sum(sizes)

    rng = np.random.default_rng(7)
    hits = naive_hits = 0
    for number in range(300):
        sizes = rng.integers(1, 6, 60)
        rows = np.repeat(rng.normal(size=60), sizes) + rng.normal(size=sizes.sum())
        sums = np.add.reduceat(rows, np.cumsum(sizes) - sizes).tolist()
        clusters = list(zip(sums, sizes.tolist(), strict=True))
        _, interval = bootstrap(clusters, mean_of_sums, seed=number, draws=200)
        hits += interval.low <= 0 <= interval.high
        naive = percentiles(resampled_ratios(rows, np.ones(rows.size), seed=number, draws=200))
        naive_hits += naive.low <= 0 <= naive.high
    assert 0.89 <= hits / 300 <= 0.98
    assert naive_hits / 300 < 0.85


@given(
    clusters=st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=4), min_size=2, max_size=12),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_the_interval_lies_within_what_was_seen(clusters: list[list[float]], seed: int) -> None:
    value, interval = bootstrap(clusters, mean_of_rows, seed=seed, draws=50)
    means = [mean_of_rows([cluster]) for cluster in clusters]
    assert interval.low <= interval.high
    assert min(means) - 1e-9 <= interval.low
    assert interval.high <= max(means) + 1e-9
    assert min(means) - 1e-9 <= value <= max(means) + 1e-9


def test_draws_without_a_value_widen_the_interval() -> None:
    values = [float(number) for number in range(10)]

    def at_times(found: Sequence[float], missing: float) -> float | None:
        return (
            None
            if sum(found) % 1 != 0 or hash(tuple(found)) % 1000 < 1000 * missing
            else (sum(found) / len(found))
        )

    _, full = bootstrap(values, np.mean, seed=0, draws=4000)
    value, some = bootstrap(values, lambda found: at_times(found, 0.04), seed=0, draws=4000)
    assert value == 4.5
    assert some.low < full.low < full.high < some.high
    # 10 % without a value: more than the 2.5 % of either tail.
    _, many = bootstrap(values, lambda found: at_times(found, 0.1), seed=0, draws=4000)
    assert many == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("clusters", "statistic", "message"),
    [
        ([1.0], np.mean, "at least 2 clusters"),
        ([1.0, 2.0], lambda found: None, "does not exist on all clusters"),
        ([1.0, 2.0], lambda found: math.nan, "nan on all clusters"),
        ([1.0, 2.0], lambda found: 1.0 if len(set(found)) == 2 else math.inf, "inf on draw"),
    ],
)
def test_bootstrap_of_clusters_refuses(clusters, statistic, message) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap(clusters, statistic, seed=0)
