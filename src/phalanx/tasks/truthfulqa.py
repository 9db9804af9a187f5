"""TruthfulQA (Lin and others 2022, arXiv 2109.07958): MC1 and MC2 by likelihood, or a letter.

Published columns: ``question``, ``mc1_targets`` and ``mc2_targets`` (``{choices, labels}``, the
true ones marked 1, or an object from text to 1 or 0). Also ``{prompt, choices, answer, meta}`` with
``meta.mc1`` and ``meta.mc2``. The true answers stand first there, so choices are put in an
order that follows from the question alone. Members are shown the question alone, without the six
questions and answers that others put before it: values are not comparable with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.letters import letter_item


def read(fields: of.Fields, task: str, form: Literal["mc1", "mc2"]) -> TaskItem:
    """An item whose choices are asked one by one for their likelihood.

    Raises BadItem where marks are missing or not 1 and 0, no choice is true or none is false, MC1
    has not exactly one true choice, or one text is both true and false.
    """
    question = of.text(fields, "prompt", "question")
    known = of.about(fields)
    marked = _marked(fields, known, form)
    order = of.shuffled(list(marked), form, question)
    choices = of.lettered(order)
    true = [label for label, cell in choices if marked[cell]]
    if form == "mc1" and len(true) != 1:
        raise of.BadItem(f"{len(true)} choices of mc1 are true; it has exactly one")
    if not true or len(true) == len(choices):
        raise of.BadItem(f"{len(true)} of {len(choices)} choices of {form} are true")
    return TaskItem(
        of.identity(fields, "truthfulqa", question),
        f"{question}\n\nAnswer truthfully, in one sentence.",
        " ".join(true),
        _category(fields, known),
        task,
        form,
        choices,
        of.plain(known),
        question,
    )


def read_letter(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``choice`` over the choices of MC1. Raises BadItem as :func:`read`."""
    one = read(fields, task, "mc1")
    question = of.text(fields, "prompt", "question")
    return letter_item(fields, task, question, one.choices, one.answer, domain=one.domain)


def _category(fields: of.Fields, known: dict[str, Any]) -> str:
    return of.maybe(fields, "category") or str(known.get("category", ""))


def _marked(fields: of.Fields, known: dict[str, Any], form: str) -> dict[str, bool]:
    """Whether each text is true."""
    found = next(
        (
            value
            for value in (of.nested(fields, f"{form}_targets"), known.get(form))
            if value is not None
        ),
        None,
    )
    if not isinstance(found, dict):
        raise of.BadItem(f"no {form}_targets and no meta.{form}")
    if {"choices", "labels"} <= set(found):
        texts, marks = found["choices"], found["labels"]
    else:
        texts, marks = list(found), list(found.values())
    if not isinstance(texts, Sequence) or not isinstance(marks, Sequence):
        raise of.BadItem(f"choices and labels of {form} are not lists")
    if len(texts) != len(marks) or any(mark not in (0, 1) for mark in marks):
        raise of.BadItem(f"{form} has {len(texts)} choices with the labels {list(marks)}")
    marked: dict[str, bool] = {}
    for cell, mark in zip((cell for _, cell in of.lettered(texts)), marks, strict=True):
        if marked.setdefault(cell, bool(mark)) != bool(mark):
            raise of.BadItem(f"a choice of {form} is both true and false")
    return marked
