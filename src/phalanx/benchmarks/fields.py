"""From a file's rows to records: every row that does not fit is listed, none is passed over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from phalanx.errors import ConfigError
from phalanx.rows import Row, read_rows

Record = TypeVar("Record")
_SHOWN = 60


class Unfit(ValueError):
    """One row does not fit its format; the message says what was got and what is wanted."""


class Fields:
    """The fields of one row, read strictly: every method raises :class:`Unfit`.

    ``number`` is the row's place in the file, from 0, blank and broken lines not counted.
    """

    def __init__(self, row: Row, number: int) -> None:
        self.number = number
        self._fields = row.fields

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def get(self, name: str) -> Any:
        """The value as it is. A missing field and null are the same fault."""
        if name not in self:
            raise Unfit(
                f"has no {name!r}; it has: {', '.join(map(str, self._fields)) or 'nothing'}"
            )
        return self._fields[name]

    def text(self, name: str) -> str:
        """A text, which may be empty."""
        value = self.get(name)
        if not isinstance(value, str):
            raise Unfit(f"{name!r} must be text, got {_shown(value)}")
        return value

    def words(self, name: str) -> str:
        """A text that is not blank."""
        value = self.text(name)
        if not value.strip():
            raise Unfit(f"{name!r} is blank")
        return value

    def name(self, name: str) -> str:
        """An id: a text that is not blank, or a whole number."""
        value = self.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.words(name)

    def one_of(self, name: str, meanings: dict[Any, Record]) -> Record:
        """What a value of a fixed list means."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in meanings:
            raise Unfit(f"{name!r} must be one of {list(meanings)}, got {_shown(value)}")
        return meanings[value]

    def number_of(self, name: str) -> float:
        """A finite number; as text, too, since CSV has nothing else."""
        value = self.get(name)
        try:
            found = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise Unfit(f"{name!r} must be a finite number, got {_shown(value)}")
        return found

    def whole(self, name: str) -> int:
        """A whole number from 0 on."""
        found = self.number_of(name)
        if found < 0 or found != int(found):
            raise Unfit(f"{name!r} must be a whole number from 0 on, got {_shown(self.get(name))}")
        return int(found)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, which may be empty ones."""
        value = self.get(name)
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise Unfit(f"{name!r} must be a list of texts, got {_shown(value)}")
        return tuple(value)

    def inner(self, name: str) -> Fields:
        """The fields of an object inside the row."""
        value = self.get(name)
        if not isinstance(value, dict):
            raise Unfit(f"{name!r} must be an object, got {_shown(value)}")
        return Fields(Row(0, value), self.number)


def read_records(
    path: str,
    make: Callable[[Fields], Record],
    key: Callable[[Record], Any] | None = None,
    *,
    split: str = "train",
) -> tuple[Record, ...]:
    """``make`` of every row of the file; ``key`` must be another one for each record.

    Raises ConfigError that lists every unreadable, unfit and repeated row by its line, or where
    there is no row at all.
    """
    table = read_rows(path, split=split)
    faults = [(bad.line, bad.reason) for bad in table.bad]
    found: list[Record] = []
    lines: dict[Any, int] = {}
    for number, row in enumerate(table.rows):
        try:
            record = make(Fields(row, number))
        except Unfit as unfit:
            faults.append((row.line, str(unfit)))
            continue
        found.append(record)
        if key is not None and lines.setdefault(key(record), row.line) != row.line:
            faults.append((row.line, f"repeats {key(record)!r} of line {lines[key(record)]}"))
    if faults:
        raise ConfigError([f"line {line}: {why}" for line, why in sorted(faults)], table.where)
    if not found:
        raise ConfigError("the file has no rows", table.where)
    return tuple(found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
