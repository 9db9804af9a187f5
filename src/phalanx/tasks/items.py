"""The record of one evaluation question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Match = Literal[
    "exact", "number", "choice", "contains", "stated_number", "math", "label", "blanks", "mc1",
    "mc2", "judged", "code", "ifeval",
]  # fmt: skip
BY_LIKELIHOOD: frozenset[Match] = frozenset({"mc1", "mc2"})
"""Matches that read the likelihood of each choice, not a written response."""
CHECKED: frozenset[Match] = frozenset({"code", "ifeval"})
"""Matches that run or check the response; such items have no answer."""
UNVOTED: frozenset[Match] = CHECKED | {"mc2", "judged", "contains"}
"""Matches whose answers are run, checked, judged, a mass of probability, or any text that holds the
gold one: nothing that members could agree on."""
_OF_KIND: dict[str, Match] = {
    "humaneval": "code", "ifeval": "ifeval", "truthfulqa_mc2": "mc2", "com2": "judged",
}  # fmt: skip


def is_voted(kind: str, match: str) -> bool:
    """Whether members can vote on the answers of a task with these settings."""
    return (_OF_KIND.get(kind, "") if kind else match) not in UNVOTED


@dataclass(frozen=True, slots=True)
class TaskItem:
    """One question of a task, with its answer and how a response is compared with it.

    ``choices`` has (label, text) of each option, in the order shown. ``answer`` is then a label;
    for ``mc2`` the labels of all true choices, joined by spaces; for ``blanks`` one label a blank.
    ``meta`` has what else is known of the row: subject, level, split of the source. ``question`` is
    what the source asks, without what is added of the form of an answer; "" where nothing is.

    >>> TaskItem("i1", "2 + 2?", "4", "addition", "skills", "number").answer
    '4'
    """

    id: str
    instruction: str
    answer: str
    domain: str
    task: str
    match: Match
    choices: tuple[tuple[str, str], ...] = ()
    meta: tuple[tuple[str, str], ...] = ()
    question: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label, _ in self.choices)
