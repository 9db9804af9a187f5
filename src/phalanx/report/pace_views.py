"""How a run goes, in words and tables: phases with rates and time left, events, cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from phalanx.report.health import Sign
from phalanx.report.moaa_words import TableView
from phalanx.report.records import Event, PhasePace, RunFacts, Spending
from phalanx.report.words import duration

MAX_PHASES = 60
MAX_SPENT = 60
LEFT = (
    "Left: owed over the rate of the last minute; of the whole run: as long iterations as those "
    "before. Both are guesses."
)
SPENT = (
    "Tokens as engines count them (scripted members have none). Engine time is a member's share of "
    "the time of its batches; where engines work side by side it is more than the clock's."
)


def rate(per_second: float | None, unit: str = "") -> str:
    """In seconds, minutes or hours, whichever gives a number that can be read."""
    if not per_second:
        return "–"
    for factor, word in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1 or word == "h":
            text = f"{per_second * factor:,.1f}"
            return f"{text} {unit}/{word}".replace(" /", "/") if unit else f"{text}/{word}"
    return "–"


def about(seconds: float | None) -> str:
    """A time left, no finer than it can be known."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.0f} min"
    minutes = round(seconds / 60 / 5) * 5
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def phases_view(facts: RunFacts) -> TableView | None:
    """Every phase, the latest last; None where nothing was asked yet."""
    lines = facts.pace.phases
    if not lines:
        return None
    shown = lines[-MAX_PHASES:]
    headers = ("phase", "done", "owed", "rate", "time", "left")
    numbered = not facts.command
    rows = tuple(_phase(line, numbered) for line in shown)
    gone = len(lines) - len(shown)
    note = f"{gone:,} earlier phases are left out. " if gone else ""
    if any(line.current for line in shown):
        note += LEFT
    return TableView("Phases", headers, rows, note.strip(), left=(0,))


def _phase(line: PhasePace, numbered: bool) -> tuple[str, ...]:
    name = f"{line.iteration} {line.phase}" if numbered else line.phase
    return (
        f"{name} (now)" if line.current else name,
        f"{line.done:,} {line.unit}",
        f"{line.owed:,}" if line.known else "?",
        rate(line.per_second),
        duration(line.seconds) if line.seconds else "–",
        about(line.left) if line.current else "",
    )


def left_line(facts: RunFacts) -> str:
    """Time left of the phase and of the run; "" where nobody is at work on it."""
    now = facts.pace.current
    if not facts.pace.holder:
        return ""
    parts = []
    if now and now.left is not None:
        parts.append(f"about {about(now.left)} left in this phase at {rate(now.per_second)}")
    if facts.pace.left is not None:
        parts.append(f"about {about(facts.pace.left)} in all")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def working_line(facts: RunFacts) -> str:
    """Whether somebody is at work on the run; "" for one that has ended."""
    state, pace = facts.progress, facts.pace
    if state.finished or state.stop_reason:
        return ""
    since = f"; last record {moment(pace.last_at)} UTC" if pace.last_at else ""
    if pace.holder:
        return f"Process {pace.holder} is at work on it{since}"
    return f"No process of this machine is at work on it{since}"


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def event_line(event: Event) -> str:
    return f"{moment(event.at)} {event.kind}: {event.text}"


def event_lines(events: Sequence[Event]) -> list[str]:
    """Each text once, where it was said last, with how often it was."""
    count = Counter((event.kind, event.text) for event in events)
    last = {(event.kind, event.text): event for event in events}
    return [
        event_line(event)
        if count[key] == 1
        else f"{moment(event.at)} {event.kind} (the last of {count[key]} times): {event.text}"
        for key, event in sorted(last.items(), key=lambda item: item[1].at)
    ]


def times(facts: RunFacts) -> str:
    """How often starts ended as the last one did; "" for once."""
    same = [event for event in facts.pace.events if event.text == facts.progress.last_error]
    return f" ({len(same)} times, last {moment(same[-1].at)} UTC)" if len(same) > 1 else ""


def go_on(error: str) -> str:
    """How a run goes on that ended early with this error; "" for none."""
    if error.startswith("guard ") and " stopped the run " in error.partition(":")[0]:
        return "The same command stops here again: change the limit, as said above"
    return "Continue with the command that started it: nothing is done twice"


def health_view(found: Sequence[Sign]) -> TableView | None:
    """What fired, with its number and its threshold."""
    if not found:
        return None
    rows = tuple(
        (one.name, one.where, one.says, one.value, one.threshold, one.advice) for one in found
    )
    headers = ("rule", "where", "what it says", "measured", "threshold", "what to do")
    return TableView("Warnings", headers, rows, left=(0, 1, 2, 5))


def cost_views(facts: RunFacts) -> list[TableView]:
    """Requests, tokens, seconds by phase and by member, and money by endpoint."""
    if not facts.spending:
        return []
    views = [
        _spent("By phase", "phase", facts.spending, lambda one: one.phase, SPENT),
        _spent("By member", "member", facts.spending, lambda one: one.member, ""),
    ]
    if facts.endpoints:
        rows = tuple(
            (one.name, f"{one.requests:,}", f"{one.tokens_in:,}", f"{one.tokens_out:,}",
             f"{one.money:,.4g}" if one.money else "–")
            for one in facts.endpoints
        )  # fmt: skip
        headers = ("endpoint", "requests", "tokens read", "tokens written", "money")
        note = "Money by the prices in the configuration (a dash: none given), tries included."
        views.append(TableView("By endpoint", headers, rows, note, left=(0,)))
    return views


def _spent(
    title: str,
    head: str,
    spent: Sequence[Spending],
    group: Callable[[Spending], str],
    note: str,
) -> TableView:
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    for one in spent:
        total = sums[group(one)]
        for place, value in enumerate((one.requests, one.tokens_in, one.tokens_out, one.seconds)):
            total[place] += value
    rows = [
        (name, f"{asked:,.0f}", _count(read), _count(written), duration(seconds))
        for name, (asked, read, written, seconds) in sums.items()
    ]
    gone = len(rows) - MAX_SPENT
    if gone > 0:
        rows, note = rows[:MAX_SPENT], f"{gone:,} more are left out. {note}".strip()
    headers = (head, "requests", "tokens read", "tokens written", "engine time")
    return TableView(title, headers, tuple(rows), note, left=(0,))


def _count(number: float) -> str:
    return f"{number:,.0f}" if number else "–"
