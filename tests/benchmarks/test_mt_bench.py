"""Ratings read strictly, means by turn and category, and pairs in both orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

from phalanx.benchmarks.mt_bench import (
    NEEDS_REFERENCE,
    TEMPERATURES,
    RatedTurn,
    adjusted_win_rate,
    both_orders,
    mt_bench,
    read_rating,
)
from phalanx.errors import ConfigError


@pytest.mark.parametrize(("text", "value"), [
    ("Good.\nRating: [[8]]", 8), ("[[10]]", 10), ("[[1]]", 1), ("[[7.5]]", 7.5),
    ("Rating: [[6]]. I stay with [[6]].", 6), ("[[8]] and [[8.0]]", 8),
])  # fmt: skip
def test_ratings_that_are_read(text, value):
    assert read_rating(text).value == value


@pytest.mark.parametrize(("text", "reason"), [
    ("", "no rating"), ("Rating: 8", "no rating"), ("[8]", "no rating"), ("8/10", "no rating"),
    ("[[8/10]]", "not a number: [[8/10]]"), ("[[8, 9]]", "not a number: [[8, 9]]"),
    ("[[rating]]", "not a number: [[rating]]"), ("[[ 8 ]]", "not a number: [[ 8 ]]"),
    ("[[-8]]", "not a number: [[-8]]"), ("[[８]]", "not a number: [[８]]"),
    ("[[8]] or [[9]]", "several ratings: 8, 9"), ("[[0]]", "out of scale: 0"),
    ("[[11]]", "out of scale: 11"), ("[[0.5]]", "out of scale: 0.5"),
    ("[[5]] as in [[rating]]", "not a number: [[rating]]"), ("[[]]", "not a number: [[]]"),
])  # fmt: skip
def test_ratings_that_are_not(text, reason):
    found = read_rating(text)
    assert (found.value, found.reason) == (None, reason)


def rows():
    return [
        RatedTurn("81", "writing", 1, 9.0), RatedTurn("81", "writing", 2, 7.0),
        RatedTurn("111", "math", 1, 4.0), RatedTurn("111", "math", 2, None),
        RatedTurn("121", "coding", 1, None),
    ]  # fmt: skip


def test_means():
    found = mt_bench(rows(), seed=0, draws=50)
    assert found.score == pytest.approx(20 / 3)  # over ratings, not over categories
    assert found.by_turn == {1: 6.5, 2: 7.0}
    assert found.by_category == {"writing": 8.0, "math": 4.0, "coding": None}
    assert (found.num_questions, found.num_rated, found.num_missing) == (3, 3, 2)
    assert 4 <= found.interval.low <= found.score <= found.interval.high <= 9


def test_the_interval_is_over_questions():
    """Second turns that repeat the first add nothing."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 11, size=300).astype(float)
    turns = [RatedTurn(str(i), "math", turn, v) for i, v in enumerate(values) for turn in (1, 2)]
    found = mt_bench(turns, seed=1, draws=800)
    assert found.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(300), rel=0.1)
    assert mt_bench(turns, seed=1, draws=800) == found


def test_faulty_ratings_are_all_listed():
    faulty = [
        RatedTurn("a", "math", 3, 5.0), RatedTurn("b", "math", 1, 11.0),
        RatedTurn("c", "math", 1, math.nan), RatedTurn("d", "math", 1, 5.0),
        RatedTurn("d", "math", 1, 6.0),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        mt_bench(faulty, seed=0)
    assert len(caught.value.faults) == 4
    with pytest.raises(ConfigError, match="none of 1 turns has a rating"):
        mt_bench([RatedTurn("a", "math", 1, None)], seed=0)


def test_pairs_in_both_orders():
    assert both_orders("first", "first") == "first"
    assert both_orders("first", "second") == both_orders("tie", "second") == "tie"
    assert adjusted_win_rate(["first", "tie", "second", "first"]) == 0.625
    with pytest.raises(ConfigError, match=r"got \['error'\]"):
        adjusted_win_rate(["first", "error"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="none at all"):
        adjusted_win_rate([])


def test_every_category_has_a_temperature():
    assert len(TEMPERATURES) == 8
    assert set(NEEDS_REFERENCE) < set(TEMPERATURES)
