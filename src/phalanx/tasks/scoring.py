"""Compare a response with an answer. One that cannot be read is wrong, and counted apart."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.collective.ownwords import answer_alone
from phalanx.errors import ConfigError
from phalanx.tasks import equivalence
from phalanx.tasks.expressions import read_expression
from phalanx.tasks.items import CHECKED, Match, TaskItem
from phalanx.tasks.reading import read_number, read_stated_number
from phalanx.tasks.stated import LETTERS, read_blanks, read_choice, read_label

_EDGE = " \t\n\"'`*_.,;:!?()[]{}<>“”‘’«»"
_LABEL = re.compile(r"^(?:the )?(?:final |correct )?answer(?: is\b ?:?| ?:)")


@dataclass(frozen=True, slots=True)
class Score:
    """``readable`` is False where no answer could be found; ``reason`` says why.

    ``partial`` is set where an item can be right in part: the share of blanks that are right
    (Knowledge Crosswords), or the mass on true choices (TruthfulQA's MC2).
    """

    correct: bool
    readable: bool
    reason: str = ""
    partial: float | None = None

    @property
    def share(self) -> float:
        """How much of the item is right, from 0 to 1; 0 where nothing could be read.

        >>> Score(False, True, partial=0.5).share, Score(True, True).share
        (0.5, 1.0)
        """
        if not self.readable:
            return 0.0
        return float(self.correct) if self.partial is None else self.partial


def score(text: str, item: TaskItem) -> Score:
    """Score one response without its reasoning; :func:`normalise` says what is compared.

    Raises ConfigError for an item that is not scored by its text (likelihoods, a judge).
    """
    shown = answer_alone(text)
    if not shown.strip():
        return Score(False, False, "empty")
    if item.match in CHECKED:
        return _checked(shown, item)
    way = _way(item)
    found = way.read(shown, item)
    if not found:
        return Score(False, False, way.unreadable)
    return way.compare(found, _wanted(item))


def normalise(text: str, item: TaskItem) -> str:
    """The answer in ``text`` as it is compared, "" where there is none; never in its reasoning.

    exact: without case, extra space, punctuation around it and one leading label; contains: the
    same with the label; number, stated_number, choice, label, blanks and math: see
    :mod:`phalanx.tasks.reading`, :mod:`phalanx.tasks.stated`, :mod:`phalanx.tasks.expressions`.
    A response that is run or checked has none; one that is judged is as with ``contains``. Raises
    ConfigError for an item that is scored by likelihoods.
    """
    if item.match in CHECKED:
        return ""
    if item.match == "judged":
        return _folded(answer_alone(text), item)
    return _way(item).read(answer_alone(text), item)


def _checked(text: str, item: TaskItem) -> Score:
    """HumanEval's functions are run, IFEval's instructions checked (strictly)."""
    from phalanx.tasks import code, ifeval

    meta = dict(item.meta)
    return code.score(text, meta) if item.match == "code" else ifeval.score(text, meta)


def _wanted(item: TaskItem) -> str:
    return item.answer if item.match in ("math", "blanks") else normalise(item.answer, item)


def _way(item: TaskItem) -> _Way:
    if item.match not in WAYS:
        raise ConfigError(
            f"item {item.id} of task {item.task} has match {item.match!r}, which no text is scored "
            "by: mc1 and mc2 are scored by the likelihood of each choice, judged by a judge"
        )
    return WAYS[item.match]


@dataclass(frozen=True, slots=True)
class _Way:
    """How an answer is read and compared, and what is said where there is none."""

    read: Callable[[str, TaskItem], str]
    compare: Callable[[str, str], Score]
    unreadable: str


def _folded(text: str, item: TaskItem) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_EDGE)


def _exact(text: str, item: TaskItem) -> str:
    return _LABEL.sub("", _folded(text, item), count=1).strip(_EDGE)


def _letter(text: str, item: TaskItem) -> str:
    return read_choice(text, "".join(item.labels) or LETTERS)


def _label(text: str, item: TaskItem) -> str:
    return read_label(text, item.labels)


def _blanks(text: str, item: TaskItem) -> str:
    return read_blanks(text, tuple(part.split(":")[0] for part in item.answer.split("; ")))


def _same(found: str, wanted: str) -> Score:
    return Score(found == wanted, True)


def _same_blanks(found: str, wanted: str) -> Score:
    """Right where all blanks are."""
    pairs = list(zip(found.split("; "), wanted.split("; "), strict=True))
    right = sum(given == gold for given, gold in pairs)
    return Score(found == wanted, True, partial=right / len(pairs))


def _within(found: str, wanted: str) -> Score:
    return Score(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", found) is not None, True)


def _equal(found: str, wanted: str) -> Score:
    verdict = equivalence.compare(wanted, found)
    if verdict in ("time limit", "fault"):
        return Score(False, False, verdict)
    return Score(verdict == "equal", True)


WAYS: dict[Match, _Way] = {
    "exact": _Way(_exact, _same, "no words"),
    "contains": _Way(_folded, _within, "no words"),
    "number": _Way(lambda text, item: read_number(text), _same, "no number"),
    "stated_number": _Way(lambda text, item: read_stated_number(text), _same, "no number"),
    "choice": _Way(_letter, _same, "no choice"),
    "label": _Way(_label, _same, "no label"),
    "blanks": _Way(_blanks, _same_blanks, "not all blanks"),
    "math": _Way(lambda text, item: read_expression(text), _equal, "no expression"),
}
