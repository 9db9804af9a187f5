"""Requests that may be longer than the context of whoever is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from phalanx.config.mixing import debaters_of
from phalanx.config.schema import Config
from phalanx.plan.memory import BasePlan
from phalanx.plan.rounds import Demand


def context_notes(
    config: Config, bases: Sequence[BasePlan], demands: Iterable[Demand]
) -> Iterator[str]:
    """A note for each base here whose longest request may not fit, and what would."""
    every = list(demands)
    for base in bases:
        context = base.shape.context if base.shape else 0
        mine = [demand for demand in every if demand.member in base.names]
        longest = max(mine, key=lambda one: one.read + one.written, default=None)
        if not context or longest is None or longest.read + longest.written <= context:
            continue
        yield (
            f"{base.base}: a request to {longest.member} ({longest.when}) may have "
            f"{ceil(longest.read + longest.written):,} tokens, and the context has {context:,}: "
            f"answers in it are then shortened, visibly; {_what_fits(config, longest, context)}"
        )


def _what_fits(config: Config, longest: Demand, context: int) -> str:
    """Of a debate, whose prompt has an answer of every seat: how many, or how long ones."""
    if longest.purpose != "debate":
        return "let members write fewer tokens, or have fewer answers in a prompt"
    seats, each = len(debaters_of(config)), longest.written
    room = context - (longest.read - seats * each)
    fewer = max(0, int(room // each) - 1)
    return (
        f"{seats} debaters would fit with debate.sample.max_new_tokens {int(room // (seats + 1))}"
        + (f", and {fewer} debaters with {each:,}" if fewer > 1 else "")
    )
