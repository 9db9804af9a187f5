"""MATH (Hendrycks and others 2021, arXiv 2103.03874): problems whose answer is an expression.

Published columns: ``problem``, ``solution`` with the answer in its last ``\\boxed{}``, ``level``,
``type`` (MATH-500: also ``answer`` and ``subject``). The level is the domain. Sparta's easy, medium
and hard parts are levels 1 and 2, 3, and 4 and 5 of the *train* rows.
"""

from __future__ import annotations

import re

from phalanx.tasks import fields as of
from phalanx.tasks import wording
from phalanx.tasks.items import TaskItem
from phalanx.tasks.reading import last_boxed

_BARE_BOX = re.compile(r"\\(?:f?box|boxed)\s*(?:\{([^{}]*)\}|\s([^\s$]+))")


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``math``. Raises BadItem without a problem or an answer."""
    question = of.text(fields, "prompt", "problem", "question")
    answer = of.maybe(fields, "answer") or _boxed(of.text(fields, "answer", "solution"))
    known = dict(of.about(fields))
    for name, other in (("level", "level"), ("subject", "subject"), ("subject", "type")):
        if found := of.maybe(fields, other):
            known.setdefault(name, found)
    level = str(known.get("level", "")).casefold().removeprefix("level").strip()
    names = ("id", "unique_id")
    return TaskItem(
        of.identity(fields, "math", question, names=names),
        wording.for_expression(question),
        answer,
        f"level {level}" if level else "",
        task,
        "math",
        meta=of.plain(known),
        question=question,
    )


def _boxed(solution: str) -> str:
    """The last boxed expression of a solution; some write ``\\boxed 7`` or ``\\fbox{7}``."""
    found = (last_boxed(solution) or "").strip()
    if not found and (bare := _BARE_BOX.findall(solution)):
        found = "".join(bare[-1]).strip()
    if not found:
        raise of.BadItem("the solution has no \\boxed{} answer")
    return found
