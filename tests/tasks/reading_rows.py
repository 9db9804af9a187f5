"""Rows that are at hand, read as a task reads those of its file."""

from __future__ import annotations

from phalanx.rows import Table
from phalanx.tasks import TaskItem, loading
from phalanx.tasks.kinds import READERS


def read_items(table: Table, kind: str, task: str) -> list[TaskItem]:
    """Raises ConfigError that lists every bad row, or where there is no item."""
    items, faults = loading._taken(table, READERS[kind], task)
    loading._refuse(table, loading._named(task, kind), items, faults, "refuse")
    return items
