"""The record of one evaluation question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Match = Literal["exact", "number", "choice", "contains"]


@dataclass(frozen=True, slots=True)
class TaskItem:
    """One question of a task, with its answer and how a response is compared with it.

    >>> TaskItem("i1", "2 + 2?", "4", "addition", "skills", "number").answer
    '4'
    """

    id: str
    instruction: str
    answer: str
    domain: str
    task: str
    match: Match
