"""Adapters as files in memory, on their way to a machine that does not see this one's folders.

A parcel is known by its content, so that it travels to a machine once, however many jobs want it.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.weights.adapters import CONFIG, TENSORS, adapter_hash, resolve_adapter

Files = dict[str, bytes]
"""File name -> content; no folders within."""
KEPT = 256
"""Adapters that a worker keeps on its disk; those that were wanted longest ago go first."""


class Contents(Protocol):
    """Where a parcel's files wait to be fetched."""

    def load(self) -> Files: ...


@dataclass(frozen=True)
class Parcel:
    """An adapter under way: ``key`` is the hash of its content."""

    key: str
    contents: Contents


def pack(folder: Path, names: Iterable[str] | None = None) -> Files:
    """The named files of a folder, by default all of them."""
    paths = [folder / name for name in names] if names else sorted(folder.iterdir())
    return {path.name: path.read_bytes() for path in paths}


def unpack(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / Path(name).name).write_bytes(content)


class Sender:
    """This side: adapter folders become parcels; ``put`` stores files where workers reach them."""

    def __init__(self, put: Callable[[Files], Contents]) -> None:
        self.put = put
        self._sent: dict[str, Parcel] = {}

    def parcels(self, adapters: Iterable[str | None]) -> dict[str, Parcel]:
        """Adapter -> parcel, for those that are folders; the others are found by every machine.

        Parcels of earlier calls that are not wanted any more are given up.
        Raises EngineError for a folder that is not an adapter.
        """
        folders = sorted({name for name in adapters if name and not name.startswith("hub:")})
        wanted: dict[str, Parcel] = {}
        for name in folders:
            folder = resolve_adapter(name)
            key = adapter_hash(folder)
            parcel = self._sent.get(key)
            wanted[name] = parcel or Parcel(key, self.put(pack(folder, (CONFIG, TENSORS))))
            self._sent[key] = wanted[name]
        keys = {parcel.key for parcel in wanted.values()}
        self._sent = {key: parcel for key, parcel in self._sent.items() if key in keys}
        return wanted


class Receiver:
    """A worker's side: parcels become folders, below a folder that goes when the process ends.

    What a killed process left is thrown away by the next one on its machine.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._have: dict[str, Path] = {}

    @property
    def root(self) -> Path:
        if self._root is None:
            _sweep()
            self._root = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-"))
            atexit.register(shutil.rmtree, self._root, ignore_errors=True)
        return self._root

    def folder(self, parcel: Parcel) -> Path:
        """The adapter's folder, fetched unless it is here already."""
        folder = self._have.pop(parcel.key, None)
        if folder is None:
            folder = self.root / parcel.key
            scratch = self.root / f".{parcel.key}.partial"
            scratch.mkdir(exist_ok=True)
            unpack(parcel.contents.load(), scratch)
            os.replace(scratch, folder)
        self._have[parcel.key] = folder
        while len(self._have) > KEPT:
            oldest = next(iter(self._have))
            shutil.rmtree(self._have.pop(oldest))
        return folder


def _prefix() -> str:
    """Of the folders of this machine: containers may share a folder, and count processes anew."""
    return f"phalanx-{socket.gethostname()}-"


def _sweep() -> None:
    """Remove the folders of processes that were killed."""
    for root in Path(tempfile.gettempdir()).glob("phalanx-*"):
        found = re.fullmatch(rf"{re.escape(_prefix())}(\d+)-\w+", root.name)
        if found and not _is_alive(int(found.group(1))):
            shutil.rmtree(root, ignore_errors=True)  # another user's stays


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 would end it there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True
