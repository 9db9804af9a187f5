"""What the workers of the executor tests do; importable, as jobs must be."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from phalanx.errors import TrainingError

_held: dict[str, str] = {}


def set_up(tool: str) -> None:
    _held["tool"] = tool


def slow_square(value: float) -> tuple[float, str, str]:
    time.sleep(value)
    return value * value, _held["tool"], os.environ.get("OMP_NUM_THREADS", "")


def process_id(_: int) -> int:
    return os.getpid()


def fail(_: int) -> None:
    raise TrainingError("the loss is not finite")


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def write_id_and_sleep(path: str) -> None:
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(60)
