"""MedQA, the US part with four options (Jin and others 2020, arXiv 2009.13081).

Published columns: ``question``, ``options`` (an object from letter to text), ``answer_idx`` (the
letter), ``answer`` (the text), ``meta_info``. Also ``{prompt, choices, answer}``.
"""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.letters import letter_item


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``choice``. Raises BadItem for a row that is no question with options."""
    question = of.text(fields, "prompt", "question")
    choices = of.options(fields, "choices", "options")
    answer = of.text(fields, "answer_idx", "answer")
    known = dict(of.about(fields))
    if step := of.maybe(fields, "meta_info"):
        known["meta_info"] = step
    return letter_item(fields, task, question, choices, answer, known=known)
