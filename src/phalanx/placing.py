"""Files that a person asked for: they appear whole, and harm nothing in their place."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def placed(path: Path | str, *, new: bool = False) -> Iterator[Path]:
    """Where to write what is to be at ``path``: a file, or a folder.

    It is written beside its place, and takes it when the block ends without error; before, and
    after an error, what was there stays. Links are followed, so that a link stays one. Devices,
    pipes and sockets hold nothing that could be replaced, and are written to as they are.

    ``new``: a folder that takes no other's place. Raises FileExistsError where one appeared there
    meanwhile.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Numbers of processes come again, in containers all the time: a killed one's must not stop us.
    own = f"{os.getpid()}.{secrets.token_hex(3)}"
    scratch = target.with_name(f".{target.name}.{own}")
    try:
        yield scratch
        if new:
            _move_new(scratch, target)
        else:
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


def _move_new(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)  # refused by the system where a folder has anything
    except OSError as error:
        if not target.exists():
            raise
        why = "somebody else made it meanwhile; choose another place"
        raise FileExistsError(error.errno or errno.EEXIST, why, str(target)) from None


def _remove(scratch: Path) -> None:
    if scratch.is_dir():
        shutil.rmtree(scratch)
    else:
        scratch.unlink(missing_ok=True)
