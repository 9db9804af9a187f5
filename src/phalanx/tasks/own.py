"""Rows of one's own: a question, its answer, and how the two are compared.

``{instruction, answer}``; the question may also be called ``prompt`` or ``question``, ``input`` is
appended to it after a blank line, and ``domain`` and ``id`` are optional. With match ``choice`` a
row may have ``choices`` (a list, or an object from letter to text): they are shown, and the answer
is a letter, a place from 0, or the text of an option. Without, the question itself shows them.
"""

from __future__ import annotations

from phalanx.rows import PROMPTS
from phalanx.tasks import fields as of
from phalanx.tasks.items import Match, TaskItem
from phalanx.tasks.letters import letter_item


def read(fields: of.Fields, task: str, match: Match) -> TaskItem:
    """Raises BadItem without a question or an answer, or for choices that would not be shown."""
    question = of.text(fields, *PROMPTS)
    if more := of.maybe(fields, "input"):
        question = f"{question}\n\n{more}"
    domain, answer = of.maybe(fields, "domain"), of.text(fields, "answer")
    choices = of.nested(fields, "choices")
    if choices and match != "choice":
        raise of.BadItem(
            f"has choices, which match: {match} does not show; use match: choice, or leave them out"
        )
    if choices:
        shown = of.options(fields, "choices")
        return letter_item(fields, task, question, shown, answer, domain=domain)
    key = of.identity(fields, question)
    return TaskItem(key, question, answer, domain, task, match, meta=of.plain(of.about(fields)))
