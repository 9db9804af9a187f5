"""What a terminal shows of a run that goes on: rates, time left, warnings, events, reputations."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from phalanx.report.health import by_name, signs
from phalanx.report.machine import ending
from phalanx.report.pace_views import about, event_line, event_lines, left_line, rate, working_line
from phalanx.report.records import RunFacts
from phalanx.report.warnings import warnings
from phalanx.report.words import doing, run_name, words_of_place

_MAX_MEMBERS = 8
_MAX_SIGNS = 5
_BAR = 40


def pace_parts(facts: RunFacts) -> Iterator[RenderableType]:
    """Of ``status``: who works on it, time left, what fired, and the last event."""
    for line in (working_line(facts), left_line(facts)):
        if line:
            yield Text(line)
    if facts.guards:
        yield Text(f"Guards: {facts.guards.words}", overflow="fold")
        yield from (
            Text(f"! {line}", style="yellow", overflow="fold")
            for (fired, _), line in zip(facts.guards.fired, facts.guards.sentences, strict=True)
            if not _said(facts, f"guard {fired.rule} ", f" in iteration {fired.iteration}:")
        )
    yield from _signs(facts)
    if facts.pace.events and facts.pace.events[-1].text != facts.progress.last_error:
        yield Text(f"Last event: {event_lines(facts.pace.events)[-1]}", overflow="fold")


def _said(facts: RunFacts, begin: str, place: str) -> bool:
    """Whether what ended the last start is this guard there, so that its text stands above."""
    error = facts.progress.last_error
    return error.startswith(begin) and place in error


def watch_parts(facts: RunFacts) -> Iterator[RenderableType]:
    """Everything of one run, in few lines."""
    state, end = facts.progress, ending(facts)
    yield Text(f"{run_name(facts)}: {facts.method}", style="bold", overflow="fold")
    if end is not None:
        yield Text(f"{end.state.capitalize()}{f': {end.reason}' if end.reason else ''}")
    elif state.phase == "closing":
        yield Text("Closing the run")
    else:
        yield Text(f"{words_of_place(state)}, {doing(state.phase)}")
        yield from _bar(facts)
    for line in ("" if end else working_line(facts), left_line(facts)):
        if line:
            yield Text(line, style="dim")
    yield from (Text(line, style="bold") for line in warnings(facts))
    yield from _signs(facts)
    if facts.reputations:
        ranked = sorted(facts.reputations, key=lambda line: -line.value)[:_MAX_MEMBERS]
        shown = [
            f"{one.member} {one.value:.1f}{f' ±{one.deviation:.1f}' if one.deviation else ''}"
            for one in ranked
        ]
        gone = len(facts.reputations) - len(ranked)
        yield Text(f"Reputations: {', '.join(shown)}{f', {gone} more' if gone else ''}")
    if facts.pace.events:
        yield Text(f"Last event: {event_line(facts.pace.events[-1])}", overflow="fold")


def _bar(facts: RunFacts) -> Iterator[RenderableType]:
    now = facts.pace.current
    if now is None:
        return
    if not now.known or not now.done + now.owed:
        yield Text(progress_line(facts))
        return
    yield Padding(ProgressBar(now.done + now.owed, now.done, width=_BAR), (0, 0), expand=False)
    yield Text(progress_line(facts))


def progress_line(facts: RunFacts) -> str:
    """``120 of 300 requests, 12.3/s, 15 s left``."""
    now = facts.pace.current
    if now is None:
        return ""
    known = now.known and now.done + now.owed
    count = f"{now.done:,} of {now.done + now.owed:,}" if known else f"{now.done:,}"
    speed = f", {rate(now.per_second)}" if now.per_second else ""
    left = f", {about(now.left)} left" if now.left is not None else ""
    return f"{count} {now.unit}{speed}{left}"


def plain_line(facts: RunFacts) -> str:
    """All of it in one line, for a log."""
    end = ending(facts)
    if end is not None:
        return f"{run_name(facts)}: {end.state}{f': {end.reason}' if end.reason else ''}"
    state = facts.progress
    if state.phase == "closing":
        return f"{run_name(facts)}: closing"
    line = progress_line(facts)
    words = f"{words_of_place(state)}, {doing(state.phase)}"
    return f"{run_name(facts)}: {words}{f': {line}' if line else ''}"


def _signs(facts: RunFacts) -> Iterator[RenderableType]:
    groups = by_name(signs(facts))
    for found in list(groups.values())[:_MAX_SIGNS]:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield Text(f"! {found[0].sentence}{more}", style="yellow", overflow="fold")
    if len(groups) > _MAX_SIGNS:
        yield Text(f"! {len(groups) - _MAX_SIGNS} further kinds of warnings: phalanx report")
