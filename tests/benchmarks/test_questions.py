"""Questions of contests, and files of one model's answers."""

from __future__ import annotations

import pytest

from phalanx.benchmarks.questions import read_outputs, read_questions
from phalanx.benchmarks.records import Question
from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError

MT_TWO = {"question_id": 1, "category": "math", "turns": ["a?", "b?"], "reference": ["1", "2"]}
PREPARED = {"id": "x/9", "prompt": "Why?", "choices": None, "answer": None,
            "meta": {"index": 9, "subset": "s"}}  # fmt: skip


def task(kind: str, source: str, **more) -> TaskSettings:
    return TaskSettings(name="t", kind=kind, source=source, **more)


@pytest.mark.parametrize(
    ("kind", "row", "question"),
    [
        ("alpaca_eval", {"instruction": "Q?", "dataset": "k", "output": "A"},
         Question("0", ("Q?",), "k", ("A",), 0)),
        ("alpaca_eval", PREPARED, Question("x/9", ("Why?",), "s", (), 9)),
        ("mt_bench", MT_TWO, Question("1", ("a?", "b?"), "math", ("1", "2"))),
        ("open", {"instruction": "Add.", "input": "1 and 2", "output": "3", "id": "a"},
         Question("a", ("Add.\n\n1 and 2",), "", ("3",))),
        ("open", {"prompt": "Why?", "input": " ", "domain": "d", "id": 7},
         Question("7", ("Why?",), "d")),
        ("open", PREPARED, Question("x/9", ("Why?",), "s", (), 9)),
    ],
)  # fmt: skip
def test_every_kind_reads_published_and_prepared_rows(write, kind, row, question):
    found = read_questions(task(kind, write([row])), 0)
    assert found.rows == (question,)
    assert found.version == "v0.1"


def test_the_rows_say_which_arena_hard_it_is(write):
    two = [{"uid": "u", "category": "hard", "prompt": "Q?"}]
    assert read_questions(task("arena_hard", write(two)), 0).version == "v2.0"
    one = [{"question_id": "q", "cluster": "c", "turns": [{"content": "Q?"}]}]
    assert read_questions(task("arena_hard", write(one)), 0).version == "v0.1"


def test_a_limit_draws_of_each_group_and_keeps_the_order(write):
    rows = [{"instruction": f"q{n}", "id": str(n), "domain": "ab"[n % 2]} for n in range(20)]
    source = write(rows)
    found = read_questions(task("open", source, limit=3), 5).rows
    assert [row.group for row in found].count("a") == 3 == len(found) / 2
    ids = [int(row.id) for row in found]
    assert ids == sorted(ids)
    assert found == read_questions(task("open", source, limit=3), 5).rows
    assert found != read_questions(task("open", source, limit=3), 6).rows
    few = read_questions(task("open", source, limit=3, total=4), 5).rows
    more = read_questions(task("open", source, limit=3, total=5), 5).rows
    assert (len(few), len(more)) == (4, 5)
    assert set(few) < set(more) < set(found)
    assert list(more) == [row for row in found if row in more]
    only = read_questions(task("open", source, domains=["b"]), 5).rows
    assert {row.group for row in only} == {"b"}
    with pytest.raises(ConfigError, match="no rows of the domain z; domains there: a, b"):
        read_questions(task("open", source, domains=["z"]), 5)


def test_rows_that_do_not_fit_are_listed(write):
    with pytest.raises(ConfigError, match="2 faults") as refused:
        read_questions(task("open", write([{"text": "a"}, {"prompt": " "}, {"prompt": "c"}])), 0)
    assert "line 1: has none of instruction, prompt, question" in str(refused.value)
    with pytest.raises(ConfigError, match="MT-Bench has two turns, and 1 rows have not"):
        read_questions(task("mt_bench", write([PREPARED])), 0)


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "Q?", "output": "yes", "generator": "m"},
        {"id": "7", "output": "yes", "generator": "m"},
        {"question_id": "7", "model_id": "m", "choices": [{"turns": [{"content": "yes"}]}]},
        {"uid": "7", "model": "m", "messages": [
            {"role": "user", "content": "Q?"},
            {"role": "assistant", "content": {"answer": "yes"}}]},
    ],
)  # fmt: skip
def test_answers_in_any_published_form(write, row):
    found = read_outputs(write([row]))
    assert found.generator == "m"
    assert found.of(Question("arena_hard/7", ("Q?",))) == "yes"
    assert found.of(Question("8", ("Other?",))) is None


def test_an_id_beside_another_question_is_not_that_question(write):
    row = {"id": "1", "instruction": "A?", "input": "x", "output": "to A"}
    found = read_outputs(write([row, {"id": "2", "instruction": "B?", "output": "to B"}]))
    assert found.of(Question("1", ("A?\n\nx",))) == "to A"
    assert found.of(Question("1", ("C?",))) is None
    assert found.of(Question("1", ("B?",))) == "to B"
    with pytest.raises(ConfigError, match="line 2: repeats '1' of line 1"):
        read_outputs(write([row, {"id": "1", "instruction": "B?", "output": "to B"}]))


def test_answers_that_do_not_fit_are_refused(write):
    rows = [{"output": "x"}, {"id": "1"}, {"id": "2", "choices": []}]
    with pytest.raises(ConfigError, match="3 faults"):
        read_outputs(write(rows))
    two = [{"id": str(n), "output": "x", "generator": f"m{n}"} for n in range(2)]
    with pytest.raises(ConfigError, match=r"answers of 2 models \(m0, m1\)"):
        read_outputs(write(two))


def test_prepared_questions_are_those_of_the_split(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"id": ["x"], "prompt": ["Why?"], "meta": [{"subset": "s"}]}
    dev = datasets.Dataset.from_dict(rows)
    train = datasets.Dataset.from_dict(rows | {"id": ["y"]})
    datasets.DatasetDict({"train": train, "dev": dev}).save_to_disk(str(tmp_path / "set"))
    found = read_questions(task("open", str(tmp_path / "set"), split="dev"), 0)
    assert [row.id for row in found.rows] == ["x"]
