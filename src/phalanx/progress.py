"""Where long steps report: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from phalanx.types import Progress

_ITERATION = re.compile(r"Iteration (\d+) of (\d+)")  # as the loop says it
_NARROW = 80


class Silent:
    """Says nothing."""

    def start(self, phase: str, total: int, unit: str = "") -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def finish(self, note: str = "") -> None: ...

    def say(self, text: str) -> None: ...


class Bars:
    """One live bar a phase with rate and remaining time; it stays as a line when it is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: RichProgress | None = None
        self._task = None
        self._began = 0.0
        self._done = 0
        self._unit = ""

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self.finish()
        self._began, self._done, self._unit = time.monotonic(), 0, unit
        columns = [TextColumn("  {task.description}"), BarColumn(bar_width=8), MofNCompleteColumn()]
        if self._console.width >= _NARROW:
            columns = [
                TextColumn("  {task.description:<20}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
            ]
        self._bar = RichProgress(*columns, TimeRemainingColumn(), console=self._console)
        self._task = self._bar.add_task(phase, total=total, rate="")
        self._bar.start()

    def advance(self, amount: int = 1) -> None:
        if self._bar is None:
            return
        self._done += amount
        seconds = time.monotonic() - self._began
        rate = f"{self._done / seconds:.1f} {self._unit}/s" if seconds > 0.5 else ""
        self._bar.update(self._task, advance=amount, rate=rate)

    def finish(self, note: str = "") -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if note:
            self.say(note)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


class Lines:
    """For logs: one line when a phase starts to move, at most every ten seconds, and at its end."""

    def __init__(self, stream=None, every_s: float = 10.0) -> None:
        self._stream = stream or sys.stderr
        self._every_s = every_s
        self._phase = ""

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self.finish()
        self._phase, self._total, self._unit = phase, total, unit
        self._done, self._began = 0, time.monotonic()
        self._said = self._began

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._said >= self._every_s:
            self._said = now
            rate = self._done / (now - self._began)
            left = (self._total - self._done) / rate if rate else float("inf")
            self.say(
                f"  {self._phase}: {self._done}/{self._total} {self._unit}, "
                f"{rate:.1f}/s, {left:.0f} s left"
            )

    def finish(self, note: str = "") -> None:
        if self._phase:
            seconds = time.monotonic() - self._began
            self.say(f"  {self._phase}: {self._done}/{self._total} {self._unit} in {seconds:.1f} s")
            self._phase = ""
        if note:
            self.say(note)

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class JsonLines:
    """For machines: one JSON object a line, with its ``event`` and ``at`` (seconds since 1970).

    ``iteration``, ``phase`` (begins, with its total), ``progress`` (at most one a second),
    ``phase_end``, ``note``; whoever starts the work adds ``start`` and ``end`` by :meth:`event`.
    """

    def __init__(self, stream: TextIO | None = None, every_s: float = 1.0) -> None:
        self._stream = stream or sys.stdout
        self._every_s = every_s
        self._phase = ""

    def event(self, kind: str, **values: Any) -> None:
        line = json.dumps({"event": kind, "at": round(time.time(), 3), **values})
        print(line, file=self._stream, flush=True)

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self.finish()
        self._phase, self._total, self._unit = phase, total, unit
        self._done, self._began = 0, time.monotonic()
        self._said = self._began
        self.event("phase", phase=phase, total=total, unit=unit)

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        now = time.monotonic()
        if not self._phase or now - self._said < self._every_s:
            return
        self._said = now
        rate = self._done / (now - self._began)
        left = (self._total - self._done) / rate if rate else None
        self.event("progress", phase=self._phase, done=self._done, total=self._total,
                   unit=self._unit, per_second=rate, seconds_left=left)  # fmt: skip

    def finish(self, note: str = "") -> None:
        if self._phase:
            self.event("phase_end", phase=self._phase, done=self._done, total=self._total,
                       unit=self._unit, seconds=time.monotonic() - self._began)  # fmt: skip
            self._phase = ""
        if note:
            self.say(note)

    def say(self, text: str) -> None:
        if found := _ITERATION.fullmatch(text):
            self.event("iteration", iteration=int(found[1]), iterations=int(found[2]))
        else:
            self.event("note", text=text)


class Stoppable:
    """Passes on to another progress, and raises where a step that cannot be resumed may stop."""

    def __init__(self, inner: Progress, check) -> None:
        self._inner = inner
        self._check = check

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self._check()
        self._inner.start(phase, total, unit)

    def advance(self, amount: int = 1) -> None:
        self._inner.advance(amount)
        self._check()

    def finish(self, note: str = "") -> None:
        self._inner.finish(note)

    def say(self, text: str) -> None:
        self._inner.say(text)


def for_terminal(*, quiet: bool = False) -> Progress:
    """Bars on a terminal, lines elsewhere, nothing when quiet."""
    if quiet:
        return Silent()
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal else Lines()
