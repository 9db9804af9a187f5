"""What a method is: one record in each file of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Literal, Protocol

from phalanx.config.schema import Config
from phalanx.config.uses import wanted_of
from phalanx.sources import fresh_sample
from phalanx.types import (
    Ask,
    Demonstration,
    Instruction,
    Iteration,
    IterationResult,
    Member,
    Message,
    PreferencePair,
    Response,
    Sampling,
)

Lesson = str
"""What a learner learns from in an iteration: "" (nothing), "pairs" (everybody's), "own pairs",
"demonstrations:BUILDER", or "rated:BUILDER" (demonstrations with an advantage each, by GRPO)."""

Kind = Literal["several", "single", "answer", "none"]
"""``several`` members train together, each by itself (``single``), nobody trains and they
``answer`` together, or nothing is done at all (``none``)."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be answered together: a conversation that ends with a user turn.

    ``read`` gives the final answer of a text as it is compared, "" where there is none, and
    ``same`` compares two of them; free texts, on which nobody can vote, have no ``read``.
    """

    id: str
    turns: tuple[Message, ...]
    read: Callable[[str], str] | None = None
    same: Callable[[str, str], bool] = eq


@dataclass(frozen=True, slots=True)
class Reached:
    """The answer that was reached, as some member wrote it; ``reason`` says why there is none.

    ``writer`` is whose words it is, who does not judge it. ``counts`` say what happened on the way:
    answers that failed, votes that are missing, draws; their sums over all questions are recorded.
    """

    response: Response | None
    writer: str = ""
    reason: str = ""
    counts: dict[str, int] = field(default_factory=dict)


class Answer(Protocol):
    """Answer questions together. ``best`` is the member that was best on dev items at the start
    ("" where nobody was measured), ``want`` how a last answer is written, and ``place`` where in
    the work this happens, from which ids and seeds are derived. Phases begin with ``evaluate``."""

    def __call__(
        self,
        questions: Sequence[Question],
        members: Sequence[Member],
        ask: Ask,
        config: Config,
        *,
        best: str,
        want: Sampling,
        place: tuple,
    ) -> list[Reached]: ...


@dataclass(frozen=True)
class Method:
    """``title`` is its line in lists, ``paper`` where it is from.

    ``draw(config, all instructions, number)`` gives those of an iteration, ``lesson(config,
    number, member's name)`` says what that learner learns from when its result is recorded. Who
    only answers has ``answer`` and none of the three. ``given(config, number)`` reads what an
    iteration has from files that the configuration names; the loop calls it, ``run`` gets it as
    ``Iteration.given``.
    """

    title: str
    paper: str
    kind: Kind
    run: Callable[[Iteration, Ask, Config], IterationResult] | None = None
    draw: Callable[[Config, Sequence[Instruction], int], tuple[Instruction, ...]] | None = None
    lesson: Callable[[Config, int, str], Lesson] | None = None
    answer: Answer | None = None
    given: Callable[[Config, int], tuple[Demonstration | PreferencePair, ...]] | None = None


def fresh(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """As many fresh instructions as the method's section asks for; all of them, each once, where
    there are fewer."""
    wanted = wanted_of(config, number)
    if wanted is None:
        raise ValueError(f"{config.method} asks for no instructions")
    count = min(wanted[1], len(instructions))
    return fresh_sample(instructions, count, seed=config.seed, iteration=number - 1)
