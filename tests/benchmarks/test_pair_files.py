"""Pairs from any format: named, or found out by the columns."""

from __future__ import annotations

import pytest

from phalanx.benchmarks.pair_files import read_pair_file, usable
from phalanx.benchmarks.records import Pair
from phalanx.errors import ConfigError

OWN = {
    "instruction": "Why?", "response_a": "Because.", "response_b": "No.", "label": "B",
    "group": "g", "writer_a": "ada", "writer_b": "bob", "family_a": "x", "family_b": "y",
}  # fmt: skip
JUDGEBENCH = {
    "pair_id": "p1", "source": "mmlu-pro-law", "question": "q", "response_A": "a",
    "response_B": "b", "label": "B>A", "response_model": "m",
}  # fmt: skip
REWARDBENCH = {
    "id": 7, "prompt": "p", "chosen": "c", "rejected": "r", "subset": "hep-go",
    "chosen_model": "human", "rejected_model": "gpt",
}  # fmt: skip
PPE = {
    "question_id": "q1", "prompt": "p", "response_1": "a", "response_2": "b", "winner": "model_b",
    "model_a": "x", "model_b": "y",
}  # fmt: skip
BEST_OF = {
    "question_id": "q1", "prompt": "p", "model_name": "m", "response_1": "a", "response_2": "b",
    "scores": [True, False],
}  # fmt: skip
LLMBAR = {"input": "i", "output_1": "a", "output_2": "b", "label": 2}


def prepared(group: str) -> dict:
    choices = {"A": "a", "B": "b"}
    return {"id": "x", "prompt": "p", "choices": choices, "answer": "A", "meta": {"subset": group}}


@pytest.mark.parametrize(
    ("row", "format"),
    [
        (OWN, "pairs"),
        (JUDGEBENCH, "judgebench"),
        (REWARDBENCH, "rewardbench"),
        (PPE, "ppe"),
        (BEST_OF, "ppe-responses"),
        (LLMBAR, "llmbar"),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, "pairs"),
        (prepared("llmbar-natural"), "llmbar"),
        (prepared("hep-go"), "rewardbench"),
        (prepared("livebench-math"), "judgebench"),
        (prepared("mine"), "pairs"),
    ],
)
def test_the_columns_tell_the_format(write, row, format):
    found = read_pair_file(write([row]))
    assert found.format == format
    assert len(found.pairs) + len(found.many) == 1
    assert read_pair_file(write([row]), format) == found


def test_writers_are_kept(write):
    (own,) = read_pair_file(write([OWN])).pairs
    assert own == Pair("0", "Why?", "Because.", "No.", "B", "g", ("ada", "bob"), ("x", "y"))
    (bench,) = read_pair_file(write([REWARDBENCH])).pairs
    assert bench.writers == ("human", "gpt")
    (ppe,) = read_pair_file(write([PPE])).pairs
    assert (ppe.writers, ppe.label) == (("x", "y"), "B")


def test_what_cannot_be_read_is_said(write):
    with pytest.raises(ConfigError, match="the columns tell no format of pairs: a, b"):
        read_pair_file(write([{"a": 1, "b": 2}]))
    with pytest.raises(ConfigError, match="line 2: 'label' must be one of"):
        read_pair_file(write([OWN, {**OWN, "id": 5, "label": "left"}]))
    with pytest.raises(ConfigError, match="has no column for an instruction"):
        read_pair_file(write([{"chosen": "c", "rejected": "r"}]))


def test_pairs_that_tell_nothing_are_left_out_and_counted():
    rows = [
        Pair("1", "i", "a", "b", "A"),
        Pair("2", "i", "a", "b", "tie"),
        Pair("3", "i", "a", " ", "A"),
        Pair("4", "i", "a", "a ", "B"),
    ]
    kept, left_out = usable(rows)
    assert [pair.id for pair in kept] == ["1"]
    assert left_out == {"a tie, by the file": 1, "an empty response": 1, "identical responses": 1}


def test_prepared_rows_are_pairs_alone(write):
    row = prepared("mine")
    three = {**row, "choices": {"A": "a", "B": "b", "C": "c"}}
    with pytest.raises(ConfigError, match="prepared rows hold two responses; ppe-responses"):
        read_pair_file(write([row]), "ppe-responses")
    with pytest.raises(ConfigError, match="line 2: a pair has the choices A and B alone, got C"):
        read_pair_file(write([row, {**three, "id": "y"}]))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_leaves_something(write, limit):
    with pytest.raises(ConfigError, match=f"--limit must be at least 1, got {limit}"):
        read_pair_file(write([OWN, {**OWN, "id": "2"}])).limited(limit, seed=1)


def test_a_limit_is_a_draw_that_is_counted(write):
    rows = [{**OWN, "id": str(n)} for n in range(50)]
    file = read_pair_file(write(rows))
    ten = file.limited(10, seed=1)
    ids = [int(pair.id) for pair in ten.pairs]
    assert ids == sorted(ids)
    assert len(set(ids)) == 10
    assert ten.left_out == (("not drawn", 40),)
    assert file.limited(10, seed=1) == ten != file.limited(10, seed=2)
    assert file.limited(50, seed=1) is file is file.limited(None, seed=1)


def test_published_rows_are_found(data_dir):
    assert read_pair_file(str(data_dir / "llmbar.jsonl")).format == "llmbar"
    found = read_pair_file(str(data_dir / "judgebench.jsonl"))
    assert (found.format, len(found.pairs)) == ("judgebench", 150)


@pytest.mark.parametrize(
    ("format", "row", "split"),
    [("judgebench", JUDGEBENCH, "gpt"), ("rewardbench", REWARDBENCH, "filtered"),
     ("ppe", PPE, "test"), ("pairs", OWN, "train")],
)  # fmt: skip
def test_a_named_format_is_read_from_its_published_split(tmp_path, format, row, split):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([row])
    datasets.DatasetDict({split: rows, "other": rows}).save_to_disk(str(tmp_path / "set"))
    assert len(read_pair_file(str(tmp_path / "set"), format).pairs) == 1
