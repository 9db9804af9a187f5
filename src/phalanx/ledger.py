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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phalanx.errors import LedgerError
from phalanx.identity import canonical_json
from phalanx.types import (
    Failure,
    Instruction,
    IterationResult,
    Member,
    Request,
    Response,
    Standing,
    TrainResult,
)

SCHEMA_VERSION = 1
FILE_NAME = "ledger.sqlite"
# Columns that depend on the clock or on how often a run was interrupted, not on the run itself.
CLOCK_COLUMNS = frozenset({"seconds", "at", "attempts"})
# SQLite's variable limit is 32766 in current builds; stay far below it.
_CHUNK = 5000

_SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE members (
  member TEXT, version INTEGER, iteration INTEGER, base TEXT, adapter TEXT, record TEXT,
  PRIMARY KEY (member, version)) WITHOUT ROWID;
CREATE TABLE instructions (
  id TEXT PRIMARY KEY, text TEXT, domain TEXT, answer TEXT, flags TEXT) WITHOUT ROWID;
CREATE TABLE responses (
  id TEXT PRIMARY KEY, iteration INTEGER, phase TEXT, purpose TEXT, member TEXT, version INTEGER,
  messages TEXT, want TEXT, seed INTEGER, status TEXT, text TEXT, finish_reason TEXT,
  probabilities TEXT, option_mass REAL, logprob_sum REAL, num_scored_tokens INTEGER,
  num_prompt_tokens INTEGER, num_completion_tokens INTEGER, num_shortened_tokens INTEGER,
  flags TEXT, error_kind TEXT, error TEXT, error_transient INTEGER, attempts INTEGER,
  seconds REAL, at REAL) WITHOUT ROWID;
CREATE INDEX responses_by_phase ON responses (iteration, phase, status);
CREATE TABLE duels (
  id TEXT PRIMARY KEY, iteration INTEGER, position INTEGER, instruction TEXT, left TEXT,
  right TEXT, matched TEXT, left_response TEXT, right_response TEXT) WITHOUT ROWID;
CREATE INDEX duels_by_iteration ON duels (iteration, position);
CREATE TABLE judgments (
  duel TEXT, judge TEXT, iteration INTEGER, protocol TEXT, score_left REAL, score_right REAL,
  reason TEXT, flipped INTEGER, raw TEXT, flags TEXT, PRIMARY KEY (duel, judge)) WITHOUT ROWID;
CREATE INDEX judgments_by_iteration ON judgments (iteration);
CREATE TABLE outcomes (
  duel TEXT PRIMARY KEY, iteration INTEGER, status TEXT, winner TEXT, score_left REAL,
  score_right REAL, num_judges INTEGER, num_missing INTEGER, agreement REAL, reason TEXT
  ) WITHOUT ROWID;
CREATE INDEX outcomes_by_iteration ON outcomes (iteration);
CREATE TABLE reputations (
  iteration INTEGER, position INTEGER, duel TEXT, member TEXT, before REAL, after REAL,
  deviation REAL, PRIMARY KEY (iteration, position)) WITHOUT ROWID;
CREATE TABLE pairs (
  id TEXT PRIMARY KEY, iteration INTEGER, instruction TEXT, chosen TEXT, rejected TEXT,
  chosen_member TEXT, rejected_member TEXT, margin REAL, weight REAL, chosen_truncated INTEGER,
  rejected_truncated INTEGER, dropped TEXT) WITHOUT ROWID;
CREATE INDEX pairs_by_iteration ON pairs (iteration, dropped);
CREATE TABLE states (
  iteration INTEGER PRIMARY KEY, standings TEXT, reliability TEXT, faded TEXT, metrics TEXT);
CREATE TABLE trainings (
  iteration INTEGER, member TEXT, version INTEGER, num_examples INTEGER, num_dropped TEXT,
  summary TEXT, seconds REAL, at REAL, PRIMARY KEY (iteration, member)) WITHOUT ROWID;
CREATE TABLE training_steps (
  iteration INTEGER, member TEXT, step INTEGER, signals TEXT,
  PRIMARY KEY (iteration, member, step)) WITHOUT ROWID;
CREATE TABLE evaluations (
  iteration INTEGER, member TEXT, task TEXT, item TEXT, domain TEXT, split TEXT,
  correct INTEGER, readable INTEGER, answer TEXT, reason TEXT, response TEXT,
  PRIMARY KEY (iteration, member, task, item)) WITHOUT ROWID;
CREATE TABLE phases (
  iteration INTEGER, phase TEXT, seconds REAL, asked INTEGER, at REAL,
  PRIMARY KEY (iteration, phase)) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, kind TEXT, text TEXT);
"""


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
        self.writable = writable
        if not writable and not self.path.exists():
            raise LedgerError(f"no run in {self.path.parent}: {self.path.name} does not exist")
        if writable:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self.path.parent)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
        else:
            self._db = sqlite3.connect(
                f"file:{self.path.resolve()}?mode=ro", uri=True, isolation_level=None
            )
        self._db.row_factory = sqlite3.Row
        try:
            self._check_schema()
        except BaseException:
            self.close()
            raise

    def _check_schema(self) -> None:
        try:
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{self.path} is not a ledger: {error}") from None
        if not tables and self.writable:
            with self.transaction():
                for statement in _SCHEMA.split(";"):
                    if statement.strip():
                        self._db.execute(statement)
                self._put("schema_version", str(SCHEMA_VERSION))
        version = self.get("schema_version") if tables or self.writable else None
        if version != str(SCHEMA_VERSION):
            raise LedgerError(
                f"{self.path} has ledger schema {version}, this version of phalanx reads "
                f"{SCHEMA_VERSION}; use the version that wrote it"
            )

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
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _insert(
        self, table: str, rows: Iterable[Mapping[str, Any]], *, replace: bool = False
    ) -> None:
        rows = list(rows)
        if not rows:
            return
        columns = list(rows[0])
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        marks = ",".join("?" * len(columns))
        self._db.executemany(
            f"{verb} INTO {table} ({','.join(columns)}) VALUES ({marks})",
            [tuple(row[column] for column in columns) for row in rows],
        )

    # ---- the run itself -------------------------------------------------------------------

    def _put(self, key: str, value: str) -> None:
        self._insert("run", [{"key": key, "value": value}], replace=True)

    def put(self, key: str, value: str) -> None:
        with self.transaction():
            self._put(key, value)

    def get(self, key: str) -> str | None:
        try:
            row = self._db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
        except sqlite3.OperationalError as error:
            raise LedgerError(f"{self.path} is not a ledger: {error}") from None
        return row["value"] if row else None

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
            self._insert("members", [_member_row(member, 0) for member in members], replace=True)
            self._insert("instructions", map(_instruction_row, instructions), replace=True)

    def event(self, kind: str, text: str) -> None:
        with self.transaction():
            self._insert("events", [{"at": time.time(), "kind": kind, "text": text}])

    def add_seconds(self, iteration: int, phase: str, seconds: float, asked: int = 0) -> None:
        """Add wall-clock time to a phase; a resumed phase adds to what it had."""
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
                found[row["id"]] = (_response(row), row["attempts"])
        return found

    def record_responses(
        self,
        iteration: int,
        phase: str,
        answered: Sequence[tuple[Request, Response, int]],
        seconds: float,
    ) -> None:
        """One batch: (request, response, attempts) each; ``seconds`` is the batch's wall time."""
        share = seconds / max(1, len(answered))
        now = time.time()
        with self.transaction():
            self._insert(
                "responses",
                [
                    _response_row(iteration, phase, request, response, attempts, share, now)
                    for request, response, attempts in answered
                ],
                replace=True,
            )

    # ---- iterations -----------------------------------------------------------------------

    def record_iteration(self, number: int, result: IterationResult) -> None:
        """Duels, judgments, outcomes, reputations, pairs and the carried state, all at once."""
        with self.transaction():
            self._insert("duels", _duel_rows(number, result))
            self._insert("judgments", _judgment_rows(number, result))
            self._insert("outcomes", _outcome_rows(number, result))
            self._insert("reputations", _reputation_rows(number, result))
            self._insert("pairs", _pair_rows(number, result))
            self._insert(
                "states",
                [
                    {
                        "iteration": number,
                        "standings": canonical_json(result.standings),
                        "reliability": canonical_json(result.reliability),
                        "faded": canonical_json(result.faded),
                        "metrics": canonical_json(result.metrics),
                    }
                ],
            )

    def state(self, iteration: int) -> dict[str, Any] | None:
        """``standings``, ``reliability``, ``faded``, ``metrics`` after an iteration, if recorded."""
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
        """The training, its steps and the new member version become true together."""
        member = result.member
        with self.transaction():
            self._insert(
                "trainings",
                [
                    {
                        "iteration": iteration,
                        "member": member.name,
                        "version": member.version,
                        "num_examples": result.num_examples,
                        "num_dropped": canonical_json(result.num_dropped),
                        "summary": canonical_json(result.summary),
                        "seconds": result.seconds,
                        "at": time.time(),
                    }
                ],
            )
            self._insert(
                "training_steps",
                [
                    {
                        "iteration": iteration,
                        "member": member.name,
                        "step": number,
                        "signals": canonical_json(signals),
                    }
                    for number, signals in enumerate(result.steps, start=1)
                ],
            )
            self._insert("members", [_member_row(member, iteration)], replace=True)

    def trained(self, iteration: int) -> set[str]:
        query = "SELECT member FROM trainings WHERE iteration = ?"
        return {row["member"] for row in self._db.execute(query, (iteration,))}

    def members(self, iteration: int | None = None) -> list[Member]:
        """Each member's newest version, or its version when ``iteration`` had ended.

        The order is that of the pool.
        """
        query = "SELECT * FROM members ORDER BY version"
        newest: dict[str, Member] = {}
        for row in self._db.execute(query):
            if iteration is None or row["iteration"] <= iteration:
                newest[row["member"]] = _member(row["record"])
        order = json.loads(self.get("pool_order") or "[]")
        return sorted(newest.values(), key=lambda m: order.index(m.name) if m.name in order else -1)

    def record_evaluation(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows with the columns of ``evaluations``; the same item of a member is replaced."""
        with self.transaction():
            self._insert("evaluations", rows, replace=True)

    def has_evaluation(self, iteration: int) -> bool:
        return self.get(f"evaluated:{iteration}") is not None

    # ---- reading back ---------------------------------------------------------------------

    def count(self, table: str, where: str = "1", values: Sequence[Any] = ()) -> int:
        return self._db.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0]

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Any read: for reports, exports and the curious."""
        return [dict(row) for row in self._db.execute(sql, values)]

    def iterate(self, sql: str, values: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Like :meth:`query`, one row at a time."""
        for row in self._db.execute(sql, values):
            yield dict(row)

    def contents(self) -> dict[str, list[dict[str, Any]]]:
        """Every row of every table, ordered, without clock columns: to compare two runs."""
        tables = [
            row["name"]
            for row in self._db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
                "AND name NOT IN ('events', 'phases') ORDER BY name"
            )
        ]
        result: dict[str, list[dict[str, Any]]] = {}
        for table in tables:
            rows = self.query(f"SELECT * FROM {table}")
            for row in rows:
                for column in CLOCK_COLUMNS & row.keys():
                    del row[column]
            rows = [row for row in rows if row.get("key") not in ("created_at", "code", "finished")]
            result[table] = sorted(rows, key=canonical_json)
        return result


def _member_row(member: Member, iteration: int) -> dict[str, Any]:
    return {
        "member": member.name,
        "version": member.version,
        "iteration": iteration,
        "base": member.base,
        "adapter": member.adapter,
        "record": canonical_json(member),
    }


def _member(record: str) -> Member:
    values = json.loads(record)
    return Member(**{**values, "roles": tuple(values["roles"])})


def _instruction_row(instruction: Instruction) -> dict[str, Any]:
    return {**asdict(instruction), "flags": canonical_json(instruction.flags)}


def _response_row(
    iteration: int,
    phase: str,
    request: Request,
    response: Response,
    attempts: int,
    seconds: float,
    now: float,
) -> dict[str, Any]:
    error = response.error
    return {
        "id": request.id,
        "iteration": iteration,
        "phase": phase,
        "purpose": request.purpose,
        "member": request.member.name,
        "version": request.member.version,
        "messages": canonical_json(request.messages),
        "want": canonical_json(request.want),
        "seed": request.seed,
        "status": "failed" if error else "done",
        "text": response.text,
        "finish_reason": response.finish_reason,
        "probabilities": canonical_json(response.probabilities) if response.probabilities else None,
        "option_mass": response.option_mass,
        "logprob_sum": response.logprob_sum,
        "num_scored_tokens": response.num_scored_tokens,
        "num_prompt_tokens": response.num_prompt_tokens,
        "num_completion_tokens": response.num_completion_tokens,
        "num_shortened_tokens": response.num_shortened_tokens,
        "flags": canonical_json(response.flags),
        "error_kind": error.kind if error else None,
        "error": error.message if error else None,
        "error_transient": int(error.transient) if error else None,
        "attempts": attempts,
        "seconds": seconds,
        "at": now,
    }


def _response(row: sqlite3.Row) -> Response:
    failed = row["status"] == "failed"
    return Response(
        request_id=row["id"],
        text=row["text"],
        finish_reason=row["finish_reason"],
        probabilities=json.loads(row["probabilities"]) if row["probabilities"] else None,
        option_mass=row["option_mass"],
        logprob_sum=row["logprob_sum"],
        num_scored_tokens=row["num_scored_tokens"],
        num_prompt_tokens=row["num_prompt_tokens"],
        num_completion_tokens=row["num_completion_tokens"],
        num_shortened_tokens=row["num_shortened_tokens"],
        flags=tuple(json.loads(row["flags"])),
        error=Failure(row["error_kind"], row["error"], bool(row["error_transient"]))
        if failed
        else None,
    )


def _duel_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for position, duel in enumerate(result.duels):
        yield {
            "id": duel.id,
            "iteration": number,
            "position": position,
            "instruction": duel.instruction.id,
            "left": duel.left,
            "right": duel.right,
            "matched": duel.matched,
            "left_response": result.responses.get((duel.id, duel.left)),
            "right_response": result.responses.get((duel.id, duel.right)),
        }


def _judgment_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for judgment in result.judgments:
        yield {
            "duel": judgment.duel_id,
            "judge": judgment.judge,
            "iteration": number,
            "protocol": judgment.protocol,
            "score_left": judgment.score_left,
            "score_right": judgment.score_right,
            "reason": judgment.reason,
            "flipped": int(judgment.flipped),
            "raw": canonical_json(judgment.raw),
            "flags": canonical_json(judgment.flags),
        }


def _outcome_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for outcome in result.outcomes:
        row = asdict(outcome)
        row["duel"] = row.pop("duel_id")
        yield {**row, "iteration": number}


def _reputation_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for position, change in enumerate(result.changes):
        row = asdict(change)
        row["duel"] = row.pop("duel_id")
        yield {**row, "iteration": number, "position": position}


def _pair_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for pair in result.pairs:
        yield {
            "id": pair.id,
            "iteration": number,
            "instruction": pair.instruction.id,
            "chosen": pair.chosen,
            "rejected": pair.rejected,
            "chosen_member": pair.chosen_member,
            "rejected_member": pair.rejected_member,
            "margin": pair.margin,
            "weight": pair.weight,
            "chosen_truncated": int(pair.chosen_truncated),
            "rejected_truncated": int(pair.rejected_truncated),
            "dropped": pair.drop,
        }
