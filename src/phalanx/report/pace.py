"""How fast a run goes and how long it still takes, from its ledger alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from phalanx.ledger import ENDED, Ledger
from phalanx.report.records import Event, Pace, PhaseAccount, PhasePace, PhaseTime, Progress
from phalanx.report.records import Spending as Spent

WINDOW_S = 60.0
"""Seconds before the last record over which the rate of now is taken."""
NUM_EVENTS = 12
_TRAININGS = ("recruit", "train")


def pace(
    ledger: Ledger,
    state: Progress,
    accounts: Sequence[PhaseAccount],
    times: Sequence[PhaseTime],
    process: int | None,
) -> Pace:
    """Every phase with what is done, owed, its rate, and the time left of the one under way.

    ``process`` is the one at work on the run, looked up before anything was read.
    """
    seconds = {(time.iteration, time.phase): time.seconds for time in times}
    ended = state.finished or state.stop_reason
    lines = [
        PhasePace(
            one.iteration, one.phase, "requests",
            done=one.asked - one.owed, owed=one.owed,
            seconds=seconds.get((one.iteration, one.phase), 0.0),
            per_second=_over(one.asked - one.owed, seconds.get((one.iteration, one.phase))),
        )
        for one in accounts
    ]  # fmt: skip
    lines += _trained(ledger, seconds)
    if not ended and state.phase != "closing":
        lines = _with_current(ledger, state, lines)
    lines.sort(key=lambda line: (line.iteration, line.current))
    last = ledger.query(
        "SELECT max(at) AS at FROM ("
        "SELECT * FROM (SELECT at FROM responses ORDER BY rowid DESC LIMIT 1) UNION ALL "
        "SELECT max(at) FROM trainings UNION ALL "
        "SELECT * FROM (SELECT at FROM events ORDER BY number DESC LIMIT 1))"
    )[0]["at"]
    return Pace(
        phases=tuple(lines),
        left=None if ended else _left(state, lines, times),
        holder=process,
        last_at=last,
        exit_code=_exit_code(ledger, last_at=last),
        events=_events(ledger),
    )


def _over(count: int, seconds: float | None) -> float | None:
    return count / seconds if seconds and count else None


def _trained(ledger: Ledger, seconds: dict[tuple[int, str], float]) -> list[PhasePace]:
    rows = ledger.query(
        "SELECT iteration, count(*) AS n, total(seconds) AS seconds FROM trainings GROUP BY 1"
    )
    lines = []
    for row in rows:
        phase = "train" if row["iteration"] else "recruit"
        clock = seconds.get((row["iteration"], phase)) or row["seconds"]
        lines.append(PhasePace(row["iteration"], phase, "members", done=row["n"], owed=0,
                               seconds=clock, per_second=_over(row["n"], clock)))  # fmt: skip
    return lines


def _with_current(ledger: Ledger, state: Progress, lines: Sequence[PhasePace]) -> list[PhasePace]:
    """The lines, that of the phase under way with the rate of now and the time left."""
    place = (state.iteration, state.phase)
    before = next((one for one in lines if (one.iteration, one.phase) == place), None)
    if state.phase in _TRAININGS:
        same = [one.per_second for one in lines if one.phase in _TRAININGS and one.per_second]
        rate = before.per_second if before and before.per_second else (same[-1] if same else None)
    else:
        rate = _recent(ledger, *place)
    left = state.owed / rate if rate and state.known else None
    current = PhasePace(
        *place, state.unit,
        done=state.asked - state.owed, owed=state.owed,
        seconds=before.seconds if before else 0.0,
        per_second=rate, left=left, current=True, known=state.known,
    )  # fmt: skip
    return [*(one for one in lines if one is not before), current]


def _recent(ledger: Ledger, iteration: int, phase: str) -> float | None:
    """Requests a second recorded lately. Those of one batch are recorded at once, so the first
    batch of the window only says when it began; a single batch has the seconds that it took."""
    rows = ledger.query(
        "SELECT at, count(*) AS n, total(seconds) AS seconds FROM responses "
        "WHERE iteration = ?1 AND phase = ?2 AND at >= (SELECT max(at) FROM responses "
        "WHERE iteration = ?1 AND phase = ?2) - ?3 GROUP BY at ORDER BY at",
        (iteration, phase, WINDOW_S),
    )
    if not rows:
        return None
    if len(rows) == 1:
        return _over(rows[0]["n"], rows[0]["seconds"])
    return _over(sum(row["n"] for row in rows[1:]), rows[-1]["at"] - rows[0]["at"])


def _left(state: Progress, lines: Sequence[PhasePace], times: Sequence[PhaseTime]) -> float | None:
    """Seconds until the last iteration ends, as long ones as those before; None before the second.

    A guess: members write more or less from iteration to iteration.
    """
    sums: dict[int, float] = defaultdict(float)
    for time in times:
        if time.iteration:
            sums[time.iteration] += time.seconds
    whole = [seconds for number, seconds in sums.items() if number < state.iteration]
    if not whole or not state.num_iterations:
        return None
    mean = sum(whole) / len(whole)
    now = next((one.left or 0.0 for one in lines if one.current), 0.0)
    here = max(now, mean - sums.get(state.iteration, 0.0))
    return here + mean * (state.num_iterations - state.iteration)


def _exit_code(ledger: Ledger, last_at: float | None) -> int | None:
    """That of the last start where it ended early, and nothing was recorded since."""
    rows = ledger.query(
        "SELECT at, text FROM events WHERE kind = ? ORDER BY number DESC LIMIT 1", (ENDED,)
    )
    if not rows or rows[0]["at"] < (last_at or 0.0):
        return None
    return int(rows[0]["text"].split()[0])


def _events(ledger: Ledger) -> tuple[Event, ...]:
    """The last ones, the oldest first."""
    rows = ledger.query(
        "SELECT at, kind, text FROM events WHERE kind != ? ORDER BY number DESC LIMIT ?",
        (ENDED, NUM_EVENTS),
    )
    return tuple(Event(row["at"], row["kind"], row["text"]) for row in reversed(rows))


def spending(ledger: Ledger) -> tuple[Spent, ...]:
    """Requests, tokens and seconds of every member in every phase of every iteration."""
    return tuple(
        Spent(
            row["iteration"], row["phase"], row["member"], row["n"],
            tokens_in=int(row["tokens_in"]), tokens_out=int(row["tokens_out"]),
            seconds=row["seconds"], answered=row["answered"],
        )
        for row in ledger.iterate(
            "SELECT iteration, phase, member, count(*) AS n, "
            "total(num_prompt_tokens) AS tokens_in, total(num_completion_tokens) AS tokens_out, "
            "total(seconds) AS seconds, sum(status = 'done') AS answered "
            "FROM responses GROUP BY 1, 2, 3"
        )
    )  # fmt: skip
