"""A configuration to a :class:`Plan`: every number that is known before a model is loaded."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.config import Config, load, rules
from phalanx.config.faults import Fault
from phalanx.config.keys import dotted
from phalanx.config.machine import memory_bytes
from phalanx.errors import ConfigError
from phalanx.plan.content import content_faults
from phalanx.plan.sizes import ModelShape, Size
from phalanx.plan.work import (
    BasePlan,
    Work,
    bases_of,
    device_speed,
    seconds_of,
    work_of,
)
from phalanx.types import Member

PAPER_MEMBERS = 10
PAPER_BASE = "Qwen/Qwen2.5-7B-Instruct"
PAPER_SHAPE = ModelShape(
    hidden=3584, layers=28, intermediate=18944, kv=512, vocabulary=152064, tied=False
)
PAPER_SIZE = Size(
    PAPER_SHAPE.parameters, "that of the paper's base", guessed=True, shape=PAPER_SHAPE
)
CHARACTERS_A_TOKEN = 4
USUAL_TOKENS = 60
"""Tokens of an instruction where nothing was measured."""
SKILL_TOKENS = 20
"""Tokens of an instruction of the embedded skills."""
MANY_SKILL_ROWS = 600
"""Up to this many there are certainly enough embedded instructions; counting them takes time."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """``count`` is None where it cannot be counted from here; ``tokens`` is an average."""

    count: int | None
    tokens: int
    how: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All numbers of a run. ``work`` and ``seconds`` are for one iteration.

    ``assumed`` says, for a preset without a pool, which pool the numbers are for.
    """

    iterations: int
    contestants: tuple[str, ...]
    judges: tuple[str, ...]
    learners: tuple[str, ...]
    recruits: tuple[str, ...]
    recruit_examples: int
    instructions: Instructions
    work: Work
    evaluation_items: int
    evaluation_requests: int
    bases: tuple[BasePlan, ...]
    take_turns: bool
    seconds: dict[str, float] | None
    assumption: str
    assumed: str
    notes: tuple[str, ...]

    @property
    def total_seconds(self) -> float | None:
        """Rough seconds of all iterations, without recruiting and evaluation."""
        return None if self.seconds is None else sum(self.seconds.values()) * self.iterations


def require(config: Config) -> None:
    """Refuse a configuration that cannot run, with every fault in one message.

    Raises ConfigError.
    """
    found = [*rules.check(config), *content_faults(config)]
    _refuse(config, found)


def _refuse(config: Config, found: Sequence[Fault]) -> None:
    data = config.model_dump()
    texts = [f"{dotted(f.path, data)}: {f.text}" for f in found if f.level == "fault"]
    if texts:
        raise ConfigError(texts)


def make_plan(config: Config) -> Plan:
    """The plan of a configuration; a bare preset is planned for the paper's pool, and says so.

    Raises ConfigError with every fault, except that a pool and instructions may be missing.
    """
    complete = bool(config.pool.members or config.pool.recruit)
    found = [*rules.check(config, complete=False), *content_faults(config)]
    _refuse(config, found)
    return _plan(config, found, complete)


def _plan(config: Config, found: Sequence[Fault], complete: bool) -> Plan:
    members = pool.members_from(config) if complete else _paper_pool()
    instructions = _instructions(config)
    work = work_of(config, members, instructions.tokens)
    bases = bases_of(config, members, None if complete else PAPER_SIZE)
    speed = device_speed(config)
    items = _evaluation_items(config)
    measurings = 1 + math.ceil(config.iterations / config.evaluate.every)
    data = config.model_dump()
    notes = [f"{dotted(f.path, data)}: {f.text}" for f in found if f.level == "note"]
    recruit = config.pool.recruit
    examples = 0
    if recruit is not None:
        domains = sum(len(wanted) for wanted in recruit.specialists.values())
        examples = domains * recruit.examples_per_domain
    return Plan(
        iterations=config.iterations,
        contestants=_names(pool.contestants(members)),
        judges=_names(pool.judges(members)),
        learners=_names(pool.learners(members)) if config.train.method != "none" else (),
        recruits=_names(pool.recruits_from(config)) if recruit else (),
        recruit_examples=examples,
        instructions=instructions,
        work=work,
        evaluation_items=items,
        evaluation_requests=items * len(members) * measurings,
        bases=tuple(bases),
        take_turns=len(bases) > 1 and not config.resources.keep_all_loaded,
        seconds=seconds_of(config, members, bases, instructions.tokens, speed),
        assumption=speed.words,
        assumed="" if complete else _assumed(),
        notes=(*notes, *_short_of(config, instructions), *_memory_notes(config, bases)),
    )


def _assumed() -> str:
    words = f"planned for {PAPER_MEMBERS} members on {PAPER_BASE}"
    return f"there is no pool yet: {words}, as in the paper"


def _paper_pool() -> tuple[Member, ...]:
    return tuple(Member(name=f"m{n}", base=PAPER_BASE) for n in range(1, PAPER_MEMBERS + 1))


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)


def _instructions(config: Config) -> Instructions:
    settings = config.instructions
    if settings.source == "builtin:skills":
        count = settings.limit
        if count is None and config.match.duels * config.iterations > MANY_SKILL_ROWS:
            from phalanx.skills import DOMAINS, num_instructions
            from phalanx.sources import BUILTIN_COUNT

            count = min(BUILTIN_COUNT, num_instructions(settings.domains or DOMAINS))
        return Instructions(count, SKILL_TOKENS, "the embedded skills")
    if not Path(settings.source).expanduser().is_file():
        return Instructions(None, USUAL_TOKENS, "assumed")
    from phalanx.sources import read_instructions

    read = read_instructions(
        settings.source,
        column=settings.column,
        bad_rows=settings.bad_rows,
        duplicates=settings.duplicates,
        limit=settings.limit,
        domains=settings.domains,
    ).instructions
    characters = sum(len(instruction.text) for instruction in read)
    tokens = max(1, round(characters / len(read) / CHARACTERS_A_TOKEN))
    return Instructions(len(read), tokens, "measured in the file")


def _short_of(config: Config, instructions: Instructions) -> list[str]:
    """A note where instructions come round again."""
    needed, count = config.match.duels * config.iterations, instructions.count
    if count is None or count >= needed:
        return []
    if count < config.match.duels:
        return [
            f"instructions: {count}, fewer than match.duels = {config.match.duels}: "
            "some are duelled over more than once in an iteration"
        ]
    return [f"instructions: {count} for {needed} duels in all: later iterations meet some again"]


def _evaluation_items(config: Config) -> int:
    """Items of all tasks."""
    total = 0
    for task in config.evaluate.tasks:
        from phalanx.tasks import loading

        if task.source == "builtin:skills":  # counted without drawing them, which takes time
            wanted = task.domains or loading.skills.DOMAINS
            total += len(wanted) * (task.limit or loading.ITEMS_PER_SKILL)
        else:
            total += len(loading.load_task(task, seed=config.seed))
    return total


def _memory_notes(config: Config, bases: Sequence[BasePlan]) -> list[str]:
    """A note where the weights alone do not fit in the machine's memory (CPU runs)."""
    memory, device = memory_bytes(), config.resources.device
    sizes = [base.weights or 0 for base in bases]
    needed = sum(sizes) if config.resources.keep_all_loaded else max(sizes, default=0)
    if memory is None or device.startswith("cuda") or needed <= memory:
        return []
    gigabytes = f"{needed / 1e9:.1f} GB of weights at once, this machine has {memory / 1e9:.1f} GB"
    return [f"resources: {gigabytes}; a GPU with enough memory is needed"]


def check(
    source: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    width: int = 100,
) -> tuple[int, str]:
    """(exit code, text) of ``phalanx check SOURCE OVERRIDES``: 0 and the plan, 2 and the faults."""
    from rich.console import Console

    from phalanx.plan.table import render

    try:
        plan = make_plan(load(source, overrides, also=(content_faults,)))
    except ConfigError as error:
        return error.exit_code, str(error)
    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False)
    console.print(render(plan))
    return 0, stream.getvalue()
