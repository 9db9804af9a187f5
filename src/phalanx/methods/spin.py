"""SPIN (ICML 2024, arXiv 2401.01335): a member learns to tell references from its own responses.

Every instruction has a reference, its ``answer``. Each learner writes one response to each, as it
is at the start of the iteration; the reference is chosen, the response rejected, and the learner
learns by the logistic loss against itself at that start, which has the form of DPO's (``train``,
``loss: auto``). From the second iteration on it learns from the pairs of the iteration before, too
(``spin.history``, published).

Assumes that every instruction has a reference that is worth imitating: this method is not
label-free, and refuses to start without. Once a learner writes what the references say there is
nothing left to learn: a response that equals its reference is dropped as ``identical``.

Deviations: instructions are a fresh seeded sample in every iteration, where the paper takes the
same 50,000. Pairs of the iteration before are made again from the responses that the learner gave
then, which are asked by the same requests and so come from the ledger; a request that failed then
is asked once more, of the member as it was. Constants of the optimiser are those of ``train``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.panel import unjudged
from phalanx.collective.preference import keep_and_weigh, make_pair, pair_counts
from phalanx.collective.samples import (
    Samples,
    answers_alone,
    refuse_failed,
    sample_own,
    sampling_metrics,
)
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Iteration,
    IterationResult,
    Member,
    Outcome,
    PreferencePair,
    Response,
)


def draw(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """Fresh ones; with history then those of the iteration before, as many."""
    drawn = fresh(config, instructions, number)
    return drawn + fresh(config, instructions, number - 1) if _looks_back(config, number) else drawn


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns to leave its own responses behind."""
    return "own pairs"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One response of each learner to each instruction, and the pairs with the references."""
    number, both = iteration.number, iteration.instructions
    _refuse_unanswered(both)
    looks_back = _looks_back(config, number)
    fresh = both[: len(both) // 2] if looks_back else both
    sampled = _sample(iteration, number, iteration.members, fresh, ask, config)
    before: list[Samples] = []
    if looks_back:
        then = iteration.earlier[number - 2]
        before = _sample(iteration, number - 1, then, both[len(fresh) :], ask, config)
    pairs: list[PreferencePair] = []
    for learner in learners(iteration.members):
        place = (learner.name, iteration.seed, number)
        mine = [
            _pair(one, (*place, origin), config)
            for origin, some in ((number, sampled), (number - 1, before))
            for one in some
            if one.member.name == learner.name
        ]
        pairs += keep_and_weigh(mine, config.pairs)
    refuse_failed(sampled, {pair.rejected_member for pair in pairs if not pair.drop})
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics={
            **sampling_metrics(sampled),
            "num_earlier": sum(len(one.responses) for one in before),
            **pair_counts(pairs),
        },
        faded=iteration.faded,
    )


def _looks_back(config: Config, number: int) -> bool:
    return config.spin.history and number > 1


def _refuse_unanswered(instructions: Sequence[Instruction]) -> None:
    lacking = [one.id for one in instructions if not (one.answer or "").strip()]
    if lacking:
        raise ConfigError(
            f"spin: {len(lacking)} of {len(instructions)} instructions have no answer, which is "
            f"what is learned (the first: {', '.join(lacking[:3])}); give every row of "
            "instructions.source an answer"
        )


def _sample(
    iteration: Iteration,
    number: int,
    members: Sequence[Member],
    instructions: Sequence[Instruction],
    ask: Ask,
    config: Config,
) -> list[Samples]:
    """What learners wrote in iteration ``number``: asked again, the same requests."""
    place = (iteration.seed, number)
    settings = config.spin.sample
    found = sample_own(learners(members), instructions, settings, 1, ask, place=place)
    return answers_alone(found)


def _pair(one: Samples, place: tuple, config: Config) -> PreferencePair:
    """The reference over the response; where there is none, a dropped pair that says why."""
    (candidate,), (response,) = one.candidates, one.responses
    reference = one.instruction.answer or ""
    duel = Duel("", one.instruction, "", one.member.name)
    gap = f"right: {candidate.failed}" if candidate.failed else ""
    outcome = unjudged(duel, (reference, candidate.text), gap) or Outcome(
        "", "decided", winner="left", score_left=1.0, score_right=0.0
    )
    pair = make_pair(duel, outcome, Response("", text=reference), response, config.pairs)
    return replace(pair, id=content_id("pair", *place, one.instruction.id))


METHOD = Method(
    title="each member learns to prefer reference answers to its own responses",
    paper="Self-Play Fine-Tuning (SPIN), ICML 2024, arXiv 2401.01335",
    kind="single",
    run=run,
    draw=draw,
    lesson=lesson,
)
