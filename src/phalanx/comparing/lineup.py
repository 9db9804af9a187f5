"""Who of a pool takes part in an arm: fewer members, copies of one, or one judge for all.

A comparison makes one pool a seed; an arm may line up another one from the same members. Who was
best at the start is known once the arm that trains nobody has been measured, so arms that need it
run after that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from pydantic import Field

from phalanx.config.base import Section
from phalanx.config.schema import MemberSettings

JUDGE = "judge"
"""The name of the frozen copy that judges alone."""


class Lineup(Section):
    first: int | None = Field(None, ge=2)
    """Only so many contestants, in pool order. Where a duel of theirs would have no judge, since
    nobody judges a duel of their own, the next judge of those left out judges, and no more."""
    copies: bool = False
    """Every member is a copy of the one that was best at the start; they differ in the seeds of
    their samples, and after that in what they learn."""
    one_judge: bool = False
    """A frozen copy of the member that was best at the start judges alone, under a name of its own,
    so that it judges its original's answers, too."""

    @property
    def needs_best(self) -> bool:
        """Whether somebody has to be measured before the members are known."""
        return self.copies or self.one_judge


def line_up(
    members: Sequence[MemberSettings], lineup: Lineup, best: str = ""
) -> list[MemberSettings]:
    """The members of an arm. ``best`` is the name of who was best at the start; before that is
    known, and while the arm is only planned, the first member stands for it.

    Raises ValueError where no member is named ``best``.
    """
    listed = list(members)
    if lineup.first is not None:
        listed = _first(listed, lineup.first)
    if not lineup.needs_best:
        return listed
    (original,) = [member for member in members if member.name == (best or members[0].name)]
    if lineup.copies:
        listed = [_copy(original, member.name, member.roles) for member in listed]
    if lineup.one_judge:
        listed = [_with_roles(m, [role for role in m.roles if role != "judge"]) for m in listed]
        listed.append(_copy(original, JUDGE, ["judge"]))
    return listed


def _first(members: list[MemberSettings], count: int) -> list[MemberSettings]:
    left_out = [member for member in members if "contest" in member.roles][count:]
    kept = [member for member in members if member not in left_out]
    spare = next((member.name for member in left_out if "judge" in member.roles), "")
    needed = judges_a_duel(kept)[0] == 0
    return [
        member if member in kept else _with_roles(member, ["judge"])
        for member in members
        if member in kept or (needed and member.name == spare)
    ]


def judges_a_duel(members: Sequence[MemberSettings]) -> tuple[int, int]:
    """The fewest and the most who may judge a duel: those with the role who are not in it."""
    judges = {member.name for member in members if "judge" in member.roles}
    contestants = [member.name for member in members if "contest" in member.roles]
    found = [len(judges - set(duel)) for duel in combinations(contestants, 2)]
    return min(found, default=len(judges)), max(found, default=len(judges))


def _with_roles(member: MemberSettings, roles: Sequence[str]) -> MemberSettings:
    return member.model_copy(update={"roles": list(roles)})


def _copy(original: MemberSettings, name: str, roles: Sequence[str]) -> MemberSettings:
    return original.model_copy(update={"name": name, "roles": list(roles)})
