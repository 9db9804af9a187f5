from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phalanx.statistics import clustered_mean, seeds_apart_from_items, stratified_mean


def test_every_value_by_itself_is_the_usual_error() -> None:
    values = [0.2, 1.4, 3.0, -1.0, 2.2]
    found = clustered_mean(values)
    error = np.std(values, ddof=1) / math.sqrt(5)
    assert found.error == pytest.approx(error)
    theirs = stats.t.interval(0.95, 4, loc=np.mean(values), scale=error)
    assert found.interval == pytest.approx(theirs)
    assert found.freedom == 4


def test_clustered_mean_by_hand() -> None:
    # Mean 2; sums of deviations -2, 0, +2; G = 3: error sqrt(3/2 * 8) / 5.
    found = clustered_mean([1, 1, 2, 3, 3], ["a", "a", "b", "c", "c"])
    assert found.value == 2
    assert found.error == pytest.approx(math.sqrt(12) / 5)
    assert found.freedom == 2


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=4, max_size=40).filter(
        lambda rows: len({key for key, _ in rows}) > 1
    )
)
@settings(deadline=None, max_examples=50)
def test_clustered_mean_agrees_with_statsmodels(rows: list[tuple[int, int]]) -> None:
    models = pytest.importorskip("statsmodels.regression.linear_model")
    keys, values = (np.array(column) for column in zip(*rows, strict=True))
    fit = models.OLS(values.astype(float), np.ones((len(rows), 1))).fit(
        cov_type="cluster", cov_kwds={"groups": keys}
    )
    found = clustered_mean(values.tolist(), keys.tolist())
    assert found.value == pytest.approx(fit.params[0], abs=1e-9)
    assert found.error == pytest.approx(fit.bse[0], abs=1e-7)


marks = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=9)


@given(st.lists(marks, min_size=1, max_size=4))
def test_strata_are_given_and_add_their_own_errors(parts):
    """Their means' errors are independent, and only spreads within them count."""
    row = {(h, n): value for h, part in enumerate(parts) for n, value in enumerate(part)}
    stratum = {item: item[0] for item in row}
    found = stratified_mean([row], stratum)
    errors = [np.std(part, ddof=1) / math.sqrt(len(part)) for part in parts]
    assert found.value == pytest.approx(np.mean([np.mean(part) for part in parts]))
    assert found.error == pytest.approx(math.hypot(*errors) / len(parts))
    twice = stratified_mean([row, row], stratum)  # the same question again is no other question
    assert twice.interval == pytest.approx(found.interval)
    if len(parts) == 1:
        assert found.interval == pytest.approx(clustered_mean(parts[0]).interval)


def test_strata_that_lie_apart_are_no_spread():
    row = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0, "e": 0.0}
    found = stratified_mean([row], {"a": 1, "b": 1, "c": 2, "d": 2, "e": 2})
    assert (found.value, found.error, found.freedom) == (0.5, 0.0, 3)
    assert stratified_mean([row], {**dict.fromkeys("abcd", 1), "e": 2}) is None
    assert stratified_mean([], {}) is None


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(marks, marks)
def test_two_strata_are_welch_s_test(one, two):
    if np.var(one) + np.var(two):
        row = dict(enumerate([*one, *two]))
        found = stratified_mean([row], {n: n < len(one) for n in row})
        theirs = stats.ttest_ind(one, [-value for value in two], equal_var=False)
        assert found.pvalue == pytest.approx(float(theirs.pvalue), abs=1e-9)
        assert found.freedom == pytest.approx(float(theirs.df))
        low, high = theirs.confidence_interval(0.95)
        assert found.interval == pytest.approx((low / 2, high / 2))


@pytest.mark.parametrize(
    ("values", "clusters", "message"),
    [
        ([], None, "empty"),
        ([1.0], None, "at least 2 clusters"),
        ([1.0, 2.0], ["a", "a"], "at least 2 clusters"),
        ([1.0, 2.0], ["a"], "2 values, but 1 cluster"),
        ([1.0, math.inf], None, "inf at place 1"),
    ],
)
def test_clustered_mean_refuses(values, clusters, message) -> None:
    with pytest.raises(ValueError, match=message):
        clustered_mean(values, clusters)


def test_seeds_and_items_by_hand() -> None:
    found = seeds_apart_from_items([[0, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    # Means of seeds 1/2, 3/4, 1: SD 1/4; of items 2/3, 1, 1, 1/3.
    assert found.value == pytest.approx(0.75)
    assert found.seed_deviation == pytest.approx(0.25)
    half = 4.302652729749464 * 0.25 / math.sqrt(3)  # Student's t, 2 degrees of freedom
    assert found.over_seeds == pytest.approx((0.75 - half, 0.75 + half))
    half = 3.182446305284263 * np.std([2 / 3, 1, 1, 1 / 3], ddof=1) / 2
    assert found.over_items == pytest.approx((0.75 - half, 0.75 + half))
    assert (found.seeds, found.items) == (3, 4)


def test_seeds_and_items_move_apart() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 1, 400)
    alike = seeds_apart_from_items([hard.tolist()] * 3)
    assert alike.over_seeds == pytest.approx((hard.mean(), hard.mean()))
    assert alike.over_items.high - alike.over_items.low > 0.15
    shifted = seeds_apart_from_items([(0 * hard + move).tolist() for move in (-1.0, 0.0, 1.0)])
    assert shifted.over_items == pytest.approx((0, 0))
    assert shifted.over_seeds.high > 2
    pairs = np.repeat(np.arange(200), 2).tolist()
    copies = seeds_apart_from_items([np.repeat(hard[:200], 2).tolist()] * 2, pairs)
    single = seeds_apart_from_items([hard[:200].tolist()] * 2)
    assert copies.over_items == pytest.approx(single.over_items)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 0.0]], "at least 2 rows"),
        ([[1.0, 0.0], [1.0]], "rows of \\[1, 2\\]"),
        ([[1.0], [0.0]], "at least 2 clusters"),
        ([[1.0, math.nan], [0.0, 1.0]], "nan at place 1"),
    ],
)
def test_seeds_and_items_refuse(scores, message) -> None:
    with pytest.raises(ValueError, match=message):
        seeds_apart_from_items(scores)


def test_p_is_that_of_a_t_test_and_none_without_a_spread() -> None:
    values = [0.2, 1.4, 3.0, -1.0, 2.2]
    assert clustered_mean(values).pvalue == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert clustered_mean([0.0, 0.0, 0.0]).pvalue == 1
    assert clustered_mean([0.1] * 3).pvalue is None  # sums of 0.1 are not quite alike
