"""Ledgers that older versions wrote are read as they are, and brought up to date to be written."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import LedgerError
from phalanx.export import rows_of
from phalanx.ledger import Ledger, migrating, run_ledger_path
from phalanx.ledger.labels import Label, labels_of, record_label
from phalanx.ledger.schema import SCHEMA_VERSION, create
from phalanx.loop import align
from phalanx.report import html, markdown
from phalanx.report.facts import gather
from tests.ledger.old import SCHEMAS, SMOKE, TASKS, old_run


def shape(path: Path) -> dict[str, set]:
    """Table -> its columns with their types; "" -> the names of the indexes."""
    with closing(sqlite3.connect(path)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        found = {t: {(r[1], r[2]) for r in db.execute(f"PRAGMA table_info({t})")} for t in tables}
        rows = db.execute("SELECT name FROM sqlite_master WHERE type='index' AND sql NOT NULL")
        return {**found, "": {row[0] for row in rows}}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_old_ledger_is_read_without_being_changed(schema, tmp_path):
    path = old_run(schema, tmp_path / "run")
    before = digest(path)
    with Ledger(path) as ledger:
        facts = gather(ledger)
        assert facts.accounting.num_duels == 12
        assert ledger.query("SELECT * FROM labels") == []
        assert ledger.query("SELECT advantage, chosen_probability FROM pairs LEFT JOIN "
                            "demonstrations ON 0 LIMIT 1") == [
            {"advantage": None, "chosen_probability": None}
        ]  # fmt: skip
        scores = ledger.query("SELECT score, correct FROM evaluations")
        assert len(scores) == 144
        assert all(row["score"] == row["correct"] for row in scores)
        assert len(list(rows_of(ledger, "judgments"))) == ledger.count("judgments")
    html.write_html(facts, tmp_path / "report.html")
    markdown.write_markdown(facts, tmp_path / "report.md")
    assert digest(path) == before
    assert not list((tmp_path / "run").glob("ledger.sqlite.schema*"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_old_ledger_is_brought_up_to_date_and_its_rows_stay(schema, tmp_path):
    path = old_run(schema, tmp_path / "run")
    with Ledger(path) as ledger:
        before = ledger.contents()
    with Ledger(path, writable=True) as ledger:
        after = ledger.contents()
        duel = ledger.query("SELECT id FROM duels")[0]["id"]
        record_label(ledger, Label(duel, "eve", "tie"))
        assert len(labels_of(ledger)) == 1
        said = ledger.query("SELECT text FROM events WHERE kind = 'migration'")
    assert [row["text"].startswith(f"ledger schema {schema} brought") for row in said] == [True]
    for table, rows in before.items():
        kept = [row for row in rows if row.get("key") != "schema_version"]
        assert [row for row in after[table] if row.get("key") != "schema_version"] == kept
    create(tmp_path / "fresh.sqlite")
    assert shape(path) == shape(tmp_path / "fresh.sqlite")
    backup = path.with_name(f"ledger.sqlite.schema-{schema}")
    with Ledger(path, writable=True) as ledger:
        assert ledger.count("events", "kind = 'migration'") == 1
    moved = tmp_path / "old"
    moved.mkdir()
    shutil.copy(backup, run_ledger_path(moved))
    with Ledger(run_ledger_path(moved)) as ledger:
        assert ledger.contents() == before
        assert ledger.get("schema_version") == str(schema)


def test_an_old_run_goes_on(tmp_path):
    old_run(5, tmp_path / "run")
    settings = [TASKS, "iterations=3"]
    align(load(SMOKE / "rubric.yaml", settings), tmp_path / "run")
    align(load(SMOKE / "rubric.yaml", settings), tmp_path / "whole")
    with (
        Ledger(run_ledger_path(tmp_path / "run")) as gone_on,
        Ledger(run_ledger_path(tmp_path / "whole")) as whole,
    ):
        ours, theirs = gone_on.contents(), whole.contents()
    assert ours["outcomes"] == theirs["outcomes"]
    assert ours["states"] == theirs["states"]
    assert len(ours["outcomes"]) == 18


def test_a_newer_ledger_is_refused_and_says_what_to_do(tmp_path):
    path = tmp_path / "ledger.sqlite"
    create(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE run SET value = '{SCHEMA_VERSION + 1}'")
    for writable in (False, True):
        with pytest.raises(LedgerError, match=r"newer than the .* update phalanx"):
            Ledger(path, writable=writable)
    assert not list(tmp_path.glob("ledger.sqlite.schema*"))


@pytest.mark.parametrize("text", ["1", "0", "six", ""])
def test_what_was_never_a_schema_that_is_read_is_refused(text, tmp_path):
    path = tmp_path / "ledger.sqlite"
    create(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE run SET value = ?", (text,))
    with pytest.raises(LedgerError, match="use the version that wrote it"):
        Ledger(path, writable=True)


def _migrate_and_die(path: str, where: str) -> None:
    """Kill this process where the migration calls ``where``."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "backup":
        migrating.os.replace = die
    else:
        migrating.time.time = die  # after all tables and columns, before the end of it
    Ledger(path, writable=True)


@pytest.mark.parametrize("where", ["backup", "end"])
def test_who_is_killed_while_migrating_leaves_the_old_ledger(where, tmp_path):
    path = old_run(5, tmp_path / "run")
    with Ledger(path) as ledger:
        before = ledger.contents()
    process = multiprocessing.get_context("spawn").Process(
        target=_migrate_and_die, args=(str(path), where)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        assert "labels" not in tables
    with Ledger(path) as ledger:
        assert ledger.get("schema_version") == "5"
        assert ledger.contents() == before
    with Ledger(path, writable=True) as ledger:
        assert ledger.get("schema_version") == str(SCHEMA_VERSION)
        assert ledger.contents()["duels"] == before["duels"]


def test_no_room_for_the_copy_is_said_and_nothing_is_changed(tmp_path, monkeypatch):
    path = old_run(4, tmp_path / "run")
    before = digest(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(migrating.os, "replace", full)
    with pytest.raises(LedgerError, match=r"no copy of it can be made beside it .*No space left"):
        Ledger(path, writable=True)
    monkeypatch.undo()
    assert digest(path) == before
    assert [p.name for p in path.parent.glob("*schema*")] == []


def test_a_log_that_cannot_be_read_here_is_told_from_damage(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    error = sqlite3.OperationalError("unable to open database file")
    assert "is not a ledger" in str(migrating.unopened(path, error))
    (tmp_path / "ledger.sqlite-wal").write_text("rows")
    assert "is not a ledger" in str(migrating.unopened(path, error))
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a disk that cannot be written to
    assert "copy the whole folder" in str(migrating.unopened(path, error))
    damaged = sqlite3.DatabaseError("file is not a database")
    assert "is not a ledger" in str(migrating.unopened(path, damaged))
