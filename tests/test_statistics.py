from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from phalanx.statistics import (
    holm,
    mcnemar_exact,
    minimum_detectable,
    paired_bootstrap,
    wilson,
)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (3, 40), (30, 100), (199, 200)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(k: int, n: int, confidence: float) -> None:
    theirs = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_by_hand() -> None:
    # n = 4, k = 2: centre 1/2, half-width z / (2 sqrt(n + z^2)).
    z = 1.959963984540054
    half = z / (2 * math.sqrt(4 + z * z))
    assert wilson(2, 4) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-12)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson(k, n)


def test_mcnemar_by_hand() -> None:
    # 1 against 5: 2 * (C(6,0) + C(6,1)) / 64 = 14 / 64.
    assert mcnemar_exact(1, 5) == pytest.approx(14 / 64)
    assert mcnemar_exact(5, 1) == mcnemar_exact(1, 5)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(4, 4) == 1.0
    assert mcnemar_exact(0, 10) == pytest.approx(2 / 1024)


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


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, 0.03, 0.005, 0.04]) == pytest.approx([0.06, 0.06, 0.02, 0.06])
    assert holm([0.9, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, math.nan])


@pytest.mark.parametrize(
    ("n", "discordant", "points"),
    [(100, 0.1, 8.8), (100, 0.2, 12.8), (200, 0.05, 4.4), (200, 0.2, 9.1), (1000, 0.2, 4.0)],
)
def test_minimum_detectable_published_table(n: int, discordant: float, points: float) -> None:
    found = minimum_detectable(n, discordant)
    assert found is not None
    assert 100 * found == pytest.approx(points, abs=0.06)


def test_minimum_detectable_by_simulation() -> None:
    rng = np.random.default_rng(5)
    difference = minimum_detectable(150, 0.3)
    assert difference is not None
    better = (difference / 0.3 + 1) / 2
    changed = rng.binomial(150, 0.3, size=4000)
    gained = rng.binomial(changed, better)
    p_value = cache(mcnemar_exact)
    found = [p_value(int(m - g), int(g)) < 0.05 for m, g in zip(changed, gained, strict=True)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.025)


def test_minimum_detectable_says_when_nothing_can_be_found() -> None:
    assert minimum_detectable(10, 0.2) is None
    assert minimum_detectable(100, 0.05) is None
