"""Whether a process is at work on a run, told without touching its lock, and how one ended."""

from __future__ import annotations

import os
from pathlib import Path

ENDED = "ended"
"""Kind of the event that has the exit code and the error class of a start that ended early."""
_SLACK_S = 2.0  # clocks of files and of processes are not the same


def holder(folder: Path | str) -> int | None:
    """The process that has the run open for writing; None where nobody has.

    :class:`~phalanx.ledger.store.RunLock` writes its process's number into the file ``lock`` and
    takes it out again. One that was killed leaves it there, so it is looked up: only processes of
    this machine are found.
    """
    lock = Path(folder) / "lock"
    try:
        process, written = int(lock.read_text(encoding="utf-8").strip() or 0), lock.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not process or not _alive(process):
        return None
    try:  # a process that began after the file was written has only taken over the number
        began = Path(f"/proc/{process}").stat().st_mtime
    except OSError:  # no /proc here
        return process
    return None if began > written + _SLACK_S else process


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
