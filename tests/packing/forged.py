"""Archives that somebody made otherwise than ``pack`` does."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from phalanx.errors import ConfigError, LedgerError
from phalanx.packing import unpack


class Forged:
    """The archive taken apart, to be put together otherwise."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            self.entries = [(entry, tar.extractfile(entry).read()) for entry in tar]
        self.manifest = json.loads(self.entries[0][1])

    def write(self, path: Path, *, hashed: bool = False) -> Path:
        """``hashed``: the manifest says what is there, hashes and all."""
        if hashed:
            self.manifest["files"] = {
                entry.name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for entry, data in self.entries[1:]
            }
        self.entries[0] = (self.entries[0][0], json.dumps(self.manifest).encode())
        with tarfile.open(path, "w:gz") as tar:
            for entry, data in self.entries:
                entry.size = len(data) if entry.isreg() else 0
                tar.addfile(entry, io.BytesIO(data))
        return path

    def add(self, name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        self.entries.append((entry, data))


def refused(path: Path, words: str, into: Path) -> None:
    before = set(into.parent.rglob("*"))
    with pytest.raises((ConfigError, LedgerError), match=words):
        unpack(path, into)
    assert set(into.parent.rglob("*")) == before, "something was left behind"


def forge_ledger(forged: Forged, sql: str, scratch: Path) -> None:
    at = next(n for n, (entry, _) in enumerate(forged.entries) if entry.name == "ledger.sqlite")
    file = scratch.parent / f"{scratch.name}.forged"
    file.write_bytes(forged.entries[at][1])
    with closing(sqlite3.connect(file)) as db, db:
        db.executescript(sql)
    forged.entries[at] = (forged.entries[at][0], file.read_bytes())
    file.unlink()
