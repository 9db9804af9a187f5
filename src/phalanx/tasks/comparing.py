"""How final answers are read and compared where members vote on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import eq

from phalanx.tasks.equivalence import same
from phalanx.tasks.items import Match, TaskItem
from phalanx.tasks.scoring import normalise

Reader = Callable[[str], str]
"""The final answer of a text as it is compared, never out of its reasoning; "" where there is
none."""
Same = Callable[[str, str], bool]
"""Whether two of them are one answer."""


def reading_of(item: TaskItem) -> tuple[Reader, Same]:
    """How answers to an item are read and compared, as they are when it is scored."""
    return partial(normalise, item=item), same if item.match == "math" else eq


def reader_of(match: Match) -> tuple[Reader, Same]:
    """The same for an instruction, of which no more is known than what kind of answer it asks for.

    ``exact`` compares whole texts without case, space and punctuation around them, so it is for
    short answers alone; ``choice`` reads the letters A to J.
    """
    return reading_of(TaskItem("", "", "", "", "", match))
