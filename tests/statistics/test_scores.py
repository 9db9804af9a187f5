"""Intervals of scores, against brute force over the tests that they invert, and by coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from phalanx.statistics import wilson
from phalanx.statistics.scores import difference_interval, mean_of_parts, score_interval, tango


def score_of(gained, lost, n, difference):
    """The score statistic, its nuisance parameter found by maximising the likelihood."""

    def unlikelihood(losses):
        stay = 1 - 2 * losses - difference
        terms = ((gained, losses + difference), (lost, losses), (n - gained - lost, stay))
        return -sum(count * math.log(max(p, 1e-300)) for count, p in terms if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    losses = optimize.minimize_scalar(
        unlikelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    variance = n * (2 * losses + difference * (1 - difference))
    return (gained - lost - n * difference) / math.sqrt(variance)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_tango_ends_where_the_score_test_does(gained, lost, more):
    n = gained + lost + more
    found = tango(gained, lost, n)
    assert found.low < (gained - lost) / n < found.high
    assert score_of(gained, lost, n, found.low) == pytest.approx(1.959964, abs=2e-3)
    assert score_of(gained, lost, n, found.high) == pytest.approx(-1.959964, abs=2e-3)
    assert tango(lost, gained, n) == pytest.approx((-found.high, -found.low))


def test_nothing_that_changed_is_not_certain():
    """With no change the ends have a closed form: z^2 / (n + z^2)."""
    z = 1.959963984540054
    assert difference_interval([0.0] * 6, 1) == pytest.approx([-z * z / (6 + z * z),
                                                               z * z / (6 + z * z)])  # fmt: skip
    alike = difference_interval([0.25] * 6, 1)
    assert alike.low < 0.25 < alike.high
    assert tango(5, 0, 5).high == 1.0
    assert tango(5, 0, 5).low < 0.6


@pytest.mark.parametrize(("chances", "n"), [((0.1, 0.1), 20), ((0.3, 0.1), 30), ((0.02, 0.0), 40)])
def test_tango_holds_the_truth(chances, n):
    rng = np.random.default_rng(3)
    up, down = chances
    counts = rng.multinomial(n, [up, down, 1 - up - down], size=1500)
    spans = [tango(int(gained), int(lost), n) for gained, lost, _ in counts]
    held = np.mean([one.low <= up - down <= one.high for one in spans])
    assert held > 0.93


def test_counts_that_are_no_parts_are_refused():
    for gained, lost, n in ((-1, 0, 3), (2, 2, 3), (0, 0, 0)):
        with pytest.raises(ValueError, match="must be parts of n"):
            tango(gained, lost, n)


def test_one_part_is_its_own_interval():
    scores = [1.0, 0.0, 0.0]
    value, interval = mean_of_parts({"a": scores}, score_interval, 1)
    assert value == pytest.approx(1 / 3)
    assert interval == pytest.approx(wilson(1, 3))


def test_a_mean_of_zeros_is_as_wide_as_independent_parts_make_it():
    value, interval = mean_of_parts({"a": [0.0] * 6, "b": [0.0] * 6}, score_interval, 1)
    assert value == interval.low == 0.0
    assert interval.high == pytest.approx(wilson(0, 6).high / math.sqrt(2))
    with pytest.raises(ValueError, match="no part"):
        mean_of_parts({}, score_interval, 1)


def test_a_mean_of_parts_holds_the_truth():
    rng = np.random.default_rng(5)
    held = []
    for _ in range(600):
        parts = {str(p): rng.binomial(1, p, 15).astype(float).tolist() for p in (0.05, 0.4, 0.9)}
        interval = mean_of_parts(parts, score_interval, 1)[1]
        held.append(interval.low <= (0.05 + 0.4 + 0.9) / 3 <= interval.high)
    assert np.mean(held) > 0.93
