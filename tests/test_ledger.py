"""Rows become true together, survive a crash, and belong to one writer."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest

from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import (
    Failure,
    Instruction,
    Member,
    Message,
    Request,
    Response,
    Sampling,
    TrainResult,
)

ADA = Member("ada", "base")


def request(number: int) -> Request:
    return Request(f"r{number}", ADA, (Message("user", f"Say {number}"),), Sampling(), "answer", 5)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as opened:
        opened.record_start({"pool_order": '["bob", "ada"]'}, [ADA, Member("bob", "b")],
                            [Instruction("i", "Say 1", flags=("cleaned_text",))])  # fmt: skip
        yield opened


def test_a_response_comes_back_as_it_was(ledger):
    rich = Response(
        "r1", text="hé\n", finish_reason="length", num_prompt_tokens=3, flags=("cleaned_text",)
    )
    options = Response("r2", probabilities={"1": 0.25, "10": 0.75}, option_mass=0.5)
    failed = Response("r3", error=Failure("timeout", "after 3 s", transient=True))
    batch = [(request(n), reply, 1) for n, reply in enumerate([rich, options, failed], start=1)]
    ledger.record_responses(1, "answer", batch, 0.3)
    found = ledger.responses(["r1", "r2", "r3", "r4"])
    assert {key: reply for key, (reply, _) in found.items()} == {
        "r1": rich,
        "r2": options,
        "r3": failed,
    }


def test_a_failed_row_is_replaced_when_it_is_answered(ledger):
    """A failure that is stored as done would never be asked again."""
    failed = Response("r1", error=Failure("engine", "out of memory", transient=True))
    ledger.record_responses(1, "answer", [(request(1), failed, 1)], 0.1)
    assert ledger.count("responses", "status = 'failed'") == 1
    ledger.record_responses(1, "answer", [(request(1), Response("r1", text="ok"), 2)], 0.1)
    reply, attempts = ledger.responses(["r1"])["r1"]
    assert (reply.text, reply.error, attempts) == ("ok", None, 2)
    assert ledger.count("responses") == 1


def test_members_in_pool_order_and_by_iteration(ledger, tmp_path):
    assert [member.name for member in ledger.members()] == ["bob", "ada"]
    trained = replace(ADA, version=1, adapter=str(ledger.folder.resolve() / "adapters" / "ada"))
    ledger.record_training(1, TrainResult(trained, 4, {}, ({"loss": 0.5},), {}, 1.0))
    assert [member.key for member in ledger.members()] == ["bob@0", "ada@1"]
    assert [member.key for member in ledger.members(0)] == ["bob@0", "ada@0"]


def test_a_run_can_be_moved(ledger, tmp_path):
    trained = replace(ADA, version=1, adapter=str(ledger.folder.resolve() / "adapters" / "ada"))
    ledger.record_training(1, TrainResult(trained, 4, {}, (), {}, 1.0))
    ledger.close()
    moved = tmp_path / "elsewhere"
    (tmp_path / "run").rename(moved)
    with Ledger(run_ledger_path(moved)) as again:
        assert again.members()[1].adapter == str(moved / "adapters" / "ada")


def test_a_transaction_is_all_or_nothing(ledger):
    bad = [
        (request(1), Response("r1", text="x"), 1),
        (request(2), Response("r2", text=object()), 1),
    ]
    with pytest.raises(sqlite3.Error):
        ledger.record_responses(1, "answer", bad, 0.1)
    assert ledger.count("responses") == 0


def test_a_second_process_is_refused(ledger):
    code = (
        "import sys\nfrom phalanx.ledger import Ledger\nfrom phalanx.errors import LedgerError\n"
        "try:\n    Ledger(sys.argv[1], writable=True)\n"
        "except LedgerError as error:\n    print(error); sys.exit(7)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ledger.path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 7
    assert "in use by process" in done.stdout
    with Ledger(ledger.path) as reader:  # reading is allowed meanwhile
        assert reader.count("members") == 2
        with pytest.raises(sqlite3.OperationalError):
            reader.put("key", "value")


def test_folders_without_a_run_and_other_files(tmp_path):
    with pytest.raises(LedgerError, match="no run in"):
        Ledger(tmp_path / "ledger.sqlite")
    (tmp_path / "ledger.sqlite").write_text("this is not a database, by far", encoding="utf-8")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(tmp_path / "ledger.sqlite")


def test_another_schema_is_refused(ledger):
    ledger.put("schema_version", "99")
    ledger.close()
    with pytest.raises(LedgerError, match="schema 99"):
        Ledger(ledger.path)


@pytest.mark.parametrize("name", ["r#1", "r?x", "r%41", "r mit Lücke"])
def test_any_folder_name_works(name, tmp_path):
    """SQLite reads #, ? and % in a file name as something else, unless they are quoted."""
    path = run_ledger_path(tmp_path / name)
    with Ledger(path, writable=True) as opened:
        opened.put("key", "value")
    with Ledger(path) as reader:
        assert reader.get("key") == "value"
        with pytest.raises(sqlite3.OperationalError):
            reader.put("key", "other")
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_nothing_is_written_over_the_run(ledger):
    for own in ("ledger.sqlite", "lock", "adapters/x", "adapters", ".", "../run/ledger.sqlite-wal"):
        with pytest.raises(LedgerError, match="run"):
            ledger.refuse_target(ledger.folder / own)
    ledger.refuse_target(ledger.folder / "report.html")


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "run").write_text("x", encoding="utf-8")
    with pytest.raises(LedgerError, match="cannot be a run's folder"):
        Ledger(run_ledger_path(tmp_path / "run"), writable=True)
