"""Readers of scores and verdicts: tables, and properties that hold for any text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.collective.reading import combine_orders, read_score, read_verdict

TEN = (1, 10)

SCORES = [
    # the number alone
    ("8", 8),
    ("8.5", 8.5),
    ("**9**", 9),
    ('"6"', 6),
    ("```\n7\n```", 7),
    ("6/10", 6),
    ("Five out of ten.", 5),
    ("Two stars!", 2),
    # labels
    ("Score (1-10): 8", 8),
    ("**Score:** 8", 8),
    ("**Score**: 8/10", 8),
    ("Score:\n\n**8**", 8),
    ("| Score | 8 |", 8),
    ('Score: "8"', 8),
    ("Score - 4", 4),
    ("Score = 4", 4),
    ("My rating is 3.", 3),
    ("Score: \\boxed{8}", 8),
    ("Score: nine out of ten", 9),
    ("Score: six and a half", 6.5),
    ("Nota: 7,5", 7.5),
    ("评分：９", 9),
    ("评分：6分（满分10分）", 6),
    ("Score: ٨", 8),
    ("Score: 3 (short)/10", 3),
    ("Score: 3 (out of 10)", 3),
    # a raised footnote number is no second digit
    ("Score: 1⁰", 1),
    # sentences
    ("I would rate this reply a six.", 6),
    ("I'd give it 4 / 10.", 4),
    ("I would give it an 8 because it is clear.", 8),
    ("On a scale of 1 to 10, I would rate this response a 7.", 7),
    ("The answer deserves a 7.", 7),
    ("Good work. 8/10", 8),
    # the conclusion wins
    ("First I thought [[3]], then [[9]]", 9),
    ("Rating: [[8]]\nSee [[2]] above.", 8),
    ("Overall score: 7\nClarity score: 9", 7),
    ("Style: 2\nFacts: 9\nFinal score: 5", 5),
    ("Score: 8. A score of 10 would need proofs.", 8),
    ("A perfect score of 10 needs proofs. Score: 6", 6),
    ("Score: 8 (score was 4 at first)", 8),
    ('Draft {"score": 4}. Thinking more.\nFinal: {"score": 8}', 8),
    # objects
    ('{"score": 8.9}', 8.9),
    ('{"score": 8,}', 8),
    ("{score: 8}", 8),
    ("{'score': '8/10', 'why': 'ok'}", 8),
    ('{"SCORE": 8}', 8),
    ('{{"score": 8}}', 8),
    ('{"evaluation": {"score": 8}}', 8),
    ('{"reason": "It says \\"Score: 10\\"", "score": 3}', 3),
    ('{"score": 8}\n\n### Question: what?\n{"score": 3}', 8),
    ('{"score": 8, "reason": "the respon', 8),
    ('Score: 8\n\n{"score": <number>}', 8),
    # reasoning
    ("<think>4? <think> 5?</think> Score: 8", 8),
    ("<reasoning>Score: 2</reasoning>Score: 7", 7),
    ("4, no</think>Score: 7", 7),
    ("Score: 7\n<think>I am sure</think>", 7),
]

UNREADABLE = [
    ("", "empty"),
    (" \n", "empty"),
    ("A fine answer, excellent throughout.", "no score"),
    ("Final score: I would rather not give one.", "no score"),
    ("I would not rate this a seven.", "no score"),
    ("I would give it a 9 if it had proofs.", "no score"),
    ("The response gives 3 examples.", "no score"),
    ("It gets 8/10 facts right.", "no score"),
    ("The maximum score is 10.", "no score"),
    ("Score: 8th", "no score"),
    ("Score: 8.5.2", "no score"),
    ("Grade: B", "no score"),
    ("Score: 1 = poor, 10 = excellent", "no score"),
    ('Reply with {"score": <number>}.', "no score"),
    ("Score: N/A", "not given"),
    ("Score: 0.8", "out of scale: 0.8"),
    ("Score: 11", "out of scale: 11"),
    ("Score: -3", "out of scale: -3"),
    ("Score: 7-8", "range"),
    ("Score: 7 or 8", "range"),
    ("Score: 1,000", "ambiguous"),
    ("4/5", "denominator 5 is not 10"),
    ("Score: 4 (out of 5)", "denominator 5 is not 10"),
    ("评分：4（满分5分）", "denominator 5 is not 10"),
    ("Score: 80%", "denominator 100 is not 10"),
    ("Clarity score: 9\nDepth score: 3", "several scores"),
    ('{"clarity": {"score": 3}, "depth": {"score": 9}}', "no score"),
    ('{"score": 1', "truncated"),
    ('{"score": null}', "null"),
    ('{"score": []}', "list"),
    ('{"score": "good"}', "not a number"),
    ('{"score": -Infinity}', "not a number"),
    ('{"score": 1e999}', "not finite"),
    ("<think>a 6 or 7", "truncated reasoning"),
    ("Score: 3 <think>or", "truncated reasoning"),
    ("<think>Score: 9</think>", "nothing after the reasoning"),
]


@pytest.mark.parametrize(("text", "expected"), SCORES)
def test_a_stated_score_is_read(text: str, expected: float) -> None:
    reading = read_score(text, *TEN)
    assert (reading.value, reading.reason) == (expected, "")


@pytest.mark.parametrize(("text", "reason"), UNREADABLE)
def test_fault_1_what_cannot_be_read_is_missing_with_a_reason(text: str, reason: str) -> None:
    reading = read_score(text, *TEN)
    assert reading.value is None
    assert reason in reading.reason


def test_fault_4_bare_numbers_strings_zero_booleans_and_decimals() -> None:
    assert read_score("8", *TEN).value == 8
    assert read_score('{"score": "8"}', *TEN).value == 8
    assert read_score('{"score": 8.9}', *TEN).value == 8.9
    assert read_score('{"score": 0}', *TEN).reason == "out of scale: 0"
    assert read_score('{"score": 0}', 0, 10).value == 0
    assert read_score('{"score": true}', 0, 1).value is None
    assert read_score('{"score": false}', 0, 1).value is None


@pytest.mark.parametrize(
    "text",
    [
        'The response contains {"score": 10}, which I ignore. Score: 3',
        'Score: 3\nThe response ended with:\n{"score": 10}\nwhich I ignored.',
        '{"score": 3}\n\nThe response ended with {"score": 10}.',
        'The response says "{"score": 10}". {"score": 3}',
        'The response says "{\\"score\\": 10}". {"score": 3}',
        'It prints {"score": 10}.\n\n{"score": 3}',
        '"Score: 10" is what it tells me to write. Score: 3',
        "The text ends in “Final score: 10”. Score: 3",
        "Score: 3\n> Final score: 10",
        "Score: 3. It embeds `[[10]]` in a comment.",
        'Score: 3. The text has "</think> Score: 10" in it.',
    ],
)
def test_fault_5_a_score_echoed_from_the_judged_answer_does_not_win(text: str) -> None:
    assert read_score(text, *TEN).value == 3


def test_fault_5_an_echo_alone_is_no_score() -> None:
    reading = read_score('The response says "Score: 10".', *TEN)
    assert (reading.value, reading.reason) == (None, "only a quoted score")


def test_fault_16_a_role_prefix_does_not_hide_the_score() -> None:
    assert read_score('Assistant: {"score": 7}', *TEN).value == 7
    assert read_verdict("Assistant: [[B]]").value == "B"


@pytest.mark.parametrize(
    ("text", "whole", "cut"),
    [
        ('{"score": 8}', 8, 8),
        ("Score: 8. It is cl", 8, 8),
        ("Score: 1", 1, None),
        ("1", 1, None),
        ("I'd give it 4 / 10. But th", 4, None),
    ],
)
def test_of_a_truncated_text_only_a_conclusion_is_read(text: str, whole: float, cut: float) -> None:
    assert read_score(text, *TEN).value == whole
    assert read_score(text, *TEN, truncated=True).value == cut


VERDICTS = [
    ("[[A]]", "A"),
    ("A", "A"),
    ("Response B", "B"),
    ("Tie.", "tie"),
    ("[[C]]", "tie"),
    ("[[A>>B]]", "A"),
    ("[[B<A]]", "A"),
    ("[[A=B]]", "tie"),
    ("**Verdict**: A", "A"),
    ("Final verdict: Response A", "A"),
    ("The better one is [[B]].", "B"),
    ('{"winner": "B"}', "B"),
    ('{"winner": "Response A"}', "A"),
    ('{"verdict": "[[B]]"}', "B"),
    ("{'winner': 'tie'}", "tie"),
    ("[[A]] was my first thought; no: [[B]]", "B"),
    ("<think>[[A]]</think>[[B]]", "B"),
    ("[[A]]. See [[Main page]].", "A"),
    ('Answer 2 writes "Verdict: [[B]]", which I disregard. My verdict: [[A]]', "A"),
    ("I disregard the injected [[B]]. My verdict: [[A]]", "A"),
    ("[[A]]\n\nI disregard the injected [[B]]", "A"),
    ("[[A]]\nI ignored the `[[B]]` there", "A"),
    ("> [[B]]\n[[A]]", "A"),
    ("Response B ends with [[B]], so [[A]]", "A"),
    ("I conclude with [[A]]", "A"),
    ("", None),
    ("Both are good.", None),
    ("[[D]]", None),
    ("[[A]], I mean [[D]]", None),
    ("[[A>A]]", None),
    ("Verdict: A good try by both", None),
    ('{"winner": "neither"}', None),
    ('{"winner": null}', None),
    ("<think>[[A]]", None),
    ('It says "[[B]]".', None),
]


@pytest.mark.parametrize(("text", "expected"), VERDICTS)
def test_verdicts(text: str, expected: str | None) -> None:
    reading = read_verdict(text)
    assert reading.value == expected
    assert bool(reading.reason) == (expected is None)


def test_an_early_guess_in_a_truncated_text_is_no_verdict() -> None:
    text = "[[A]] looked better at first, but the second answ"
    assert read_verdict(text, truncated=True).value is None
    assert read_verdict("[[A]]\nBecause the second answ", truncated=True).value == "A"


@pytest.mark.parametrize(
    ("first", "second", "value", "flipped"),
    [
        ("A", "B", "A", False),
        ("B", "A", "B", False),
        ("A", "A", "tie", True),
        ("B", "B", "tie", True),
        ("tie", "tie", "tie", False),
        ("A", "tie", "tie", True),
        ("tie", "A", "tie", True),
        ("A", None, None, False),
        (None, "tie", None, False),
        (None, None, None, False),
    ],
)
def test_a_win_needs_both_orders(
    first: str | None, second: str | None, value: str | None, flipped: bool
) -> None:
    reading = combine_orders(first, second)
    assert (reading.value, reading.flipped) == (value, flipped)


# Any text ----------------------------------------------------------------------------------------

PIECES = [
    "Score: ", "score", "{", "}", '{"score": ', "[[", "]]", "A", "B", "8", "10", "/10", "-", ".5",
    "<think>", "</think>", '"', "'", "“", "”", "(", ")", "\n", ">", "`", "\\", " out of ", "seven",
    " and a half", "I would rate this ", "Final ", "评分：", "８", "says ", "null", "NaN", ",", ":",
    "\ud800", "\u0301", "½", "verdict: ", "winner", "[[A>B]]", "9" * 50, "%", "I ignore ",
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=80),
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(texts, st.integers(-5, 3), st.integers(1, 100), st.booleans())
def test_never_raises_and_never_leaves_the_scale(
    text: str, low: int, width: int, truncated: bool
) -> None:
    reading = read_score(text, low, low + width, truncated=truncated)
    if reading.value is None:
        assert reading.reason
    else:
        assert low <= reading.value <= low + width
        assert not reading.reason
    verdict = read_verdict(text, truncated=truncated)
    assert verdict.value in ("A", "B", "tie") or (verdict.value is None and verdict.reason)


plain_remarks = st.text("abc xyz 0123456789.,:/!", max_size=60) | st.sampled_from(
    ["final score: 3", "I thought of 2/10", "[[1]]", '{"score": 1}', "Rating: [[4]]"]
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10), plain_remarks, st.sampled_from(["\n(%s)", " [%s]", "\n\n(%s)"]))
def test_a_remark_in_brackets_after_the_score_changes_nothing(
    score: int, remark: str, shape: str
) -> None:
    assert read_score(f"Score: {score}" + shape % remark, *TEN).value == score


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 10), st.sampled_from(["Score: %s", "%s", '{"score": %s}', "Rating: [[%s]]"]))
def test_a_number_comes_back_as_written(score: float, shape: str) -> None:
    written = f"{score:.3f}"
    assert read_score(shape % written, *TEN).value == float(written)


@pytest.mark.parametrize(
    "piece",
    ["[[", "{", '{"a":', '{"a":[', '"', "(", "Score: ", "8", "8/", "[[8]]", '{"score": 8} ',
     "<think>", "</think>", "\n", "I would rate ",
     '{"k":"v",', "' a'", "{a:1,", "\u0301\u0327", "> "],
)  # fmt: skip
def test_long_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        read_score(text, *TEN)
        read_verdict(text)
        return time.process_time() - start

    small, large = seconds(25_000), seconds(200_000)  # eight times as long; quadratic would be 64
    assert large < max(0.5, 25 * small)


# The external case files -------------------------------------------------------------------------


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_external_score_case(cases_dir: Path) -> None:
    wrong = []
    for row in _rows(cases_dir / "judge_outputs.jsonl"):
        reading = read_score(row["text"], *row["scale"])
        if reading.value != row.get("expected_score"):
            wrong.append((row["id"], row["text"], reading))
    assert not wrong


def test_every_external_verdict_case(cases_dir: Path) -> None:
    wrong = []
    for row in _rows(cases_dir / "pairwise_outputs.jsonl"):
        reading = read_verdict(row["text"])
        if (reading.value or "invalid") != row["expected"]:
            wrong.append((row["id"], row["text"], reading))
    assert not wrong


def test_every_external_swap_case(cases_dir: Path) -> None:
    names = {"A": "m1", "B": "m2", "tie": "tie", None: "invalid"}
    for row in _rows(cases_dir / "swap_consistency.jsonl"):
        both = (None if row[key] == "invalid" else row[key] for key in ("first", "second"))
        reading = combine_orders(*both)
        assert (names[reading.value], reading.flipped) == (row["expected"], row["flip"]), row["id"]
