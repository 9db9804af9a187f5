"""Rows with their line numbers from JSONL, JSON, CSV, TSV, Parquet and hub data sets.

This module knows formats, not meanings: what a row must hold is the business of
:mod:`phalanx.sources`.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from phalanx.errors import ConfigError, MissingPackage

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
PROMPTS = ("instruction", "prompt", "question")
"""Columns that may hold what is asked, where no setting names one; the first one counts."""
COMMON_COLUMNS = (
    "instruction", "prompt", "question", "query", "text", "input", "problem", "messages",
    "conversations", "conversation",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: its physical line (Parquet and hubs: row number) and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    line: int
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Readable rows, unreadable ones, and how many blank lines were passed over."""

    where: str
    rows: tuple[Row, ...]
    bad: tuple[BadRow, ...] = ()
    num_blank: int = 0


def read_rows(path: str, *, split: str = "train") -> Table:
    """Read every row of ``path``; the format follows from the suffix.

    ``hub:org/name`` or ``hub:org/name:configuration`` reads split ``split`` through `datasets`;
    so does a folder (saved by ``save_to_disk``, or holding data files).
    Raises :class:`ConfigError` when the source as a whole cannot be read.
    """
    if path.startswith("hub:"):
        return _hub(path.removeprefix("hub:"), split)
    file = Path(path).expanduser()
    if path and file.is_dir():
        return _hub(str(file), split)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"unknown kind of source {path!r}; use a file ending in {', '.join(SUFFIXES)}, "
            "a data set as hub:org/name, or builtin:skills"
        )
    if not file.is_file():
        raise ConfigError(f"there is no file {path!r} (looked for {file.absolute()})")
    if suffix == ".parquet":
        return _parquet(file)
    data = file.read_bytes()
    if suffix in (".csv", ".tsv"):
        return _separated(_decode(data, file), str(file), "\t" if suffix == ".tsv" else ",")
    if suffix == ".json":
        return _json(_decode(data, file), data, str(file))
    return _json_lines(data, str(file))


def _decode(data: bytes, file: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"line {line} is not UTF-8 ({error.reason}); save the file as UTF-8", str(file)
        ) from error


def _json_lines(data: bytes, where: str) -> Table:
    """One object a line. Lines end at LF or CRLF only: JSON texts may hold U+2028 and others."""
    rows, bad, num_blank = [], [], 0
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()  # the end of the last line, not a blank line
    for line, raw in enumerate(lines, start=1):
        try:
            text = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            bad.append(BadRow(line, f"not UTF-8 ({error.reason})"))
            continue
        if not text:
            num_blank += 1
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad.append(BadRow(line, f"not valid JSON ({_json_fault(error)})"))
            continue
        _sort_in(line, value, rows, bad)
    return Table(where, tuple(rows), tuple(bad), num_blank)


def _json_fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return str(error)


def _sort_in(line: int, value: Any, rows: list[Row], bad: list[BadRow]) -> None:
    if isinstance(value, dict):
        rows.append(Row(line, value))
    else:
        bad.append(BadRow(line, "not an object"))


def _json(text: str, data: bytes, where: str) -> Table:
    """A list of objects; anything else is read as one object a line, or a single object."""
    if text.lstrip()[:1] == "[":
        return _json_list(text, where)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _json_lines(data, where)
    rows: list[Row] = []
    bad: list[BadRow] = []
    _sort_in(1, value, rows, bad)
    return Table(where, tuple(rows), tuple(bad))


def _json_list(text: str, where: str) -> Table:
    """Read element by element, so that each one's line is known."""
    decoder = json.JSONDecoder()
    rows: list[Row] = []
    bad: list[BadRow] = []
    place = _skip_space(text, text.index("[") + 1)
    line, counted = 1, 0
    ended = text[place : place + 1] == "]"
    while not ended:
        line, counted = line + text.count("\n", counted, place), place
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"line {line}: the list is broken from here ({error})", where
            ) from error
        _sort_in(line, value, rows, bad)
        place = _skip_space(text, place)
        mark = text[place : place + 1]
        if mark not in (",", "]"):
            raise ConfigError(f"line {line}: expected ',' or ']' after this element", where)
        ended = mark == "]"
        if not ended:
            place = _skip_space(text, place + 1)
    if text[place + 1 :].strip():
        raise ConfigError("there is more text after the end of the list", where)
    return Table(where, tuple(rows), tuple(bad))


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _separated(text: str, where: str, delimiter: str) -> Table:
    """CSV or TSV with a header. A quoted field may span lines; a row's line is its first."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, bad, num_blank = [], [], 0
    header: list[str] | None = None
    ended = False
    while not ended:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            ended = True
            continue
        except csv.Error as error:
            bad.append(BadRow(line, f"not valid CSV ({error})"))
            continue
        if not any(cell.strip() for cell in cells) and len(cells) <= 1 and cells != [""]:
            num_blank += 1
        elif header is None:
            header = [cell.strip() for cell in cells]
            if len(set(header)) < len(header):
                raise ConfigError(f"the header names a column twice: {header}", where)
        elif len(cells) != len(header):
            bad.append(BadRow(line, f"has {len(cells)} fields, the header has {len(header)}"))
        else:
            rows.append(Row(line, dict(zip(header, cells, strict=True))))
    if header is None:
        raise ConfigError("the file has no header line", where)
    return Table(where, tuple(rows), tuple(bad), num_blank)


def _parquet(file: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackage("pyarrow", "data", "reading Parquet files") from error
    try:
        values = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"cannot be read as Parquet: {error}", str(file)) from error
    return Table(str(file), _numbered(values))


def _numbered(values: Iterable[dict[str, Any]]) -> tuple[Row, ...]:
    return tuple(Row(number, dict(value)) for number, value in enumerate(values, start=1))


def _hub(name: str, split: str) -> Table:
    """A data set of the hub, or of a folder, through `datasets`."""
    try:
        import datasets
    except ImportError as error:
        raise MissingPackage("datasets", "data", "reading data sets") from error
    folder = Path(name).expanduser()
    where = str(folder) if folder.is_dir() else f"hub:{name}"
    try:
        with _said() as said:
            if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
                found = datasets.load_from_disk(str(folder))
            elif folder.is_dir():
                found = datasets.load_dataset(str(folder))
            else:
                repository, _, configuration = name.partition(":")
                found = datasets.load_dataset(repository, configuration or None)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        cause = error
        while cause.__cause__ is not None:  # the outermost one only says that something went wrong
            cause = cause.__cause__
        errors = [record.getMessage() for record in said if record.levelno >= logging.ERROR]
        why = "; ".join(errors) or f"{type(cause).__name__}: {cause}"
        what_to_do = (
            "mend or take out the file at fault, or name one file instead of the folder"
            if folder.is_dir()
            else "a hub data set needs a network or an earlier download; a local folder works "
            "offline"
        )
        raise ConfigError(f"the data set cannot be loaded: {why} ({what_to_do})", where) from error
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            raise ConfigError(
                f"there is no split {split!r}; the data set has: {', '.join(found)}", where
            )
        found = found[split]
    return Table(f"{where}[{split}]", _numbered(found))


class _Said(logging.Handler):
    """Keeps what is said instead of showing it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _said() -> Iterator[list[logging.LogRecord]]:
    """What `datasets` says, without bars: shown after success (such as that an earlier download
    was used); after an error (only there it names the file) it is the caller's to tell."""
    import datasets

    logger, said = logging.getLogger("datasets"), _Said()
    bars, before = datasets.are_progress_bars_disabled(), logger.handlers
    datasets.disable_progress_bars()
    logger.handlers = [said]
    try:
        yield said.records
    finally:
        logger.handlers = before
        if not bars:
            datasets.enable_progress_bars()
    for record in said.records:
        for handler in before:
            if record.levelno >= handler.level:
                handler.handle(record)


def require_columns(
    where: str, rows: Sequence[Row], names: Sequence[str | tuple[str, ...]]
) -> None:
    """A column that no row has is one fault of the whole source, not one of every row.

    The first name is the column of what is asked; a tuple has the names that one column may have.
    Raises ConfigError with the columns that there are, and one that may be meant.
    """
    found = list(dict.fromkeys(str(key) for row in rows for key in row.fields))
    faults = []
    for name in names if rows else ():
        either = (name,) if isinstance(name, str) else name
        if not {*either} & {*found}:
            close = [near for one in either for near in get_close_matches(one, found, n=1)]
            if not close and name == names[0]:
                close = [column for column in COMMON_COLUMNS if column in found]
            hint = f"; did you mean {close[0]!r}?" if close else ""
            columns = ", ".join(repr(column) for column in found) or "none"
            listed = " or ".join(map(repr, either))
            faults.append(f"no row has the column {listed}; columns found: {columns}{hint}")
    if faults:
        raise ConfigError(faults, where)
