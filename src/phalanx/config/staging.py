"""Stages and generations of the method moaa, from the settings alone.

One iteration is one stage (``moaa.stages``); a generation is one round of all stages.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.config.mixing import students_of
from phalanx.config.schema import Config


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


def lesson(config: Config, number: int, name: str) -> str:
    """A student learns what its builder wrote, then from pairs of its own responses."""
    student = {s.name: s for s in students_of(config)}.get(name)
    if student is None:
        return ""
    if stage_of(config, number).kind == "dpo":
        return "own pairs" if student.reward != "none" else ""
    return f"demonstrations:{student.data}" if student.data != "none" else ""


def joining(config: Config, number: int) -> tuple[str, ...]:
    """Names of the students that propose beside the configured members, from generation 2 on."""
    if config.moaa.self_improve != "join" or stage_of(config, number).generation == 1:
        return ()
    made = [s for s in students_of(config) if s.data == "mixture"]
    return tuple(student.name for student in made)
