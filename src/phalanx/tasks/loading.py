"""Evaluation items from a file or the embedded skills, and their split into dev and test."""

from __future__ import annotations

from typing import Literal

from phalanx import skills
from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.sources import BUILTIN, read_instructions
from phalanx.tasks.items import TaskItem
from phalanx.tasks.scoring import normalise
from phalanx.types import Instruction

ITEMS_PER_SKILL = 50


def load_task(settings: TaskSettings, seed: int) -> tuple[TaskItem, ...]:
    """The items of one task; ``settings.limit`` of each domain, drawn by ``seed``.

    ``builtin:skills`` without a limit gives 50 of each domain. A file's items keep its order.
    Raises :class:`ConfigError` for rows without an instruction or an answer (all are listed),
    or an answer that the way of matching could never find.
    """
    if settings.source == BUILTIN:
        count = settings.limit or ITEMS_PER_SKILL
        wanted = settings.domains or skills.DOMAINS
        found = [row for domain in wanted for row in skills.items(domain, count, seed)]
    else:
        read = read_instructions(settings.source, require_answer=True, domains=settings.domains)
        found = _limited(read.instructions, settings.limit, seed)
    return tuple(_item(row, settings) for row in found)


def _limited(
    rows: tuple[Instruction, ...], limit: int | None, seed: int
) -> tuple[Instruction, ...]:
    """At most ``limit`` of each domain, drawn by seed, in the order given."""
    if limit is None:
        return rows
    chosen: set[str] = set()
    for domain in dict.fromkeys(row.domain for row in rows):
        names = [row.id for row in rows if row.domain == domain]
        derived_random("task", seed, domain).shuffle(names)
        chosen.update(names[:limit])
    return tuple(row for row in rows if row.id in chosen)


def _item(row: Instruction, settings: TaskSettings) -> TaskItem:
    item = TaskItem(row.id, row.text, row.answer or "", row.domain, settings.name, settings.match)
    if not normalise(item.answer, item):
        raise ConfigError(
            f"task {settings.name}: the answer {item.answer!r} of item {item.id} cannot be read "
            f"with match {settings.match!r}; choose another match or mend the answer",
            settings.source,
        )
    return item


def split_of(item: TaskItem, dev_share: float) -> Literal["dev", "test"]:
    """Which rows choose checkpoints and which are reported: by a hash of the question alone.

    An item stays where it is when others are added or removed.
    """
    place = int(content_id("split", item.task, item.instruction, length=8), 16) / 16**8
    return "dev" if place < dev_share else "test"
