"""Benchmarks whose responses are run or checked, not compared with an answer: HumanEval, IFEval."""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks import humaneval, ifeval
from phalanx.tasks.items import TaskItem


def read_humaneval(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``code``. Raises BadItem for a row that is no problem with tests."""
    found = humaneval.problem(fields)
    if isinstance(found, str):
        raise of.BadItem(found)
    asked = humaneval.instruction(found)
    return TaskItem(found.id, asked, "", "", task, "code", meta=found.meta)


def read_ifeval(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``ifeval``. Raises BadItem for an instruction that cannot be checked."""
    found = ifeval.instructed(fields)
    if isinstance(found, str):
        raise of.BadItem(found)
    return TaskItem(found.id, found.prompt, "", "", task, "ifeval", meta=found.meta)
