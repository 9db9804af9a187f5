"""What is written takes its place whole; links stay links, and pipes stay pipes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.cli.asking import write_jsonl
from phalanx.placing import placed
from phalanx.report.html import write_whole

ROWS = [{"line": 1, "response": "ä"}]
LINE = '{"line": 1, "response": "ä"}\n'


def write_rows(path: Path) -> None:
    write_jsonl(path, ROWS)


def write_page(path: Path) -> None:
    write_whole(path, LINE)


def through(pipe: Path, write: Callable[[Path], None]) -> str:
    """What ``write`` wrote into a pipe; BlockingIOError where that is nothing."""
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # neither side waits for the other one
    try:
        write(pipe)
        return os.read(end, 4096).decode()
    finally:
        os.close(end)


@pytest.mark.parametrize("write", [write_rows, write_page])
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to_and_stays(tmp_path, write, linked):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    named = tmp_path / "link" if linked else pipe
    if linked:
        named.symlink_to(pipe)
    assert through(named, write) == LINE
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert named.is_symlink() == linked
    assert len(list(tmp_path.iterdir())) == 1 + linked


@pytest.mark.parametrize("write", [write_rows, write_page])
@pytest.mark.parametrize("there", [False, True])
def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path, write, there):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "rows.jsonl", tmp_path / "link.jsonl"
    if there:
        target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == LINE
    assert [path.name for path in target.parent.iterdir()] == ["rows.jsonl"]


def test_an_error_keeps_what_was_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, ROWS)
    with pytest.raises(TypeError):
        write_jsonl(path, [{"line": 2}, {"line": object()}])
    assert path.read_text(encoding="utf-8") == LINE
    assert [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_folder_behind_a_link_is_replaced_whole(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "old").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "set")
    with placed(tmp_path / "link") as folder:
        folder.mkdir()
        (folder / "new").write_text("new", encoding="utf-8")
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "set"]
