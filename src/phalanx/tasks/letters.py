"""Items of one right option among several, shared by the tasks that are such."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from phalanx.tasks import fields as of
from phalanx.tasks import wording
from phalanx.tasks.items import TaskItem


def letter_item(
    fields: of.Fields,
    task: str,
    question: str,
    choices: of.Choices,
    answer: str,
    *,
    domain: str = "",
    names: Sequence[str] = ("id",),
    known: dict[str, Any] | None = None,
) -> TaskItem:
    """An item of match ``choice``; ``answer`` is a label, a place from 0, or an option's text.

    Raises BadItem where it is none of them, or where labels are not capital letters.
    """
    if odd := [label for label, _ in choices if label not in tuple(ascii_uppercase)]:
        raise of.BadItem(f"options are labelled {', '.join(odd)}; capital letters are read")
    return TaskItem(
        of.identity(fields, "choice", question, choices, names=names),
        wording.for_letter(question, choices),
        of.right_label(answer, choices),
        domain,
        task,
        "choice",
        choices,
        of.plain(known if known is not None else of.about(fields)),
        question,
    )
