"""One file per method; this dict names them.

A method that trains is ``run(iteration, ask, config) -> IterationResult``; one that answers is
``answer(questions, members, ask, config, ...)``. ``ask`` is its only power: it touches no disk,
network or device, so every method also runs on the scripted engine.
"""

from phalanx.methods import moaa, rejection_sampling, sparta, spin, sppo
from phalanx.methods.method import Answer, Lesson, Method, Question, Reached

__all__ = ["METHODS", "Answer", "Lesson", "Method", "Question", "Reached"]

METHODS: dict[str, Method] = {
    "sparta": sparta.METHOD,
    "moaa": moaa.METHOD,
    "multiagent": multiagent.METHOD,
    "consensus_grpo": consensus_grpo.METHOD,
    "spin": spin.METHOD,
    "sppo": sppo.METHOD,
    "rejection_sampling": rejection_sampling.METHOD,
}
