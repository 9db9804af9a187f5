"""GSM8K (Cobbe and others 2021, arXiv 2110.14168): word problems whose answer is one number.

Published columns: ``question``, and ``answer`` with the worked solution and the number after
``####``. Also ``{prompt, answer}`` with the number alone.
"""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks import wording
from phalanx.tasks.items import TaskItem


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``stated_number``. Raises BadItem without a question or an answer."""
    question = of.text(fields, "prompt", "question")
    answer = of.text(fields, "answer").rsplit("####", 1)[-1].strip()
    if not answer:
        raise of.BadItem("no number after ####")
    identity = of.identity(fields, "gsm8k", question)
    meta = of.plain(of.about(fields))
    asked = wording.for_number(question)
    return TaskItem(
        identity, asked, answer, "", task, "stated_number", meta=meta, question=question
    )
