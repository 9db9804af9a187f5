"""What is compared: the file, and the arms that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from phalanx.comparing.budget import Budget
from phalanx.comparing.lineup import Lineup, line_up
from phalanx.config.base import Section
from phalanx.config.schema import Config, MemberSettings

FROZEN = "frozen"
POOL = "pool"
"""The folder of a seed's recruits, beside those of its arms."""


class ComparisonFile(Section):
    base: str | dict[str, Any]
    """The configuration that all methods share: a file, `preset:NAME`, or settings."""
    seeds: list[int] = Field([1, 2], min_length=1)
    """One pool, and one run of each method, for each of them."""
    budget: Budget | None = None
    """What every method may use in a run; the size of each is chosen to come as near as it can.
    Without one, the settings say how much each does."""
    methods: dict[str, dict[str, Any] | None] = Field(min_length=1)
    """Name -> settings on top of the base, nested or with dotted keys. `method` is the name where
    that is one, else the base's; then there are settings, and the name is not like another
    method's. `lineup` says who of the pool takes part."""
    against: str = FROZEN
    """Which of them the others are compared with. `frozen`, the best initial member, is always
    there, and the others are compared with it, too."""


@dataclass(frozen=True, slots=True)
class Way:
    """A row of the table: a named way to work with the pool. ``config`` is that of a plan: its
    recruits are not made yet, and of a line-up that needs the best member the first stands for
    it. ``note`` says how its size was chosen, and what its budget cannot be; ``uses`` is what it is
    to use of a budget."""

    name: str
    config: Config
    lineup: Lineup = field(default_factory=Lineup)
    note: str = ""
    uses: float = 0

    @property
    def title(self) -> str:
        """The name, and the method where that is not the name."""
        method = self.config.method
        return self.name if self.name == method else f"{self.name} ({method})"


@dataclass(frozen=True, slots=True)
class Arm:
    """One run of a comparison: a way and a seed, in a folder of its own."""

    name: str
    seed: int
    folder: Path
    config: Config
    lineup: Lineup = field(default_factory=Lineup)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that a file says, checked. ``base`` still has its recruits to be made."""

    base: Config
    ways: tuple[Way, ...]
    seeds: tuple[int, ...]
    budget: Budget | None
    against: str
    notes: tuple[str, ...] = ()
    """What has less effect than it may seem."""

    def arms(self, out: Path, seed: int) -> list[Arm]:
        """The runs of one seed, in the order in which they run: first the one that the others are
        compared with, last those that need to know who was best in it."""
        members = made_members(self.base, pool_folder(out, seed))
        found = []
        for way in sorted(self.ways, key=lambda way: way.lineup.needs_best):
            lined = lined_up(way.config, line_up(members, way.lineup))
            config = lined.model_copy(update={"seed": seed})
            arm = Arm(way.name, seed, out / f"seed-{seed}" / way.name, config, way.lineup)
            found.append(arm)
        return sorted(found, key=lambda arm: arm.name != self.against)

    def all_arms(self, out: Path) -> list[Arm]:
        return [arm for seed in self.seeds for arm in self.arms(out, seed)]


def pool_folder(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}" / POOL


def made_members(base: Config, folder: Path | None) -> list[MemberSettings]:
    """The members of the base: those listed, then its recruits, as they are once made in
    ``folder`` (None: not made)."""
    recruit, listed = base.pool.recruit, list(base.pool.members)
    for name in recruit.specialists if recruit else ():
        place = {}
        if folder is not None and recruit is not None:
            kind = "model" if recruit.train.is_full else "adapter"
            place = {kind: str(folder.resolve() / name)}
        system = recruit.system if recruit else ""
        listed.append(MemberSettings(name=name, system=system, **place))
    return listed


def best_lined_up(arm: Arm, base: Config, out: Path, best: str) -> Arm:
    """The arm with the line-up of who was best at the start."""
    members = made_members(base, pool_folder(out, arm.seed))
    return replace(arm, config=lined_up(arm.config, line_up(members, arm.lineup, best)))


def lined_up(config: Config, members: Sequence[MemberSettings]) -> Config:
    pool = config.pool.model_copy(update={"members": list(members), "recruit": None})
    return config.model_copy(update={"pool": pool})
