from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.tasks import Score, TaskItem, normalise, score


def item(answer: str, match: str) -> TaskItem:
    return TaskItem("i", "?", answer, "d", "t", match)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Paris", "paris"),
        ("  PARIS.\n", "Paris"),
        ("Answer: Paris", "Paris"),
        ("**Answer:** Paris.", "Paris"),
        ("The answer is Paris!", "Paris"),
        ("final answer : 'Paris'", "Paris"),
        ("new   york", "New York"),
        ("-5", "-5"),
        ("Ｐａｒｉｓ", "Paris"),
        ("answers", "answers"),
    ],
)
def test_exact(text: str, answer: str) -> None:
    assert score(text, item(answer, "exact")) == Score(True, True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("5", "-5"), ("Paris, France", "Paris"), ("Answer: answer: x", "x"), ("newyork", "new york")],
)
def test_exact_is_not_lenient(text: str, answer: str) -> None:
    assert score(text, item(answer, "exact")) == Score(False, True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("It is 1,234,567.", "1234567"),
        ("First 3, then 4, so 7.", "7"),
        ("cost: $1,200.50", "1200.5"),
        ("-5", "-5"),
        ("minus sign −5", "-5"),
        ("10-5", "5"),
        ("between 10-20", "20"),
        ("0.50", "0.5"),
        (".5", "0.5"),
        ("1/2", "0.5"),
        ("1/3", "1/3"),
        ("2e3", "2000"),
        (r"It is $2 \times 10^{3}$ m.", "2000"),
        ("5^2 = 25", "25"),
        ("I had 7, and 2^3 + 1 more", "7"),
        ("3.", "3"),
        ("lists 1,2", "2"),
        ("007", "7"),
        (r"so \boxed{12}. Check: 3 * 4", "12"),
        (r"\boxed{1} no: \boxed{\frac{3}{4}}", "0.75"),
        (r"\boxed{1{,}234}", "1234"),
        (r"I had 7, so \boxed{12", ""),
        ("6 * 7 = 42\n#### 42 apples, 3 left", "42"),
        ("#### 42 ####", "42"),
        ("##### 42\n\nI used 3.", "42"),
        ("The answer is 12. That took 3 steps.", "12"),
        ("answer: 5 + 3 = 8\n\nStep 2 is skipped", "8"),
        ("The answer is not known, but 9 fits", "9"),
        ("x2 and abc", ""),
        ("forty-two", ""),
        ("1/0", ""),
        ("9" * 5000, ""),
        ("1e999999999", ""),
        ("", ""),
    ],
)
def test_read_number(text: str, number: str) -> None:
    assert normalise(text, item("0", "number")) == number


@given(st.fractions(max_denominator=1000), st.integers(0, 3))
def test_numbers_keep_their_value(value: Fraction, spaces: int) -> None:
    found = normalise(f"so{' ' * (spaces + 1)}{value}", item("0", "number"))
    assert Fraction(found) == value


@given(st.integers(-(10**12), 10**12))
def test_thousands_separators(value: int) -> None:
    assert score(f"It is {value:,}.", item(str(value), "number")).correct


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        (" (c). ", "C"),
        ("**D**", "D"),
        ("Answer: A", "A"),
        ("The answer is (B).", "B"),
        ("The correct answer is option C because A is wrong.", "C"),
        ("At first the answer is A. No: the answer is B.", "B"),
        ("I would choose D.", "D"),
        ("So (C) is correct.", "C"),
        ("B) fever", "B"),
        ("(B) fever", "B"),
        ("C. It is the largest.", "C"),
        ("Let us think.\nB", "B"),
        (r"Thus \boxed{\text{E}}", "E"),
        ("A 45-year-old man has a fever.", ""),
        ("The answer is A 45-year-old man", ""),
        ("the answer is a man", ""),
        ("A) one\nB) two", ""),
        ("It is a disease.", ""),
        ("Answer: Anaemia", ""),
        (r"\boxed{42}", ""),
        ("The answer is not A", ""),
    ],
)
def test_read_choice(text: str, letter: str) -> None:
    assert normalise(text, item("A", "choice")) == letter


@pytest.mark.parametrize(
    ("text", "match", "answer", "found"),
    [
        ("<think>The answer is 3.</think>\nThe answer is 4.", "number", "4", "4"),
        ("Is the answer 3?\n</think>\n4", "exact", "4", "4"),
        ("<think>So A. The answer is A", "choice", "A", ""),
        ("<think>4</think>", "number", "4", ""),
        ("The <think> tag: the answer is 4", "number", "4", "4"),
    ],
)
def test_reasoning_is_no_answer(text: str, match: str, answer: str, found: str) -> None:
    assert normalise(text, item(answer, match)) == found
    reason = "" if found else "empty"
    assert score(text, item(answer, match)) == Score(bool(found), bool(found), reason)


def test_contains_wants_whole_words() -> None:
    assert score("I think it is a Cat, really.", item("cat", "contains")).correct
    assert not score("concatenate", item("cat", "contains")).correct
    assert score("C++ it is", item("c++", "contains")).correct


@pytest.mark.parametrize(
    ("text", "match", "reason"),
    [
        ("", "exact", "empty"),
        (" \n", "number", "empty"),
        ("?!", "exact", "no words"),
        ("...", "contains", "no words"),
        ("no idea", "number", "no number"),
        ("no idea", "choice", "no choice"),
    ],
)
def test_unreadable_is_wrong_and_named(text: str, match: str, reason: str) -> None:
    answer = {"number": "1", "choice": "A"}.get(match, "x")
    assert score(text, item(answer, match)) == Score(False, False, reason)


@given(st.text(max_size=80), st.sampled_from(["exact", "number", "choice", "contains"]))
def test_any_text_can_be_scored(text: str, match: str) -> None:
    answer = {"number": "1", "choice": "A"}.get(match, "x")
    result = score(text, item(answer, match))
    assert result.readable or not result.correct
    assert bool(result.reason) != result.readable


@given(st.text(max_size=40))
def test_an_answer_matches_itself(text: str) -> None:
    for match in ("exact", "contains", "number", "choice"):
        if normalise(text, item(text, match)):
            assert score(text, item(text, match)).correct
