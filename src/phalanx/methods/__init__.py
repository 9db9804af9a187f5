"""One file per method; this dict names them.

A method that trains is ``run(iteration, ask, config) -> IterationResult``; one that answers is
``answer(questions, members, ask, config, ...)``. ``ask`` is its only power: it touches no disk,
network or device, so every method also runs on the scripted engine.
"""

from phalanx.methods import (
    best_of_n,
    consensus_grpo,
    council,
    debate,
    frozen,
    meta_rewarding,
    mixture,
    moaa,
    multiagent,
    preference_file,
    rejection_sampling,
    self_consistency,
    self_rewarding,
    single_multi,
    sparta,
    spin,
    sppo,
)
from phalanx.methods.method import Answer, Lesson, Method, Question, Reached

__all__ = ["METHODS", "Answer", "Lesson", "Method", "Question", "Reached"]

METHODS: dict[str, Method] = {
    "sparta": sparta.METHOD,
    "moaa": moaa.METHOD,
    "self_rewarding": self_rewarding.METHOD,
    "meta_rewarding": meta_rewarding.METHOD,
    "multiagent": multiagent.METHOD,
    "consensus_grpo": consensus_grpo.METHOD,
    "single_multi": single_multi.METHOD,
    "spin": spin.METHOD,
    "sppo": sppo.METHOD,
    "preference_file": preference_file.METHOD,
    "rejection_sampling": rejection_sampling.METHOD,
    "self_consistency": self_consistency.METHOD,
    "debate": debate.METHOD,
    "mixture": mixture.METHOD,
    "council": council.METHOD,
    "best_of_n": best_of_n.METHOD,
    "frozen": frozen.METHOD,
}
