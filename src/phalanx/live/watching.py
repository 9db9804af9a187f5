"""Runs that are looked at while they go on: found in folders, read again when they change.

Nothing is held open: every reading opens the ledger, reads, and closes it, so that a run is never
in the way of being continued, moved or deleted, and a read never keeps its log from being folded.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from phalanx.errors import ConfigError, PhalanxError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report.duels import Kind, browsable, lines, packed
from phalanx.report.facts import RunFacts, gather
from phalanx.report.html import PageSection, sections

_RUN = "ledger.sqlite"
_BELOW = (f"*/{_RUN}", f"seed-*/*/{_RUN}", f"*/seed-*/*/{_RUN}")
"""Where a folder of runs, a comparison, and a folder of comparisons have theirs."""
_OUTCOMES = (
    "SELECT count(*) AS number, total(score_left) AS left, total(score_right) AS right, "
    "total(agreement) AS agreement, sum(winner = 'left') AS won, sum(status = 'tie') AS tied "
    "FROM outcomes"
)
_SHARE = 4  # a run is read again after at least this many times as long as reading it took


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of a run at one moment. ``trouble`` says why there is not more."""

    facts: RunFacts | None = None
    sections: tuple[PageSection, ...] = ()
    kinds: tuple[tuple[Kind, int], ...] = ()
    rows: str = ""
    """Another one whenever the rows of any kind are others."""
    trouble: str = ""


class _Seen(NamedTuple):
    shown: Shown
    stamp: tuple[object, ...]
    again: float
    """Not before this moment (monotonic seconds) is it read again."""


@dataclass(slots=True)
class Watched:
    """One run. ``read`` looks whether it has changed, and says what it is now; thread-safe."""

    key: str
    name: str
    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[bool, _Seen] = field(default_factory=dict)
    _packed: dict[Kind, tuple[str, bytes]] = field(default_factory=dict)

    def read(self, *, whole: bool = True) -> Shown:
        """What it is now. Without ``whole`` there are no sections, which take long."""
        with self._lock:
            stamp, now = self._stamp_now(), time.monotonic()
            seen = self._seen.get(whole)
            if seen is not None and (stamp == seen.stamp or now < seen.again):
                return seen.shown
            shown = self._read(whole, seen.shown if seen else Shown())
            again = now + _SHARE * (time.monotonic() - now)
            self._seen[whole] = _Seen(shown, stamp, again)
            return shown

    def latest(self, *, whole: bool = True) -> Shown | None:
        """What the last reading of that kind showed, at once; None before there was one."""
        seen = self._seen.get(whole)
        return seen.shown if seen else None

    @property
    def was_there(self) -> bool:
        return any(seen.shown.facts for seen in self._seen.values())

    def _stamp_now(self) -> tuple[object, ...]:
        """Changes with every transaction: a WAL database writes to its log first."""
        stamp: list[object] = []
        path = run_ledger_path(self.folder)
        for one in (path, path.with_name(f"{path.name}-wal")):
            try:
                found = one.stat()
            except OSError:
                stamp.append(None)
            else:
                stamp.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(stamp)

    def _read(self, whole: bool, before: Shown) -> Shown:
        """``before`` is still shown where the run is gone or cannot be read, with that said."""
        path = run_ledger_path(self.folder)
        if not path.exists():
            why = "The run is no longer in" if before.facts else "There is no run yet in"
            trouble = f"{why} {self.folder}. It is shown here as soon as there is one."
            return replace(before, trouble=trouble)
        try:
            with Ledger(path) as ledger:
                facts = gather(ledger, tables=whole)
                kinds = tuple(browsable(ledger).items())
                rows = self._rows_stamp(ledger)
            return Shown(facts, tuple(sections(facts)) if whole else (), kinds, rows)
        except Exception as error:  # whatever a ledger has in it, the page goes on and says so
            return replace(before, trouble=f"It cannot be read: {fault_line(error)}")

    def rows(self, kind: Kind) -> tuple[str, bytes]:
        """(stamp, the rows of a kind by column, JSON in gzip); made again only when the stamp is
        another."""
        with Ledger(run_ledger_path(self.folder)) as ledger:
            stamp = self._rows_stamp(ledger)
            known = self._packed.get(kind)
            if known is not None and known[0] == stamp:
                return known
            text = packed(list(lines(ledger, kind)), kind)
        # Level 5 and no time inside: the same rows are the same bytes.
        made = self._packed[kind] = (stamp, gzip.compress(text.encode(), 5, mtime=0))
        return made

    def _rows_stamp(self, ledger: Ledger) -> str:
        """Rows are added, and an iteration may be replaced by one with as many rows; a run that
        takes another's place is another file."""
        facts = [browsable(ledger), ledger.count("judgments"), ledger.query(_OUTCOMES),
                 ledger.get("created_at"), ledger.path.stat().st_ino]  # fmt: skip
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()


def fault_line(error: Exception) -> str:
    """A fault for a page, in words where it has some; one that nobody expected is logged whole."""
    if isinstance(error, PhalanxError | sqlite3.Error | OSError):
        return f"{error}"
    logging.getLogger(__name__).error("a run could not be shown", exc_info=error)
    return f"{type(error).__name__}: {error}; the terminal of phalanx serve says where"


class Runs:
    """The runs of the given folders; those that appear below them later are found, too."""

    def __init__(self, folders: Sequence[Path | str]) -> None:
        """Raises ConfigError for what is no folder, all such faults in one message."""
        self._folders = [Path(folder) for folder in folders]
        faults = [
            f"{one} is a file; name a run's folder, or one with runs in it"
            for one in self._folders
            if one.exists() and not one.is_dir()
        ]
        if not folders:
            faults.append("no folder is given; name at least one run")
        if faults:
            raise ConfigError(faults)
        self._known: dict[Path, Watched] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Watched]:
        """In the order of the folders as given, then of their names."""
        found: list[tuple[Path, str]] = []
        for folder in self._folders:
            if run_ledger_path(folder).exists():
                found.append((folder, folder.resolve().name))
                continue
            below = sorted({one.parent for part in _BELOW for one in folder.glob(part)})
            found += [(one, one.relative_to(folder).as_posix()) for one in below]
            if not below:  # nothing yet: it has a place of its own until it is there
                found.append((folder, folder.resolve().name))
        with self._lock:
            places = [(path.resolve(), path, name) for path, name in found]
            for whole, path, name in places:
                if whole not in self._known:
                    self._known[whole] = Watched(self._key(name), name, path)
            now = dict.fromkeys(whole for whole, _, _ in places)
            # A run that was there and is gone is still shown, with that said.
            gone = [
                whole for whole, one in self._known.items() if whole not in now and one.was_there
            ]
            return [self._known[whole] for whole in (*now, *gone)]

    def get(self, key: str) -> Watched | None:
        return next((one for one in self.all() if one.key == key), None)

    def _key(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        taken = {one.key for one in self._known.values()}
        keys = (plain if number == 1 else f"{plain}-{number}" for number in range(1, 1 << 30))
        return next(key for key in keys if key not in taken)
