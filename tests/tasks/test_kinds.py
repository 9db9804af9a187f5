"""Rows of each benchmark, made up, in its published columns and in the neutral form."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from phalanx.config.schema import TaskKind, TaskSettings
from phalanx.config.schema_evaluate import CONTESTS
from phalanx.errors import ConfigError
from phalanx.rows import read_rows
from phalanx.tasks import Score, TaskItem, load_task, normalise, score, skipped_rows
from phalanx.tasks.items import UNVOTED, is_voted
from phalanx.tasks.kinds import READERS
from tests.tasks.reading_rows import read_items

OPTIONS = ["fox", "owl", "bee", "cod"]
LETTERED = dict(zip("ABCD", OPTIONS, strict=True))
GPQA = {
    "Question": "Which one flies at night?", "Correct Answer": "owl", "Incorrect Answer 1": "fox",
    "Incorrect Answer 2": "bee", "Incorrect Answer 3": "cod", "High-level domain": "Zoology",
}  # fmt: skip
CROSS = {
    "source": ["Ann", "blank 1"], "relation": ["knows", "likes"], "target": ["blank 1", "blank 2"],
    "options": {"blank 1": ["Bob", "Cy"], "blank 2": ["tea", "jam"]},
    "golds": {"blank 1": "B", "blank 2": "A"},
}  # fmt: skip
NORM = {"Country": "Utopia", "Value": "Thrift", "Rule-of-Thumb": "Waste nothing.",
        "Background": "SECRET", "Story": "Al ate all of it.", "Gold Label": "Yes"}  # fmt: skip
TRUE = {
    "question": "Can fish count?",
    "mc1_targets": {"choices": ["To three.", "No.", "To ten."], "labels": [1, 0, 0]},
    "mc2_targets": {"choices": ["To three.", "A little.", "No."], "labels": [1, 1, 0]},
}


def load(folder: Path, kind: str, *rows: dict, **settings) -> tuple[TaskItem, ...]:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return load_task(TaskSettings(name="t", source=str(path), kind=kind, **settings), seed=0)


CHOSEN = {"question": "q", "choices": OPTIONS, "answer": 1}
ONE_ROW = {
    "gsm8k": {"question": "q", "answer": "#### 5"},
    "math": {"problem": "q", "solution": r"$\boxed 7$"},
    "medqa": {"question": "q", "options": LETTERED, "answer": "B"},
    "mmlu": CHOSEN,
    "mmlu_redux": {**CHOSEN, "error_type": "ok"},
    "gpqa": GPQA,
    "kcross": CROSS,
    **dict.fromkeys(("normad_country", "normad_value", "normad_rot"), NORM),
    "humaneval": {"prompt": "def f(): pass", "entry_point": "f", "test": "def check(f): pass"},
    "ifeval": {"prompt": "q", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    "com2": {"question": "q", "answer": "a"},
    **dict.fromkeys(("truthfulqa", "truthfulqa_mc1", "truthfulqa_mc2"), TRUE),
}


def test_every_kind_has_a_reader() -> None:
    assert {"", *READERS, *CONTESTS} == set(get_args(TaskKind))


@pytest.mark.parametrize("kind", READERS)
def test_members_vote_where_they_can_agree(kind: str) -> None:
    item = READERS[kind](ONE_ROW[kind], "t")
    assert is_voted(kind, "exact") == (item.match not in UNVOTED)


@pytest.mark.parametrize(
    ("kind", "row", "answer", "domain"),
    [
        ("gsm8k", {"question": "2 + 3?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"}, "5", ""),
        ("gsm8k", {"prompt": "2 + 3?", "choices": None, "answer": 5, "meta": {}}, "5", ""),
        ("math", {"problem": "Half of 1?", "solution": r"It is $\boxed{\frac{1}{2}}$.",
                  "level": "Level 4", "type": "Algebra"}, r"\frac{1}{2}", "level 4"),
        ("math", {"problem": "3 + 4?", "solution": r"So $\boxed 7$."}, "7", ""),
        ("math", {"prompt": "3 + 4?", "answer": "7", "meta": {"level": 5}}, "7", "level 5"),
        ("medqa", {"question": "q", "options": LETTERED, "answer": "bee", "answer_idx": "C"},
         "C", ""),
        ("medqa", {"prompt": "q", "choices": LETTERED, "answer": "B"}, "B", ""),
        ("mmlu", {"question": "q", "choices": OPTIONS, "answer": 0, "subject": "zoo"}, "A", "zoo"),
        ("mmlu", {"input": "q", **LETTERED, "target": "D"}, "D", ""),
        ("mmlu_redux", {"question": "q", "choices": OPTIONS, "answer": 0, "correct_answer": "2",
                        "error_type": "wrong_groundtruth"}, "C", ""),
        ("kcross", {"prompt": "q", "choices": LETTERED, "answer": "A", "meta": {"blanks": 2}},
         "A", "2 blanks"),
        ("kcross", CROSS, "blank 1: B; blank 2: A", "2 blanks"),
        ("normad_country", NORM, "yes", "yes"),
        ("normad_country", {"prompt": "Country: utopia\nAl sat.", "answer": "neutral"},
         "neutral", "neutral"),
        ("normad_rot", NORM, "yes", "yes"),
    ],
)  # fmt: skip
def test_columns(tmp_path: Path, kind: str, row: dict, answer: str, domain: str) -> None:
    (item,) = load(tmp_path, kind, row)
    assert (item.answer, item.domain, item.task) == (answer, domain, "t")
    assert not score(item.instruction, item).readable  # the question itself states nothing
    stated = rf"\boxed{{{answer}}}" if item.match in ("stated_number", "math") else answer
    if item.match != "math":  # compared in a process of its own: see test_equivalence
        assert score(f"Perhaps.\n{stated}", item).correct


def test_an_instruction_asks_for_its_form(tmp_path: Path) -> None:
    (item,) = load(tmp_path, "mmlu", {"question": "q?", "choices": OPTIONS, "answer": 1})
    assert "(B) owl" in item.instruction
    assert item.instruction.endswith("A, B, C or D.")
    (item,) = load(tmp_path, "gsm8k", {"question": "q", "answer": "#### 1"})
    assert r"\boxed{}" in item.instruction


def test_normad_shows_its_context_and_no_more(tmp_path: Path) -> None:
    shown = {
        name: load(tmp_path, f"normad_{name}", NORM)[0].instruction
        for name in ("country", "value", "rot")
    }
    assert [name for name, text in shown.items() if "Utopia" in text] == ["country", "value"]
    assert [name for name, text in shown.items() if "Thrift" in text] == ["value"]
    assert [name for name, text in shown.items() if "Waste" in text] == ["rot"]
    assert not [text for text in shown.values() if "SECRET" in text]
    with pytest.raises(ConfigError, match="no Value or value"):
        load(tmp_path, "normad_value", {**NORM, "Value": ""})


def test_gpqa_hides_which_option_came_first(tmp_path: Path) -> None:
    rows = [{**GPQA, "Question": f"q{n}"} for n in range(200)]
    items = load(tmp_path, "gpqa", *rows)
    assert {dict(item.choices)[item.answer] for item in items} == {"owl"}
    assert min(Counter(item.answer for item in items).values()) > 25
    assert load(tmp_path, "gpqa", *rows[::-1]) == items[::-1]
    with pytest.raises(ConfigError, match="has the text of the right one"):
        load(tmp_path, "gpqa", {**GPQA, "Incorrect Answer 2": "owl"})


def test_redux_leaves_out_rows_without_one_right_option(tmp_path: Path) -> None:
    row = {"choices": OPTIONS, "answer": 1}
    items = load(
        tmp_path, "mmlu_redux",
        {"question": "a", "error_type": "ok", **row},
        {"question": "b", "error_type": "multiple_correct_answers", **row},
        {"question": "c", "error_type": "wrong_groundtruth", **row},
    )  # fmt: skip
    assert len(items) == 1
    with pytest.raises(ConfigError, match="unknown error_type 'odd'"):
        load(tmp_path, "mmlu_redux", {"question": "a", "error_type": "odd", **row})


def test_truthfulqa(tmp_path: Path) -> None:
    (one,) = load(tmp_path, "truthfulqa_mc1", TRUE)
    assert dict(one.choices)[one.answer] == "To three."
    (two,) = load(tmp_path, "truthfulqa_mc2", TRUE)
    assert {dict(two.choices)[label] for label in two.answer.split()} == {"To three.", "A little."}
    rows = [{**TRUE, "question": f"q{n}"} for n in range(60)]
    assert set(Counter(item.answer for item in load(tmp_path, "truthfulqa_mc1", *rows))) == {*"ABC"}
    (letter,) = load(tmp_path, "truthfulqa", TRUE)
    assert letter.match == "choice"
    assert letter.choices == one.choices
    with pytest.raises(ConfigError, match="2 choices of mc1 are true"):
        load(tmp_path, "truthfulqa_mc1", {"question": "q", "mc1_targets": {"a": 1, "b": 1, "c": 0}})
    both = {"choices": ["a", "a", "b"], "labels": [1, 0, 0]}
    with pytest.raises(ConfigError, match="both true and false"):
        load(tmp_path, "truthfulqa_mc2", {"question": "q", "mc2_targets": both})


def test_kcross_wants_every_blank(tmp_path: Path) -> None:
    (item,) = load(tmp_path, "kcross", CROSS)
    assert score("blank 1: B, blank 2: B", item) == Score(False, True, partial=0.5)
    assert score("blank 1: B, blank 2: A", item) == Score(True, True, partial=1.0)
    assert score("blank 1: A, blank 2: B", item).share == 0
    assert not score("blank 1: B", item).readable
    assert score("blank 1: B", item).share == 0


def test_all_bad_rows_in_one_error(tmp_path: Path) -> None:
    good = {"question": "a", "options": LETTERED, "answer_idx": "A"}
    rows = [
        good,
        {**good, "question": " "},
        {**good, "answer_idx": "E"},
        {**good, "options": {"A": "x"}},
        {**good, "options": {"A": "x", "B": ""}},
        {"question": "b", "answer": "x"},
        {**good, "id": "1"},
        {**good, "id": "1", "question": "other"},
    ]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "medqa", *rows)
    assert [fault.split("jsonl:")[1] for fault in caught.value.faults] == [
        "2: no prompt or question",
        "3: the answer 'E' is none of the options A, B, C, D",
        "4: 1 options; a choice needs two",
        "5: option B is empty",
        "6: no choices or options and no columns A, B, C, ...",
        "8: id 1 already used on line 7 by another question",
    ]


def test_bad_rows_are_skipped_and_counted_where_the_task_says_so(tmp_path: Path) -> None:
    good = {"prompt": "3 + 4?", "answer": "7"}
    rows = [good, {"prompt": "5?", "answer": None}, {"prompt": "6?", "answer": " "}]
    with pytest.raises(ConfigError, match="or set bad_rows: skip for the task in") as refused:
        load(tmp_path, "math", *rows)
    assert len(refused.value.faults) == 2
    (item,) = load(tmp_path, "math", *rows, bad_rows="skip")
    assert item.answer == "7"
    skipping = TaskSettings(
        name="t", source=str(tmp_path / "rows.jsonl"), kind="math", bad_rows="skip"
    )
    assert skipped_rows(skipping).splitlines() == [
        "task t: skipped 2 of 3 rows",
        "  line 2: no answer or solution",
        "  line 3: no answer or solution",
    ]
    assert skipped_rows(skipping.model_copy(update={"bad_rows": "refuse"})) == ""
    own = [OWN, {"instruction": "Two?", "answer": "two"}, {"instruction": "Three?", "answer": "3"}]
    (item,) = load(tmp_path, "", *own, match="number", bad_rows="skip")
    assert item.answer == "3"
    with pytest.raises(ConfigError, match="bad rows; mend them"):
        load(tmp_path, "math", *rows[1:], bad_rows="skip")


def test_all_own_answers_that_can_never_match_in_one_error(tmp_path: Path) -> None:
    rows = [{"instruction": str(n), "answer": word} for n, word in enumerate(("one", "2", "two"))]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", *rows, match="number")
    assert len(caught.value.faults) == 2


def test_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    (item,) = load(tmp_path, "com2", {"question": "Why?", "answer": "to rest"})
    assert item.match == "judged"
    assert normalise("To  rest.", item) == "to rest"
    with pytest.raises(ConfigError, match="'judged'"):
        score("to rest", item)
    for kind in CONTESTS:
        with pytest.raises(ConfigError, match=f"kind {kind} compares .* phalanx eval"):
            load(tmp_path, kind, {"question": "Why?"})
    with pytest.raises(ConfigError, match="wants the rows of that benchmark"):
        load_task(TaskSettings(name="t", source="builtin:skills", kind="mmlu"), seed=0)


OWN = {"instruction": "Who flies?", "answer": "owl"}


@pytest.mark.parametrize(
    ("match", "row", "right", "wrong"),
    [
        ("exact", OWN, "Answer: Owl.", "the owl flies"),
        ("contains", OWN, "The owl flies.", "The fowl flies."),
        ("number", {"question": "2 + 2?", "answer": 4}, "It makes 4.", "5"),
        ("choice", {"prompt": "Pick A or B.", "answer": "B"}, "Answer: B", "Answer: A"),
        ("choice", {"prompt": "q", "choices": OPTIONS, "answer": "owl"}, "Answer: B", "owl"),
        ("choice", {"prompt": "q", "choices": OPTIONS, "answer": 3}, "Answer: D", "Answer: C"),
        ("choice", {"prompt": "q", "choices": LETTERED, "answer": "C"}, "**C**", "A fox"),
        ("exact", {**OWN, "choices": None, "meta": {"level": 2}}, "owl", "fox"),
    ],
)
def test_own_rows(tmp_path: Path, match: str, row: dict, right: str, wrong: str) -> None:
    (item,) = load(tmp_path, "", row, match=match)
    assert [score(text, item).correct for text in (right, wrong)] == [True, False]
    shown = [f"({label}) {text}" for label, text in item.choices]
    assert len(shown) == (len(OPTIONS) if row.get("choices") else 0)
    assert all(text in item.instruction for text in shown)


def test_own_rows_with_the_same_question_and_other_options_are_two(tmp_path: Path) -> None:
    row = {"prompt": "Which is true?", "answer": "A"}
    rows = [{**row, "choices": ["x", "y"]}, {**row, "choices": ["x", "z"]}]
    assert len({item.id for item in load(tmp_path, "", *rows, match="choice")}) == 2
    assert len(load(tmp_path, "", rows[0], rows[0], match="choice")) == 1


def test_all_bad_own_rows_in_one_error(tmp_path: Path) -> None:
    rows = [
        OWN,
        {"instruction": " ", "answer": "x"},
        {"instruction": "a", "answer": None},
        {"instruction": "b", "answer": "x", "choices": ["x", "y"]},
        {"instruction": [{"role": "user", "content": "c"}], "answer": "x"},
        {**OWN, "answer": "fox"},
    ]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", *rows)
    assert [fault.split("jsonl:")[1] for fault in caught.value.faults] == [
        "2: no instruction or prompt or question",
        "3: no answer",
        "4: has choices, which match: exact does not show; use match: choice, or leave them out",
        "5: instruction is not text",
        f"6: id {load(tmp_path, '', OWN)[0].id} already used on line 1 by another question",
    ]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", {"text": "a", "answers": "b"})
    no_question, no_answer = caught.value.faults
    assert "no row has the column 'instruction' or 'prompt' or 'question'" in no_question
    assert "did you mean 'text'?" in no_question
    assert "no row has the column 'answer'" in no_answer
    assert "did you mean 'answers'?" in no_answer


def test_limit_domains_and_the_lenient_number(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{n}", "choices": OPTIONS, "answer": n % 4, "subject": "ab"[n % 2]}
        for n in range(20)
    ]
    items = load(tmp_path, "mmlu", *rows, limit=3)
    assert Counter(item.domain for item in items) == {"a": 3, "b": 3}
    assert {item.domain for item in load(tmp_path, "mmlu", *rows, domains=["b"])} == {"b"}
    with pytest.raises(ConfigError, match="no rows of the domain c"):
        load(tmp_path, "mmlu", *rows, domains=["c"])
    row = {"question": "2 + 3?", "answer": "#### 5"}
    (strict,) = load(tmp_path, "gsm8k", row)
    (lenient,) = load(tmp_path, "gsm8k", row, match="number")
    assert [score("I get 5 of them", one).correct for one in (strict, lenient)] == [False, True]


def test_csv_cells_hold_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question,choices,answer\nq,"[""fox"", ""owl""]",1\n')
    (item,) = load_task(TaskSettings(name="t", source=str(path), kind="mmlu"), seed=0)
    assert (item.answer, item.labels) == ("B", ("A", "B"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gsm8k", "gsm8k"), ("math_easy", "math"), ("math_medium", "math"), ("math_hard", "math"),
        ("medqa", "medqa"), ("mmlu_redux", "mmlu_redux"), ("kcross", "kcross"), ("com2", "com2"),
        ("normad", "normad_country"), ("truthfulqa", "truthfulqa"),
        ("truthfulqa", "truthfulqa_mc1"), ("truthfulqa", "truthfulqa_mc2"),
    ],
)  # fmt: skip
def test_real_rows(data_dir: Path, name: str, kind: str) -> None:
    table = read_rows(str(data_dir / f"{name}.jsonl"))
    answered = tuple(row for row in table.rows if row.fields["answer"] is not None)
    if len(answered) < len(table.rows):
        with pytest.raises(ConfigError, match="no answer"):
            read_items(table, kind, "t")
    items = read_items(replace(table, rows=answered), kind, "t")
    assert len(items) == len(answered) >= 150
    if items[0].match == "stated_number":
        assert all(score(rf"so \boxed{{{item.answer}}}", item).correct for item in items)
    elif items[0].match in ("choice", "label"):
        said = "No. A man is not B.\nAnswer: {}"
        assert all(score(said.format(item.answer), item).correct for item in items)
        known = {row.fields["prompt"]: row.fields for row in answered}
        for item in items:
            row = known.get(item.instruction.split("\n\n(A) ")[0])
            if row and item.match == "choice":
                assert dict(item.choices)[item.answer] == row["choices"][row["answer"]]
