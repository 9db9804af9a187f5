"""NormAd (Rao and others 2024, arXiv 2404.12464): is what happens in a story acceptable there?

Yes, no or neutral, given one of three contexts: the ``country``; the country and an abstract
``value``; or a one-line rule of thumb (``rot``). Published columns: ``Country``, ``Value``,
``Rule-of-Thumb``, ``Story``, ``Gold Label``. Also ``{prompt, answer, meta}``, with ``value`` and
``rule_of_thumb`` in meta. The etiquette paragraph is never shown: it gives the answer away. The
right label is the domain, so that each one's recall can be seen.
"""

from __future__ import annotations

from typing import Any, Literal

from phalanx.tasks import fields as of
from phalanx.tasks import wording
from phalanx.tasks.items import TaskItem

Context = Literal["country", "value", "rot"]
LABELS = ("yes", "no", "neutral")
_QUESTION = "Is what is done in this story socially acceptable?"


def read(fields: of.Fields, task: str, context: Context) -> TaskItem:
    """An item of match ``label``. Raises BadItem where the context or the label is missing."""
    known = of.about(fields)
    story = of.text(fields, "Story", "story", "prompt")
    first, _, rest = story.partition("\n")
    if first.casefold().startswith("country:"):
        known.setdefault("country", first.partition(":")[2].strip())
        story = rest.strip()
    told = story
    if not story.endswith("?"):
        story = f"{story} {_QUESTION}"
    answer = of.text(fields, "Gold Label", "answer", "label").casefold()
    answer = {"neither": "neutral", "na": "neutral"}.get(answer, answer)
    if answer not in LABELS:
        raise of.BadItem(f"the label {answer!r} is none of {', '.join(LABELS)}")
    question = f"{_context(fields, known, context)}\nStory: {story}"
    return TaskItem(
        of.identity(fields, "normad", context, story, names=("id", "ID")),
        wording.for_label(question, list(LABELS)),
        answer,
        answer,
        task,
        "label",
        tuple((label, label.capitalize()) for label in LABELS),
        of.plain(known),
        told,
    )


def _context(fields: of.Fields, known: dict[str, Any], context: Context) -> str:
    if context == "rot":
        rule = _either(fields, known, "Rule-of-Thumb", "rule_of_thumb", "rot")
        return f"Rule of thumb: {rule}"
    country = f"Country: {_either(fields, known, 'Country', 'country')}"
    if context == "country":
        return country
    return f"{country}\nValue: {_either(fields, known, 'Value', 'value')}"


def _either(fields: of.Fields, known: dict[str, Any], *names: str) -> str:
    return of.maybe(fields, *names) or of.text(known, *names)
