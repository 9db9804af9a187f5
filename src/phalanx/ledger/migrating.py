"""A ledger of an older schema, as one of today's.

Opened for writing it is brought up to date, once: a copy is put beside it
(``ledger.sqlite.schema-5``, to be deleted by whoever no longer wants it), then tables, columns and
indexes that it lacks are added in one transaction. Who is killed in between leaves the old one.
Opened for reading it stays as it is: what it lacks is put before it for this connection alone,
as temporary tables (empty) and views (the new columns have the value that a migration would give
them), so that whoever reads never needs the right to write.

What to add follows from the statements of :mod:`phalanx.ledger.schema`; only values of new
columns in old rows are told here.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from phalanx.errors import LedgerError
from phalanx.ledger.schema import SCHEMA, SCHEMA_VERSION

OLDEST = 2
"""The oldest schema that can be read. Before it every response had its whole prompt."""

_IN_OLD_ROWS = {
    ("instructions", "later"): "'[]'",
    # One sample an item, right or wrong as a whole.
    ("evaluations", "score"): "CAST(correct AS REAL)",
    # Before they were counted apart, every item of a trial was scored, and every call was new.
    ("trials", "num_scored"): "num_items",
    ("trials", "new_calls"): "calls",
}
"""What a column that came later has in rows from before; all others have NULL: not known."""


class _Lacks(NamedTuple):
    """What a file lacks of today's schema: statements of tables and indexes, columns by table."""

    tables: dict[str, str]
    columns: dict[str, list[tuple[str, str]]]
    indexes: dict[str, str]
    too_many: list[str]


def fit(db: sqlite3.Connection, path: Path, *, writable: bool) -> None:
    """Make the ledger that ``db`` has open look like one of today's schema.

    Raises LedgerError where it is of a newer schema, too old, or cannot be copied first.
    """
    version = _version(db, path)
    if version == SCHEMA_VERSION:
        return
    if not writable:
        _dress(db, _lacking(db))
        return
    backup = path.with_name(f"{path.name}.schema-{version}")
    try:
        copy_whole(db, backup)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(
            f"{path} has ledger schema {version} and has to be brought to {SCHEMA_VERSION}, but no "
            f"copy of it can be made beside it ({error}); make room, or let it be written there"
        ) from None
    _bring_up(db, _lacking(db), version, backup)


def unopened(path: Path, error: sqlite3.DatabaseError) -> LedgerError:
    """Why SQLite could not open the ledger at ``path``."""
    log = path.with_name(f"{path.name}-wal")
    if "unable to open" in str(error) and log.exists() and not os.access(path.parent, os.W_OK):
        return LedgerError(
            f"{path} has rows in {log.name}, which can be read only where its folder can be "
            "written to; copy the whole folder to such a place"
        )
    return LedgerError(f"{path} is not a ledger, or is damaged: {error}")


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The ledger's schema. Raises LedgerError for one that this version does not read."""
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    try:
        row = db.execute("SELECT value FROM run WHERE key = 'schema_version'").fetchone()
    except sqlite3.OperationalError as error:
        why = str(error) if tables else "it has no tables"
        raise LedgerError(f"{path} is not a ledger: {why}") from None
    text = row[0] if row else ""
    version = int(text) if text.isascii() and text.isdecimal() else 0
    if OLDEST <= version <= SCHEMA_VERSION:
        return version
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{path} has ledger schema {version}, which is newer than the {SCHEMA_VERSION} of this "
            "version of phalanx; update phalanx: pip install --upgrade phalanx"
        )
    raise LedgerError(
        f"{path} has ledger schema {text or 'none'}, this version of phalanx reads {OLDEST} to "
        f"{SCHEMA_VERSION}; use the version that wrote it"
    )


def refuse_foreign(db: sqlite3.Connection, where: str) -> None:
    """Raise LedgerError where a file from elsewhere has what no ledger has.

    Views, triggers, computed columns, checks, virtual tables are statements of whoever made the
    file, run by whoever opens it. So a file has nothing but tables and indexes, and their
    statements have no word that is in none of ours. ``where`` names the file in the message.
    """
    query = "SELECT type, name, sql FROM sqlite_master"
    with closing(sqlite3.connect(":memory:")) as today:
        today.executescript(SCHEMA)
        ours = [tuple(row) for row in today.execute(query)]
    tables = {name for kind, name, _ in ours if kind == "table"}
    words = {word for _, _, sql in ours for word in _words(sql)}
    version = db.execute("SELECT value FROM run WHERE key = 'schema_version'").fetchone()
    for kind, name, sql in map(tuple, db.execute(query)):
        if kind not in ("table", "index") or (kind == "table" and name not in tables):
            raise LedgerError(f"{where} has a {kind} {name[:80]!r}: no ledger has")
        if strange := sorted(_words(sql) - words - {name.lower()}):
            raise LedgerError(f"{where} has {strange[0][:80]!r} in its {kind} {name[:80]!r}")
    if version is not None and version[0] == str(SCHEMA_VERSION):
        lacks = _lacking(db)
        if gone := [*lacks.tables, *(f"{t}.{new[0][0]}" for t, new in lacks.columns.items())]:
            raise LedgerError(f"{where} has no {gone[0]}: it is of no version of phalanx")


def _words(sql: str | None) -> set[str]:
    return set(re.findall(r"\w+", (sql or "").lower()))


def _lacking(db: sqlite3.Connection) -> _Lacks:
    with closing(sqlite3.connect(":memory:")) as today:
        today.executescript(SCHEMA)
        wanted, found = _statements(today), _statements(db)
        tables = {
            name: sql for (kind, name), sql in wanted.items()
            if kind == "table" and (kind, name) not in found
        }  # fmt: skip
        columns = {}
        for kind, name in wanted:
            if kind == "table" and name not in tables:
                has = {column for column, _ in _columns(db, name)}
                if new := [one for one in _columns(today, name) if one[0] not in has]:
                    columns[name] = new
    indexes = {
        name: sql for (kind, name), sql in wanted.items()
        if kind == "index" and (kind, name) not in found
    }  # fmt: skip
    too_many = [name for kind, name in found if kind == "index" and (kind, name) not in wanted]
    return _Lacks(tables, columns, indexes, too_many)


def _statements(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """(table or index, name) -> the statement that makes it; those of SQLite itself left out."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql"
    rows = db.execute(f"{query} IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid")
    return {(kind, name): sql for kind, name, sql in map(tuple, rows)}


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """(name, type) in the order of the table."""
    return [(row[1], row[2]) for row in db.execute(f"PRAGMA main.table_info({table})")]


def _value(table: str, column: str) -> str:
    return _IN_OLD_ROWS.get((table, column), "NULL")


def _dress(db: sqlite3.Connection, lacks: _Lacks) -> None:
    """Put what the file lacks before it, in memory, for this connection."""
    db.execute("PRAGMA temp_store=MEMORY")
    for sql in lacks.tables.values():
        db.execute(sql.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
    for table, new in lacks.columns.items():
        own = [f'"{name}"' for name, _ in _columns(db, table)]
        given = [f'{_value(table, name)} AS "{name}"' for name, _ in new]
        listed = ", ".join([*own, *given])
        db.execute(f"CREATE TEMP VIEW {table} AS SELECT {listed} FROM main.{table}")


def copy_whole(db: sqlite3.Connection, backup: Path) -> None:
    """A whole copy at ``backup``, or none; what was there is replaced."""
    new = backup.with_name(f"{backup.name}.new")
    new.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(new)) as copy:
            db.backup(copy)
            # Otherwise the copy would need a log of its own to be read.
            copy.execute("PRAGMA journal_mode=DELETE")
        os.replace(new, backup)
    finally:
        new.unlink(missing_ok=True)


def _bring_up(db: sqlite3.Connection, lacks: _Lacks, version: int, backup: Path) -> None:
    """Add what is lacking, all or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        for sql in lacks.tables.values():
            db.execute(sql)
        for table, new in lacks.columns.items():
            for name, kind in new:
                db.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" {kind}')
            values = {name: _value(table, name) for name, _ in new}
            sets = ", ".join(
                f'"{name}" = {text}' for name, text in values.items() if text != "NULL"
            )
            if sets:
                db.execute(f"UPDATE {table} SET {sets}")
        for name in lacks.too_many:
            db.execute(f"DROP INDEX {name}")
        for sql in lacks.indexes.values():
            db.execute(sql)
        db.execute("UPDATE run SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
        text = f"ledger schema {version} brought to {SCHEMA_VERSION}; the old one is {backup.name}"
        event = "INSERT INTO events (at, kind, text) VALUES (?, 'migration', ?)"
        db.execute(event, (time.time(), text))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
