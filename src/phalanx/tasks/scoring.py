"""Compare a response with an answer. One that cannot be read is wrong, and counted apart."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from phalanx.tasks.items import TaskItem
from phalanx.tasks.reading import read_choice, read_number

_UNREADABLE = {
    "exact": "no words",
    "contains": "no words",
    "number": "no number",
    "choice": "no choice",
}
_EDGE = " \t\n\"'`*_.,;:!?()[]{}<>“”‘’«»"
_LABEL = re.compile(r"^(?:the )?(?:final |correct )?answer(?: is\b ?:?| ?:)")


@dataclass(frozen=True, slots=True)
class Score:
    """``readable`` is False where no answer could be found; ``reason`` says why."""

    correct: bool
    readable: bool
    reason: str = ""


def score(text: str, item: TaskItem) -> Score:
    """Score one response; :func:`normalise` says what is compared."""
    if not text.strip():
        return Score(False, False, "empty")
    found, wanted = normalise(text, item), normalise(item.answer, item)
    if not found:
        return Score(False, False, _UNREADABLE[item.match])
    if item.match == "contains":
        return Score(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", found) is not None, True)
    return Score(found == wanted, True)


def normalise(text: str, item: TaskItem) -> str:
    """The answer in ``text`` as it is compared, "" where there is none.

    exact: without case, extra space, punctuation around it and one leading label; contains: the
    same with the label; number and choice: see :mod:`phalanx.tasks.reading`.
    """
    if item.match == "number":
        return read_number(text)
    if item.match == "choice":
        return read_choice(text)
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_EDGE)
    if item.match == "contains":
        return folded
    return _LABEL.sub("", folded, count=1).strip(_EDGE)
