"""One file per method; this dict names them.

A method is ``run(iteration, ask, config) -> IterationResult``. ``ask`` is its only power: it
touches no disk, network or device, so every method also runs on the scripted engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phalanx.config import staging
from phalanx.config.schema import Config
from phalanx.methods import moaa, sparta
from phalanx.types import Ask, Instruction, Iteration, IterationResult

Lesson = str
"""What a learner learns from in an iteration: "" (nothing), "pairs" (everybody's), "own pairs", or
"demonstrations:BUILDER"."""


@dataclass(frozen=True)
class Method:
    """``draw(config, all instructions, number)`` gives those of an iteration, ``lesson(config,
    number, member's name)`` says what that learner learns from when its result is recorded."""

    run: Callable[[Iteration, Ask, Config], IterationResult]
    draw: Callable[[Config, Sequence[Instruction], int], tuple[Instruction, ...]]
    lesson: Callable[[Config, int, str], Lesson]


METHODS: dict[str, Method] = {
    "sparta": Method(sparta.run, sparta.draw, sparta.lesson),
    "moaa": Method(moaa.run, moaa.draw, staging.lesson),
}
