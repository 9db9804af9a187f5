from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.tasks import Score, TaskItem, answer_of, score_sums

CHOICES = (("A", "no"), ("B", "three"), ("C", "ten"))
ONE = TaskItem("i", "?", "B", "d", "t", "mc1", CHOICES)
TWO = TaskItem("i", "?", "A B", "d", "t", "mc2", CHOICES)


def test_mc1_is_the_likeliest() -> None:
    assert score_sums([-3.0, -1.0, -2.0], ONE) == Score(True, True)
    assert score_sums([-3.0, -1.0, -0.5], ONE) == Score(False, True)
    assert answer_of([-3.0, -1.0, -0.5], ONE) == "C"


def test_mc2_is_the_mass_of_the_true_choices() -> None:
    sums = [math.log(0.1), math.log(0.2), math.log(0.1)]
    found = score_sums(sums, TWO)
    assert (found.correct, found.readable) == (True, True)
    assert found.share == pytest.approx(0.75)
    assert score_sums(sums, ONE).share == 1.0
    assert answer_of(sums, TWO) == "0.750000"
    assert answer_of([value - 5000 for value in sums], TWO) == "0.750000"
    assert not score_sums([math.log(0.1), math.log(0.1), math.log(0.2)], TWO).correct


@pytest.mark.parametrize("item", [ONE, TWO])
@pytest.mark.parametrize(
    ("sums", "reason"),
    [
        ([-1.0, -1.0, -1.0], "tie"),
        ([-1.0, None, -2.0], "no likelihood"),
        ([-1.0, math.nan, -2.0], "not finite"),
        ([-1.0, -math.inf, -2.0], "not finite"),
    ],
)
def test_a_broken_model_is_never_right(item: TaskItem, sums: list, reason: str) -> None:
    assert score_sums(sums, item) == Score(False, False, reason)
    assert score_sums(sums, item).share == 0
    assert answer_of(sums, item) == ""


def test_a_tie_at_the_top_is_not_right() -> None:
    assert score_sums([-1.0, -1.0, -2.0], ONE) == Score(False, False, "tie")
    with pytest.raises(ValueError, match="3 choices, got 2"):
        score_sums([-1.0, -2.0], ONE)


@given(st.permutations([-3.0, -2.0, -1.0]))
def test_the_order_of_choices_does_not_matter(sums: list[float]) -> None:
    turned = TaskItem("i", "?", "B", "d", "t", "mc1", CHOICES[::-1])
    assert score_sums(sums, ONE) == score_sums(sums[::-1], turned)
