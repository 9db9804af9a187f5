"""The small records that benchmarks share: questions, pairs with a label, and counted shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from phalanx.statistics import Interval, wilson

Side = Literal["A", "B", "tie"]


@dataclass(frozen=True, slots=True)
class Question:
    """Something to answer. ``references`` are the answers that came with the file, if any.

    They are MT-Bench's reference answers, one a turn ("" where a turn has none), or the one
    output of the baseline in an AlpacaEval file. ``index`` is the place among AlpacaEval's
    instructions, by which difficulties are known.
    """

    id: str
    turns: tuple[str, ...]
    group: str = ""
    references: tuple[str, ...] = ()
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two responses to one instruction; ``label`` names the better one.

    In some files the better one is always A: a judge must see both orders. ``writers`` are the
    models or members that wrote the responses and ``families`` theirs, "" where that is not known.
    """

    id: str
    instruction: str
    response_a: str
    response_b: str
    label: Side
    group: str = ""
    writers: tuple[str, str] = ("", "")
    families: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class ManyResponses:
    """One prompt, many responses of one model, and which of them are right.

    ``conflicts`` are places of responses of which one is right and one wrong.
    """

    id: str
    instruction: str
    responses: tuple[str, ...]
    right: tuple[bool, ...]
    group: str = ""
    conflicts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``n``, with Wilson's interval.

    >>> Share(3, 4).share
    0.75
    """

    count: int
    n: int

    @property
    def share(self) -> float:
        """Raises ZeroDivisionError where there is no item: nothing is known then."""
        return self.count / self.n

    @property
    def interval(self) -> Interval:
        return wilson(self.count, self.n)
