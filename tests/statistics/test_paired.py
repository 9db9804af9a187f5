"""Paired tests of an item's scores, and the differences that they could have found."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import minimum_detectable, sign_flip_test
from phalanx.statistics.paired import (
    detectable,
    detectable_mean,
    found_with,
    least_pvalue,
    mean_test,
    paired_test,
)

marks = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


@given(marks)
@settings(deadline=None, max_examples=60)
def test_right_and_wrong_is_exact_mcnemar_as_statsmodels_has_it(pairs):
    contingency = pytest.importorskip("statsmodels.stats.contingency_tables")
    before, after = zip(*pairs, strict=True)
    table = np.zeros((2, 2), dtype=int)
    for one, two in pairs:
        table[one, two] += 1
    found = paired_test(before, after, seed=0)
    theirs = contingency.mcnemar(table, exact=True).pvalue if table[0, 1] + table[1, 0] else 1.0
    assert found.exact
    assert found.pvalue == pytest.approx(min(1.0, theirs), abs=1e-9)
    assert (found.n, found.gained, found.lost) == (len(pairs), table[0, 1], table[1, 0])


def test_one_share_among_the_scores_flips_signs():
    before, after = [0.0, 0.0, 0.5, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.25]
    found = paired_test(before, after, seed=0)
    assert not found.exact
    assert (found.gained, found.lost) == (4, 0)
    # All of 2^4 patterns: only "all up" and "all down" are as far from 0.
    assert found.pvalue == 2 / 16
    assert found.pvalue == sign_flip_test([1, 1, 0.5, 0, 0.25], seed=9)


def test_what_could_be_found_is_that_of_the_items_that_differ():
    before, after = [0] * 200, [1] * 24 + [0] * 176
    after[30:32], before[30:32] = [0, 0], [1, 1]  # 24 gained, 2 lost
    assert detectable(before, after) == minimum_detectable(200, 26 / 200)
    strict = detectable(before, after, family=5)
    assert strict == minimum_detectable(200, 26 / 200, confidence=0.99)
    assert strict > detectable(before, after)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_no_p_is_below_that_of_differences_which_all_go_one_way(n):
    assert least_pvalue(n) == paired_test([0] * (n + 3), [1] * n + [0] * 3, seed=0).pvalue


def test_nothing_to_find_where_nothing_or_too_little_differs():
    assert detectable([0, 1, 1], [0, 1, 1]) is None
    assert detectable([0] * 50, [1] * 3 + [0] * 47) is None
    assert detectable([0.5], [0.7]) is None
    assert detectable([0.5] * 9, [0.6] * 9) is None, "no spread, so no error to go by"
    few, some = [0.2, 0.3, 0.1, 0.4, 0.2], [0.2, 0.3, 0.1, 0.4, 0.2, 0.1]
    assert detectable([0.5] * 5, [0.5 + d for d in few]) is None, "2 / 2^5 is above .05"
    assert detectable([0.5] * 6, [0.5 + d for d in some]) > 0
    assert detectable([0.5] * 6, [0.5 + d for d in some], family=2) is None
    assert detectable_mean([some, [0.0]]) is None


def test_tasks_weigh_the_same_in_the_test_of_their_mean():
    # Four items of a small task outweigh twelve of a large one: all 2^5 patterns by hand.
    small, large = [1.0, 1.0, 1.0, 1.0], [-1.0] + [0.0] * 11
    sums = [abs(sum(signs[:4]) / 4 - signs[4] / 12) for signs in product((1, -1), repeat=5)]
    seen = abs(4 / 4 - 1 / 12)
    expected = sum(total >= seen - 1e-12 for total in sums) / 32
    assert mean_test([small, large], seed=0) == expected == 4 / 32


def test_what_a_mean_of_two_tasks_could_show_by_hand():
    one, two = [0.5, -0.5] * 20, [0.1, -0.3] * 10
    error = math.sqrt(0.25 * 40 / 39 / 40 + 0.04 * 20 / 19 / 20) / 2
    assert detectable_mean([one, two]) == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)


def test_everything_may_differ():
    assert 0 < detectable([0, 1] * 40, [1, 0] * 40) < 1


def test_shares_are_found_with_about_80_percent_chance():
    """The promise itself: shift the differences by what is said to be detectable."""
    rng = np.random.default_rng(5)
    before = rng.uniform(0.3, 0.7, 150)
    noise = rng.normal(0, 0.1, 150)
    found = detectable(before.tolist(), (before + noise).tolist())
    expected = (1.959964 + 0.841621) * noise.std(ddof=1) / math.sqrt(150)
    assert found == pytest.approx(expected, rel=1e-5)
    hits = 0
    for draw in range(100):
        moved = rng.choice(noise - noise.mean(), 150) + found
        hits += sign_flip_test(moved.tolist(), seed=draw, draws=400) < 0.05
    assert 65 <= hits <= 93


def test_what_a_test_with_a_known_error_finds_falls_with_the_family():
    one, five = found_with(0.1), found_with(0.1, family=5)
    assert one == pytest.approx((1.959964 + 0.841621) * 0.1, abs=1e-5)
    assert five == pytest.approx((2.575829 + 0.841621) * 0.1, abs=1e-5)
    assert (found_with(0.0), found_with(0.5)) == (None, None)
