"""A pool of specialists from one base: LoRA by supervised fine-tuning, one job a member."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx import pool, skills
from phalanx.config.schema import Config, RecruitSettings
from phalanx.errors import ConfigError
from phalanx.executors.local import LocalExecutor
from phalanx.identity import derive_seed, derived_random
from phalanx.sources import read_demonstrations
from phalanx.types import Demonstration, Executor, Member, Progress, TrainResult
from phalanx.workshop import Workshop

BUILTIN = "builtin:skills"


@dataclass(frozen=True)
class RecruitJob:
    """One specialist to make."""

    member: Member
    demonstrations: tuple[Demonstration, ...]
    settings: RecruitSettings
    folder: Path
    seed: int


def draw_demonstrations(
    settings: RecruitSettings, name: str, seed: int
) -> tuple[Demonstration, ...]:
    """What one specialist learns from: its own draw from each of its domains, shuffled.

    Raises ConfigError where a domain is unknown or holds too few rows.
    """
    wanted, count = settings.specialists[name], settings.examples_per_domain
    rng = derived_random("recruit", seed, name)
    drawn: list[Demonstration] = []
    if settings.data == BUILTIN:
        for domain in wanted:
            drawn += skills.demonstrations(domain, count, derive_seed(seed, name, domain))
    else:
        rows = read_demonstrations(settings.data)
        known = sorted({row.domain for row in rows})
        for domain in wanted:
            of_domain = [row for row in rows if row.domain == domain]
            if not of_domain:
                raise ConfigError(
                    f"pool.recruit: {name} wants the domain {domain!r}; "
                    f"{settings.data} has: {', '.join(known)}"
                )
            drawn += rng.sample(of_domain, min(count, len(of_domain)))
    rng.shuffle(drawn)
    return tuple(drawn)


def recruit(
    settings: RecruitSettings,
    members: Sequence[Member],
    folder: Path,
    *,
    seed: int,
    workshop: Workshop,
    executor: Executor,
    progress: Progress,
) -> Iterator[TrainResult]:
    """Train each member (version 0, no adapter yet) into ``folder/<name>``; one result each."""
    from phalanx.training import train_sft

    jobs = [
        RecruitJob(
            member,
            draw_demonstrations(settings, member.name, seed),
            settings,
            folder / member.name,
            derive_seed("recruit", seed, member.name),
        )
        for member in members
    ]

    def work(job: RecruitJob) -> TrainResult:
        return train_sft(
            workshop.weights,
            job.member,
            job.demonstrations,
            job.settings.train,
            job.folder,
            seed=job.seed,
            version=0,
            progress=progress,
        )

    yield from executor.map(work, jobs)


def recruit_to(config: Config, folder: Path, *, progress: Progress) -> Path:
    """``phalanx recruit``: make the specialists outside a run, and a ``pool.yaml`` of them.

    Specialists that are already in ``folder`` with the same settings are kept. Returns the
    path of ``pool.yaml``, which ``phalanx run CONFIG pool=PATH`` reads.
    """
    if config.pool.recruit is None or config.pool.base is None:
        raise ConfigError("recruiting needs pool.base and pool.recruit")
    folder.mkdir(parents=True, exist_ok=True)
    members = pool.recruits_from(config)
    with Workshop(config.resources) as workshop:
        results = recruit(
            config.pool.recruit,
            members,
            folder.resolve(),
            seed=config.seed,
            workshop=workshop,
            executor=LocalExecutor(),
            progress=progress,
        )
        names = [result.member.name for result in results]
    lines = [
        "# Made by `phalanx recruit`; use it with: phalanx run CONFIG pool=THIS_FILE",
        f"base: {json.dumps(config.pool.base)}",
        "members:",
    ]
    for name in names:
        domains = ", ".join(config.pool.recruit.specialists[name])
        lines.append(f"  - name: {name}  # {domains}\n    adapter: {name}")
        if config.pool.recruit.system:
            lines.append(f"    system: {json.dumps(config.pool.recruit.system)}")
    path = folder / "pool.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
