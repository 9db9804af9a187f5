"""MMLU (Hendrycks and others 2021, arXiv 2009.03300) and MMLU-Redux (arXiv 2406.04127).

Published columns: ``question``, ``choices`` (a list), ``answer`` (the place from 0), ``subject``;
Redux has ``error_type`` and ``correct_answer`` besides. Also ``{prompt, choices, answer}``, and
columns A to D with a letter. The subject is the domain.
"""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.letters import letter_item

ERRORS = (
    "ok", "bad_question_clarity", "bad_options_clarity", "no_correct_answer",
    "multiple_correct_answers", "wrong_groundtruth", "expert",
)  # fmt: skip


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``choice``. Raises BadItem for a row that is no question with options."""
    return _item(fields, task, of.text(fields, "answer", "target"))


def read_redux(fields: of.Fields, task: str) -> TaskItem | None:
    """The same with the label of the annotators.

    None for a row to which they found no single right option (an unclear question, none or
    several right ones, or a wrong label without another): it has no answer to be scored by.
    Raises BadItem also for an ``error_type`` that is none of theirs.
    """
    error = of.maybe(fields, "error_type").casefold() or "ok"
    if error not in ERRORS:
        raise of.BadItem(f"unknown error_type {error!r}; known: {', '.join(ERRORS)}")
    if error == "ok":
        return _item(fields, task, of.text(fields, "answer", "target"))
    better = of.maybe(fields, "correct_answer")
    if error != "wrong_groundtruth" or not better:
        return None
    return _item(fields, task, better)


def _item(fields: of.Fields, task: str, answer: str) -> TaskItem:
    question = of.text(fields, "prompt", "question", "input")
    known = dict(of.about(fields))
    subject = of.maybe(fields, "subject") or str(known.get("subject", ""))
    if error := of.maybe(fields, "error_type"):
        known["error_type"] = error
    choices = of.options(fields, "choices")
    return letter_item(fields, task, question, choices, answer, domain=subject, known=known)
