"""Which texts overlap evaluation questions, so that nobody is measured on what was trained on.

A text overlaps a question where

- both have the same words in the same order, whatever their case, width, spaces and punctuation; or
- it contains the whole question, if that has at least eight words; or six or seven, and is half of
  the text or more; or
- it contains at least 70 % of the question's runs of eight words, if that has at least thirteen.

Eight words and 70 % are what PaLM's authors took (Chowdhery and others 2022, arXiv 2204.02311,
section 8). Below thirteen words one changed word leaves no such share, so that a near copy could
not be told from another question of the same form. Runs that more than ten items have are the
wording of a task, not of a question: the share must be there without them, too. These numbers, and
those for short questions, are our own.

All runs of words of all questions are in one table, and every text is looked up in it: nothing is
estimated, nothing is missed, and no package decides what a run is made from. A language that is
written without spaces has few runs of words; there only equal texts are found.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from phalanx.collective.screening import normalised
from phalanx.config.schema import Config, TaskSettings
from phalanx.config.uses import source_of
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json
from phalanx.sources import BUILTIN
from phalanx.tasks.items import TaskItem
from phalanx.types import Demonstration, Instruction

INSTRUCTIONS, DEMONSTRATIONS = "instructions", "demonstrations"
RUN = 8
"""Words in a run."""
SHORT = 6
"""Words in a question from which on it can be found inside another text."""
SHARE = 0.7
"""Share of a question's runs that a text must contain, from ``LEAST`` words on; below, all."""
LEAST = 13
COMMON = 10
"""A run that more items than this have is the wording of a task."""
_SHOWN = 3
_BEGINNING = 40
"""Characters of a question that are shown."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A text, by its id, and the item that it overlaps most.

    ``share`` of the question's runs of words, from 0 to 1; ``exact`` where all words are the same;
    ``question`` is its beginning.
    """

    text: str
    task: str
    item: str
    share: float
    exact: bool
    question: str = ""

    def __str__(self) -> str:
        what = "is" if self.exact else "contains" if self.share == 1 else "contains {:.0%} of"
        asked = f": {self.question}" if self.question else ""
        return f"{self.text} {what.format(self.share)} item {self.item} of {self.task}{asked}"


@dataclass(frozen=True, slots=True)
class Overlaps:
    """What of the ``of`` texts that were compared overlaps an item; one entry a text.

    ``what`` they are: "instructions" or "demonstrations". ``dropped``: those found are left out.
    """

    what: str
    of: int
    found: tuple[Overlap, ...] = ()
    dropped: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """The texts that are left out."""
        return frozenset(one.text for one in self.found) if self.dropped else frozenset()

    def refuse_nothing_left(self) -> None:
        """Raise ConfigError where all texts are left out."""
        if self.of and len(self.ids) == self.of:
            raise ConfigError(
                f"all {self.of:,} {self.what} overlap evaluation items, so none is left to learn "
                "from; give others, or set instructions.contamination to report\n"
                + "\n".join(self.lines())
            )

    def lines(self) -> list[str]:
        """What a user should know, the first line a sum; empty where nothing was compared.

        >>> Overlaps("instructions", 9, (Overlap("a", "t", "i", 1.0, True),), True).lines()[1]
        'a is item i of t'
        """
        if not self.of:
            return []
        if not self.found:
            return [f"none of {self.of:,} {self.what} overlaps an evaluation item"]
        tasks = Counter(one.task for one in self.found)
        listed = ", ".join(f"{count:,} of task {name}" for name, count in tasks.most_common())
        done = "and are left out" if self.dropped else "and are kept"
        first = (
            f"{len(self.found):,} of {self.of:,} {self.what} overlap evaluation items {done} "
            f"({listed})"
        )
        more = len(self.found) - _SHOWN
        shown = [str(one) for one in self.found[:_SHOWN]]
        return [first, *shown, *([f"and {more:,} more"] if more > 0 else [])]


class Questions:
    """The questions of evaluation items by their words; :meth:`find` looks a text up.

    An item's question is ``TaskItem.question``, without and with its options, and, for equal texts
    alone, all that members are asked.
    """

    def __init__(self, items: Iterable[TaskItem]) -> None:
        self._same: dict[str, TaskItem] = {}
        self._questions: list[_Question] = []
        self._having: dict[str, list[int]] = {}
        for item in items:
            for text in _asked(item):
                self._add(text, item)
            self._same.setdefault(_plain(item.instruction), item)
        for run, places in list(self._having.items()):
            if len({id(self._questions[place].item) for place in places}) > COMMON:
                for place in self._having.pop(run):
                    self._questions[place].common.add(run)

    def _add(self, text: str, item: TaskItem) -> None:
        plain = _plain(text)
        if plain in self._same:
            return
        self._same[plain] = item
        words = len(plain.split())
        runs = _runs(plain) if words >= RUN else {plain} if words >= SHORT else set()
        for run in runs:
            self._having.setdefault(run, []).append(len(self._questions))
        self._questions.append(_Question(item, len(runs), SHARE if words >= LEAST else 1.0))

    def find(self, text: str) -> tuple[TaskItem, float, bool] | None:
        """(item, share, exact) of the question that the text overlaps most, or None."""
        plain = _plain(text)
        if plain in self._same:
            return self._same[plain], 1.0, True
        runs, words = _runs(plain), len(plain.split())
        for size in range(SHORT, RUN):
            if words <= 2 * size:
                runs |= _runs(plain, size)
        counts: Counter[int] = Counter()
        for run in runs & self._having.keys():
            counts.update(self._having[run])
        best: tuple[TaskItem, float, bool] | None = None
        for place in sorted(counts):
            asked = self._questions[place]
            own = counts[place] / (asked.runs - len(asked.common))
            share = (counts[place] + len(asked.common & runs)) / asked.runs
            if min(own, share) >= asked.needed and (best is None or share > best[1]):
                best = (asked.item, share, False)
        return best


@dataclass(slots=True)
class _Question:
    """A question's number of runs, the share of them that is needed, and those that are common."""

    item: TaskItem
    runs: int
    needed: float
    common: set[str] = field(default_factory=set)


def overlaps(
    what: str,
    texts: Mapping[str, Sequence[str]],
    source: str,
    tasks: Sequence[TaskSettings],
    items: Sequence[TaskItem],
    *,
    dropped: bool = False,
) -> Overlaps:
    """Compare texts, by id, with the items of tasks; several texts of one id are one thing.

    ``source`` is where the texts are from. Those of ``builtin:skills`` are not compared with items
    of the same: alignment, training and evaluation are dealt different ones there, and all have
    the same few wordings.
    """
    alike = {task.name for task in tasks if source == BUILTIN and task.source == BUILTIN}
    compared = [item for item in items if item.task not in alike]
    if not compared:
        return Overlaps(what, 0)
    questions = Questions(compared)
    found = []
    for identity, parts in texts.items():
        hits = [hit for part in parts if (hit := questions.find(part))]
        if hits:
            item, share, exact = max(hits, key=lambda hit: (hit[2], hit[1]))
            question = _beginning(item.question or item.instruction)
            found.append(Overlap(identity, item.task, item.id, share, exact, question))
    return Overlaps(what, len(texts), tuple(found), dropped)


def of_instructions(
    instructions: Sequence[Instruction], config: Config, items: Sequence[TaskItem]
) -> Overlaps:
    """The instructions of a run, every user turn of them, and the items of its tasks.

    Nothing is compared with ``instructions.contamination: off``.
    """
    mode = config.instructions.contamination
    if mode == "off":
        return Overlaps(INSTRUCTIONS, 0)
    return overlaps(
        INSTRUCTIONS,
        {one.id: one.user_turns for one in instructions},
        source_of(config)[1],
        config.evaluate.tasks,
        items,
        dropped=mode == "drop",
    )


def of_demonstrations(
    demonstrations: Sequence[Demonstration], config: Config, items: Sequence[TaskItem]
) -> Overlaps:
    """The prompts of a file that recruits learn from, under the same setting."""
    mode, recruit = config.instructions.contamination, config.pool.recruit
    if mode == "off" or recruit is None:
        return Overlaps(DEMONSTRATIONS, 0)
    prompts = {one.id: (one.prompt,) for one in demonstrations}
    return overlaps(
        DEMONSTRATIONS, prompts, recruit.data, config.evaluate.tasks, items,
        dropped=mode == "drop",
    )  # fmt: skip


def stored(found: Sequence[Overlaps]) -> str:
    """As a ledger keeps it, under ``contamination``."""
    return canonical_json([asdict(one) for one in found if one.of])


def read_stored(text: str | None) -> tuple[Overlaps, ...]:
    """What :func:`stored` wrote; none where there is nothing."""
    rows: list[dict[str, Any]] = json.loads(text or "[]")
    return tuple(
        Overlaps(
            row["what"], row["of"], tuple(Overlap(**one) for one in row["found"]), row["dropped"]
        )
        for row in rows
    )


def _asked(item: TaskItem) -> list[str]:
    """The question, and the question with its options."""
    question = item.question or item.instruction
    if item.match != "choice" or not item.choices:
        return [question]
    options = " ".join(f"{label} {text}" for label, text in item.choices)
    return [question, f"{question} {options}"]


def _beginning(text: str) -> str:
    """On one line.

    >>> _beginning("How many legs have three spiders and two ants?")
    'How many legs have three spiders and two…'
    """
    line = " ".join(text.split())
    return line if len(line) <= _BEGINNING else line[:_BEGINNING].rstrip() + "…"


def _plain(text: str) -> str:
    return normalised(text) or text.strip()


def _runs(plain: str, size: int = RUN) -> set[str]:
    """Every run of so many words; none in a shorter text."""
    words = plain.split()
    return {" ".join(words[at : at + size]) for at in range(len(words) - size + 1)}
