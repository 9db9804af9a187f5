"""Who is tested as a judge: the pool of a configuration, or a run's at several iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx import pool
from phalanx.asking import refuse_unmade, stored_config
from phalanx.collective.reputation import initial_standing
from phalanx.config import rules
from phalanx.config.loading import shaped
from phalanx.config.mixing import MOA
from phalanx.config.reading import read_file
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods import METHODS
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
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    iterations: Sequence[int] | None = None,
) -> Bench:
    """The judges of a configuration, of a file with a pool, or of a run's folder.

    ``members``: only these. ``iterations`` of a run: default its start, and its end so far. Raises
    ConfigError with every fault, and LedgerError for a folder that holds no run.
    """
    path = Path(source).expanduser()
    if run_ledger_path(path).exists():
        config, pools, reputations = _of_run(path, overrides, iterations)
    else:
        if iterations:
            raise ConfigError(f"--iterations belong to a run, and {source} is no run's folder")
        config = _configured(str(source), overrides)
        everybody = pool.members_from(config)
        refuse_unmade(config, everybody)
        given = pool.starting_reputations(config)
        pools = {0: everybody}
        reputations = {0: _started(config, everybody, given)}
    _refuse(config)
    chosen = {number: _chosen(group, members, config) for number, group in pools.items()}
    if not any(len(set(values.values())) > 1 for values in reputations.values()):
        reputations = {}
    return Bench(config, chosen, reputations)


def _configured(source: str, overrides: Sequence[str]) -> Config:
    """A configuration, or a file with the section ``pool`` alone, as ``phalanx recruit`` writes."""
    path = Path(source).expanduser()
    if not source.startswith("preset:") and path.suffix in (".yaml", ".yml"):
        keys = read_file(path, source).data.keys()
        if "members" in keys and "pool" not in keys:
            return shaped(None, [f"pool={source}", *overrides])
    return shaped(source, overrides)


def _of_run(
    folder: Path, overrides: Sequence[str], wanted: Sequence[int] | None
) -> tuple[Config, dict[int, tuple[Member, ...]], dict[int, dict[str, float]]]:
    with Ledger(run_ledger_path(folder)) as ledger:
        method = ledger.get("method") or ""
        if method and method not in METHODS:
            raise ConfigError(
                f"{folder} is work of phalanx {method}, and no run; name a run's folder, or a "
                "configuration"
            )
        config = shaped(stored_config(folder, ledger.get("config") or "{}"), overrides)
        recruits = {member.name for member in pool.recruits_from(config)}
        if unmade := sorted(recruits - ledger.trained(0)):
            raise ConfigError(
                f"{', '.join(unmade)}: the run in {folder} has not made these recruits yet; let it "
                "go on first"
            )
        last = ledger.query("SELECT coalesce(max(iteration), 0) AS n FROM states")[0]["n"]
        numbers = sorted(set(wanted)) if wanted else sorted({0, last})
        if unknown := [number for number in numbers if not 0 <= number <= last]:
            raise ConfigError(
                f"--iterations: {folder} has the iterations 0 to {last}, got "
                f"{', '.join(map(str, unknown))}"
            )
        pools = {number: tuple(ledger.members(number)) for number in numbers}
        given = pool.starting_reputations(config)
        reputations = {}
        for number, group in pools.items():
            standings = (ledger.state(number) or {}).get("standings") or {}
            known = {name: standing.value for name, standing in standings.items()}
            reputations[number] = _started(config, group, {**given, **known})
    return config, pools, reputations


def _started(
    config: Config, members: Sequence[Member], given: Mapping[str, float]
) -> dict[str, float]:
    return {
        member.name: initial_standing(config.reputation, given.get(member.name)).value
        for member in members
    }


def _refuse(config: Config) -> None:
    if faults := rules.faults(config, complete=True, purpose="judge"):
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
