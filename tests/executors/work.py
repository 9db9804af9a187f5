"""What the workers of the executor tests do; importable, as jobs must be."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx import workshop
from phalanx.collective.alarms import Fired
from phalanx.errors import GuardError, TrainingError

_held: dict[str, Any] = {}


def set_up(report: Callable[[int], None], tool: str) -> None:
    _held["tool"] = tool
    _held["report"] = report


def slow_square(value: float) -> tuple[float, str, str]:
    time.sleep(value)
    return value * value, _held["tool"], os.environ.get("OMP_NUM_THREADS", "")


def process_id(_: int) -> int:
    return os.getpid()


def fail(_: int) -> None:
    raise TrainingError("the loss is not finite")


def fail_or_touch(job: tuple[str, float]) -> str:
    """After some seconds: make the file, or fail where there is no name for it."""
    path, seconds = job
    time.sleep(seconds)
    if not path:
        raise TrainingError(f"failed after {seconds} s")
    Path(path).touch()
    return path


def loaded(names: list[str]) -> list[str]:
    return [name for name in names if name in sys.modules]


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def write_id_and_sleep(path: str) -> None:
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(60)


def set_up_wrongly(report: Callable[[int], None]) -> None:
    raise TrainingError("no weights here")


def sleep_and_say_where(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def report_steps(count: int) -> int:
    for _ in range(count):
        _held["report"](1)
    return count


def report_and_sleep(job: tuple[int, float]) -> int:
    count, seconds = job
    report_steps(count)
    time.sleep(seconds)
    return count


def die_unless_there(path: str) -> int:
    """Kills its worker the first time; the mark that it leaves saves the next one."""
    mark = Path(path)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def unpicklable(_: int) -> object:
    return lambda: None


def set_up_guarded(report: Callable[[int], None], root: str, *arguments: Any) -> None:
    """Workers as of a run, in a process that is refused every file below ``root``."""

    def refuse(event: str, details: tuple) -> None:
        watched = event in {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename"}
        if watched and str(details[0]).startswith(root):
            raise PermissionError(f"{event} of {details[0]}")

    sys.addaudithook(refuse)
    workshop._set_up_worker(report, *arguments)


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def guard(member: str) -> None:
    raise GuardError("too far", Fired("max_kl", member, 0.7, 0.5, "too far", "", ""))
