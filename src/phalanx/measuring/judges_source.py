"""Who is tested as a judge: the pool of a configuration, or a run's at several iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.asking import refuse_unmade
from phalanx.config import rules
from phalanx.config.mixing import MOA
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.measuring.origins import Origin, origin_of
from phalanx.types import Member


@dataclass(frozen=True, slots=True)
class Bench:
    """``pools`` has the members to ask by iteration (0 where there is no run).

    ``reputations`` has theirs at that time, empty where the source gives them none, or the same to
    everybody: then they weigh nothing.
    """

    config: Config
    pools: dict[int, tuple[Member, ...]]
    reputations: dict[int, dict[str, float]]

    @property
    def iterations(self) -> tuple[int, ...]:
        return tuple(self.pools)

    @property
    def members(self) -> tuple[Member, ...]:
        """Every version of every member, once."""
        return tuple(
            {member.key: member for group in self.pools.values() for member in group}.values()
        )


def bench_from(
    source: Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    members: Sequence[str] = (),
    iterations: Sequence[int] | None = None,
) -> Bench:
    """The judges of a configuration, of a file with a pool, or of a run's folder.

    ``members``: only these. ``iterations`` of a run: default its start, and its end so far. Raises
    ConfigError with every fault, and LedgerError for a folder that holds no run.
    """
    origin = origin_of(str(source), overrides)
    config, numbers = origin.config, _numbers(str(source), origin, iterations)
    if not origin.is_run:
        refuse_unmade(config, pool.members_from(config))
    _refuse(config)
    chosen = {number: _chosen(origin.versions[number], members, config) for number in numbers}
    reputations = {
        number: {one.name: origin.reputations[number][one.name] for one in chosen[number]}
        for number in numbers
    }
    if not any(len(set(values.values())) > 1 for values in reputations.values()):
        reputations = {}
    return Bench(config, chosen, reputations)


def _numbers(source: str, origin: Origin, wanted: Sequence[int] | None) -> list[int]:
    if wanted and not origin.is_run:
        raise ConfigError(f"--iterations belong to a run, and {source} is no run's folder")
    numbers = sorted(set(wanted)) if wanted else sorted({0, origin.last})
    if unknown := [number for number in numbers if number not in origin.versions]:
        raise ConfigError(
            f"--iterations: {source} has the iterations 0 to {origin.last}, got "
            f"{', '.join(map(str, unknown))}"
        )
    return numbers


def _refuse(config: Config) -> None:
    """What tasks measure plays no part here: files of theirs may be gone."""
    evaluate = config.evaluate.model_copy(update={"tasks": []})
    asked = config.model_copy(update={"evaluate": evaluate})
    if faults := rules.faults(asked, complete=True, purpose="judge"):
        raise ConfigError(faults)


def _chosen(group: Sequence[Member], names: Sequence[str], config: Config) -> tuple[Member, ...]:
    """The judges; with ``judge.protocol: moa`` everybody, whom the mixture is made of."""
    if config.judge.protocol == MOA:
        if names:
            raise ConfigError(
                "--members: with judge.protocol: moa the mixture is the one judge; choose its "
                "members by reward.proposers and reward.aggregator"
            )
        return tuple(group)
    judges = {member.name: member for member in pool.judges(group)}
    unknown = [name for name in names if name not in judges]
    if unknown:
        raise ConfigError(
            f"--members: no judge is called {', '.join(map(repr, unknown))}; judges are "
            f"{', '.join(judges)}"
        )
    return tuple(member for name, member in judges.items() if not names or name in names)


def families(bench: Bench) -> dict[str, str]:
    """The family of each member: the one it was given, or its base."""
    return {member.name: family_of(member) for member in bench.members}


def family_of(member: Member) -> str:
    return member.family or member.base
