"""``phalanx eval``: members and collectives on tasks, every item in one ledger.

An evaluation grows: the same folder takes further members and tasks, and nothing is asked twice.
What it has already, it has by the same configuration and the same rows, or it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.asking import (
    Asking,
    Spent,
    adapter_files,
    asking,
    hashes,
    now,
    spent,
    stored_config,
)
from phalanx.collective.ranking import Candidate
from phalanx.collective.voting import winning_answer
from phalanx.config.schema import Config
from phalanx.errors import LedgerError
from phalanx.evaluate import ask_members, ask_mixture
from phalanx.identity import canonical_json, content_id
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.marking import record_answers
from phalanx.measuring.contests import contest
from phalanx.measuring.subjects import (
    BEST_OF,
    MAJORITY,
    MIXED,
    Subject,
    candidate,
    choose,
    judges_from,
    left_out,
    mixture_of,
)
from phalanx.measuring.wanted import Wanted
from phalanx.tasks import TaskItem
from phalanx.tasks.contamination import read_stored, stored
from phalanx.types import Ask, Instruction, Member, Progress
from phalanx.workshop import Workshop

EVAL = "eval"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sums:
    """One subject on one task: every item is ``done`` (an answer was read), ``unreadable`` or
    ``failed`` (there is no response, for a recorded reason)."""

    subject: str
    task: str
    done: int
    unreadable: int
    failed: int

    @property
    def items(self) -> int:
        return self.done + self.unreadable + self.failed


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What was measured by now, in this call and before; ``notes`` say what was left out."""

    folder: Path
    sums: tuple[Sums, ...]
    spent: Spent
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """All sums as one line."""
        done, unreadable, failed = (
            sum(getattr(one, name) for one in self.sums)
            for name in ("done", "unreadable", "failed")
        )
        return (
            f"{done + unreadable + failed} answers: {done} read, {unreadable} unreadable, "
            f"{failed} failed"
        )


def measure_subjects(
    wish: Wanted,
    folder: Path | str,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Evaluated:
    """Ask and score everybody on everything; the same call goes on where it stopped.

    Raises LedgerError where ``folder`` is in use, holds other work, or measured by another
    configuration, other rows, or other files of a member; Interrupted on Ctrl-C.
    """
    folder = Path(folder)
    config = _grown(wish.config, folder)
    with asking(
        config,
        folder,
        kind=EVAL,
        inputs=content_id(EVAL),
        members=wish.start,
        flags={"SOURCE": f"run {wish.origin.identity}" if wish.origin.is_run else "no run"},
        growing=True,
        progress=progress,
        workshop=workshop,
    ) as place:
        _record_wish(place, wish)
        for note in wish.notes:
            place.progress.say(note)
        ask = place.ask(0)
        _ask_everybody(place, wish, ask)
        for subject in wish.subjects:
            place.check_stop()
            if subject.together == MAJORITY:
                place.ledger.record_evaluation(_votes(place, wish, subject))
            elif subject.together == BEST_OF:
                place.ledger.record_evaluation(_best(place, wish, subject, ask))
        for task in wish.contests:
            place.check_stop()
            players = [one for one in wish.subjects if not left_out(one, None)]
            contest(task, players, judges_from(config, place.ledger.members(0)), place)
        for name in wish.lm_eval:
            place.check_stop()
            _by_lm_eval(name, wish, place)
        place.ledger.put("evaluated:0", "yes")
        place.ledger.put("finished", now())
        return Evaluated(folder, tuple(sums(place.ledger)), spent(place), wish.notes)


# The record --------------------------------------------------------------------------------------


def _grown(config: Config, folder: Path) -> Config:
    """The configuration with the members and tasks that the folder has already."""
    path = run_ledger_path(folder)
    if not path.exists():
        return config
    with Ledger(path) as ledger:
        earlier = None if ledger.is_untouched() else ledger.get("config")
    if earlier is None:
        return config
    before = stored_config(folder, earlier)
    tasks = {task.name: task for task in before.evaluate.tasks}
    tasks |= {task.name: task for task in config.evaluate.tasks}
    members = {member.name: member for member in before.pool.members}
    members |= {member.name: member for member in config.pool.members}
    return config.model_copy(
        update={
            "evaluate": config.evaluate.model_copy(update={"tasks": list(tasks.values())}),
            "pool": config.pool.model_copy(update={"members": list(members.values())}),
        }
    )


def _record_wish(place: Asking, wish: Wanted) -> None:
    """What is asked now and was not before. Raises LedgerError where it is not the same."""
    ledger = place.ledger
    every = list(dict.fromkeys([*((0, one) for one in wish.start), *wish.members]))
    facts = {f"rows:{task}": key for task, key in wish.rows.items()}
    facts |= {f"rows:{task}": f"limit {wish.limit}" for task in wish.lm_eval}
    facts |= {f"files:{one.key}": content_id(one, _files_of(one)) for _, one in every}
    for name, value in facts.items():
        if ledger.get(name) not in (None, value):
            kind, _, what = name.partition(":")
            words = f"the rows of task {what}" if kind == "rows" else f"the files of {what}"
            raise LedgerError(
                f"{place.folder} has measured other things: {words}, or how many are asked, have "
                "changed since; restore them, or choose another folder with --out"
            )
    names = [*json.loads(ledger.get("subjects") or "[]"), *(one.name for one in wish.subjects)]
    names += [one.name for one in wish.voters]
    pool = [*json.loads(ledger.get("pool_order") or "[]"), *(one.name for _, one in every)]
    facts["subjects"] = canonical_json(list(dict.fromkeys(names)))
    facts["pool_order"] = canonical_json(list(dict.fromkeys(pool)))
    facts["config"] = place.config.model_dump_json()
    if wish.learned.found:
        found = [one for before in read_stored(ledger.get("contamination")) for one in before.found]
        found = list(dict.fromkeys([*found, *wish.learned.found]))
        facts["contamination"] = stored([replace(wish.learned, found=tuple(found))])
    if wish.against:
        facts["against"] = wish.against
    ledger.grow(facts, every)


def _files_of(member: Member) -> list[str]:
    return hashes([member.base.removeprefix("script:"), *adapter_files(member.adapter)])


def sums(ledger: Ledger) -> list[Sums]:
    """What became of every item, by subject and task."""
    rows = ledger.query(
        "SELECT e.member, e.task, sum(e.readable) AS done, sum(NOT e.readable AND "
        "(r.id IS NULL OR r.status = 'failed')) AS failed, count(*) AS items "
        "FROM evaluations e LEFT JOIN responses r ON r.id = e.response "
        "GROUP BY e.member, e.task ORDER BY e.task, e.member"
    )
    order = {name: at for at, name in enumerate(json.loads(ledger.get("subjects") or "[]"))}
    rows.sort(key=lambda row: order.get(row["member"], len(order)))
    return [
        Sums(
            row["member"],
            row["task"],
            done=row["done"],
            unreadable=row["items"] - row["done"] - row["failed"],
            failed=row["failed"],
        )
        for row in rows
    ]


# Asking ------------------------------------------------------------------------------------------


def _items_for(wish: Wanted, subject: Subject) -> list[TaskItem]:
    return [item for some in wish.items.values() for item in some if not left_out(subject, some[0])]


def _ask_everybody(place: Asking, wish: Wanted, ask: Ask) -> None:
    """Members and mixtures, task by task: what a task has is recorded before the next begins."""
    alone = [one for one in (*wish.subjects, *wish.voters) if not one.together]
    named = [(subject.name, subject.members[0]) for subject in alone]
    for items in wish.items.values():
        place.check_stop()
        answered = ask_members(named, items, ask, place.config)
        for subject in wish.subjects:
            if subject.together == MIXED and not left_out(subject, items[0]):
                mixture = mixture_of(subject, place.config)
                answered += ask_mixture(subject.name, mixture, items, ask, place.config)
        record_answers(answered, ask, place.ledger, place.config, iteration=0)


def _by_lm_eval(name: str, wish: Wanted, place: Asking) -> None:
    from phalanx.measuring.lm_eval import measure_lm_eval

    players = [one for one in wish.subjects if not left_out(one, None)]
    measure_lm_eval(name.removeprefix("lm-eval:"), players, place, wish.limit)


# Collectives -------------------------------------------------------------------------------------


def _rows_of(place: Asking, wish: Wanted, subject: Subject) -> dict[tuple[str, str], list[Row]]:
    """(task, item) -> the rows of the subject's members, in their order."""
    names = {one.members[0]: one.name for one in (*wish.voters, *wish.subjects) if not one.together}
    found: dict[tuple[str, str], list[Row]] = {}
    for member in subject.members:
        rows = place.ledger.query(
            "SELECT * FROM evaluations WHERE iteration = 0 AND member = ?", (names[member],)
        )
        for row in rows:
            found.setdefault((row["task"], row["item"]), []).append(row)
    return found


def _votes(place: Asking, wish: Wanted, subject: Subject) -> list[Row]:
    """The vote on every item: the row of the first member who gave the answer that won.

    Answers are compared as they are scored; one that cannot be read is no vote. Nobody is asked.
    """
    weights = {member.name: wish.weights[subject.name][member.name] for member in subject.members}
    cast = _rows_of(place, wish, subject)
    made = []
    for item in _items_for(wish, subject):
        rows = dict(zip(weights, cast[item.task, item.id], strict=True))
        given = {name: row["answer"] if row["readable"] else "" for name, row in rows.items()}
        won = winning_answer(given, weights)
        first = next((rows[name] for name, answer in given.items() if answer and answer == won), {})
        row = first or next(iter(rows.values()))
        made.append(_as(subject, row, "" if won else "no vote", place.config))
    return made


def _best(place: Asking, wish: Wanted, subject: Subject, ask: Ask) -> list[Row]:
    """The row of the member whose answer the judges like best. Members are not asked again."""
    items = _items_for(wish, subject)
    rows = _rows_of(place, wish, subject)
    replies = place.ledger.responses(
        [row["response"] for item in items for row in rows[item.task, item.id]]
    )
    groups: list[tuple[Instruction, list[Candidate]]] = []
    for item in items:
        written = [
            candidate(member.name, replies[row["response"]][0])
            for member, row in zip(subject.members, rows[item.task, item.id], strict=True)
        ]
        groups.append((Instruction(item.id, item.instruction, item.domain), written))
    made = []
    for item, chosen in zip(items, choose(groups, place, ask), strict=True):
        mine = rows[item.task, item.id]
        reason = "" if chosen.at is not None else chosen.reason
        made.append(_as(subject, mine[chosen.at or 0], reason, place.config))
    return made


def _as(subject: Subject, row: Mapping[str, Any], reason: str, config: Config) -> Row:
    """A member's row as the subject's. A ``reason``: there is no answer, so it is wrong.

    Of several samples the first one counts, which ``correct`` is of.
    """
    mine = {**row, "member": subject.name}
    if reason:
        return mine | {"correct": 0, "score": 0.0, "readable": 0, "answer": "", "reason": reason}
    if any(task.name == row["task"] and task.samples > 1 for task in config.evaluate.tasks):
        mine["score"] = float(row["correct"])
    return mine
