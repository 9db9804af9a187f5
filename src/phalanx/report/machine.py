"""A run for machines: one object with stable keys, of ``status`` and of every line of ``watch``.

Keys are added, never renamed or taken away; ``docs/terminal.md`` lists them.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from phalanx.report.health import signs
from phalanx.report.records import RunFacts
from phalanx.report.words import run_name

KILLED = 4
"""Exit code of ``watch`` for a run whose process went away without a word."""


class Ending(NamedTuple):
    """How a run stands that nobody works on: ``finished``, ``stopped`` (by what it found),
    ``ended`` (early, with the exit code of its command) or ``killed`` (without a word)."""

    state: str
    exit_code: int
    reason: str


def ending(facts: RunFacts) -> Ending | None:
    """None while a process of this machine is at work on it."""
    state, pace = facts.progress, facts.pace
    if state.stop_reason:
        return Ending("stopped", 0, state.stop_reason)
    if state.finished:
        return Ending("finished", 0, "")
    if pace.holder is not None:
        return None
    if pace.exit_code is not None:
        return Ending("ended", pace.exit_code, state.last_error)
    return Ending("killed", KILLED, "its process is gone, or is on another machine; the command "
                  "that started it goes on from here")  # fmt: skip


def status_object(facts: RunFacts) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    end, state, now = ending(facts), facts.progress, facts.pace.current
    account = facts.accounting
    unread = account.judgments_asked - account.judgments_readable
    return {
        "run": run_name(facts),
        "folder": facts.folder,
        "method": facts.method,
        "state": end.state if end else "running",
        "exit_code": end.exit_code if end else None,
        "reason": end.reason if end else "",
        "process": facts.pace.holder,
        "last_record_at": facts.pace.last_at,
        "iteration": state.iteration,
        "iterations": state.num_iterations,
        "phase": state.phase,
        "unit": state.unit,
        "done": state.asked - state.owed,
        "owed": state.owed if state.known else None,
        "per_second": now.per_second if now else None,
        "seconds_left": now.left if now else None,
        "seconds_left_run": facts.pace.left,
        "requests": sum(phase.asked for phase in account.phases),
        "failed": sum(sum(phase.failed.values()) for phase in account.phases),
        "duels": account.num_duels,
        "pairs": account.pairs_kept,
        "judgments": account.judgments_asked,
        "unreadable": unread,
        "flipped": account.judgments_flipped,
        "reputations": {
            line.member: {
                "value": line.value, "deviation": line.deviation, "won": line.wins,
                "lost": line.losses, "tied": line.ties,
            }
            for line in facts.reputations
        },
        "tokens_in": sum(one.tokens_in for one in facts.spending),
        "tokens_out": sum(one.tokens_out for one in facts.spending),
        "money": sum(one.money for one in facts.endpoints),
        "guards": _guards(facts),
        "warnings": [
            {
                "rule": sign.name, "where": sign.where, "says": sign.says, "value": sign.value,
                "threshold": sign.threshold, "advice": sign.advice,
            }
            for sign in signs(facts)
        ],
        "events": [
            {"at": event.at, "kind": event.kind, "text": event.text}
            for event in facts.pace.events
        ],
    }  # fmt: skip


def _guards(facts: RunFacts) -> dict[str, Any] | None:
    if facts.guards is None:
        return None
    fired = [
        {
            "rule": one.rule, "action": action, "iteration": one.iteration, "where": one.where,
            "value": one.value if isfinite(one.value) else None, "limit": one.limit,
            "says": one.says, "advice": one.advice, "setting": one.setting,
        }
        for one, action in facts.guards.fired
    ]  # fmt: skip
    return {"set": facts.guards.words, "fired": fired}
