"""A pool of specialists from one base: LoRA by supervised fine-tuning, one job a member."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from phalanx import pool, skills
from phalanx.config.schema import Config, RecruitSettings
from phalanx.errors import ConfigError
from phalanx.identity import derive_seed, derived_random
from phalanx.sources import BUILTIN, read_demonstrations
from phalanx.tasks import contamination, load_task
from phalanx.training import TrainJob
from phalanx.types import Demonstration, Member, Progress
from phalanx.workshop import Workshop


def draw_demonstrations(
    settings: RecruitSettings, name: str, seed: int, left_out: Collection[str] = ()
) -> tuple[Demonstration, ...]:
    """What one specialist learns from: its own draw from each of its domains, shuffled.

    ``left_out``: ids of rows of a file that nobody learns from. Raises ConfigError where a
    domain is unknown or holds too few rows.
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
            of_domain = [row for row in of_domain if row.id not in left_out]
            if not of_domain:
                raise ConfigError(
                    f"pool.recruit: all rows of the domain {domain!r} in {settings.data} overlap "
                    "evaluation items; give others, or set instructions.contamination to report"
                )
            drawn += rng.sample(of_domain, min(count, len(of_domain)))
    rng.shuffle(drawn)
    return tuple(drawn)


def recruit_jobs(
    settings: RecruitSettings,
    members: Sequence[Member],
    folder: Path,
    *,
    seed: int,
    left_out: Collection[str] = (),
) -> list[TrainJob]:
    """One job a member (version 0, no adapter yet); its adapter goes to ``folder/<name>``."""
    return [
        TrainJob(
            member=member,
            examples=draw_demonstrations(settings, member.name, seed, left_out),
            settings=settings.train,
            folder=folder / member.name,
            seed=derive_seed("recruit", seed, member.name),
            version=0,
        )
        for member in members
    ]


def recruit_to(config: Config, folder: Path, *, progress: Progress) -> Path:
    """``phalanx recruit``: make the specialists outside a run, and a ``pool.yaml`` of them.

    Specialists that are already in ``folder`` with the same settings are kept. Returns the
    path of ``pool.yaml``, which ``phalanx run CONFIG pool=PATH`` reads.
    """
    if config.pool.recruit is None or config.pool.base is None:
        raise ConfigError("recruiting needs pool.base and pool.recruit")
    folder.mkdir(parents=True, exist_ok=True)
    members = pool.recruits_from(config)
    left_out = _left_out(config, config.pool.recruit, progress)
    with Workshop(config) as workshop:
        jobs = recruit_jobs(
            config.pool.recruit, members, folder.resolve(), seed=config.seed, left_out=left_out
        )
        results = workshop.train("recruit", jobs, progress, lambda: None)
        names = [result.member.name for result in results]
    lines = [
        "# Made by `phalanx recruit`; use it with: phalanx run CONFIG pool=THIS_FILE",
        f"base: {json.dumps(config.pool.base)}",
        "members:",
    ]
    place = "model" if config.pool.recruit.train.weights == "full" else "adapter"
    for name in names:
        domains = ", ".join(config.pool.recruit.specialists[name])
        lines.append(f"  - name: {name}  # {domains}\n    {place}: {name}")
        if config.pool.recruit.system:
            lines.append(f"    system: {json.dumps(config.pool.recruit.system)}")
    path = folder / "pool.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _left_out(config: Config, settings: RecruitSettings, progress: Progress) -> frozenset[str]:
    """Demonstrations of a file that overlap items of ``evaluate.tasks``, as a run would say it."""
    off = config.instructions.contamination == "off"
    if off or settings.data == BUILTIN or not config.evaluate.tasks:
        return frozenset()
    items = [
        item
        for task in config.evaluate.tasks
        for item in load_task(task, seed=config.evaluate.items_seed(config.seed))
    ]
    found = contamination.of_demonstrations(read_demonstrations(settings.data), config, items)
    found.refuse_nothing_left()
    if found.found:
        progress.say("Note: " + "\n  ".join(found.lines()))
    return found.ids
