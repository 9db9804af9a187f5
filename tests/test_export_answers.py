"""The files of exported answers: one for each model of each task, none over another."""

from __future__ import annotations

import pytest

import phalanx
from phalanx.config.schema_evaluate import TaskSettings
from phalanx.errors import ConfigError
from phalanx.measuring.subjects import Subject
from tests.measuring.test_contests import ANSWERS, ARENA, Table
from tests.scripts import read_rows, write_rows


def arena(folder, name: str, count: int, baseline: str) -> TaskSettings:
    rows = [
        {"question_id": f"q{n}", "cluster": "c", "turns": [{"content": f"How, {n}?"}]}
        for n in range(count)
    ]
    source = str(write_rows(folder / f"{name}.jsonl", rows))
    return TaskSettings(name=name, kind="arena_hard", source=source, baseline=baseline)


def test_files_of_several_tasks_have_names_of_their_own(tmp_path):
    """Joined by a sign that names have as well, t-x of ada and t of x-ada would be one file."""
    table = Table(tmp_path, ANSWERS + ARENA)
    x_ada = Subject("x-ada", (table.members["ada"],))
    usual = table.subjects
    table.subjects = lambda *names: [x_ada if n == "x-ada" else usual(n)[0] for n in names]
    table.play(arena(tmp_path, "t", 1, "bob"), "bob x-ada")
    table.play(arena(tmp_path, "t-x", 2, "bob"), "bob ada")
    out = tmp_path / "answers"
    assert phalanx.open_run(table.folder).export("arena-hard", out) == 2 + 4
    assert {path.name: len(read_rows(path)) for path in out.iterdir()} == {
        "t+bob.jsonl": 1, "t+x-ada.jsonl": 1, "t-x+bob.jsonl": 2, "t-x+ada.jsonl": 2,
    }  # fmt: skip


def test_no_file_is_written_over_another(tmp_path):
    table = Table(tmp_path, ANSWERS + ARENA)
    of_ada = Subject("a/b", (table.members["ada"],))
    of_eve = Subject("a_b", (table.members["eve"],))
    bob = table.subjects("bob")[0]
    table.subjects = lambda *names: [bob, of_ada, of_eve]
    table.play(arena(tmp_path, "t", 1, "bob"), "all")
    with pytest.raises(ConfigError, match=r"same file: a_b\.jsonl"):
        phalanx.open_run(table.folder).export("arena-hard", tmp_path / "answers")
    assert not (tmp_path / "answers").exists()
