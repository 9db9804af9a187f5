"""GPQA (Rein and others 2023, arXiv 2311.12022): its authors ask that no example be published.

Published columns: ``Question``, ``Correct Answer``, ``Incorrect Answer 1`` to ``3``,
``High-level domain``, ``Subdomain``, ``Record ID``. The right option stands first there, so the
options are put in an order that follows from the question alone, the same in every run.
"""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.letters import letter_item

_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``choice``. Raises BadItem where a text is missing or two options agree."""
    question = of.text(fields, "Question", "prompt", "question")
    if "Correct Answer" in fields:
        right = of.text(fields, "Correct Answer")
        texts = [right, *(of.text(fields, name) for name in _WRONG)]
    else:
        given = of.options(fields, "choices")
        right = dict(given)[of.right_label(of.text(fields, "answer"), given)]
        texts = [cell for _, cell in given]
    if texts.count(right) > 1:
        raise of.BadItem("a wrong option has the text of the right one")
    order = of.shuffled(texts, "gpqa", question)
    choices = of.lettered(order)
    known = dict(of.about(fields))
    domain = of.maybe(fields, "High-level domain") or str(known.get("domain", ""))
    if part := of.maybe(fields, "Subdomain"):
        known["subdomain"] = part
    return letter_item(
        fields, task, question, choices, choices[order.index(right)][0],
        domain=domain, names=("id", "Record ID"), known=known,
    )  # fmt: skip
