"""Evaluation items from a file or the embedded skills, and their split into dev and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from phalanx import skills
from phalanx.config.schema import TaskSettings
from phalanx.config.schema_evaluate import CONTESTS
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.rows import PROMPTS, Table, read_rows, require_columns
from phalanx.sources import BUILTIN
from phalanx.tasks import code_runner, equivalence, own
from phalanx.tasks.fields import BadItem
from phalanx.tasks.items import BY_LIKELIHOOD, CHECKED, TaskItem
from phalanx.tasks.kinds import READERS, Reader, split_for
from phalanx.tasks.scoring import normalise
from phalanx.types import Instruction

ITEMS_PER_SKILL = 50


def load_task(settings: TaskSettings, seed: int) -> tuple[TaskItem, ...]:
    """The items of one task; ``settings.limit`` of each domain, drawn by ``seed``.

    ``builtin:skills`` without a limit gives 50 of each domain. A file's items keep its order.
    A row that repeats an earlier one is left out. Raises :class:`ConfigError` for rows without an
    instruction or an answer, or with an answer that the way of matching could never find (all are
    listed; with ``bad_rows: skip`` they are left out, see :func:`skipped_rows`), and for a kind
    that has no items of its own (those that compare); MissingPackage for a kind that needs a
    package which is not there; SandboxError for kind humaneval where code cannot be run safely.
    """
    if settings.source == BUILTIN and not settings.kind:
        count = settings.limit or ITEMS_PER_SKILL
        wanted = settings.domains or skills.DOMAINS
        found = [row for domain in wanted for row in skills.items(domain, count, seed)]
        items = [_item(row, settings) for row in found]
        if faults := [fault for item in items if (fault := _unusable(item))]:
            raise ConfigError([f"task {settings.name}: {fault}" for fault in faults], BUILTIN)
        return drawn(items, settings.total, seed)
    _require_kind(settings)
    table, reader = _opened(settings)
    items, faults = _taken(table, reader, settings.name)
    _refuse(table, _named(settings.name, settings.kind), items, faults, settings.bad_rows)
    if settings.kind and settings.match == "number":
        items = [replace(item, match="number") for item in items]
    return _chosen(items, settings, seed)


def skipped_rows(settings: TaskSettings) -> str:
    """What ``bad_rows: skip`` leaves out of a task, for its user; "" where that is nothing.

    Raises as :func:`load_task`.
    """
    if settings.bad_rows == "refuse" or settings.source == BUILTIN or settings.kind in CONTESTS:
        return ""
    table, reader = _opened(settings)
    _, faults = _taken(table, reader, settings.name)
    if not faults:
        return ""
    rows = len(table.rows) + len(table.bad)
    listed = [f"task {settings.name}: skipped {len(faults):,} of {rows:,} rows"]
    return "\n".join([*listed, *(f"  line {line}: {reason}" for line, reason in faults)])


def _opened(settings: TaskSettings) -> tuple[Table, Reader]:
    table = read_rows(settings.source, split=settings.split or split_for(settings.kind))
    if settings.kind:
        return table, READERS[settings.kind]
    require_columns(f"task {settings.name}: {table.where}", table.rows, (PROMPTS, "answer"))
    return table, partial(own.read, match=settings.match)


def _require_kind(settings: TaskSettings) -> None:
    """What a published benchmark needs before its rows are read."""
    if settings.source == BUILTIN:
        raise ConfigError(
            f"task {settings.name}: kind {settings.kind} wants the rows of that benchmark, and "
            f"{BUILTIN} has its own; give a file, or leave kind out"
        )
    if settings.kind in CONTESTS:
        raise ConfigError(
            f"task {settings.name}: kind {settings.kind} compares answers with each other, so it "
            "has no items to score one by one; it is measured by phalanx eval"
        )
    if settings.kind == "math":
        equivalence.require()
    if settings.kind == "humaneval":
        code_runner.isolation()  # before any member is asked


def _chosen(items: list[TaskItem], settings: TaskSettings, seed: int) -> tuple[TaskItem, ...]:
    if settings.domains:
        items = _of_domains(items, settings)
    return drawn(_limited(items, settings.limit, seed), settings.total, seed)


def _named(task: str, kind: str) -> str:
    return f"task {task}, kind {kind}" if kind else f"task {task}"


def _refuse(
    table: Table,
    named: str,
    items: Sequence[TaskItem],
    faults: Sequence[tuple[int, str]],
    bad_rows: Literal["refuse", "skip"],
) -> None:
    """Raise ConfigError for bad rows, unless they are to be skipped, or where no item is left."""
    if faults and (bad_rows == "refuse" or not items):
        listed = [f"{table.where}:{line}: {reason}" for line, reason in faults]
        advice = (
            "mend them, or set bad_rows: skip for the task in evaluate.tasks"
            if items
            else "mend them"
        )
        raise ConfigError(listed, f"{named}: bad rows; {advice}")
    if not items:
        raise ConfigError(f"{named}: there is not one usable row", table.where)


def _taken(table: Table, reader: Reader, task: str) -> tuple[list[TaskItem], list[tuple[int, str]]]:
    """The items, and (line, reason) of every row that is none."""
    faults = [(bad.line, bad.reason) for bad in table.bad]
    items: dict[str, TaskItem] = {}
    line_of: dict[str, int] = {}
    unusable: set[str] = set()
    for row in table.rows:
        try:
            item = reader(row.fields, task)
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
            unusable.add(item.id)
    return [item for name, item in items.items() if name not in unusable], sorted(faults)


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


def drawn(items: Sequence[TaskItem], total: int | None, seed: int) -> tuple[TaskItem, ...]:
    """At most ``total`` items whatever their domains, drawn by seed, in the order given.

    Fewer are a part of more: items that were drawn stay where ``total`` grows.
    """
    if total is None:
        return tuple(items)
    names = [item.id for item in items]
    derived_random("task total", seed).shuffle(names)
    chosen = set(names[:total])
    return tuple(item for item in items if item.id in chosen)


def _item(row: Instruction, settings: TaskSettings) -> TaskItem:
    return TaskItem(row.id, row.text, row.answer or "", row.domain, settings.name, settings.match)


def split_of(item: TaskItem, dev_share: float) -> Literal["dev", "test"]:
    """Which rows choose checkpoints and which are reported: by a hash of the question alone.

    An item stays where it is when others are added or removed.
    """
    place = int(content_id("split", item.task, item.instruction, length=8), 16) / 16**8
    return "dev" if place < dev_share else "test"
