"""Whether two LaTeX expressions are equal, by math-verify in a process with a hard time limit.

math-verify bounds itself by an alarm, which works in a main thread alone; without it a simplify may
take for ever. So one worker process compares, and is ended and replaced where it takes too long.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Literal

from phalanx.errors import EngineError, MissingPackage

SECONDS = 10.0
"""For one comparison; a usual one takes 5 ms."""
_START_SECONDS = 120.0
_NAMES = str.maketrans({"$": "", " ": "", "\n": "", "\t": ""})

Verdict = Literal["equal", "different", "time limit", "fault"]


def is_there() -> bool:
    """Whether math-verify is installed."""
    return importlib.util.find_spec("math_verify") is not None


def require() -> None:
    """Raises MissingPackage where math-verify is not installed."""
    if not is_there():
        raise MissingPackage("math-verify", "math", "comparing mathematical answers")


def compare(gold: str, answer: str, seconds: float = SECONDS) -> Verdict:
    """Compare an answer with the gold one, both LaTeX without dollars or box.

    "fault" where the comparison itself failed (memory, or an error inside sympy). Raises
    MissingPackage, and EngineError where the worker cannot be started.
    """
    if _bare(gold) == _bare(answer):
        return "equal"
    require()
    with _LOCK:
        worker = _worker()
        reply = worker.ask(json.dumps({"gold": gold, "answer": answer}), seconds)
        if reply is None:
            timed_out = worker.process.poll() is None
            _end(worker)
            return "time limit" if timed_out else "fault"
    if "fault" in reply:
        return "fault"
    return "equal" if reply["equal"] else "different"


@lru_cache(maxsize=65536)
def same(one: str, other: str) -> bool:
    """Whether two answers are equal, as :func:`compare` has it; remembered.

    Answers whose comparison fails or takes too long are two.
    """
    return compare(one, other) == "equal"


def _bare(latex: str) -> str:
    """What two ways of typing one expression have in common; words in text are kept."""
    plain = re.sub(r"\\(?:left|right|!|,|;|:|quad|displaystyle)(?![a-zA-Z])", "", latex)
    plain = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", plain)
    plain = re.sub(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}", r"\1", plain)
    return plain.translate(_NAMES).rstrip(".")


class _Worker:
    """The process, and the lines to and from it."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("mathworker.py")
        self.pid = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""
        if self._line(_START_SECONDS) is None:
            self.process.kill()
            raise EngineError(
                "the process that compares mathematical answers did not start (exit code "
                f"{self.process.wait()}); see its message above, and reinstall math-verify"
            )

    def ask(self, line: str, seconds: float) -> dict | None:
        """The reply; None where the time is up, or the process has died."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.process.wait()
            return None
        found = self._line(seconds)
        return None if found is None else json.loads(found)

    def _line(self, seconds: float) -> bytes | None:
        end = time.monotonic() + seconds
        pipe = self.process.stdout
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                self.process.wait()
                return None
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line


_LOCK = threading.Lock()
_WORKERS: list[_Worker] = []


def _worker() -> _Worker:
    """The worker of this process. A forked child must not share its parent's."""
    if _WORKERS and _WORKERS[0].pid != os.getpid():
        _WORKERS.clear()
    if not _WORKERS:
        _WORKERS.append(_Worker())
    return _WORKERS[0]


def _end(worker: _Worker) -> None:
    _WORKERS.remove(worker)
    worker.process.kill()
    worker.process.wait()
    for pipe in (worker.process.stdin, worker.process.stdout):
        with contextlib.suppress(BrokenPipeError):  # a line that it never read
            pipe.close()


@atexit.register
def _end_all() -> None:
    for worker in list(_WORKERS):
        if worker.pid == os.getpid():
            _end(worker)
