"""An archive of a run to its folder. Whoever made it is not trusted.

What the manifest does not name is not read; what it names is read up to the size that it gives,
and checked. The run appears as a whole, or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.config.loading import map_paths
from phalanx.config.schema import Config
from phalanx.config.stored import readable
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import FILE_NAME, Ledger, run_ledger_path
from phalanx.ledger.migrating import refuse_foreign
from phalanx.ledger.rows import RUN_PREFIX
from phalanx.packing.manifest import CONFIG, MANIFEST, Manifest, PackedFile, read_manifest
from phalanx.packing.pack import as_file, change_members
from phalanx.placing import placed
from phalanx.pool import SCRIPT
from phalanx.types import Member

MAX_MANIFEST = 64 << 20
"""Bytes of the longest manifest, and of the longest single read: some hundred thousand files."""
_BLOCK = 1 << 20
_LEDGER = "the ledger in the archive"
_NEEDED = {"name", "base", "adapter", "roles"}
_OF_MEMBER = {one.name for one in fields(Member)}


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The run's folder, what the archive said, and the bases that are not on this machine."""

    folder: Path
    manifest: Manifest
    missing_bases: tuple[str, ...]


def unpack(
    archive: Path | str, out: Path | str | None = None, *, bases: Mapping[str, str] = {}
) -> Unpacked:
    """Open an archive of :func:`phalanx.packing.pack` as a run's folder; by default by its name.

    ``bases`` has, for a base as the run names it, where it is here. Every file is checked against
    the manifest; a ledger of an older schema is brought up to date.

    Raises ConfigError for an archive that is broken, hostile, of a newer form or too large for the
    disk, for a folder that exists, and for a base that the run does not have; LedgerError for a
    ledger in it that cannot be one.
    """
    archive = Path(archive)
    if not archive.is_file():
        raise ConfigError(f"there is no archive {archive}")
    try:
        with _opened(archive) as tar:
            manifest = _manifest(tar, archive)
            target = Path(out) if out else _named(manifest, archive)
            _refuse(manifest, target, bases, archive)
            with placed(target, new=True) as scratch:
                scratch.mkdir()
                _extract(tar, manifest, scratch, archive)
                _settle(scratch, target, bases)
    except (
        tarfile.TarError,
        EOFError,
        gzip.BadGzipFile,
        lzma.LZMAError,
        zlib.error,
        RecursionError,
    ) as error:  # headers of headers, without end
        why = str(error) or type(error).__name__
        raise ConfigError(f"{archive} is broken, or no archive of a run: {why}") from None
    absent = tuple(
        base for base in (bases.get(name, name) for name in manifest.bases)
        if Path(base).is_absolute() and not Path(base).exists()
    )  # fmt: skip
    return Unpacked(target, manifest, absent)


class _Bounded:
    """A file of which nobody reads more at once than a manifest may be long.

    tarfile reads the headers of an entry (long names, attributes) whole into memory, by the size
    that the archive claims.
    """

    def __init__(self, file: BinaryIO, archive: Path) -> None:
        self._file, self._archive = file, archive

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_MANIFEST:
            raise ConfigError(f"{self._archive} is refused: a header of it claims {size} bytes")
        return self._file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def _opened(archive: Path) -> tarfile.TarFile:
    """The archive as a tar file, by how it begins rather than by its name."""
    with archive.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        plain: BinaryIO = gzip.open(archive)  # type: ignore[assignment]  # noqa: SIM115
    elif start.startswith(b"\xfd7zXZ\x00"):
        plain = lzma.open(archive)  # type: ignore[assignment]  # noqa: SIM115
    else:
        raise ConfigError(f"{archive} is no archive of a run: it is neither gzip nor xz")
    bounded = _Bounded(plain, archive)
    try:
        tar = tarfile.TarFile(fileobj=bounded, mode="r")  # type: ignore[arg-type]
    except BaseException:
        plain.close()
        raise
    tar._extfileobj = False  # closing the tar file closes what it reads
    return tar


def _manifest(tar: tarfile.TarFile, archive: Path) -> Manifest:
    entry = tar.next()
    if entry is None or entry.name != MANIFEST or not entry.isreg() or entry.issparse():
        raise ConfigError(f"{archive} is no archive of a run: it does not begin with {MANIFEST}")
    if not 0 <= entry.size <= MAX_MANIFEST:
        raise ConfigError(f"{archive} is refused: its manifest has {entry.size} bytes")
    file = tar.extractfile(entry)
    text = file.read(entry.size) if file else b""
    return read_manifest(text, str(archive))


def _named(manifest: Manifest, archive: Path) -> Path:
    """The folder by the name that the archive gives itself: one that is seen, here."""
    name = manifest.name
    if "/" in name or "\\" in name or name[0] in ".-~" or name != name.strip():
        raise ConfigError(f"{archive}: its name {name!r} is none for a folder; give one with --out")
    return Path(name)


def _refuse(manifest: Manifest, target: Path, bases: Mapping[str, str], archive: Path) -> None:
    """Before anything is written: a place that is taken or too small, a base that is not there."""
    faults = []
    if target.exists() or target.is_symlink():
        faults.append(f"{target} exists; choose another folder with --out")
    place = next(path for path in target.absolute().parents if path.exists())
    free = shutil.disk_usage(place).free
    if manifest.num_bytes > free:
        faults.append(f"it needs {manifest.num_bytes} bytes, and {place} has {free} free")
    known = ", ".join(manifest.bases) or "none"
    faults += [
        f"--base {name}=...: the run has no such base; it has {known}"
        for name in bases if name not in manifest.bases
    ]  # fmt: skip
    if faults:
        raise ConfigError(faults, where=str(archive))


def _extract(tar: tarfile.TarFile, manifest: Manifest, folder: Path, archive: Path) -> None:
    """Every file of the manifest, once each, under ``folder``, with the size and hash it has."""
    owed = dict(manifest.files)
    while (entry := tar.next()) is not None:
        known = owed.pop(entry.name, None)
        if known is None:
            again = "twice in it" if entry.name in manifest.files else "not in its manifest"
            raise ConfigError(f"{archive} is refused: {entry.name[:80]!r} is {again}")
        if not entry.isreg() or entry.issparse():
            raise ConfigError(f"{archive} is refused: {entry.name[:80]!r} is no plain file")
        if entry.size != known.size:
            raise ConfigError(
                f"{archive} is damaged: {entry.name} has {entry.size} bytes, its manifest says "
                f"{known.size}"
            )
        _extract_one(tar, entry, known, folder / entry.name, archive)
    if owed:
        first = next(iter(owed))
        raise ConfigError(
            f"{archive} is cut short: {len(owed)} of {len(manifest.files)} files are not in it, "
            f"the first is {first}"
        )


def _extract_one(
    tar: tarfile.TarFile, entry: tarfile.TarInfo, known: PackedFile, path: Path, archive: Path
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file, digest, length = tar.extractfile(entry), hashlib.sha256(), 0
    assert file is not None  # it is a plain file
    with path.open("xb") as target:
        while block := file.read(_BLOCK):
            digest.update(block)
            length += len(block)
            target.write(block)
    if length != known.size or digest.hexdigest() != known.sha256:
        raise ConfigError(f"{archive} is damaged: {entry.name} is not what its manifest says")


def _settle(folder: Path, target: Path, bases: Mapping[str, str]) -> None:
    """The ledger in ``folder`` becomes one of today's schema, with the bases of this machine.

    Its configuration is written out anew: what somebody reads is what is run.
    """
    path = run_ledger_path(folder)
    with closing(sqlite3.connect(path)) as db:
        try:
            # Nothing that the file brings along is run while it is looked at.
            db.execute("PRAGMA trusted_schema=OFF")
            refuse_foreign(db, _LEDGER)
            if (state := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise LedgerError(f"{_LEDGER} is damaged: {state}")
            with db:
                config = _change_places(db, folder, target, bases)
        except sqlite3.DatabaseError as error:
            raise LedgerError(f"{FILE_NAME} in the archive is no ledger: {error}") from None
    (folder / CONFIG).write_text(as_file(config, target), encoding="utf-8")
    with Ledger(path, writable=True):
        pass  # an older one is brought up to date
    for old in folder.glob(f"{FILE_NAME}.schema-*"):
        old.unlink()  # the archive has it
    (folder / "lock").unlink()


def _change_places(
    db: sqlite3.Connection, folder: Path, target: Path, bases: Mapping[str, str]
) -> dict[str, Any]:
    """Put ``bases`` in their places; returns the configuration. What is in the run stays ``run:``.

    Raises LedgerError where a place leaves the run, a configuration or a member is none, or a
    member may run code of its own that the configuration does not allow it.
    """

    def here(text: str) -> str:
        name = text.removeprefix(SCRIPT)
        if name.startswith(RUN_PREFIX):
            root = folder.resolve()
            if not (root / name.removeprefix(RUN_PREFIX)).resolve().is_relative_to(root):
                raise LedgerError(f"{_LEDGER} names {text[:80]!r}, outside of its run")
        return bases.get(text, text)

    row = db.execute("SELECT value FROM run WHERE key = 'config'").fetchone()
    if row is None:
        raise LedgerError(f"{_LEDGER} has no configuration")
    stored = _object(row[0], "a configuration")
    allowed = readable(row[0], target)
    config = map_paths(stored, here)
    text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    db.execute("UPDATE run SET value = ? WHERE key = 'config'", (text,))
    for (record,) in db.execute("SELECT record FROM members"):
        _refuse_member(_object(record, "a member"), allowed)
    change_members(db, here)
    return config


def _object(text: object, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LedgerError(f"{_LEDGER} has {what} that is none")
    return found


def _refuse_member(record: Mapping[str, Any], config: Config) -> None:
    """A member is a record of one, and runs no code but as the configuration says."""
    places = [record.get("base"), record.get("adapter") or ""]
    known = _NEEDED <= set(record) <= _OF_MEMBER
    if not known or not all(isinstance(place, str) for place in places):
        raise LedgerError(f"{_LEDGER} has a member that is none")
    own = record["base"].startswith(RUN_PREFIX)
    if record.get("trust_remote_code") and not any(
        one.trust_remote_code and (own or record["base"] == (one.model or config.pool.base))
        for one in config.pool.members
    ):
        raise LedgerError(
            f"{_LEDGER} lets {str(record['name'])!r} run code of its own (trust_remote_code), "
            "which its configuration does not say"
        )
