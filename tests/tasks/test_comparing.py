"""Final answers are read and compared as tasks score them."""

from __future__ import annotations

import pytest

from phalanx.tasks import equivalence
from phalanx.tasks.comparing import reader_of, reading_of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.scoring import normalise


@pytest.mark.parametrize(
    ("match", "text", "answer"),
    [
        ("exact", "The answer is: Lima.", "lima"),
        ("exact", "  Two   words! ", "two words"),
        ("number", "3 and 4 make 7.", "7"),
        ("number", "<think>perhaps 9</think>It is 7.", "7"),
        ("number", "I do not know.", ""),
        ("choice", "So the answer is (C).", "C"),
        ("choice", "Nobody knows.", ""),
        ("math", "It is \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("exact", "", ""),
    ],
)
def test_an_answer_is_read(match, text, answer):
    read, _ = reader_of(match)
    assert read(text) == answer


def test_an_item_knows_its_options():
    item = TaskItem("i", "?", "B", "", "t", "choice", (("A", "one"), ("B", "two")))
    read, same = reading_of(item)
    for text in ("The answer is B.", "The answer is C."):
        assert read(text) == normalise(text, item)
    assert same("B", "B")
    assert not same("A", "B")


@pytest.mark.skipif(not equivalence.is_there(), reason="math-verify is not installed")
def test_expressions_are_equal_by_value():
    _, same = reader_of("math")
    assert same("\\frac{1}{2}", "0.5")
    assert not same("\\frac{1}{2}", "2")
    _, exactly = reader_of("exact")
    assert not exactly("\\frac{1}{2}", "0.5")
