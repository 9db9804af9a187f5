"""Rows become true together, survive a crash, and belong to one writer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import LedgerError
from phalanx.identity import canonical_json, messages_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.schema import create
from phalanx.ledger.texts import LONG_LINE, TextReader, TextWriter
from phalanx.types import (
    Failure,
    Instruction,
    IterationResult,
    Judgment,
    Member,
    Message,
    Options,
    Outcome,
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


def test_a_member_with_a_base_of_its_own_moves_with_its_run(ledger, tmp_path):
    """All its weights were trained: its base is a folder of the run, and it has no adapter."""
    own = replace(ADA, version=1, base=str(ledger.folder.resolve() / "adapters" / "ada"))
    own = replace(own, adapter=None)
    ledger.record_training(1, TrainResult(own, 4, {}, (), {}, 1.0))
    assert ledger.members()[1] == own
    (row,) = ledger.query("SELECT base, record FROM members WHERE version = 1")
    assert row["base"] == "run:adapters/ada"
    assert str(tmp_path) not in row["record"]
    ledger.close()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with Ledger(run_ledger_path(tmp_path / "elsewhere")) as again:
        assert again.members()[1].base == str(tmp_path / "elsewhere" / "adapters" / "ada")
        assert again.members(0)[1].base == ADA.base


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


def test_a_ledger_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    """Whoever is killed before the first commit leaves nothing that a reader would refuse."""
    path = tmp_path / "run" / "ledger.sqlite"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("phalanx.ledger.schema.os.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            Ledger(path, writable=True)
    assert not path.exists()
    with Ledger(path, writable=True) as ledger:
        assert ledger.is_untouched()
    with Ledger(path) as reader:
        assert reader.is_untouched()


def test_no_moment_of_a_start_leaves_a_ledger_that_readers_cannot_open(tmp_path):
    """A change of the journal's kind in place could be cut off by a kill; see ``create``."""
    path = run_ledger_path(tmp_path)
    for end in ("-journal", "-wal", "-shm"):
        (tmp_path / f"{path.name}.new{end}").write_bytes(b"of a start that was killed")
    create(path)
    assert path.read_bytes()[18:20] == bytes([2, 2])  # a WAL, in SQLite's file format
    assert list(tmp_path.iterdir()) == [path]
    with Ledger(path) as ledger:
        assert ledger.is_untouched()


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
    for folder in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(LedgerError, match="is, or is in, a file; name a folder"):
            Ledger(run_ledger_path(folder), writable=True)


READER = """
import os, sys
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
if not os.geteuid():
    os.setuid(65534)  # to root nothing is read-only
with Ledger(run_ledger_path(sys.argv[1])) as ledger:
    print(ledger.get("seed"))
try:
    Ledger(run_ledger_path(sys.argv[1]), writable=True)
except LedgerError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_run_in_a_folder_that_cannot_be_written_to_is_read(how):
    with tempfile.TemporaryDirectory() as name:  # one that everybody may enter, as tmp_path is not
        folder = Path(name) / "run"
        writer = multiprocessing.get_context("fork").Process(target=_write, args=(folder, how))
        writer.start()
        writer.join()
        assert run_ledger_path(folder).with_name("ledger.sqlite-wal").exists() == (how == "killed")
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        try:
            done = subprocess.run(
                [sys.executable, "-c", READER, folder], capture_output=True, text=True, timeout=60
            )
        finally:
            folder.chmod(0o755)
        assert done.returncode == 0, done.stderr
        read, refused = done.stdout.splitlines()
        assert read == "7"
        assert refused == (
            f"nothing can be recorded in {folder}: Permission denied; make it writable, or name "
            "another folder"
        )


def _write(folder: Path, how: str) -> None:
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.put("seed", "7")
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


LINES = st.text(st.sampled_from('ab\n "\r'), max_size=3 * LONG_LINE)


@given(st.lists(st.builds(Message, st.sampled_from(["system", "user"]), LINES), max_size=3))
def test_packed_messages_come_back_whole(messages):
    writer = TextWriter(1)
    packed = [writer.pack(messages) for _ in range(2)]
    stored = dict(writer.take())
    assert packed[0] == packed[1]
    assert writer.take() == []
    assert TextReader(stored.__getitem__).messages(packed[0]) == messages_json(messages)


def options_request(number: int, text: str) -> Request:
    want = Options('{"score": ', ("1", "2", "10"))
    return Request(f"r{number}", ADA, (Message("user", text),), want, "judge", 5)


def test_a_long_line_is_stored_once_and_read_in_full(ledger):
    long = "Judge how good this response is, and weigh whether it is right. " * 3
    asked = [options_request(n, f"{long}\nnumber {n}") for n in (1, 2, 3)]
    chances = {"1": 0.1, "2": 0.2, "10": 0.7}
    other = {"10": 0.7, "2": 0.3}  # not the options in their order: kept as they are
    batch = [
        (request, Response(request.id, probabilities=given), 1)
        for request, given in zip(asked, (chances, other, None), strict=True)
    ]
    ledger.record_responses(1, "judge", batch, 0.1)
    assert ledger.count("texts", "text = ?", (long,)) == 1
    rows = ledger.query(
        "SELECT full_messages(messages) AS messages, full_text(want) AS want, "
        "full_probabilities(probabilities, want) AS probabilities FROM responses ORDER BY id"
    )
    assert [row["messages"] for row in rows] == [messages_json(r.messages) for r in asked]
    assert {row["want"] for row in rows} == {canonical_json(asked[0].want)}
    assert [row["probabilities"] for row in rows] == [
        canonical_json(chances), canonical_json(other), None,
    ]  # fmt: skip
    assert [reply.probabilities for reply, _ in ledger.responses(["r1", "r2", "r3"]).values()] == [
        chances, other, None,
    ]  # fmt: skip


def test_a_refused_batch_leaves_no_line_that_later_rows_point_to(ledger):
    long = "x" * (LONG_LINE + 1)
    broken = (options_request(1, long), Response("r1", text=object()), 1)
    with pytest.raises(sqlite3.Error):
        ledger.record_responses(1, "judge", [broken], 0.1)
    ledger.record_responses(1, "judge", [(options_request(2, long), Response("r2"), 1)], 0.1)
    row = ledger.query("SELECT full_messages(messages) AS messages FROM responses")[0]
    assert long in row["messages"]


def result(outcomes=(), judgments=()) -> IterationResult:
    return IterationResult((), {}, judgments, outcomes, (), {}, {}, (), {})


def test_what_a_judge_said_is_read_from_its_responses(ledger):
    said = [Response("r1", text="8"), Response("r2", error=Failure("timeout", "after 3 s"))]
    batch = [(request(n), reply, 1) for n, reply in enumerate(said, start=1)]
    ledger.record_responses(1, "judge", batch, 0.1)
    raw = {"left": "8", "right": {"error": "timeout", "message": "after 3 s"}}
    judgments = (
        Judgment("d1", "ada", "rubric", 8.0, None, raw=raw, requests={"left": "r1", "right": "r2"}),
        Judgment("d1", "bob", "rubric", 1.0, 2.0, raw={"note": "of its own"}),
    )
    ledger.record_iteration(1, result(judgments=judgments))
    rows = ledger.query("SELECT *, full_raw(raw, requests) AS raw FROM judgments ORDER BY judge")
    assert [row["raw"] for row in rows] == [canonical_json(raw), '{"note":"of its own"}']
    assert [row["raw"] for row in ledger.contents()["judgments"]] == [row["raw"] for row in rows]


def test_judged_duels_are_counted_by_iteration(ledger):
    outcomes = (
        Outcome("d1", "decided", "left", 8.0, 2.0, num_judges=2),
        Outcome("d2", "tie", score_left=5.0, score_right=5.0, num_judges=2),
        Outcome("d3", "tie", reason="identical responses"),
        Outcome("d4", "no_quorum", num_judges=1),
    )
    ledger.record_iteration(1, result(outcomes=outcomes))
    ledger.record_iteration(2, result(outcomes=(replace(outcomes[0], duel_id="d5"),)))
    assert [ledger.num_judged(before=number) for number in (1, 2, 3)] == [0, 2, 3]
