"""Evaluation items from a file or the embedded skills, and their split into dev and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from phalanx import skills
from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.rows import Table, read_rows
from phalanx.sources import BUILTIN, read_instructions
from phalanx.tasks import code_runner, equivalence
from phalanx.tasks.fields import BadItem
from phalanx.tasks.items import BY_LIKELIHOOD, CHECKED, TaskItem
from phalanx.tasks.kinds import READERS
from phalanx.tasks.scoring import normalise
from phalanx.types import Instruction

ITEMS_PER_SKILL = 50


def load_task(settings: TaskSettings, seed: int) -> tuple[TaskItem, ...]:
    """The items of one task; ``settings.limit`` of each domain, drawn by ``seed``.

    ``builtin:skills`` without a limit gives 50 of each domain. A file's items keep its order.
    Raises :class:`ConfigError` for rows without an instruction or an answer, or with an answer
    that the way of matching could never find (all are listed), and for a kind that nothing here
    can score yet; MissingPackage for a kind that needs a package which is not there; SandboxError
    for kind humaneval where code cannot be run safely.
    """
    if settings.kind:
        return _of_kind(settings, seed)
    if settings.source == BUILTIN:
        count = settings.limit or ITEMS_PER_SKILL
        wanted = settings.domains or skills.DOMAINS
        found = [row for domain in wanted for row in skills.items(domain, count, seed)]
    else:
        read = read_instructions(settings.source, require_answer=True, domains=settings.domains)
        found = list(read.instructions)
    items = [_item(row, settings) for row in found]
    if faults := [fault for item in items if (fault := _unusable(item))]:
        raise ConfigError([f"task {settings.name}: {fault}" for fault in faults], settings.source)
    return _limited(items, None if settings.source == BUILTIN else settings.limit, seed)


def _of_kind(settings: TaskSettings, seed: int) -> tuple[TaskItem, ...]:
    """Rows of a published benchmark, read by its own columns."""
    if settings.source == BUILTIN:
        raise ConfigError(
            f"task {settings.name}: kind {settings.kind} wants the rows of that benchmark, and "
            f"{BUILTIN} has its own; give a file, or leave kind out"
        )
    if settings.kind == "com2":
        raise ConfigError(
            f"task {settings.name}: kind com2 has one gold phrase of many right answers, so a "
            "judge has to compare; tasks are not judged yet, so leave this one out"
        )
    if settings.kind == "math":
        equivalence.require()
    if settings.kind == "humaneval":
        code_runner.isolation()  # before any member is asked
    items = read_items(read_rows(settings.source), settings.kind, settings.name)
    if settings.match == "number":
        items = [replace(item, match="number") for item in items]
    if settings.domains:
        items = _of_domains(items, settings)
    return _limited(items, settings.limit, seed)


def read_items(table: Table, kind: str, task: str) -> list[TaskItem]:
    """The items of a table by the reader of ``kind``, in the table's order.

    A row that repeats an earlier one is left out, and so is one that the benchmark leaves out.
    Raises ConfigError that lists every bad row, or where there is no item.
    """
    faults = [(bad.line, bad.reason) for bad in table.bad]
    items: dict[str, TaskItem] = {}
    line_of: dict[str, int] = {}
    for row in table.rows:
        try:
            item = READERS[kind](row.fields, task)
        except BadItem as error:
            faults.append((row.line, str(error)))
            continue
        if item is None:
            continue
        first = items.setdefault(item.id, item)
        if first != item:
            text = f"id {item.id} already used on line {line_of[item.id]} by another question"
            faults.append((row.line, text))
        elif line_of.setdefault(item.id, row.line) == row.line and (fault := _unusable(item)):
            faults.append((row.line, fault))
    if faults:
        listed = [f"{table.where}:{line}: {reason}" for line, reason in sorted(faults)]
        raise ConfigError(listed, f"task {task}, kind {kind}: bad rows; mend them")
    if not items:
        raise ConfigError(f"task {task}: there is not one usable row of kind {kind}", table.where)
    return list(items.values())


def _unusable(item: TaskItem) -> str:
    """Why the answer of an item could never be found; "" where it can."""
    if item.match in CHECKED:
        return ""
    if item.match in BY_LIKELIHOOD or item.match in ("judged", "blanks", "math"):
        return "" if item.answer.strip() else f"item {item.id} has no answer"
    if normalise(item.answer, item):
        return ""
    return (
        f"the answer {item.answer!r} of item {item.id} cannot be read with match {item.match!r}; "
        "choose another match or mend the answer"
    )


def _of_domains(items: Sequence[TaskItem], settings: TaskSettings) -> list[TaskItem]:
    known = {item.domain for item in items}
    if unknown := sorted(set(settings.domains) - known):
        listed = ", ".join(sorted(known - {""})) or "none"
        raise ConfigError(
            f"task {settings.name}: no rows of the domain {', '.join(unknown)}; domains there: "
            f"{listed}",
            settings.source,
        )
    return [item for item in items if item.domain in settings.domains]


def _limited(items: Sequence[TaskItem], limit: int | None, seed: int) -> tuple[TaskItem, ...]:
    """At most ``limit`` of each domain, drawn by seed, in the order given."""
    if limit is None:
        return tuple(items)
    chosen: set[str] = set()
    for domain in dict.fromkeys(item.domain for item in items):
        names = [item.id for item in items if item.domain == domain]
        derived_random("task", seed, domain).shuffle(names)
        chosen.update(names[:limit])
    return tuple(item for item in items if item.id in chosen)


def _item(row: Instruction, settings: TaskSettings) -> TaskItem:
    return TaskItem(row.id, row.text, row.answer or "", row.domain, settings.name, settings.match)


def split_of(item: TaskItem, dev_share: float) -> Literal["dev", "test"]:
    """Which rows choose checkpoints and which are reported: by a hash of the question alone.

    An item stays where it is when others are added or removed.
    """
    place = int(content_id("split", item.task, item.instruction, length=8), 16) / 16**8
    return "dev" if place < dev_share else "test"
