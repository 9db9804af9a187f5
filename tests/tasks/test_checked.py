"""HumanEval and IFEval as tasks of a run: read, asked, scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError
from phalanx.tasks import code_runner, load_task, normalise, score
from phalanx.tasks.code_runner import SandboxError

PROBLEM = {
    "task_id": "own/0",
    "prompt": 'def twice(x):\n    """Twice the number."""\n',
    "entry_point": "twice",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
TWICE = "```python\ndef twice(x):\n    return x + x\n```"
ASKED = {
    "key": 7,
    "prompt": "Name a city. Write in lower case and use no commas.",
    "instruction_id_list": ["change_case:english_lowercase", "punctuation:no_comma"],
    "kwargs": [{}, {}],
}


def task(tmp_path: Path, kind: str, *rows: dict) -> list:
    path = tmp_path / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(load_task(TaskSettings(name=kind, kind=kind, source=str(path)), seed=0))


def test_a_function_is_asked_for_and_run(tmp_path):
    (item,) = task(tmp_path, "humaneval", PROBLEM)
    assert "```python\ndef twice(x):" in item.instruction
    right = score(TWICE, item)
    wrong = score("```python\ndef twice(x):\n    return x\n```", item)
    thought = score("<think>\ndef twice(x):\n    return 5\n</think>\n" + TWICE, item)
    none = score("I would rather not.", item)
    assert (right.correct, right.readable) == (True, True)
    assert thought.correct
    assert (wrong.correct, wrong.readable, wrong.reason) == (False, True, "AssertionError")
    assert (none.correct, none.readable) == (False, False)


def test_each_instruction_is_checked(tmp_path):
    (item,) = task(tmp_path, "ifeval", ASKED)
    assert item.instruction == ASKED["prompt"]
    assert score("lima is a city in peru.", item).correct
    assert normalise("lima is a city in peru.", item) == "", "there is nothing to vote on"
    found = score("lima, in peru.", item)
    assert (found.correct, found.reason) == (False, "punctuation:no_comma")
    assert score("<think>Well, well.</think>lima is a city.", item).correct
    assert score("<think>lima</think>", item).reason == "empty"


def test_what_cannot_be_checked_is_refused_by_line(tmp_path):
    unknown = ASKED | {"key": 8, "instruction_id_list": ["no:such", "punctuation:no_comma"]}
    with pytest.raises(ConfigError, match=r"ifeval\.jsonl:2: the instruction 'no:such'"):
        task(tmp_path, "ifeval", ASKED, unknown)
    with pytest.raises(ConfigError, match="test must be a text"):
        task(tmp_path, "humaneval", PROBLEM | {"test": ""})


def test_code_that_cannot_be_run_safely_is_said_before_anybody_is_asked(tmp_path, monkeypatch):
    def refuse(*_):
        raise SandboxError("no")

    monkeypatch.setattr(code_runner, "_run", refuse)
    code_runner.isolation.cache_clear()
    try:
        with pytest.raises(SandboxError, match="leave out code tasks"):
            task(tmp_path, "humaneval", PROBLEM)
    finally:
        code_runner.isolation.cache_clear()
