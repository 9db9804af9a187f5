from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from phalanx import skills
from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError
from phalanx.tasks import load_task, split_of


def write(folder: Path, *rows: dict) -> str:
    path = folder / "task.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_builtin_skills() -> None:
    task = TaskSettings(name="skills", source="builtin:skills", limit=7)
    items = load_task(task, seed=1)
    assert Counter(item.domain for item in items) == dict.fromkeys(skills.DOMAINS, 7)
    assert len({item.id for item in items}) == len(items)
    assert {(item.task, item.match) for item in items} == {("skills", "exact")}
    assert load_task(task, seed=1) == items != load_task(task, seed=2)


def test_file(tmp_path: Path) -> None:
    rows = [
        {"instruction": f"q{n}", "answer": n, "domain": "even" if n % 2 == 0 else "odd"}
        for n in range(20)
    ]
    path = write(tmp_path, *rows)
    items = load_task(TaskSettings(name="t", source=path, match="number"), seed=0)
    assert [item.answer for item in items] == [str(n) for n in range(20)]
    few = load_task(TaskSettings(name="t", source=path, match="number", limit=3), seed=0)
    assert Counter(item.domain for item in few) == {"even": 3, "odd": 3}
    assert [items.index(item) for item in few] == sorted(items.index(item) for item in few)


def test_rows_without_an_answer_are_listed(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"instruction": "a", "answer": "1"}, {"instruction": "b"},
        {"instruction": "c", "answer": " "},
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        load_task(TaskSettings(name="t", source=path), seed=0)
    assert [fault.split("jsonl:")[1] for fault in caught.value.faults] == [
        "2: no answer",
        "3: no answer",
    ]


def test_an_answer_that_can_never_match_is_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"instruction": "a", "answer": "four"}, {"instruction": "b", "answer": 1}
    )
    with pytest.raises(ConfigError, match=r"'four'.*match 'number'"):
        load_task(TaskSettings(name="t", source=path, match="number"), seed=0)


def test_split_is_stable_when_items_are_added(tmp_path: Path) -> None:
    rows = [{"instruction": f"q{n}", "answer": "x"} for n in range(400)]
    task = TaskSettings(name="t", source=write(tmp_path, *rows))
    before = {item.instruction: split_of(item, 0.3) for item in load_task(task, seed=0)}
    more = [{"instruction": "new", "answer": "x"}, *rows[::-1]]
    task = TaskSettings(name="t", source=write(tmp_path, *more))
    after = {item.instruction: split_of(item, 0.3) for item in load_task(task, seed=0)}
    assert all(after[text] == part for text, part in before.items())
    assert 0.22 < sum(part == "dev" for part in before.values()) / 400 < 0.38
    items = load_task(task, seed=0)
    assert {split_of(item, 0) for item in items} == {"test"}
    assert {split_of(item, 1) for item in items} == {"dev"}
