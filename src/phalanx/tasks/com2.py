"""COM2 (Fang and others 2024, arXiv 2403.07398): commonsense inference over composed events.

``{prompt, answer, meta}`` or ``question`` (with ``context``) and ``answer``: a short gold phrase,
one of many right answers. So an answer is judged against it, and never compared by its words. The
kind of question (1p, 2i, ...) is the domain.
"""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``judged``. Raises BadItem without a question or a gold phrase."""
    question = of.text(fields, "prompt", "question")
    if context := of.maybe(fields, "context"):
        question = f"Context: {context}\nQuestion: {question}"
    known = of.about(fields)
    return TaskItem(
        of.identity(fields, "com2", question),
        f"{question}\n\nAnswer with one short phrase.",
        of.text(fields, "answer"),
        str(known.get("kind", "")),
        task,
        "judged",
        meta=of.plain(known),
        question=question,
    )
