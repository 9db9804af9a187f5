"""The published formats, with rows written here, and the prepared rows where there are any."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from phalanx.benchmarks import readers
from phalanx.benchmarks.judgebench import GROUPS
from phalanx.benchmarks.records import ManyResponses, Pair, Question
from phalanx.benchmarks.rewardbench import SECTIONS
from phalanx.errors import ConfigError

JUDGEBENCH = {
    "pair_id": "p1", "original_id": "7", "source": "mmlu-pro-law", "question": "Q?",
    "response_model": "m", "response_A": "a", "response_B": "b", "label": "B>A",
}  # fmt: skip
LLMBAR = {"input": "Q?", "output_1": "a", "output_2": "b", "label": 2}
REWARDBENCH = {"id": 3, "prompt": "Q?", "chosen": "a", "rejected": "b", "subset": "hep-go"}
PREFERENCE = {
    "question_id": "q", "prompt": "Q?", "response_1": "a", "response_2": "b",
    "winner": "model_b", "language": "Welsh",
}  # fmt: skip
RESPONSES = {
    "question_id": "q", "prompt": "Q?", "model_name": "m", "response_1": "a", "response_2": "b",
    "response_3": "", "scores": [True, False, True], "sampled_conflict_pairs": [[0, 1], [1, 2]],
}  # fmt: skip
ARENA_1 = {
    "question_id": "u",
    "category": "arena-hard-v0.1",
    "cluster": "C",
    "turns": [{"content": "Q?"}],
}
ARENA_2 = {"uid": "u", "category": "hard_prompt", "subcategory": "coding", "prompt": "Q?"}
ALPACA = {"instruction": "Q?", "dataset": "koala", "output": "a", "generator": "m"}
MT_BENCH = {"question_id": 81, "category": "math", "turns": ["Q?", "R?"], "reference": ["1", ""]}
PREPARED = {
    "id": "x/1", "prompt": "Q?", "choices": {"A": "a", "B": "b"}, "answer": "A",
    "meta": {"subset": "s"},
}  # fmt: skip


def llmbar(path):
    return readers.read_llmbar(path, "llmbar-natural")


FORMATS = [
    (readers.read_judgebench, JUDGEBENCH, Pair("p1", "Q?", "a", "b", "B", "mmlu-pro")),
    (llmbar, LLMBAR, Pair("llmbar-natural/0", "Q?", "a", "b", "B", "llmbar-natural")),
    (readers.read_rewardbench, REWARDBENCH, Pair("hep-go/3", "Q?", "a", "b", "A", "hep-go")),
    (readers.read_ppe_preferences, PREFERENCE, Pair("q", "Q?", "a", "b", "B", "Welsh")),
    (readers.read_ppe_responses, RESPONSES, ManyResponses(
        "q", "Q?", ("a", "b", ""), (True, False, True), "m", ((0, 1), (1, 2)))),
    (readers.read_arena_hard, ARENA_1, Question("u", ("Q?",), "C")),
    (readers.read_arena_hard, ARENA_2, Question("u", ("Q?",), "hard_prompt")),
    (readers.read_alpaca_eval, ALPACA, Question("0", ("Q?",), "koala", ("a",), 0)),
    (readers.read_mt_bench, MT_BENCH, Question("81", ("Q?", "R?"), "math", ("1", ""))),
    (readers.read_prepared_pairs, PREPARED, Pair("x/1", "Q?", "a", "b", "A", "s")),
    (readers.read_prepared_questions, PREPARED, Question("x/1", ("Q?",), "s")),
]  # fmt: skip
NAMES = [f"{reader.__name__}-{number}" for number, (reader, _, _) in enumerate(FORMATS)]


@pytest.mark.parametrize(("reader", "row", "record"), FORMATS, ids=NAMES)
def test_formats(write, reader, row, record):
    assert reader(write([row])) == (record,)


@pytest.mark.parametrize(("reader", "row", "record"), FORMATS, ids=NAMES)
def test_a_field_without_its_value_is_a_fault(write, reader, row, record):
    """Every needed field, left out in turn, is named with its line; all lines are in one error."""
    optional = {
        "original_id", "response_model", "language", "sampled_conflict_pairs", "generator",
        "output", "reference", "subcategory",
    }  # fmt: skip
    if reader is readers.read_prepared_questions:
        optional |= {"choices", "answer"}
    if row is ARENA_1:
        optional |= {"category"}
    needed = [name for name in row if name not in optional]
    rows = [{**row, name: None} for name in needed]
    with pytest.raises(ConfigError) as caught:
        reader(write(rows))
    assert len(caught.value.faults) == len(needed)
    for line, fault in enumerate(caught.value.faults, start=1):
        assert fault.startswith(f"line {line}: ")


@pytest.mark.parametrize(("reader", "row", "fault"), [
    (readers.read_judgebench, JUDGEBENCH | {"label": "A=B"}, "'label' must be one of"),
    (readers.read_judgebench, JUDGEBENCH | {"question": " \n"}, "'question' is blank"),
    (llmbar, LLMBAR | {"label": "2"}, "'label' must be one of"),
    (llmbar, LLMBAR | {"label": True}, "'label' must be one of"),
    (llmbar, LLMBAR | {"output_1": ["a"]}, "'output_1' must be text"),
    (readers.read_rewardbench, REWARDBENCH | {"chosen": ["a"]}, "'chosen' must be text"),
    (readers.read_rewardbench, REWARDBENCH | {"id": 1.5}, "'id' must be text"),
    (readers.read_ppe_preferences, PREFERENCE | {"winner": "both"}, "'winner' must be one of"),
    (readers.read_ppe_responses, RESPONSES | {"scores": [1, 0, 1]}, "true and false only"),
    (readers.read_ppe_responses, RESPONSES | {"scores": [True, False]}, "more responses than"),
    (readers.read_ppe_responses, RESPONSES | {"scores": [True] * 4}, "has no 'response_4'"),
    (readers.read_ppe_responses, RESPONSES | {"sampled_conflict_pairs": [[0, 2]]}, "no right and"),
    (readers.read_ppe_responses, RESPONSES | {"sampled_conflict_pairs": [[0, 3]]}, "two places"),
    (readers.read_ppe_responses, RESPONSES | {"sampled_conflict_pairs": [0]}, "two places"),
    (readers.read_arena_hard, ARENA_1 | {"turns": ["Q?"]}, "list of one object"),
    (readers.read_arena_hard, ARENA_1 | {"turns": [{"content": " "}]}, "not blank"),
    (readers.read_mt_bench, MT_BENCH | {"turns": ["Q?"]}, "must be two texts"),
    (readers.read_mt_bench, MT_BENCH | {"reference": ["1"]}, "each of two turns"),
    (readers.read_mt_bench, MT_BENCH | {"turns": "Q?"}, "list of texts"),
    (readers.read_prepared_pairs, PREPARED | {"answer": "C"}, "'answer' must be one of"),
    (readers.read_prepared_pairs, PREPARED | {"choices": {"A": "a"}}, "has no 'B'"),
    (readers.read_prepared_pairs, PREPARED | {"choices": ["a", "b"]}, "must be an object"),
])  # fmt: skip
def test_what_does_not_fit(write, reader, row, fault):
    with pytest.raises(ConfigError, match=fault):
        reader(write([row]))


def test_bad_rows_of_all_kinds_are_listed_in_order(write):
    """Broken JSON, no object, an unfit row and a repeated one; good rows in between."""
    good = '{"id": 1, "prompt": "Q?", "chosen": "a", "rejected": "b", "subset": "hep-go"}'
    path = write(f'{good}\n{{"id": 2\n[1]\n{good.replace("Q?", "")}\n{good}\n')
    with pytest.raises(ConfigError) as caught:
        readers.read_rewardbench(path)
    reasons = [
        "not valid JSON",
        "not an object",
        "'prompt' is blank",
        "repeats 'hep-go/1' of line 1",
    ]
    for line, (fault, reason) in enumerate(zip(caught.value.faults, reasons, strict=True), start=2):
        assert fault.startswith(f"line {line}: {reason}")
    assert caught.value.where == path


def test_an_empty_file_has_no_rows(write):
    with pytest.raises(ConfigError, match="no rows"):
        readers.read_mt_bench(write(""))


def test_a_list_in_one_json_file(write):
    found = llmbar(write(json.dumps([LLMBAR, LLMBAR | {"label": 1}]), "dataset.json"))
    assert [(pair.id, pair.label) for pair in found] == [
        ("llmbar-natural/0", "B"), ("llmbar-natural/1", "A"),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "n", "groups"), [
    ("judgebench", 150, set(GROUPS)),
    ("llmbar", 200, {name for name in SECTIONS["Chat Hard"] if name.startswith("llmbar")}),
])  # fmt: skip
def test_prepared_pairs(data_dir, name, n, groups):
    found = readers.read_prepared_pairs(str(data_dir / f"{name}.jsonl"))
    assert len(found) == n
    assert {pair.group for pair in found} == groups
    assert {pair.label for pair in found} == {"A", "B"}


@pytest.mark.parametrize(
    ("name", "n"), [("arena_hard_v01", 100), ("alpacaeval", 200), ("mt_bench", 40)]
)
def test_prepared_questions(data_dir, name, n):
    found = readers.read_prepared_questions(str(data_dir / f"{name}.jsonl"))
    assert len(found) == n
    assert all(question.group for question in found)
    if name == "mt_bench":
        assert Counter(len(question.turns) for question in found) == {2: 40}
        assert set(Counter(question.group for question in found).values()) == {5}
        assert any(question.references for question in found)
