"""Clocks, medians, memory of a process tree, and the record of one measured item."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Item:
    """One line of the table. ``at_least``/``at_most`` is the target; neither: for information."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    def record(self) -> dict[str, Any]:
        target = ""
        if self.at_least is not None:
            target = f">= {self.at_least:g}"
        elif self.at_most is not None:
            target = f"<= {self.at_most:g}"
        kind = "ratio" if self.unit.startswith("x") else "value"
        return {
            "name": self.name,
            kind: self.value,
            "unit": self.unit,
            "target": target,
            "met": self.met,
            "raw": self.raw,
            "note": self.note,
        }


def seconds_of(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Wall-clock seconds of each way, ``repeats`` times, one after another in turn.

    In turn, so that what else the machine does meets all of them alike. Every other round goes
    backwards, so that none is always the first.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats):
        order = list(ways)[:: -1 if number % 2 else 1]
        for name in order:
            _wait_for_device()
            began = time.perf_counter()
            ways[name]()
            _wait_for_device()
            found[name].append(time.perf_counter() - began)
    return found


def _wait_for_device() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ratio(above: list[float], below: list[float]) -> float:
    """Ratio of the medians."""
    return statistics.median(above) / statistics.median(below)


class Tree:
    """Peak memory of this process and its children, in MiB, sampled in a thread.

    Memory of its own (USS) where the system tells it, so that shared pages count once.
    """

    def __init__(self, interval: float = 0.05) -> None:
        self.peak = 0.0
        self._interval = interval
        self._stop = threading.Event()

    def sample(self) -> float:
        import psutil

        total = 0
        me = psutil.Process(os.getpid())
        for process in (me, *me.children(recursive=True)):
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:  # it ended while we looked
                continue
        return total / 2**20

    @contextmanager
    def watching(self) -> Iterator[Tree]:
        def watch() -> None:
            while not self._stop.is_set():
                self.peak = max(self.peak, self.sample())
                self._stop.wait(self._interval)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()


def machine(device: str) -> dict[str, Any]:
    """What the figures were taken on."""
    from importlib.metadata import version

    import psutil
    import torch

    packages = ("torch", "transformers", "trl", "peft", "accelerate")
    about = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        **{name: version(name) for name in packages},
    }
    if device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name()
    return about


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.split(":", 1)[1].strip() for line in stream if "model name" in line]
    except OSError:  # not Linux
        names = []
    return names[0] if names else platform.processor()
