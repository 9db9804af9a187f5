"""Who meets whom (Sparta, section 3 of the paper; released code: ``competition.py``)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from phalanx.config.schema import MatchSettings
from phalanx.identity import content_id
from phalanx.types import Duel, Instruction


def active_members(names: Sequence[str], order: str, rng: random.Random) -> Iterator[str]:
    """Endless round-robin: each round names everybody once, shuffled anew or in pool order."""
    if not names:
        raise ValueError("nobody to choose the active member from")
    while True:
        round_ = list(names)
        if order == "shuffled":
            rng.shuffle(round_)
        yield from round_


def nearest(active: str, reputations: Mapping[str, float], k: int, rng: random.Random) -> list[str]:
    """The k others nearest in reputation; equal distances come in random order."""
    others = [name for name in reputations if name != active]
    # Shuffle first: the sort is stable, so ties keep the shuffled order, not the pool's.
    rng.shuffle(others)
    own = reputations[active]
    others.sort(key={name: abs(reputations[name] - own) for name in others}.__getitem__)
    return others[:k]


def match(
    instructions: Sequence[Instruction],
    reputations: Mapping[str, float],
    settings: MatchSettings,
    *,
    rng: random.Random,
    id_parts: tuple[object, ...] = (),
) -> list[Duel]:
    """One duel per instruction, all from the reputations at the start of the iteration.

    ``reputations`` holds the contestants only, in pool order; two at least. The opponent is
    drawn from everybody with probability ``settings.random_probability``, else uniformly from
    the ``settings.nearest`` closest.
    """
    if len(reputations) < 2:
        raise ValueError(f"a duel needs two contestants, got {len(reputations)}")
    names = list(reputations)
    active = active_members(names, settings.active, rng)
    duels = []
    for position, instruction in enumerate(instructions):
        left = next(active)
        at_random = rng.random() < settings.random_probability
        candidates = (
            [name for name in names if name != left]
            if at_random
            else nearest(left, reputations, settings.nearest, rng)
        )
        duels.append(
            Duel(
                id=content_id("duel", *id_parts, position, instruction.id),
                instruction=instruction,
                left=left,
                right=rng.choice(candidates),
                matched="random" if at_random else "near",
            )
        )
    return duels
