"""Mixture of Agents Alignment (ICML 2025, arXiv 2505.03059): a mixture writes what students learn.

One iteration is one stage (``moaa.stages``): ``sft`` makes demonstrations, ``dpo`` makes
preference pairs from the students' own responses. A generation is one round of all stages; from
the second on students may be members of the mixture. ``docs/methods/moaa.md`` says what is
published, what is inferred and what is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.config.schema import Config, StudentSettings
from phalanx.identity import derive_seed
from phalanx.methods import moaa_dpo, moaa_sft
from phalanx.pool import students_of
from phalanx.sources import fresh_sample
from phalanx.types import Ask, Instruction, Iteration, IterationResult, Member


@dataclass(frozen=True, slots=True)
class Stage:
    """``kind`` is "sft" or "dpo"; ``generation`` counts from 1."""

    kind: str
    generation: int
    first: int
    """The iteration with which the generation begins."""


def stage_of(config: Config, number: int) -> Stage:
    """The stage that an iteration (from 1) is."""
    stages = config.moaa.stages
    before, place = divmod(number - 1, len(stages))
    return Stage(stages[place], before + 1, before * len(stages) + 1)


def draw(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """The stage's own number of instructions, fresh in every generation."""
    stage = stage_of(config, number)
    settings = config.moaa
    count = settings.sft_instructions if stage.kind == "sft" else settings.dpo_instructions
    seed = derive_seed("moaa", config.seed, stage.kind)
    return fresh_sample(instructions, count, seed=seed, iteration=stage.generation - 1)


def lesson(config: Config, number: int, name: str) -> str:
    """A student learns what its builder wrote, then from pairs of its own responses."""
    student = {s.name: s for s in students_of(config)}.get(name)
    if student is None:
        return ""
    if stage_of(config, number).kind == "dpo":
        return "own pairs" if student.reward != "none" else ""
    return f"demonstrations:{student.data}" if student.data != "none" else ""


def mixing_members(config: Config, iteration: Iteration) -> tuple[Member, ...]:
    """The members of which mixtures are made: as they were when the generation began.

    With ``moaa.self_improve: off`` as they were before the run.
    """
    first = stage_of(config, iteration.number).first
    return iteration.earlier[0 if config.moaa.self_improve == "off" else first - 1]


def joining(config: Config, number: int) -> tuple[str, ...]:
    """Names of the students that propose beside the configured members, from generation 2 on."""
    if config.moaa.self_improve != "join" or stage_of(config, number).generation == 1:
        return ()
    made = [s for s in students_of(config) if s.data == "mixture"]
    return tuple(student.name for student in made)


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One stage up to its demonstrations or pairs; learning is the loop's business."""
    stage = stage_of(config, iteration.number)
    members = mixing_members(config, iteration)
    joined = joining(config, iteration.number)
    students: Sequence[StudentSettings] = students_of(config)
    make = moaa_sft.demonstrate if stage.kind == "sft" else moaa_dpo.compare
    return make(iteration, students, members, joined, ask, config)
