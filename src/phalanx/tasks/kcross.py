"""Knowledge Crosswords (Ding and others, arXiv 2310.01290): blanks that satisfy all constraints.

Two forms. ``{prompt, choices, answer}``: one option fills all blanks (Sparta's), match ``choice``.
The published one, ``source``, ``relation``, ``target``, ``blanks``, ``options`` and ``golds``:
each blank has options of its own, match ``blanks``; right where all are. The number of blanks is
the domain.
"""

from __future__ import annotations

from typing import Any

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem
from phalanx.tasks.letters import letter_item


def read(fields: of.Fields, task: str) -> TaskItem:
    """Raises BadItem where constraints, options or answers are missing or do not fit together."""
    if fields.get("golds") not in (None, ""):
        return _blanks(fields, task)
    known = of.about(fields)
    count = known.get("blanks")
    domain = f"{count} blanks" if count is not None else ""
    choices = of.options(fields, "choices")
    question = of.text(fields, "prompt", "question")
    return letter_item(fields, task, question, choices, of.text(fields, "answer"), domain=domain)


def _blanks(fields: of.Fields, task: str) -> TaskItem:
    golds, options = _object(fields, "golds"), _object(fields, "options")
    facts = zip(*_same_length(fields, "source", "relation", "target"), strict=True)
    stated = "; ".join(f"({', '.join(map(str, fact))})" for fact in facts)
    if set(golds) != set(options) or not golds:
        raise of.BadItem(f"golds has {', '.join(golds)}, options has {', '.join(options)}")
    listed, answers = [], []
    for blank in golds:
        choices = of.options(options, blank)
        label = of.right_label(of.text(golds, blank), choices)
        shown = ", ".join(f"({letter}) {cell}" for letter, cell in choices)
        listed.append(f"{blank} (options): {shown}")
        answers.append((blank, label))
    question = (
        f"Choose an option for each blank, so that all constraints hold.\nConstraints: {stated}\n"
        + "\n".join(listed)
    )
    form = ", ".join(f"{blank}: (letter)" for blank in golds)
    return TaskItem(
        of.identity(fields, "kcross", question),
        f"{question}\n\nYou may think first. End with one line of this form: {form}.",
        "; ".join(f"{blank}: {label}" for blank, label in answers),
        f"{len(answers)} blanks",
        task,
        "blanks",
        meta=of.plain(of.about(fields)),
        question=stated,
    )


def _object(fields: of.Fields, name: str) -> dict[str, Any]:
    found = of.nested(fields, name)
    if not isinstance(found, dict):
        raise of.BadItem(f"{name} is not an object from blank to text")
    return found


def _same_length(fields: of.Fields, *names: str) -> list[list[Any]]:
    columns = [of.nested(fields, name) for name in names]
    if not all(isinstance(column, list) for column in columns):
        raise of.BadItem(f"{', '.join(names)} are not all lists")
    if len({len(column) for column in columns}) > 1 or not columns[0]:
        raise of.BadItem(f"{', '.join(names)} have different lengths, or are empty")
    return columns
