"""``watch``: follow a run from its ledger until it ends: a window, a log, or JSON lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live

from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report.facts import gather
from phalanx.report.machine import Ending, ending, status_object
from phalanx.report.records import RunFacts
from phalanx.report.terminal import watched
from phalanx.report.watch_views import plain_line
from phalanx.report.words import harmless

_SHARE = 4  # reading takes at most a fifth of the time
_LINE_S = 10.0


def follow(
    folder: Path | str, *, every_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[RunFacts]:
    """The facts of the run, again and again, as long as a process is at work on it; the last ones
    are those after it ended.

    The ledger is opened anew each time, so that the run is never in the way of being moved or
    continued. Raises LedgerError where the folder holds no run, also later.
    """
    while True:
        started = time.monotonic()
        with Ledger(run_ledger_path(folder)) as ledger:
            facts = gather(ledger, tables=False)
        yield facts
        if ending(facts) is not None:
            return
        sleep(max(every_s, _SHARE * (time.monotonic() - started)))


class Shown(Protocol):
    """What shows the facts as they come."""

    def show(self, facts: RunFacts) -> None: ...

    def close(self) -> None: ...


class Window:
    """A few lines of a terminal that are drawn over."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, facts: RunFacts) -> None:
        self._live.update(watched(facts), refresh=True)

    def close(self) -> None:
        self._live.stop()


class Log:
    """A line when the phase changes and every ten seconds; warnings and events when they come."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = 0.0
        self._place: tuple[Any, ...] = ()
        self._known: set[str] = set()

    def show(self, facts: RunFacts) -> None:
        state = facts.progress
        for text in self._news(facts):
            self._say(harmless(text))
        place, now = (state.iteration, state.phase, ending(facts)), time.monotonic()
        if place != self._place or now - self._said >= _LINE_S:
            self._place, self._said = place, now
            self._say(harmless(plain_line(facts)))

    def _news(self, facts: RunFacts) -> Iterator[str]:
        shown = status_object(facts)
        for event in shown["events"]:
            key = f"event {event['at']} {event['kind']} {event['text']}"
            if key not in self._known:
                self._known.add(key)
                yield f"  {event['kind']}: {event['text']}"
        for sign in shown["warnings"]:
            key = f"warning {sign['rule']} {sign['where']}"
            if key not in self._known:
                self._known.add(key)
                yield f"  warning {sign['rule']}: {sign['where']}: {sign['says']} ({sign['value']})"

    def close(self) -> None:
        return


class JsonLines:
    """One object a line: ``event`` is ``state`` whenever something changed, and ``end`` at last."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = ""

    def show(self, facts: RunFacts) -> None:
        shown = status_object(facts)
        text = json.dumps(shown, ensure_ascii=False)
        if text == self._last:
            return
        self._last = text
        event = "state" if ending(facts) is None else "end"
        self._say(json.dumps({"event": event, "at": time.time(), **shown}))

    def close(self) -> None:
        return


class Quiet:
    """Nothing but how it ended."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def show(self, facts: RunFacts) -> None:
        if ending(facts) is not None:
            self._say(harmless(plain_line(facts)))

    def close(self) -> None:
        return


def status(folder: Path | str) -> dict[str, Any]:
    """How far a run is: what ``phalanx status --json`` prints. Raises LedgerError for no run."""
    with Ledger(run_ledger_path(folder)) as ledger:
        return status_object(gather(ledger, tables=False))


def wait_for(folder: Path | str, wait_s: float, every_s: float = 1.0) -> None:
    """Until a run has begun there, or that many seconds are over.

    Raises LedgerError for what is there and is no ledger, or one that cannot be read.
    """
    path, end = run_ledger_path(folder), time.monotonic() + wait_s
    while time.monotonic() < end:
        if path.exists():
            with Ledger(path) as ledger:
                if ledger.get("method") is not None:
                    return
        time.sleep(min(every_s, max(0.0, end - time.monotonic())))


def watch(
    folder: Path | str, shown: Shown | None = None, *, every_s: float = 1.0, wait_s: float = 0.0
) -> Ending:
    """Show the run until it ends (as lines, printed, unless ``shown`` does otherwise); how it did.

    Raises LedgerError where there is no run within ``wait_s``, also where it is taken away
    meanwhile.
    """
    wait_for(folder, wait_s, every_s)
    shown = shown or Log(print)
    end = None
    try:
        for facts in follow(folder, every_s=every_s):
            shown.show(facts)
            end = ending(facts)
    finally:
        shown.close()
    if end is None:
        raise LedgerError(f"{folder} could not be followed to its end")
    return end
