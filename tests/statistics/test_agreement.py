from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import bootstrap, cohen_kappa, effective_judges, krippendorff_alpha

LABELS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=40
)


def test_kappa_by_hand() -> None:
    # 6 of 8 equal; chance (4 * 4 + 4 * 4) / 64 = 1/2: (3/4 - 1/2) / (1/2).
    assert cohen_kappa("aaaabbbb", "aaabbbba") == pytest.approx(0.5)
    assert cohen_kappa("aabb", "bbaa") == -1
    assert cohen_kappa("aaa", "aaa") is None
    assert cohen_kappa("aaa", "bbb") == 0


@given(LABELS)
@settings(deadline=None, max_examples=50)
def test_kappa_agrees_with_statsmodels(pairs: list[tuple[str, str]]) -> None:
    rater = pytest.importorskip("statsmodels.stats.inter_rater")
    first, second = zip(*pairs, strict=True)
    ours = cohen_kappa(first, second)
    if len({*first, *second}) == 1:
        assert ours is None
        return
    table = np.array([[sum(pair == (x, y) for pair in pairs) for y in "abc"] for x in "abc"])
    assert ours == pytest.approx(rater.cohens_kappa(table, return_results=False), abs=1e-9)
    assert ours == cohen_kappa(second, first)


def test_kappa_of_resampled_items() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    noisy = np.where(rng.random(300) < 0.2, 1 - truth, truth)
    pairs = list(zip(truth.tolist(), noisy.tolist(), strict=True))
    value, interval = bootstrap(
        pairs, lambda rows: cohen_kappa(*zip(*rows, strict=True)), seed=0, draws=500
    )
    assert interval.low < value < interval.high
    # 20 % flips of a fair coin: kappa 1 - 2 * 0.2, SE about 2 sqrt(0.2 * 0.8 / 300).
    assert interval.high - interval.low == pytest.approx(4 * 1.96 * math.sqrt(0.16 / 300), rel=0.15)


@pytest.mark.parametrize(("first", "second"), [("ab", "a"), ("", "")])
def test_kappa_refuses(first: str, second: str) -> None:
    with pytest.raises(ValueError, match="item"):
        cohen_kappa(first, second)


def test_alpha_by_hand() -> None:
    # Two raters, items (1,1) (1,2) (2,2) (3,3) and one with a single rating.
    ratings = [[1, 1, 2, 3, None], [1, 2, 2, 3, 4]]
    # Values 1 x3, 2 x3, 3 x2. Nominal: observed 2 ordered pairs; expected (64 - 22) / 7 = 6.
    assert krippendorff_alpha(ratings) == pytest.approx(1 - 2 / 6)
    # Interval: observed 2 * 1; expected 2 * (9 * 1 + 6 * 4 + 6 * 1) / 7 = 78 / 7.
    assert krippendorff_alpha(ratings, "interval") == pytest.approx(1 - 2 / (78 / 7))
    # Ordinal: distances 1-2: 3, 2-3: 2.5, 1-3: 5.5; observed 2 * 9.
    expected = 2 * (9 * 9 + 6 * 2.5**2 + 6 * 5.5**2) / 7
    assert krippendorff_alpha(ratings, "ordinal") == pytest.approx(1 - 18 / expected)


def by_definition(ratings, level: str) -> Fraction:
    """From all ordered pairs of pairable values, with the published ordinal metric."""
    units = [[v for v in column if v is not None] for column in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    values = [v for unit in units for v in unit]

    def distance(x: int, y: int) -> Fraction:
        if level == "nominal":
            return Fraction(x != y)
        if level == "interval":
            return Fraction((x - y) ** 2)
        low, high = sorted((x, y))
        between = sum(low <= v <= high for v in values)
        return (between - Fraction(values.count(x) + values.count(y), 2)) ** 2 * (x != y)

    observed = sum(
        distance(x, y) / (len(unit) - 1)
        for unit in units
        for i, x in enumerate(unit)
        for j, y in enumerate(unit)
        if i != j
    )
    expected = sum(distance(x, y) for x in values for y in values) / (len(values) - 1)
    return 1 - observed / expected


TABLES = st.integers(2, 4).flatmap(
    lambda items: st.lists(
        st.lists(st.one_of(st.none(), st.integers(-2, 3)), min_size=items, max_size=items),
        min_size=2,
        max_size=5,
    )
)


@given(table=TABLES, level=st.sampled_from(["nominal", "ordinal", "interval"]))
@settings(deadline=None, max_examples=50)
def test_alpha_agrees_with_its_definition_and_its_package(table, level) -> None:
    package = pytest.importorskip("krippendorff")
    columns = [[v for v in column if v is not None] for column in zip(*table, strict=True)]
    values = [v for column in columns if len(column) > 1 for v in column]
    if not values:
        with pytest.raises(ValueError, match="no item has two ratings"):
            krippendorff_alpha(table, level)
        return
    ours = krippendorff_alpha(table, level)
    if len(set(values)) == 1:
        assert ours is None
        return
    assert ours == pytest.approx(float(by_definition(table, level)), abs=1e-9)
    numbers = np.array([[np.nan if v is None else v for v in row] for row in table], dtype=float)
    theirs = package.alpha(reliability_data=numbers, level_of_measurement=level)
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_alpha_of_labels_and_of_equal_numbers() -> None:
    assert krippendorff_alpha(["aabb", "aabb"]) == 1
    assert krippendorff_alpha([["a", None], ["a", "b"]]) is None
    assert krippendorff_alpha([[0.1, 0.1], [0.1, 0.1], [0.1, 0.1]], "interval") is None
    with pytest.raises(ValueError, match="finite numbers, got 'a'"):
        krippendorff_alpha(["ab", "ab"], "ordinal")
    with pytest.raises(ValueError, match="got nan"):
        krippendorff_alpha([[1.0, math.nan], [1.0, 2.0]], "interval")
    with pytest.raises(ValueError, match="rows of \\[1, 2\\]"):
        krippendorff_alpha(["ab", "a"])
    with pytest.raises(ValueError, match="level must be"):
        krippendorff_alpha(["ab", "ab"], "ratio")


def test_copies_of_a_judge_are_one_judge() -> None:
    errors = [0, 1, 1, 0, 0, 1, 0, 0]
    worth = effective_judges([errors] * 5)
    assert worth.correlation == pytest.approx(1)
    assert worth.effective == pytest.approx(1)
    assert worth.participation == pytest.approx(1)


def test_unrelated_judges_count_fully() -> None:
    rng = np.random.default_rng(0)
    worth = effective_judges(rng.binomial(1, 0.3, size=(6, 20_000)).tolist())
    assert worth.effective == pytest.approx(6, rel=0.03)
    assert worth.participation == pytest.approx(6, rel=0.03)


def test_worth_by_hand() -> None:
    # Two judges, errors 1100 and 1010: unrelated. The third repeats the first: r = 0, 1, 0.
    worth = effective_judges([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]])
    assert worth.correlation == pytest.approx(1 / 3)
    assert worth.effective == pytest.approx(3 / (1 + 2 / 3))
    assert worth.participation == pytest.approx(9 / 5)  # eigenvalues 2, 1, 0
    assert worth.participation == pytest.approx(9 / sum(x * x for x in (2, 1, 0)))


def test_the_effective_number_says_how_the_mean_verdict_varies() -> None:
    # Judges that share half of their variance: the mean of 9 varies like that of 9 / (1 + 8 / 2).
    rng = np.random.default_rng(1)
    errors = rng.normal(size=(9, 30_000)) + rng.normal(size=30_000)
    worth = effective_judges(errors.tolist())
    assert worth.effective == pytest.approx(9 / 5, rel=0.02)
    assert errors.mean(axis=0).var() == pytest.approx(errors.var() / worth.effective, rel=0.02)


def test_errors_that_cancel_are_worth_no_more_than_their_number() -> None:
    worth = effective_judges([[1.0, -1.0, 2.0, -2.0], [-1.0, 1.0, -2.0, 2.0]])
    assert worth.effective == 2
    assert worth.correlation == pytest.approx(-1)
    assert worth.participation == pytest.approx(1)


def test_judges_without_a_change_and_items_without_a_judgment() -> None:
    worth = effective_judges([[0, 0, 0, 0, 0], [1, 0, 1, 0, None], [0, 0, 1, 1, 1]])
    assert worth.constant == (0,)
    assert (worth.judges, worth.items) == (2, 4)
    assert worth.effective == pytest.approx(2)
    none = effective_judges([[0.1, 0.1, 0.1], [0.0, 1.0, 0.0]])
    assert none.constant == (0,)
    assert none.effective is None
    assert none.participation is None


@given(
    st.integers(2, 6).flatmap(
        lambda items: st.lists(
            st.lists(st.integers(0, 1), min_size=items, max_size=items), min_size=2, max_size=6
        )
    )
)
@settings(deadline=None, max_examples=50)
def test_bounds_of_the_worth(errors: list[list[int]]) -> None:
    worth = effective_judges(errors)
    assert worth.judges + len(worth.constant) == len(errors)
    if worth.judges < 2:
        assert worth.effective is None
        return
    assert 1 - 1e-9 <= worth.effective <= worth.judges
    assert 1 - 1e-9 <= worth.participation <= worth.judges + 1e-9


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ([[1, 0]], "at least 2 judges"),
        ([[1, 0], [1]], "rows of \\[1, 2\\]"),
        ([[1, None], [1, 0]], "1 items were judged by all"),
        ([[1, math.nan], [1, 0]], "NaN"),
    ],
)
def test_worth_refuses(errors, message) -> None:
    with pytest.raises(ValueError, match=message):
        effective_judges(errors)
