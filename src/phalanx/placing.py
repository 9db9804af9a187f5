"""Files that a person asked for: they appear whole, and harm nothing in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def placed(path: Path | str) -> Iterator[Path]:
    """Where to write what is to be at ``path``: a file, or a folder.

    It is written beside its place, and takes it when the block ends without error; before, and
    after an error, what was there stays. Links are followed, so that a link stays one. Devices,
    pipes and sockets hold nothing that could be replaced, and are written to as they are.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield scratch
        _move(scratch, target)
    finally:
        _remove(scratch)


def _move(scratch: Path, target: Path) -> None:
    if target.is_dir():
        aside = target.with_name(f".{target.name}.old.{os.getpid()}")
        target.rename(aside)
        scratch.rename(target)
        shutil.rmtree(aside)
    else:
        scratch.replace(target)


def _remove(scratch: Path) -> None:
    if scratch.is_dir():
        shutil.rmtree(scratch)
    else:
        scratch.unlink(missing_ok=True)
