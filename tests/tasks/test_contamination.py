"""Texts that overlap evaluation questions are found, others are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import skills
from phalanx.config.schema import TaskSettings
from phalanx.rows import read_rows
from phalanx.tasks import TaskItem, load_task
from phalanx.tasks.contamination import (
    COMMON,
    LEAST,
    RUN,
    SHARE,
    SHORT,
    Overlap,
    Overlaps,
    Questions,
    overlaps,
    read_stored,
    stored,
)
from tests.tasks.reading_rows import read_items

WORDS = st.text("abcdefghij", min_size=1, max_size=6)
TEXT = st.lists(WORDS, min_size=1, max_size=60)
FILE = [TaskSettings(name="t", source="rows.jsonl")]


def item(question: str, **fields) -> TaskItem:
    return TaskItem("i1", f"{question}\n\nAnswer briefly.", "x", "", "t", "exact", (), (), question,
                    **fields)  # fmt: skip


def words(count: int, start: int = 0) -> list[str]:
    return [f"w{number}" for number in range(start, start + count)]


@given(
    TEXT, st.sampled_from([str.upper, str.title, str.lower]), st.sampled_from(["  ", ", ", "\n"])
)
def test_a_copy_in_other_case_and_spacing_is_exact(parts, case, gap):
    found = Questions([item(" ".join(parts))]).find(f" {case(gap.join(parts))}?! ")
    assert found is not None
    assert found[1:] == (1.0, True)


@given(TEXT, TEXT)
def test_texts_without_a_common_word_are_unrelated(one, other):
    mine, theirs = ([f"{letter}{word}" for word in parts] for letter, parts in
                    (("x", one), ("y", other)))  # fmt: skip
    assert Questions([item(" ".join(mine))]).find(" ".join(theirs)) is None


@given(TEXT, TEXT, TEXT, st.integers(0, 70))
def test_the_share_is_a_plain_recount(before, asked, after, gone):
    """Whatever is found, a slow count of the runs gives the same; one word may be left out."""
    text = [*before, *asked[:gone], *asked[gone + 1 :], *after]
    found = Questions([item(" ".join(asked))]).find(" ".join(text))
    runs = {tuple(asked[at : at + RUN]) for at in range(len(asked) - RUN + 1)}
    held = {tuple(text[at : at + RUN]) for at in range(len(text) - RUN + 1)}
    if " ".join(asked) == " ".join(text):
        assert found is not None
        assert found[2]
    elif not runs:
        inside = f" {' '.join(asked)} " in f" {' '.join(text)} "
        near = len(asked) >= SHORT and len(text) <= 2 * len(asked)
        assert (found is not None) is (inside and near)
    else:
        share = len(runs & held) / len(runs)
        assert (found is not None) is (share >= (SHARE if len(asked) >= LEAST else 1.0))
        assert found is None or found[1] == share


@pytest.mark.parametrize(
    ("length", "changed", "hit"),
    [
        (LEAST - 1, 0, False), (LEAST + 20, 0, True), (LEAST + 30, 16, True),
        (LEAST + 20, None, True), (LEAST, 6, False), (RUN - 1, 0, False),
    ],
)  # fmt: skip
def test_a_changed_word_is_forgiven_in_long_questions_alone(length, changed, hit):
    asked = words(length)
    text = ["hello", *asked, "bye"]
    if changed is not None:
        text[changed + 1] = "other"
    found = Questions([item(" ".join(asked))]).find(" ".join(text))
    assert (found is not None) is hit
    if found:
        assert found[1] >= SHARE


@pytest.mark.parametrize(
    ("length", "after", "hit"),
    [(RUN, 90, True), (RUN - 1, 4, True), (RUN - 1, 5, False), (SHORT, 3, True),
     (SHORT - 1, 0, False)],
)  # fmt: skip
def test_wrapped_in_another_prompt_a_short_question_is_found_where_it_is_half_of_it(
    length, after, hit
):
    asked, more = " ".join(words(length)), " ".join(words(after, 50))
    found = Questions([item(asked)]).find(f"Answer this question. {asked}? {more}")
    assert (found is not None) is hit


def test_the_form_of_an_answer_is_no_overlap_but_the_whole_prompt_is():
    long = "Work it out step by step. End with the final number alone in a box, without a unit."
    one = TaskItem("i", f"How many?\n\n{long}", "4", "", "t", "exact", question="How many?")
    assert Questions([one]).find(f"Why is that so?\n\n{long}") is None
    assert Questions([one]).find(f"how many {long}") == (one, 1.0, True)
    assert Questions([one]).find("HOW MANY") == (one, 1.0, True)


def test_a_short_question_is_found_by_its_options():
    options = (("A", "sodium"), ("B", "neon"), ("C", "gold"), ("D", "lead"))
    one = TaskItem("i", "Which reacts?", "A", "", "t", "choice", options, question="Which reacts?")
    asked = "Q: Which reacts? A. sodium B. neon C. gold D. lead Say the letter."
    assert Questions([one]).find(asked) == (one, 1.0, False)
    assert Questions([one]).find("Q: Which reacts? Say so.") is None


def test_the_wording_of_a_task_is_no_overlap():
    """Items of one form share most of their words; only what is their own says that they match."""
    form = "Here is a review that somebody wrote about a place: {} Is it a good one or a bad one?"
    many = [item(form.format(f"{name} food {name} and service {name} well"))
            for name in words(COMMON + 1)]  # fmt: skip
    fresh = form.format("garden soup zebra or walls green today")
    assert Questions(many).find(fresh) is None
    assert Questions(many[:1]).find(many[0].question.replace("w0", "v0")) is None
    copy = f"Please: {many[4].question}"
    assert Questions(many).find(copy) == (many[4], 1.0, False)


AGED = "A patient of age {} comes to the clinic and has had a {}"
AGES = ("three", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "ten", "two",
        "four", "five")  # fmt: skip


@pytest.mark.parametrize("count", [6, len(AGES)])
def test_the_share_is_of_all_runs_and_an_item_counts_once(count):
    """Choice questions are there without and with their options, which makes no run common."""
    options = (("A", "rest"), ("B", "tea"))
    asked = [AGED.format(age, "fever for three days") for age in AGES[:count]]
    many = [TaskItem(age, text, "A", "", "t", "choice", options, question=text)
            for age, text in zip(AGES, asked, strict=False)]  # fmt: skip
    questions = Questions(many)
    assert questions.find(AGED.format("three", "cough for nine weeks, what now?")) is None
    assert questions.find(f"Say: {asked[0]}") == (many[0], 1.0, False)
    part = questions.find(f"Say: {asked[0].removesuffix('days')} nights")
    assert part is not None
    assert (part[0], round(part[1], 2)) == (many[0], 0.9)


def test_the_skills_are_not_compared_with_themselves_and_share_nothing():
    tasks = [TaskSettings(name="t", source="builtin:skills")]
    items = load_task(tasks[0], seed=0)
    texts = {one.id: one.user_turns for one in skills.instructions(400, 0)}
    assert overlaps("instructions", texts, "builtin:skills", tasks, items).of == 0
    met = overlaps("instructions", texts, "mine.jsonl", tasks, items)
    assert met.of == 400
    assert not any(one.exact for one in met.found)


def test_what_is_found_survives_the_ledger_and_adds_up():
    texts = {"a": ("nothing", "W0 w1"), "b": ("else",), "c": ("w0, w1!",)}
    found = overlaps("instructions", texts, "f.jsonl", FILE, [item("w0 w1")], dropped=True)
    assert [one.text for one in found.found] == ["a", "c"]
    assert found.ids == {"a", "c"}
    assert read_stored(stored([found, Overlaps("demonstrations", 0)])) == (found,)
    assert read_stored(None) == ()
    assert found.lines()[0] == (
        "2 of 3 instructions overlap evaluation items and are left out (2 of task t)"
    )


def test_kept_ones_are_no_ids_and_only_three_are_shown():
    many = tuple(Overlap(str(n), "t", "i", 0.75, False) for n in range(5))
    lines = Overlaps("instructions", 9, many).lines()
    assert Overlaps("instructions", 9, many).ids == frozenset()
    assert lines[1] == "0 contains 75% of item i of t"
    assert lines[-1] == "and 2 more"
    assert len(lines) == 5


KINDS = {"gsm8k": "gsm8k", "medqa": "medqa", "mmlu_redux": "mmlu_redux", "humaneval": "humaneval",
         "truthfulqa": "truthfulqa_mc1", "ifeval": "ifeval", "normad": "normad_country",
         "math_hard": "math", "com2": "com2"}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_a_benchmark_are_found_as_they_are_and_do_not_meet_others(data_dir, name):
    path = data_dir / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name}")
    table = read_rows(str(path))
    half = len(table.rows) // 2
    read = read_items(table, KINDS[name], "t")
    texts = {str(row.line): (str(row.fields["prompt"]),) for row in table.rows}
    whole = overlaps("instructions", texts, str(path), FILE, read)
    left_out = {json.dumps(row.fields["prompt"]) for row in table.rows}
    assert len(whole.found) >= min(len(read), len(left_out)) * 0.95
    first = {item.question or item.instruction for item in read[:half]}
    later = [item for item in read[half:] if (item.question or item.instruction) not in first]
    others = {item.id: (item.question or item.instruction,) for item in later}
    met = overlaps("instructions", others, str(path), FILE, read[:half])
    assert len(met.found) <= 0.1 * len(others), [str(one) for one in met.found]
