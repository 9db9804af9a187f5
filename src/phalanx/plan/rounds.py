"""The common shape of what methods ask and train: rounds of requests and trainings.

Every number of a plan follows from rounds: counts, tokens, money, memory and time. A method says
in its own module (:mod:`phalanx.plan.work`, :mod:`phalanx.plan.stages`) what its rounds are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.config.schema import OptimiserSettings

USUAL_SHARE = 0.5
"""Length of a usual response as a share of what is allowed."""
VERDICT_TOKENS = 32
"""Tokens of a usual written verdict: a JSON score."""
CHARACTERS_A_TOKEN = 4
"""Letters of a usual token, where a text is only counted."""
TEMPLATE_TOKENS = 32
"""Tokens of a chat template around an instruction."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of one purpose to one member in one round, on average.

    ``read`` and ``written`` are tokens of one request where every response, those that are read
    too, is as long as allowed; ``usual_read`` and ``usual`` are usual ones. A batch goes on for
    ``longest`` tokens. ``unguided`` is what a server may write that cannot be told how to begin,
    and ``scored`` the tokens of a text whose likelihood is asked. ``phase`` is when: requests of
    one phase are asked together.
    """

    member: str
    purpose: str
    requests: float
    read: float
    written: int
    usual_read: float
    usual: float
    longest: int
    phase: str = ""
    unguided: int = 0
    scored: int = 0

    @property
    def when(self) -> str:
        return self.phase or self.purpose


def writing(
    member: str,
    purpose: str,
    requests: float,
    read: tuple[float, float],
    most: int,
    phase: str = "",
) -> Demand:
    """Requests for text of at most ``most`` tokens; ``read`` is (at most, usually)."""
    usual = ceil(most * USUAL_SHARE)
    return Demand(member, purpose, requests, read[0], most, read[1], usual, most, phase)


@dataclass(frozen=True, slots=True)
class Training:
    """What members learn from in a round: ``examples`` of each, at most.

    ``phase``: "tune" on demonstrations, "train" on pairs. An example has ``texts`` texts; one has
    ``most`` tokens at most, ``usual`` ones usually, and ``long`` is reckoned with for memory.
    """

    phase: str
    settings: OptimiserSettings
    examples: dict[str, int]
    texts: int
    most: float
    usual: float
    long: int

    @property
    def steps(self) -> int:
        """Optimiser steps of all members."""
        return sum(steps_of(count, self.settings) for count in self.examples.values())

    @property
    def tokens(self) -> float:
        """Tokens that all members learn from, at most."""
        return sum(self.examples.values()) * self.texts * self.most * self.settings.epochs


@dataclass(frozen=True, slots=True)
class Round:
    """``count`` iterations that are alike. ``name`` is "" where all are."""

    name: str
    count: int
    demands: tuple[Demand, ...]
    trainings: tuple[Training, ...] = ()
    instructions: int = 0

    @property
    def phases(self) -> tuple[str, ...]:
        """In the order in which they come."""
        return tuple(dict.fromkeys(demand.when for demand in self.demands))


def all_demands(rounds: Sequence[Round]) -> Iterator[tuple[int, Demand]]:
    """(iterations, requests of one of them)."""
    for one in rounds:
        for demand in one.demands:
            yield one.count, demand


def longest_of(demands: Iterable[Demand]) -> int:
    """Tokens, read and written, of the longest request; 0 where there is none."""
    return max((ceil(demand.read + demand.written) for demand in demands), default=0)


def fully_trained(rounds: Sequence[Round]) -> frozenset[str]:
    """Members all of whose weights are trained: each will have a base of its own."""
    return frozenset(
        name
        for one in rounds
        for training in one.trainings
        if training.settings.is_full
        for name in training.examples
    )


def long_text(settings: OptimiserSettings, instruction_tokens: float, response_tokens: int) -> int:
    """Tokens of a long text to learn: twice the usual prompt, and a whole response."""
    usual = 2 * ceil(instruction_tokens) + TEMPLATE_TOKENS + response_tokens
    return min(settings.max_length, usual)


def steps_of(examples: int, settings: OptimiserSettings) -> int:
    """Optimiser steps for one member: batches are gathered over the ends of epochs."""
    return ceil(batches_of(examples, settings) / settings.accumulate)


def batches_of(examples: int, settings: OptimiserSettings) -> int:
    """Forward and backward passes for one member."""
    return ceil(examples / settings.batch_size) * settings.epochs
