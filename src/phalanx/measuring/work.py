"""``phalanx eval``: members and collectives on tasks, every item in one ledger.

An evaluation grows: the same folder takes further members and tasks, and nothing is asked twice.
What it has already, it has by the same configuration and the same rows, or it refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import eq
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
from phalanx.collective.choosing import candidate
from phalanx.collective.ranking import Candidate
from phalanx.collective.voting import winning_answer
from phalanx.config.schema import Config
from phalanx.errors import LedgerError
from phalanx.evaluate import ask_members, ask_mixture, ask_together
from phalanx.identity import canonical_json, content_id
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import SUBJECT
from phalanx.marking import Answered, record_answers
from phalanx.measuring.contests import contest
from phalanx.measuring.lm_eval import PREFIX, measure_lm_eval
from phalanx.measuring.subjects import (
    BEST_OF,
    MAJORITY,
    Subject,
    answering,
    chosen_among,
    left_out,
    record_counts,
    writing,
)
from phalanx.measuring.wanted import Wanted
from phalanx.report.measured import sums
from phalanx.report.measured_records import Sums
from phalanx.tasks import TaskItem
from phalanx.tasks.contamination import read_stored, stored
from phalanx.tasks.equivalence import same
from phalanx.types import Ask, Instruction, Member, Progress
from phalanx.workshop import Workshop

EVAL = "eval"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What was measured by now, in this call and before; ``notes`` say what was left out.

    ``verdicts`` are those of judges (contests, judged answers), ``unread`` those of them that are
    none.
    """

    folder: Path
    sums: tuple[Sums, ...]
    spent: Spent
    verdicts: int = 0
    unread: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """All sums as one line."""
        done, unreadable, failed = (
            sum(getattr(one, name) for one in self.sums)
            for name in ("done", "unreadable", "failed")
        )
        parts = []
        if self.sums or not self.verdicts:
            count = done + unreadable + failed
            parts.append(f"{count} answers: {done} read, {unreadable} unreadable, {failed} failed")
        if self.verdicts:
            parts.append(f"{self.verdicts} verdicts, {self.unread} of them unreadable")
        return "; ".join(parts)


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
        # What the folder had before is in its record; it decides nothing about what is asked now.
        place = replace(place, config=wish.config)
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
        for made in wish.contests:
            place.check_stop()
            contest(made, place)
        for name in wish.lm_eval:
            place.check_stop()
            task = name.removeprefix(PREFIX)
            measure_lm_eval(task, writing(wish.subjects), place, wish.limit)
        place.ledger.put("evaluated:0", "yes")
        place.ledger.put("finished", now())
        games = "SELECT count(*) AS n, sum(value IS NULL) AS unread FROM games"
        (verdicts,) = place.ledger.query(games)
        return Evaluated(
            folder,
            sums(place.ledger, config),
            spent(place),
            verdicts["n"],
            verdicts["unread"] or 0,
            wish.notes,
        )


# The record --------------------------------------------------------------------------------------


def _grown(config: Config, folder: Path) -> Config:
    """The configuration with the members and tasks that the folder has already."""
    path = run_ledger_path(folder)
    if not path.exists():
        return config
    with Ledger(path, writable=True) as ledger:  # it may have been killed before it had tables
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
    facts |= {f"files:{one.key}": content_id(one, _files_of(one)) for _, one in every}
    facts |= {f"{SUBJECT}{one.name}": _written(one, wish) for one in (*wish.subjects, *wish.voters)}
    facts |= {f"baseline:{made.task.name}": made.facts["baseline"] for made in wish.contests}
    if wish.judges:
        facts["judges"] = ", ".join(judge.name for judge in wish.judges)
    for name, value in facts.items():
        before = ledger.get(name)
        if before not in (None, value):
            raise LedgerError(f"{place.folder} {_changed(name, before, value)} folder with --out")
    names = [*json.loads(ledger.get("subjects") or "[]"), *(one.name for one in wish.subjects)]
    names += [one.name for one in wish.voters]
    pool = [*json.loads(ledger.get("pool_order") or "[]"), *(one.name for _, one in every)]
    facts["subjects"] = canonical_json(list(dict.fromkeys(names)))
    facts["pool_order"] = canonical_json(list(dict.fromkeys(pool)))
    facts["config"] = place.config.model_dump_json()
    if wish.learned:
        known = {one.what: one for one in read_stored(ledger.get("contamination"))}
        for one in wish.learned:
            found = known[one.what].found if one.what in known else ()
            known[one.what] = replace(one, found=tuple(dict.fromkeys([*found, *one.found])))
        facts["contamination"] = stored(list(known.values()))
    facts["against"] = wish.against
    ledger.grow(facts, every)


def _written(subject: Subject, wish: Wanted) -> str:
    """Of whom a subject is made, for the ledger: two that differ must not share a name."""
    mixture = subject.mixture
    return canonical_json(
        {
            "together": subject.together,
            "members": [member.key for member in subject.members],
            "weights": wish.weights[subject.name] if subject.together == MAJORITY else {},
            "layers": [[m.key for m in layer] for layer in mixture.layers] if mixture else [],
            "aggregator": mixture.aggregator.key if mixture else "",
            **(_asking(subject) if subject.is_method else {}),
        }
    )


def _asking(subject: Subject) -> dict[str, Any]:
    """Of a method that answers also who debates, votes or judges."""
    asked = [member.key for member in subject.asked]
    return {"best": subject.best, "asked": asked, "seats": subject.seats}


def _changed(name: str, before: str, now_: str) -> str:
    """What is not the same as it was in a folder, and what to do."""
    kind, _, what = name.partition(":")
    if kind == "subject":
        words = "its members have other weights or places"
        for key, who in (("asked", "whom it asks"), ("members", "its members")):
            had, has = (", ".join(json.loads(text).get(key, [])) for text in (before, now_))
            if had != has:
                words = f"{who} were {had} and are now {has}"
        return (
            f"has measured another {what}: {words}; of a run name the iteration "
            f"({what.partition('@')[0]}@N), or choose another"
        )
    if kind in ("judges", "baseline"):
        words = "its judges" if kind == "judges" else f"the baseline of task {what}"
        return f"has {words} ({before}), who cannot change ({now_}); restore, or choose another"
    words = f"the rows of task {what}" if kind == "rows" else f"the files of {what}"
    return (
        f"has measured other things: {words}, or how many are asked, have changed since; restore "
        "them, or choose another"
    )


def _files_of(member: Member) -> list[str]:
    return hashes([member.base.removeprefix("script:"), *adapter_files(member.adapter)])


# Asking ------------------------------------------------------------------------------------------


def _items_for(wish: Wanted, subject: Subject) -> list[TaskItem]:
    return [item for some in wish.items.values() for item in some if not left_out(subject, some[0])]


def _ask_everybody(place: Asking, wish: Wanted, ask: Ask) -> None:
    """Members and mixtures, task by task: what a task has is recorded before the next begins."""
    for items in wish.items.values():
        place.check_stop()
        players = answering(wish.subjects, wish.voters, items[0])
        named = [(one.name, one.members[0]) for one in players if not one.together]
        answered = ask_members(named, items, ask, place.config)
        for one in players:
            if one.mixture is not None:
                answered += ask_mixture(one.name, one.mixture, items, ask, place.config)
            elif one.is_method:
                answered += _ask_method(one, items, place, ask)
        record_answers(answered, ask, place.ledger, place.config, iteration=0, judges=wish.judges)


def _ask_method(
    subject: Subject, items: Sequence[TaskItem], place: Asking, ask: Ask
) -> list[Answered]:
    """The answers of a method to a task; what happened on the way is recorded, and told."""
    config = subject.settings(place.config)
    answered, counts = ask_together(
        subject.together, subject.name, subject.asked, items, ask, config, best=subject.best
    )
    record_counts(subject, items[0].task, counts, place)
    return answered


# Collectives -------------------------------------------------------------------------------------


def _rows_of(place: Asking, wish: Wanted, subject: Subject) -> dict[tuple[str, str], list[Row]]:
    """(task, item) -> the rows of the subject's members, in their order."""
    names = {one.members[0]: one.name for one in (*wish.voters, *wish.subjects) if not one.together}
    found: dict[tuple[str, str], list[Row]] = {}
    for member in subject.members:
        if member not in names:  # no task that this collective has a part in asks anybody
            continue
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
        won = winning_answer(given, weights, same if item.match == "math" else eq)
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
    for item, chosen in zip(items, chosen_among(groups, subject.judges, place, ask), strict=True):
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
