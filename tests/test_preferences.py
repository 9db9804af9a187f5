"""Preference files: TRL's forms of pairs, and what is wrong with a row."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.config.loading import shaped
from phalanx.errors import ConfigError
from phalanx.loop import align
from phalanx.plan.make import make_plan
from phalanx.progress import Silent
from phalanx.sources import CLEANED, WHOLE, read_preferences
from phalanx.turns import BadTurns, read_preference
from phalanx.types import Message


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


NAME = (Message("user", "Name a prime."),)
WANTED = (NAME, "Seven.", "Nine.")


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        # Explicit prompts: texts, conversations, and the two mixed.
        ("Name a prime.", "Seven.", "Nine."),
        (" Name a prime.\n", "Seven. ", " Nine."),
        ([user("Name a prime.")], [said("Seven.")], [said("Nine.")]),
        ("Name a prime.", [said("Seven.")], "Nine."),
        ([{"from": "human", "value": "Name a prime."}], "Seven.",
         [{"from": "gpt", "value": "Nine."}]),
        # The prompt within chosen and rejected, beside a column that says it again or not.
        (None, [user("Name a prime."), said("Seven.")], [user("Name a prime."), said("Nine.")]),
        ("Name a prime.", [user("Name a prime."), said("Seven.")],
         [user("Name a prime."), said("Nine.")]),
        # Texts: a dialogue, or a common beginning.
        (None, "\n\nHuman: Name a prime.\n\nAssistant: Seven.",
         "\n\nHuman: Name a prime.\n\nAssistant: Nine."),
        (None, "Name a prime. Seven.", "Name a prime. Nine."),
        # What `datasets` makes of a list of records.
        (None, {"role": ["user", "assistant"], "content": ["Name a prime.", "Seven."]},
         {"role": ["user", "assistant"], "content": ["Name a prime.", "Nine."]}),
        ([{"role": "system", "content": " "}, user("Name a prime.")], "Seven.", "Nine."),
    ],
)  # fmt: skip
def test_forms_of_pairs(prompt, chosen, rejected):
    assert read_preference(prompt, chosen, rejected) == WANTED


LONG = [user("Name a prime."), said("Five."), user("A larger one.")]
LONGER = (*NAME, Message("assistant", "Five."), Message("user", "A larger one."))


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        (LONG, "Seven.", "Nine."),
        (None, [*LONG, said("Seven.")], [*LONG, said("Nine.")]),
        (LONG[:1], [*LONG[1:], said("Seven.")], [*LONG[1:], said("Nine.")]),
        (None, "\n\nHuman: Name a prime.\n\nAssistant: Five.\n\nHuman: A larger one.\n\n"
         "Assistant: Seven.", "\n\nHuman: Name a prime.\n\nAssistant: Five.\n\nHuman: A larger "
         "one.\n\nAssistant: Nine."),
    ],
)  # fmt: skip
def test_prompts_of_several_turns(prompt, chosen, rejected):
    assert read_preference(prompt, chosen, rejected) == (LONGER, "Seven.", "Nine.")


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected", "why"),
    [
        ("Q", "", "no", "chosen is empty"),
        ("Q", "yes", "  ", "rejected is empty"),
        ("Q", "yes", " yes ", "chosen and rejected are the same"),
        ("Q", 3, "no", "chosen is neither text nor a list of turns"),
        (7, "yes", "no", "prompt is neither text nor a list of turns"),
        ("Q", [], "no", "chosen has 0 turns of its own"),
        (None, "yes", "no", "has no prompt: chosen and rejected share no beginning"),
        (None, "yesterday", "yester", "has no prompt"),
        (None, [said("yes")], [said("no")], "has no prompt"),
        ("", "yes", "no", "turn 1 is empty"),
        ("Q", [said("a"), user("b"), said("c")], "no", "chosen has 3 turns of its own"),
        (None, [user("Q"), said("yes")], [user("P"), said("no")], "chosen has 2 turns of its own"),
        (
            [user("Q"), said("so")],
            "yes",
            "no",
            "turn 3 is of the assistant, where the user's is due",
        ),
        ([user("Q"), user("P")], "yes", "no", "turn 2 is of the user"),
        ([{"role": "system", "content": "Be brief."}, user("Q")], "yes", "no", "system prompt"),
        ("Q", [user("yes")], [user("no")], "turn 2 is of the user"),
        ("Q", [{"role": "tool", "content": "yes"}], "no", "chosen: turn 1 has the role 'tool'"),
        ("Q", ["yes"], "no", "chosen: turn 1 is not an object"),
    ],
)
def test_rows_that_are_no_pairs(prompt, chosen, rejected, why):
    with pytest.raises(BadTurns) as error:
        read_preference(prompt, chosen, rejected)
    assert why in str(error.value)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_the_texts_are(prompt, chosen, rejected):
    """A pair, or a reason; and the same pair from its explicit and its conversational form."""
    try:
        found = read_preference(prompt, chosen, rejected)
    except BadTurns:
        return
    assert found == (
        (Message("user", prompt.strip()),), chosen.strip(), rejected.strip()
    )  # fmt: skip
    again = read_preference(None, [user(prompt), said(chosen)], [user(prompt), said(rejected)])
    assert again == found


@given(TEXTS, TEXTS)
def test_a_prompt_within_two_texts_is_their_common_beginning(chosen, rejected):
    try:
        turns, better, worse = read_preference(None, chosen, rejected)
    except BadTurns:
        return
    assert len(turns) == 1
    assert chosen.strip().startswith(turns[0].content)
    assert chosen.rstrip().endswith(better)
    assert rejected.rstrip().endswith(worse)


# Files -------------------------------------------------------------------------------------------

ROWS = [
    {"prompt": "a?", "chosen": "yes", "rejected": "no", "domain": "x"},
    {"prompt": LONG, "chosen": "Seven.", "rejected": "Nine."},
    {"prompt": "a?", "chosen": "yes", "rejected": "perhaps", "domain": None},
    {"prompt": "a?", "chosen": "yes", "rejected": "no"},
]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_prompt_may_have_several_pairs_and_equal_rows_are_left_out(tmp_path):
    read = read_preferences(written(tmp_path / "pairs.jsonl", ROWS))
    assert [(p.chosen, p.rejected) for p in read.pairs] == [
        ("yes", "no"), ("Seven.", "Nine."), ("yes", "perhaps"),
    ]  # fmt: skip
    assert read.duplicates == ((4, 1),)
    assert read.lines == (1, 2, 3)
    assert [one.id for one in read.instructions] == [pair.id for pair in read.pairs]
    assert len({one.id for one in read.instructions}) == 3
    plain, long, _ = read.instructions
    assert (plain.text, plain.domain, plain.later, plain.flags) == ("a?", "x", (), ())
    assert (long.text, long.flags) == ("Name a prime.", (WHOLE,))
    assert long.later == LONGER[1:]


def test_ids_follow_from_the_contents_alone(tmp_path):
    first = read_preferences(written(tmp_path / "a.jsonl", ROWS)).pairs
    other = [{**row, "id": n, "score": 1.5} for n, row in enumerate(reversed(ROWS))]
    second = read_preferences(written(tmp_path / "b.jsonl", other)).pairs
    assert {pair.id for pair in first} == {pair.id for pair in second}


def test_every_bad_row_is_listed_with_its_line(tmp_path):
    rows = [ROWS[0], {"prompt": "b?", "chosen": "yes", "rejected": None}, {"prompt": "c?"},
            {"prompt": "d?", "chosen": "e", "rejected": "e"}]  # fmt: skip
    path = written(tmp_path / "pairs.jsonl", rows)
    with pytest.raises(ConfigError) as error:
        read_preferences(path)
    text = str(error.value)
    assert "rejected is null" in text
    assert f"{path}:3: field 'chosen' missing" in text
    assert f"{path}:4: chosen and rejected are the same" in text
    assert "preference_file.bad_rows" in text
    read = read_preferences(path, bad_rows="skip")
    assert len(read.pairs) == 1
    assert [bad.line for bad in read.skipped] == [2, 3, 4]
    with pytest.raises(ConfigError, match="not one usable row"):
        read_preferences(written(tmp_path / "none.jsonl", rows[1:]), bad_rows="skip")


def test_rows_with_tools_are_refused_since_nobody_would_see_them(tmp_path):
    tools = [{"type": "function", "function": {"name": "search"}}]
    rows = [{**ROWS[0], "tools": one} for one in (tools, json.dumps(tools), "[]", [], "", None)]
    path = written(tmp_path / "pairs.jsonl", rows)
    with pytest.raises(ConfigError) as error:
        read_preferences(path)
    assert len(error.value.faults) == 2
    assert ":1: has tools" in str(error.value)
    assert ":2: has tools" in str(error.value)


def test_repeated_and_contradictory_pairs_are_said(tmp_path):
    turned = {**ROWS[0], "chosen": "no", "rejected": "yes"}
    path = written(tmp_path / "pairs.jsonl", [*ROWS, turned, turned])
    read = read_preferences(path)
    assert len(read.pairs) == 4
    repeated, opposed = read.notes()
    assert repeated == f"{path}: 2 repeated pairs: 4 (as 1), 6 (as 5)"
    assert opposed.startswith(f"{path}: 1 contradictory pairs, which choose the other")
    assert opposed.endswith(": 5 (against 1)")
    settings = {"method": "preference_file", "preference_file.source": path}
    members = [{"name": "ada", "engine": "scripted"}]
    config = shaped(None, {**settings, "pool": {"members": members}, "iterations": 1})
    assert {repeated, opposed} <= set(make_plan(config).notes)
    told = Told()
    align(config, tmp_path / "run", progress=told)
    assert {f"Note: {repeated}", f"Note: {opposed}"} <= set(told.said)


class Told(Silent):
    """What a run says."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_missing_columns_are_one_fault(tmp_path):
    path = written(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "reject": "c"}])
    with pytest.raises(ConfigError, match=r"no row has the column 'rejected'.*mean 'reject'"):
        read_preferences(path)


def test_other_formats_and_names_of_the_prompt(tmp_path):
    with (tmp_path / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerows([["question", "chosen", "rejected"], ["a?", "yes, sir", "no"]])
    (pair,) = read_preferences(str(tmp_path / "pairs.csv")).pairs
    assert (pair.instruction.text, pair.chosen) == ("a?", "yes, sir")
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    table = pyarrow.Table.from_pylist(
        [{"chosen": [*LONG, said("Seven.")], "rejected": [*LONG, said("Nine.")]}]
    )
    parquet.write_table(table, tmp_path / "pairs.parquet")
    (pair,) = read_preferences(str(tmp_path / "pairs.parquet")).pairs
    assert (pair.instruction.later, pair.chosen) == (LONGER[1:], "Seven.")


def test_broken_characters_are_replaced_and_told(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a?", "chosen": "yes \\ud83d", "rejected": "no"}\n')
    read = read_preferences(str(path))
    assert read.pairs[0].chosen == "yes \ufffd"
    assert read.pairs[0].instruction.flags == (CLEANED,)
    assert read.cleaned == (1,)
