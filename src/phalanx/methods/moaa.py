"""Mixture of Agents Alignment (ICML 2025, arXiv 2505.03059): a mixture writes what students learn.

One iteration is one stage (``moaa.stages``): ``sft`` makes demonstrations, ``dpo`` makes
preference pairs from the students' own responses. A generation is one round of all stages; from
the second on students may be members of the mixture. ``docs/methods/moaa.md`` says what is
published, what is inferred and what is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.config.mixing import students_of
from phalanx.config.schema import Config
from phalanx.config.staging import joining, lesson, stage_of
from phalanx.identity import derive_seed
from phalanx.methods import moaa_dpo, moaa_sft
from phalanx.methods.method import Method
from phalanx.sources import fresh_sample
from phalanx.types import Ask, Instruction, Iteration, IterationResult, Member


def draw(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """The stage's own number of instructions, fresh in every generation.

    Where there are fewer, all of them, each once: an instruction is answered once in a stage.
    """
    stage = stage_of(config, number)
    settings = config.moaa
    count = settings.sft_instructions if stage.kind == "sft" else settings.dpo_instructions
    seed = derive_seed("moaa", config.seed, stage.kind)
    count = min(count, len(instructions))
    return fresh_sample(instructions, count, seed=seed, iteration=stage.generation - 1)


def mixing_members(config: Config, iteration: Iteration) -> tuple[Member, ...]:
    """The members of which mixtures are made: as they were when the generation began.

    With ``moaa.self_improve: off`` as they were before the run.
    """
    first = stage_of(config, iteration.number).first
    return iteration.earlier[0 if config.moaa.self_improve == "off" else first - 1]


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One stage up to its demonstrations or pairs; learning is the loop's business."""
    stage = stage_of(config, iteration.number)
    members = mixing_members(config, iteration)
    students = students_of(config)
    if stage.kind == "dpo":
        return moaa_dpo.compare(iteration, students, members, ask, config)
    joined = joining(config, iteration.number)
    return moaa_sft.demonstrate(iteration, students, members, joined, ask, config)


METHOD = Method(
    title="a layered mixture writes what students learn, then labels their own responses for DPO",
    paper="Mixture of Agents Alignment, ICML 2025, arXiv 2505.03059",
    kind="several",
    run=run,
    draw=draw,
    lesson=lesson,
)
