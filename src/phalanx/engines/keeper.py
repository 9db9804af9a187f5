"""Runs one command and ends its whole process tree when it is told to, or when its owner is gone.

A program of its own, started by path (``python -I keeper.py OWNER_PID COMMAND ...``), so that it
imports nothing but the standard library. It is told to stop by the end of its standard input,
which also comes when the owner is killed; besides, it watches that the owner is still its parent.
On Linux it adopts orphans below it, so that nothing escapes by starting a session of its own.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

TERM_S = 5.0
"""Seconds that the processes get to end by themselves before they are killed."""
_POLL_S = 0.2
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # prctl(2)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Process ids below ``root``, from /proc; on other systems none are found."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold spaces and brackets itself.
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # ended in the meantime
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found: list[int] = []
    open_ = [root]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # ended by itself


def _end_all(child: subprocess.Popen[bytes]) -> None:
    """Ask, wait, then kill whatever is left."""
    _signal([child.pid, *descendants(os.getpid())], signal.SIGTERM)
    deadline = time.monotonic() + TERM_S
    while time.monotonic() < deadline and _left(child):
        child.poll()
        _reap()
        time.sleep(_POLL_S / 4)
    deadline = time.monotonic() + TERM_S
    while time.monotonic() < deadline and (left := _left(child)):
        _signal(left, signal.SIGKILL)
        _reap()
        time.sleep(_POLL_S / 4)


def _left(child: subprocess.Popen[bytes]) -> list[int]:
    """What still runs; where there is no /proc, at least the command itself."""
    return descendants(os.getpid()) or ([child.pid] if child.poll() is None else [])


def _reap() -> None:
    """Collect adopted orphans that have ended. The child itself is collected by ``poll``."""
    for pid in _zombies():
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _zombies() -> list[int]:
    mine = str(os.getpid())
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and fields[1] == mine and int(entry.parent.name) != _child_pid:
            found.append(int(entry.parent.name))
    return found


_child_pid = 0


def main() -> int:
    global _child_pid
    owner, command = int(sys.argv[1]), sys.argv[2:]
    told = False

    def tell(*_: object) -> None:
        nonlocal told
        told = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, tell)
    _prctl(_SET_SUBREAPER, 1)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL),
    )
    _child_pid = child.pid
    while child.poll() is None and not told and os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    code = child.poll()
    _end_all(child)
    return 0 if code is None else (code if code >= 0 else 128 - code)


if __name__ == "__main__":
    sys.exit(main())
