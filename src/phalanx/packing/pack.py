"""A run's folder to one archive: a tar file, compressed, with a manifest at its start."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from phalanx.config.loading import map_paths, to_yaml
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, LedgerError
from phalanx.identity import canonical_json, content_id
from phalanx.ledger import FILE_NAME, Ledger, RunLock, run_ledger_path
from phalanx.ledger.rows import RUN_PREFIX
from phalanx.packing.manifest import (
    ADAPTERS,
    CONFIG,
    FORMAT,
    HERE,
    INPUTS,
    MANIFEST,
    REPORTS,
    Manifest,
    PackedFile,
    why_not,
)
from phalanx.placing import placed
from phalanx.version import __version__

ENDINGS = {".tar.gz": "w:gz", ".tar.xz": "w:xz"}
DEFAULT_ENDING = ".phalanx.tar.gz"
SCRIPT = "script:"
_ELSEWHERE = ("builtin:", "hub:", RUN_PREFIX)
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Packed:
    """The archive at ``path``, what it says of itself, and its size in bytes."""

    path: Path
    manifest: Manifest
    num_bytes: int


def pack(folder: Path | str, out: Path | str | None = None, *, weights: bool = True) -> Packed:
    """Write the run in ``folder`` to one archive; by default ``NAME.phalanx.tar.gz``, here.

    In it are a consistent copy of the ledger, the configuration, the files that it names, the
    report where there is one, and, with ``weights``, the adapters. Bases are named, not packed.
    Nothing of the environment is in it. The run is locked meanwhile.

    Raises LedgerError where there is no run or it goes on, ConfigError for a place that is taken
    or an ending that is not known.
    """
    folder = Path(folder)
    target = Path(out) if out else Path(f"{folder.resolve().name}{DEFAULT_ENDING}")
    mode = next((mode for end, mode in ENDINGS.items() if target.name.endswith(end)), None)
    if mode is None:
        raise ConfigError(f"{target}: an archive ends in {' or '.join(ENDINGS)}")
    if target.exists():
        raise ConfigError(f"{target} exists; remove it, or choose another name with --out")
    with Ledger(run_ledger_path(folder)) as ledger, _kept_still(folder):
        ledger.refuse_target(target)
        with TemporaryDirectory(prefix="phalanx-pack-") as scratch:
            content = _gather(ledger, folder, Path(scratch), weights)
            with placed(target) as path:
                _write(path, mode, content)
    return Packed(target, content.manifest, target.stat().st_size)


@dataclass
class _Content:
    """Name in the archive -> file here; and what is told."""

    files: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    manifest: Manifest = None  # type: ignore[assignment]


@contextmanager
def _kept_still(folder: Path) -> Iterator[None]:
    """Nobody writes to the run; where nobody can, nothing needs to be locked."""
    lock = closing(_Locked(folder)) if os.access(folder, os.W_OK) else nullcontext()
    with lock:
        yield


class _Locked:
    def __init__(self, folder: Path) -> None:
        self._lock = RunLock(folder)

    def close(self) -> None:
        self._lock.release()


def _gather(ledger: Ledger, folder: Path, scratch: Path, weights: bool) -> _Content:
    content = _Content()
    stored = ledger.get("config")
    if stored is None:
        raise LedgerError(f"{folder} was never started: there is nothing to pack")
    config = json.loads(stored)
    moves = _Moves(folder, weights, _bases(config), content)
    here = map_paths({**config, "output": ""}, moves.place)
    copy = scratch / FILE_NAME
    ledger.copy_to(copy)
    _make_movable(copy, here, moves)
    content.files[FILE_NAME] = copy
    written = scratch / CONFIG
    written.write_text(as_file(here), encoding="utf-8")
    content.files[CONFIG] = written
    for name in REPORTS:
        if (folder / name).is_file():
            content.files[name] = folder / name
    if weights:
        _add_folder(content, folder / ADAPTERS, ADAPTERS)
    elif (folder / ADAPTERS).is_dir():
        content.missing.append(f"{ADAPTERS} (packed without weights)")
    content.manifest = Manifest(
        format=FORMAT,
        phalanx=__version__,
        ledger_schema=int(ledger.get("schema_version") or 0),
        name=folder.resolve().name or "run",
        method=ledger.get("method") or "",
        finished=ledger.get("finished") is not None,
        weights=weights,
        bases=sorted(moves.bases_seen(ledger)),
        missing=content.missing,
        left_out=_left_out(folder),
        files={name: _hashed(path) for name, path in content.files.items()},
    )
    return content


def _bases(config: Mapping[str, Any]) -> set[str]:
    """What the configuration names as base weights."""
    pool = config.get("pool") or {}
    named = {pool.get("base"), *(one.get("model") for one in pool.get("members") or ())}
    return {name for name in named if name and not name.startswith(SCRIPT)}


@dataclass
class _Moves:
    """Where the files that a configuration names are in the archive; each is packed once."""

    folder: Path
    weights: bool
    bases: set[str]
    content: _Content
    moved: dict[str, str] = field(default_factory=dict)

    def place(self, text: str) -> str:
        """``run:...`` for what is packed, and the text as it is for all else."""
        if text.startswith(SCRIPT):
            return f"{SCRIPT}{self.place(text.removeprefix(SCRIPT))}"
        if not text or text in self.bases or text.startswith(_ELSEWHERE):
            return text
        if text not in self.moved:
            self.moved[text] = self._pack(text)
        return self.moved[text]

    def _pack(self, text: str) -> str:
        path, own = Path(text).expanduser(), self.folder.resolve() / INPUTS
        name = f"{INPUTS}/{content_id(text, length=6)}-{_plain(path.name)}"
        if path.is_absolute() and path.resolve().is_relative_to(own):  # it was unpacked before
            name = f"{INPUTS}/{path.resolve().relative_to(own).as_posix()}"
        if path.is_file():
            self.content.files[name] = path
        elif path.is_dir() and not self.weights and (path / "adapter_config.json").exists():
            self.content.missing.append(f"{text} (packed without weights)")
            return text
        elif path.is_dir():
            _add_folder(self.content, path, name)
        else:
            if path.is_absolute():
                self.content.missing.append(text)
            return text
        return HERE + name

    def bases_seen(self, ledger: Ledger) -> set[str]:
        rows = ledger.query("SELECT DISTINCT base FROM members WHERE base IS NOT NULL")
        own = (SCRIPT, RUN_PREFIX)
        return {row["base"] for row in rows if row["base"] and not row["base"].startswith(own)}


def _plain(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return kept[-80:] or "file"


def _add_folder(content: _Content, folder: Path, name: str) -> None:
    """Every file below, links followed to what they name."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            inside = f"{name}/{path.relative_to(folder).as_posix()}"
            if why := why_not(inside):
                raise ConfigError(f"{path} cannot be packed: its name {why}; rename it")
            content.files[inside] = path


def _left_out(folder: Path) -> list[str]:
    known = {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", "lock", ADAPTERS, CONFIG, INPUTS}
    return sorted(path.name for path in folder.iterdir() if path.name not in {*known, *REPORTS})


def as_file(config: Mapping[str, Any]) -> str:
    """The configuration as it stands beside the packed files: paths from its own place."""

    def beside(text: str) -> str:
        script = SCRIPT if text.startswith(SCRIPT) else ""
        return script + text.removeprefix(SCRIPT).removeprefix(HERE)

    try:
        return to_yaml(Config.model_validate(map_paths(dict(config), beside)))
    except ValueError as error:
        raise LedgerError(
            f"the run was made by a version of phalanx whose configuration this one cannot read; "
            f"pack it with that version ({error})"
        ) from None


def _make_movable(copy: Path, config: Mapping[str, Any], moves: _Moves) -> None:
    """The places in the copy of the ledger become those of the archive."""
    with closing(sqlite3.connect(copy)) as db, db:
        text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
        db.execute("UPDATE run SET value = ? WHERE key = 'config'", (text,))
        change_members(db, moves.place)


def change_members(db: sqlite3.Connection, change: Any) -> None:
    """Apply ``change`` (text to text) to the places of every member's base and adapter."""
    rows = db.execute("SELECT member, version, record FROM members").fetchall()
    for member, version, record in rows:
        known = json.loads(record)
        places = {name: change(known[name]) if known[name] else known[name]
                  for name in ("base", "adapter")}  # fmt: skip
        if any(known[name] != place for name, place in places.items()):
            db.execute(
                "UPDATE members SET base = ?, adapter = ?, record = ? "
                "WHERE member = ? AND version = ?",
                (places["base"], places["adapter"], canonical_json({**known, **places}),
                 member, version),
            )  # fmt: skip


def _hashed(path: Path) -> PackedFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return PackedFile(size=file.tell(), sha256=digest)


class _Told:
    """Reads a file, and hashes what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self.digest.update(block)
        return block


def _write(path: Path, mode: str, content: _Content) -> None:
    head = json.dumps(content.manifest.model_dump(), indent=1, ensure_ascii=False).encode()
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        archive.addfile(_entry(MANIFEST, len(head)), io.BytesIO(head))
        for name, source in content.files.items():
            known = content.manifest.files[name]
            with source.open("rb") as file:
                told = _Told(file)
                try:
                    archive.addfile(_entry(name, known.size), told)  # type: ignore[arg-type]
                except OSError as error:
                    raise LedgerError(f"{source} cannot be packed: {error}") from None
            if told.digest.hexdigest() != known.sha256:
                raise LedgerError(f"{source} changed while it was packed; pack it again")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """Nothing of whoever packs: no owner, no time, plain rights."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o644, 0
    return entry
