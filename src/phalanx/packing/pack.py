"""A run's folder to one archive: a tar file, compressed, with a manifest at its start."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from phalanx.config.loading import map_paths, to_yaml
from phalanx.config.stored import readable
from phalanx.errors import ConfigError, LedgerError
from phalanx.identity import canonical_json, content_id
from phalanx.ledger import FILE_NAME, Ledger, RunLock, run_ledger_path
from phalanx.ledger.migrating import refuse_foreign
from phalanx.ledger.rows import RUN_PREFIX, place_here
from phalanx.packing.manifest import (
    ADAPTERS,
    CONFIG,
    FORMAT,
    INPUTS,
    MANIFEST,
    Manifest,
    PackedFile,
    plain,
    why_not,
)
from phalanx.placing import placed
from phalanx.pool import SCRIPT
from phalanx.version import __version__

ENDINGS = (".tar.gz", ".tar.xz")
DEFAULT_ENDING = ".phalanx.tar.gz"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Packed:
    """The archive at ``path``, what it says of itself, and its size in bytes."""

    path: Path
    manifest: Manifest
    num_bytes: int


def pack(folder: Path | str, out: Path | str | None = None, *, weights: bool = True) -> Packed:
    """Write the run in ``folder`` to one archive; by default ``NAME.phalanx.tar.gz``, here.

    In it are a consistent copy of the ledger, the configuration, the files that it names and, with
    ``weights``, the adapters. Bases are named, not packed. Nothing of the environment is in it.
    The run is locked meanwhile.

    Raises LedgerError where there is no run, it goes on, or its ledger is none that can be opened
    elsewhere; ConfigError for a place that is taken or cannot be written, or an ending that is not
    known.
    """
    folder = Path(folder)
    target = Path(out) if out else Path(f"{folder.resolve().name}{DEFAULT_ENDING}")
    if not target.name.endswith(ENDINGS):
        raise ConfigError(f"{target}: an archive ends in {' or '.join(ENDINGS)}")
    if target.exists():
        raise ConfigError(f"{target} exists; remove it, or choose another name with --out")
    with Ledger(run_ledger_path(folder)) as ledger, _kept_still(folder):
        ledger.refuse_target(target)
        with TemporaryDirectory(prefix="phalanx-pack-") as scratch:
            files, manifest = _gather(ledger, folder, Path(scratch), weights)
            try:
                with placed(target) as path:
                    _write(path, files, manifest, xz=target.name.endswith(".xz"))
            except OSError as error:
                what = f"{target} could not be made: {error}"
                raise ConfigError(f"{what}; choose another place with --out") from None
    return Packed(target, manifest, target.stat().st_size)


@contextmanager
def _kept_still(folder: Path) -> Iterator[None]:
    """Nobody writes to the run; where nobody can, nothing needs to be locked."""
    lock = RunLock(folder) if os.access(folder, os.W_OK) else None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _gather(
    ledger: Ledger, folder: Path, scratch: Path, weights: bool
) -> tuple[dict[str, Path], Manifest]:
    """Name in the archive -> file here; and what the archive says of itself."""
    stored = ledger.get("config")
    if stored is None:
        raise LedgerError(f"{folder} was never started: there is nothing to pack")
    config = json.loads(stored)
    moves = _Moves(folder, weights, _bases(config))
    here = map_paths({**config, "output": ""}, moves.place)
    written = scratch / CONFIG
    written.write_text(as_file(here, folder), encoding="utf-8")
    _copy_ledger(ledger, scratch / FILE_NAME, here, moves)
    if weights:
        moves.add_folder(folder / ADAPTERS, ADAPTERS)
    elif (folder / ADAPTERS).is_dir():
        moves.missing.append(f"{ADAPTERS} (packed without weights)")
    files = {FILE_NAME: scratch / FILE_NAME, CONFIG: written, **moves.files}
    return files, Manifest(
        format=FORMAT,
        phalanx=__version__,
        ledger_schema=int(ledger.get("schema_version") or 0),
        name=plain(folder.resolve().name) or "run",
        method=ledger.get("method") or "",
        finished=ledger.get("finished") is not None,
        weights=weights,
        bases=sorted(moves.bases_seen(ledger)),
        missing=list(map(plain, moves.missing)),
        left_out=list(map(plain, _left_out(folder))),
        files={name: _hashed(path) for name, path in files.items()},
    )


def _bases(config: Mapping[str, Any]) -> set[str]:
    """What the configuration names as base weights."""
    pool = config.get("pool") or {}
    named = {pool.get("base"), *(one.get("model") for one in pool.get("members") or ())}
    return {name for name in named if name and not name.startswith(SCRIPT)}


@dataclass
class _Moves:
    """Where the files that a configuration names are in the archive; each is packed once.

    ``files``: name in the archive -> file here. ``missing`` is told.
    """

    folder: Path
    weights: bool
    bases: set[str]
    files: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)

    def place(self, text: str) -> str:
        """``run:...`` for what is packed, and the text as it is for all else."""
        if text.startswith(SCRIPT):
            return f"{SCRIPT}{self.place(text.removeprefix(SCRIPT))}"
        # What was there when the run was made was named in full; a word is no path by chance.
        if text in self.bases or not Path(text).is_absolute():
            return text
        if text not in self.moved:
            self.moved[text] = self._pack(text)
        return self.moved[text]

    def of_member(self, text: str) -> str:
        """The same of a member's place; what the run made itself stays where it is in it."""
        if text.startswith(f"{RUN_PREFIX}{ADAPTERS}/"):
            return text
        return self.place(place_here(text, self.folder.resolve()))

    def _pack(self, text: str) -> str:
        path, own = Path(text), self.folder.resolve() / INPUTS
        name = f"{INPUTS}/{content_id(text, length=6)}-{_plain(path.name)}"
        if path.resolve().is_relative_to(own):  # it was unpacked before
            name = f"{INPUTS}/{path.resolve().relative_to(own).as_posix()}"
        if path.is_file():
            self.files[name] = path
        elif path.is_dir() and not self.weights and (path / "adapter_config.json").exists():
            self.missing.append(f"{text} (packed without weights)")
            return text
        elif path.is_dir():
            self.add_folder(path, name)
        else:
            self.missing.append(text)
            return text
        return RUN_PREFIX + name

    def add_folder(self, folder: Path, name: str) -> None:
        """Every file below; links to files are followed, and what is neither is told."""
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file():
                inside = f"{name}/{path.relative_to(folder).as_posix()}"
                if why := why_not(inside):
                    raise ConfigError(f"{plain(str(path))} cannot be packed: it {why}; rename it")
                self.files[inside] = path
            elif path.is_symlink() or not path.is_dir():
                self.missing.append(f"{path} (neither a file nor a folder of its own)")

    def bases_seen(self, ledger: Ledger) -> set[str]:
        rows = ledger.query("SELECT DISTINCT base FROM members WHERE base IS NOT NULL")
        own = (SCRIPT, RUN_PREFIX)
        return {row["base"] for row in rows if row["base"] and not row["base"].startswith(own)}


def _plain(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    return kept[-80:] or "file"


def _left_out(folder: Path) -> list[str]:
    known = {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", "lock", ADAPTERS, CONFIG, INPUTS}
    return sorted(path.name for path in folder.iterdir() if path.name not in known)


def as_file(config: Mapping[str, Any], where: Path) -> str:
    """The configuration as it stands beside the packed files: paths from its own place.

    Raises LedgerError, with ``where``, for one that this version cannot read.
    """

    def beside(text: str) -> str:
        script = SCRIPT if text.startswith(SCRIPT) else ""
        return script + text.removeprefix(SCRIPT).removeprefix(RUN_PREFIX)

    return to_yaml(readable(json.dumps(map_paths(dict(config), beside)), where))


def _copy_ledger(ledger: Ledger, copy: Path, config: Mapping[str, Any], moves: _Moves) -> None:
    """A copy of the ledger, in which places are those of the archive."""
    try:
        ledger.copy_to(copy)
        with closing(sqlite3.connect(copy)) as db, db:
            refuse_foreign(db, str(ledger.path))
            text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
            db.execute("UPDATE run SET value = ? WHERE key = 'config'", (text,))
            change_members(db, moves.of_member)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(
            f"no copy of the ledger can be made in {copy.parent.parent} ({error}); make room, or "
            "name another place with the variable TMPDIR"
        ) from None


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


def _write(path: Path, files: Mapping[str, Path], manifest: Manifest, *, xz: bool) -> None:
    """The same run gives the same bytes: no name, no time of this machine."""
    head = json.dumps(manifest.model_dump(), indent=1, ensure_ascii=False).encode()
    with (
        path.open("wb") as raw,
        lzma.open(raw, "wb") if xz else gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,  # type: ignore[arg-type]
    ):
        archive.addfile(_entry(MANIFEST, len(head)), io.BytesIO(head))
        for name, source in files.items():
            known = manifest.files[name]
            with source.open("rb") as file:
                told = _Told(file)
                try:
                    archive.addfile(_entry(name, known.size), told)  # type: ignore[arg-type]
                except OSError as error:
                    if error.errno is not None:
                        raise
                    # It is shorter than it was, which has no number.
            if told.digest.hexdigest() != known.sha256:
                raise LedgerError(f"{source} changed while it was packed; pack it again")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """Nothing of whoever packs: no owner, no time, plain rights."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o644, 0
    return entry
