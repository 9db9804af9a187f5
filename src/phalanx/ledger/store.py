"""One SQLite file per run (WAL): append, ask what is owed, read back.

A row is written in the transaction that makes it true, by the one process that holds the run's
lock. Readers (reports, exports, ``status``) open the file read-only at any time.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phalanx.errors import LedgerError
from phalanx.identity import canonical_json
from phalanx.ledger import rows as _as
from phalanx.ledger.migrating import copy_whole, fit, unopened
from phalanx.ledger.schema import create
from phalanx.ledger.texts import TextReader, TextWriter
from phalanx.types import (
    Demonstration,
    Instruction,
    IterationResult,
    Member,
    Request,
    Response,
    Standing,
    TrainResult,
)

FILE_NAME = "ledger.sqlite"
STOPPED = "stopped"
"""Kind of the event that says why a start ended early."""
# Columns that depend on the clock or on how often a run was interrupted, not on the run itself.
CLOCK_COLUMNS = frozenset({"seconds", "at", "attempts"})
# Facts that depend on them.
_OF_STARTS = ("created_at", "code", "finished", "guards", "seconds")
# What replaces packed columns by whole ones, by table.
_WHOLE = {
    "responses": ", full_messages(messages) AS messages, full_text(want) AS want, "
    "full_probabilities(probabilities, want) AS probabilities",
    "judgments": ", full_raw(raw, requests) AS raw",
}
# Tables of what follows from the responses of an iteration.
_OF_ITERATION = (
    "duels", "judgments", "outcomes", "reputations", "pairs", "demonstrations", "states",
)  # fmt: skip
# SQLite's variable limit is 32766 in current builds; stay far below it.
_CHUNK = 5000
# Ids are random, so every batch touches pages all over their index; most of it should stay in
# memory. Checkpoints copy what a WAL of this many 4 KiB pages has gathered.
_CACHE_KIB = 16 * 1024
_CHECKPOINT_PAGES = 4000


def run_ledger_path(folder: Path | str) -> Path:
    return Path(folder) / FILE_NAME


class RunLock:
    """Refuses a second process on the same run; the system drops it when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / "lock", "a+", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise LedgerError(
                f"{folder} is in use by process {holder}; wait for it, or stop it first"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()


class Ledger:
    """Reads, and with ``writable`` also appends. Use it as a context manager."""

    def __init__(self, path: Path | str, *, writable: bool = False) -> None:
        self.path = Path(path)
        self.folder = self.path.parent
        self.writable = writable
        if not writable and not self.path.exists():
            why = f"{self.path.name} does not exist"
            if runs := sorted(self.folder.glob(f"seed-*/*/{FILE_NAME}")):
                why = f"it is a comparison, whose runs are below it, such as {runs[0].parent}; its "
                why += f"table: phalanx compare FILE --out {self.folder} --table"
            raise LedgerError(f"no run in {self.folder}: {why}")
        if writable:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = RunLock(self.folder)
            except (FileExistsError, NotADirectoryError):
                raise LedgerError(f"{self.folder} is, or is in, a file; name a folder") from None
            except OSError as error:
                why = f"nothing can be recorded in {self.folder}: {error.strerror}"
                raise LedgerError(f"{why}; make it writable, or name another folder") from None
            if not self.path.exists() or not self.path.stat().st_size:
                create(self.path)
            self._db = sqlite3.connect(self.path, isolation_level=None)
        else:
            # as_uri quotes what SQLite would read as the start of parameters (#, ?, %). Where it
            # cannot make the log of a WAL, it reads only what it is told will not change.
            log = self.path.with_name(f"{FILE_NAME}-wal")
            still = "" if os.access(self.folder, os.W_OK) or log.exists() else "&immutable=1"
            self._db = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode=ro{still}", uri=True, isolation_level=None
            )
        self._db.row_factory = sqlite3.Row
        try:
            if writable:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            fit(self._db, self.path, writable=writable)
            self._open_texts()
        except sqlite3.DatabaseError as error:
            self.close()
            raise unopened(self.path, error) from None
        except BaseException:
            self.close()
            raise

    def _open_texts(self) -> None:
        """What is known of the table ``texts``, and the SQL functions that put rows together."""
        reader = self._reader = TextReader(self._stored_text)
        self._texts = TextWriter(self._next_text())

        def full_probabilities(packed: bytes | str | None, want: int) -> str | None:
            chances = reader.probabilities(packed, want)
            return canonical_json(chances) if chances else None

        self._db.create_function("full_messages", 1, reader.messages)
        self._db.create_function("full_text", 1, reader.text)
        self._db.create_function("full_probabilities", 2, full_probabilities)
        self._db.create_function("full_raw", 2, self._full_raw)

    def _full_raw(self, raw: str | None, requests: str | None) -> str | None:
        if requests is None:
            return raw
        ids = json.loads(requests)
        found = self.responses(list(ids.values()))
        return canonical_json({slot: found[request][0].said for slot, request in ids.items()})

    def _next_text(self) -> int:
        return self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM texts").fetchone()[0]

    def _stored_text(self, number: int) -> str:
        query = "SELECT text FROM texts WHERE number = ?"
        return self._db.execute(query, (number,)).fetchone()[0]

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        if self.writable:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside becomes true together, or not at all. Does not nest."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended it already
                self._db.execute("ROLLBACK")
            self._texts = TextWriter(self._next_text())
            raise

    def _insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        replace: bool = False,
    ) -> None:
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        marks = ",".join("?" * len(columns))
        self._db.executemany(f"{verb} INTO {table} ({','.join(columns)}) VALUES ({marks})", rows)

    def insert(self, table: str, row: Mapping[str, Any], *, replace: bool = False) -> None:
        """One row, inside a :meth:`transaction`."""
        self._insert(table, tuple(row), [tuple(row.values())], replace=replace)

    # ---- the run itself -------------------------------------------------------------------

    def _put(self, key: str, value: str) -> None:
        value = _as.stored_config(value, self.folder) if key == "config" else value
        self._db.execute("INSERT OR REPLACE INTO run VALUES (?,?)", (key, value))

    def put(self, key: str, value: str) -> None:
        with self.transaction():
            self._put(key, value)

    def get(self, key: str) -> str | None:
        try:
            row = self._db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
        except sqlite3.OperationalError as error:
            raise LedgerError(f"{self.path} is not a ledger: {error}") from None
        if row is None:
            return None
        return _as.config_here(row["value"], self.folder) if key == "config" else row["value"]

    def record_start(
        self,
        facts: Mapping[str, str],
        members: Sequence[Member],
        instructions: Sequence[Instruction],
    ) -> None:
        """The facts of the run, its members at version 0 and all instructions: one transaction."""
        with self.transaction():
            for key, value in facts.items():
                self._put(key, value)
            rows = [_as.member_row(member, 0, self.folder) for member in members]
            self._insert("members", _as.MEMBER_COLUMNS, rows, replace=True)
            rows = map(_as.instruction_row, instructions)
            self._insert("instructions", _as.INSTRUCTION_COLUMNS, rows, replace=True)

    def is_untouched(self) -> bool:
        """Whether nothing was answered, trained or decided yet."""
        return not any(map(self.count, ("responses", "trainings", "states")))

    def forget_start(self) -> None:
        """Undo :meth:`record_start`."""
        with self.transaction():
            for table in ("members", "instructions"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM run WHERE key != 'schema_version'")

    def set_length(self, config: str, iterations: int) -> None:
        """A run gets another number of iterations: it is not finished until the loop says so."""
        with self.transaction():
            self._put("config", config)
            self._put("num_iterations", str(iterations))
            self._db.execute("DELETE FROM run WHERE key = 'finished'")

    def rename(self, config: str, members: Iterable[Member]) -> None:
        """Members at version 0 that are known to their server by another name from now on."""
        rows = [_as.member_row(member, 0, self.folder) for member in members]
        if rows:
            with self.transaction():
                self._put("config", config)
                self._insert("members", _as.MEMBER_COLUMNS, rows, replace=True)

    def grow(self, facts: Mapping[str, str], members: Iterable[tuple[int, Member]] = ()) -> None:
        """Further facts, and (iteration, member): the work is not finished until it says so."""
        rows = [_as.member_row(member, number, self.folder) for number, member in members]
        with self.transaction():
            for key, value in facts.items():
                self._put(key, value)
            self._insert("members", _as.MEMBER_COLUMNS, rows, replace=True)
            self._db.execute("DELETE FROM run WHERE key = 'finished'")

    def event(self, kind: str, text: str) -> None:
        with self.transaction():
            self._insert("events", ("at", "kind", "text"), [(time.time(), kind, text)])

    def add_seconds(self, iteration: int, phase: str, seconds: float, asked: int = 0) -> None:
        """Add wall-clock time to a phase; a resumed phase adds to what it had.

        ``asked``: the requests of the phase that are known by now, over all its calls.
        """
        with self.transaction():
            self._db.execute(
                "INSERT INTO phases VALUES (?,?,?,?,?) ON CONFLICT (iteration, phase) DO UPDATE "
                "SET seconds = seconds + excluded.seconds, asked = max(asked, excluded.asked)",
                (iteration, phase, seconds, asked, time.time()),
            )

    # ---- responses ------------------------------------------------------------------------

    def responses(self, ids: Sequence[str]) -> dict[str, tuple[Response, int]]:
        """The stored response and its number of attempts for each known id."""
        found: dict[str, tuple[Response, int]] = {}
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT * FROM responses WHERE id IN ({marks})"
            for row in self._db.execute(query, chunk):
                found[row["id"]] = (_as.response(row, self._reader), row["attempts"])
        return found

    def record_responses(
        self,
        iteration: int,
        phase: str,
        answered: Sequence[tuple[Request, Response, int]],
        seconds: float,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """One batch: (request, response, attempts) each; ``seconds`` is the batch's wall time.

        ``facts`` of the engine become true in the same transaction (see :meth:`facts`).
        """
        share = seconds / max(1, len(answered))
        rows = _as.response_rows(iteration, phase, answered, share, time.time(), self._texts)
        with self.transaction():
            self._insert("texts", ("number", "text"), self._texts.take())
            self._insert("responses", _as.RESPONSE_COLUMNS, rows, replace=True)
            for key, value in (facts or {}).items():
                self._put(key, value)

    def facts(self, engine: str) -> dict[str, str]:
        """What the engine of that name had recorded beside its responses."""
        start = f"{engine}:"
        rows = self._db.execute("SELECT key, value FROM run WHERE substr(key, 1, ?) = ?",
                                (len(start), start))  # fmt: skip
        return {row["key"]: row["value"] for row in rows}

    # ---- iterations -----------------------------------------------------------------------

    def record_iteration(
        self, number: int, result: IterationResult, *, replace: bool = False
    ) -> None:
        """Duels, judgments, outcomes, reputations, pairs, demonstrations, state: all at once.

        ``replace`` puts them in the place of what the iteration had.
        """
        with self.transaction():
            for table in _OF_ITERATION if replace else ():
                self._db.execute(f"DELETE FROM {table} WHERE iteration = ?", (number,))
            known = {row["id"] for row in self._db.execute("SELECT id FROM instructions")}
            new = [one for one in result.prompts if one.id not in known]
            rows = map(_as.instruction_row, dict.fromkeys(new))
            self._insert("instructions", _as.INSTRUCTION_COLUMNS, rows)
            self._insert("duels", _as.DUEL_COLUMNS, _as.duel_rows(number, result))
            self._insert("judgments", _as.JUDGMENT_COLUMNS, _as.judgment_rows(number, result))
            self._insert("outcomes", _as.OUTCOME_COLUMNS, _as.outcome_rows(number, result))
            self._insert("reputations", _as.REPUTATION_COLUMNS, _as.reputation_rows(number, result))
            self._insert("pairs", _as.PAIR_COLUMNS, _as.pair_rows(number, result))
            shown = _as.demonstration_rows(number, result)
            self._insert("demonstrations", _as.DEMONSTRATION_COLUMNS, shown)
            self._insert("states", _as.STATE_COLUMNS, [_as.state_row(number, result)])

    def demonstrations(self, iteration: int, builder: str) -> list[Demonstration]:
        """What one builder made in an iteration, dropped rows included, in order."""
        rows = self._db.execute(
            "SELECT * FROM demonstrations WHERE iteration = ? AND builder = ? ORDER BY position",
            (iteration, builder),
        )
        return [_as.demonstration(row) for row in rows]

    def num_judged(self, before: int) -> int:
        """Duels that judges decided or tied in the iterations before this one."""
        query = "SELECT coalesce(sum(num_judged), 0) FROM states WHERE iteration < ?"
        return self._db.execute(query, (before,)).fetchone()[0]

    def state(self, iteration: int) -> dict[str, Any] | None:
        """``standings``, ``reliability``, ``faded`` and ``metrics`` after an iteration."""
        row = self._db.execute("SELECT * FROM states WHERE iteration = ?", (iteration,)).fetchone()
        if row is None:
            return None
        standings = {
            name: Standing(**{**value, "changes": tuple(value["changes"])})
            for name, value in json.loads(row["standings"]).items()
        }
        return {
            "standings": standings,
            "reliability": json.loads(row["reliability"]),
            "faded": json.loads(row["faded"]),
            "metrics": json.loads(row["metrics"]),
        }

    def record_training(self, iteration: int, result: TrainResult) -> None:
        """The training, its steps and the new member version become true together.

        A version that an earlier iteration made stays that one's: the member learned nothing.
        """
        member = result.member
        with self.transaction():
            self._insert(
                "trainings",
                _as.TRAINING_COLUMNS,
                [_as.training_row(iteration, result, time.time())],
            )
            steps = _as.step_rows(iteration, result)
            self._insert("training_steps", _as.STEP_COLUMNS, steps)
            old = "SELECT 1 FROM members WHERE member = ? AND version = ? AND iteration < ?"
            place = (member.name, member.version, iteration)
            if self._db.execute(old, place).fetchone() is None:
                newest = _as.member_row(member, iteration, self.folder)
                self._insert("members", _as.MEMBER_COLUMNS, [newest], replace=True)

    def trained(self, iteration: int) -> set[str]:
        query = "SELECT member FROM trainings WHERE iteration = ?"
        return {row["member"] for row in self._db.execute(query, (iteration,))}

    def members(self, iteration: int | None = None) -> list[Member]:
        """Each member's newest version, or its version when ``iteration`` had ended.

        The order is that of the pool.
        """
        # SQLite takes the other columns from the row that has the maximum.
        query = "SELECT record, max(version) FROM members WHERE iteration <= ? GROUP BY member"
        rows = self._db.execute(query, (1 << 62 if iteration is None else iteration,))
        newest = [_as.member(row["record"], self.folder) for row in rows]
        place = {name: at for at, name in enumerate(json.loads(self.get("pool_order") or "[]"))}
        return sorted(newest, key=lambda member: place.get(member.name, -1))

    def record_evaluation(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows with the columns of ``evaluations``; the same item of a member is replaced."""
        rows = [tuple(row[column] for column in _as.EVALUATION_COLUMNS) for row in rows]
        with self.transaction():
            self._insert("evaluations", _as.EVALUATION_COLUMNS, rows, replace=True)

    def record_games(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows with the columns of ``games``; the same verdict is replaced."""
        rows = [tuple(row[column] for column in _as.GAME_COLUMNS) for row in rows]
        with self.transaction():
            self._insert("games", _as.GAME_COLUMNS, rows, replace=True)

    def has_evaluation(self, iteration: int) -> bool:
        return self.get(f"evaluated:{iteration}") is not None

    def record_trial(self, row: Mapping[str, Any]) -> None:
        """One trial of a search for mixtures: a row with the columns of ``trials``.

        It takes the place of the one with its number and of all after that.
        """
        with self.transaction():
            self._db.execute("DELETE FROM trials WHERE number >= ?", (row["number"],))
            values = tuple(row[column] for column in _as.TRIAL_COLUMNS)
            self._insert("trials", _as.TRIAL_COLUMNS, [values])

    def trials(self) -> list[dict[str, Any]]:
        """The trials of a search, in order; ``design`` as it was recorded (JSON)."""
        return self.query("SELECT * FROM trials ORDER BY number")

    # ---- reading back ---------------------------------------------------------------------

    def copy_to(self, path: Path) -> None:
        """A consistent copy of everything recorded so far, in one file without a log."""
        copy_whole(self._db, path)

    def refuse_target(self, path: Path | str) -> None:
        """Raise LedgerError where writing to ``path`` would harm the run itself."""
        target, folder = Path(path).resolve(), self.folder.resolve()
        own = {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", "lock", "adapters"}
        old = target.parent == folder and target.name.startswith(f"{FILE_NAME}.schema-")
        if target == folder or old or target in {folder / name for name in own}:
            raise LedgerError(f"{path} belongs to the run itself; write to another file")
        if target.is_relative_to(folder / "adapters"):
            raise LedgerError(f"{path} is among the run's adapters; write to another folder")

    def count(self, table: str, where: str = "1", values: Sequence[Any] = ()) -> int:
        return self._db.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0]

    def num_sent(self) -> int:
        """Requests sent so far, every try of each."""
        return self.query("SELECT coalesce(sum(attempts), 0) AS sent FROM responses")[0]["sent"]

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Any read: for reports, exports and the curious. Of equal names the last column counts."""
        return list(self.iterate(sql, values))

    def iterate(self, sql: str, values: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Like :meth:`query`, one row at a time."""
        for row in self._db.execute(sql, values):
            yield dict(zip(row.keys(), row, strict=True))

    def contents(self) -> dict[str, list[dict[str, Any]]]:
        """Every row of every table, ordered, without clock columns: to compare two runs."""
        tables = [
            row["name"]
            for row in self._db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
                "AND name NOT IN ('events', 'phases', 'texts') ORDER BY name"
            )
        ]
        result: dict[str, list[dict[str, Any]]] = {}
        for table in tables:
            rows = self.query(f"SELECT *{_WHOLE.get(table, '')} FROM {table}")
            for row in rows:
                for column in CLOCK_COLUMNS & row.keys():
                    del row[column]
            rows = [row for row in rows if row.get("key") not in _OF_STARTS]
            result[table] = sorted(rows, key=canonical_json)
        return result
