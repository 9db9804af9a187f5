"""Sparta Alignment (NeurIPS 2025, arXiv 2506.04721): duel, judge, weigh, move, learn.

Needs two contestants and, for every duel, at least one judge who is not in it. Deviations from
the released code, each because the code's behaviour is a fault (``docs/methods/sparta.md``):
an unreadable judgment is missing, not 5/5; all weights and matches of an iteration use the
reputations at its start; both members of a duel move from the same old values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.collective.matchmaking import match
from phalanx.collective.panel import decide, judge_duels, judging_metrics, unjudged
from phalanx.collective.preference import make_pairs
from phalanx.collective.reputation import fade, update_all
from phalanx.config.base import sampling
from phalanx.config.schema import AggregateSettings, Config
from phalanx.identity import (
    canonical_json,
    derived_random,
    joined_id,
    joined_seed,
    messages_json,
)
from phalanx.methods.method import Method
from phalanx.pool import judges as judges_among
from phalanx.pool import judges_of
from phalanx.sources import fresh_sample
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Iteration,
    IterationResult,
    Judgment,
    Member,
    Outcome,
    Request,
    Response,
)


@dataclass(frozen=True)
class _Answers:
    """Responses of the contestants by (duel id, member name)."""

    responses: dict[tuple[str, str], Response]

    def text(self, duel: Duel, name: str) -> str:
        return self.responses[duel.id, name].text or ""

    def texts(self, duel: Duel) -> tuple[str, str]:
        return (self.text(duel, duel.left), self.text(duel, duel.right))

    def settled(self, duels: Sequence[Duel]) -> dict[str, Outcome]:
        """Outcomes of the duels that need no judge."""
        found = {duel.id: unjudged(duel, self.texts(duel), self._gap(duel)) for duel in duels}
        return {key: outcome for key, outcome in found.items() if outcome is not None}

    def _gap(self, duel: Duel) -> str:
        """Whose response is missing and why, or ""."""
        for side, name in zip(("left", "right"), duel.contestants, strict=True):
            response = self.responses[duel.id, name]
            if response.error:
                return f"{side}: {response.error.kind}"
            if not self.text(duel, name).strip():
                return f"{side}: empty response"
        return ""


def _answer_requests(
    duels: Sequence[Duel], members: dict[str, Member], iteration: Iteration, config: Config
) -> list[Request]:
    want = sampling(config.answer)
    want_json = canonical_json(want)
    requests = []
    for duel in duels:
        for name in duel.contestants:
            member = members[name]
            messages = member.messages(duel.instruction.text)
            place = canonical_json((iteration.seed, iteration.number, duel.id, member.key))[1:-1]
            requests.append(
                Request(
                    id=joined_id('"answer"', place, messages_json(messages), want_json),
                    member=member,
                    messages=messages,
                    want=want,
                    purpose="answer",
                    seed=joined_seed('"answer"', place),
                )
            )
    return requests


def _asked_judges(
    duel: Duel, judges: Sequence[Member], iteration: Iteration, config: Config
) -> Sequence[Member]:
    """Those of the judges who are not in the duel; a random few where so configured."""
    judges = judges_of(duel, judges)
    if config.judge.per_duel is None or config.judge.per_duel >= len(judges):
        return judges
    rng = derived_random("judges", iteration.seed, iteration.number, duel.id)
    return rng.sample(judges, config.judge.per_duel)


def _judge(
    duels: Sequence[Duel],
    answers: _Answers,
    settled: dict[str, Outcome],
    iteration: Iteration,
    ask: Ask,
    config: Config,
) -> list[Judgment]:
    """Judgments of every duel that is not settled yet."""
    judges = judges_among(iteration.members)
    asked = [
        (duel, answers.texts(duel), _asked_judges(duel, judges, iteration, config))
        for duel in duels
        if duel.id not in settled
    ]
    return judge_duels(asked, config.judge, ask, place=(iteration.seed, iteration.number))


def _aggregate_settings(config: Config) -> AggregateSettings:
    """The ablation "without reputation" means uniform judge weights (paper, Table 3)."""
    if "reputation" in config.without and config.aggregate.rule == "reputation":
        return config.aggregate.model_copy(update={"rule": "mean"})
    return config.aggregate


def _outcomes(
    duels: Sequence[Duel],
    settled: dict[str, Outcome],
    judgments: Sequence[Judgment],
    iteration: Iteration,
    config: Config,
) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Every duel's outcome, and the judges' reliability as estimated from this iteration."""
    return decide(
        duels,
        settled,
        judgments,
        [member.name for member in judges_among(iteration.members)],
        _aggregate_settings(config),
        quorum=config.judge.quorum,
        reputations={name: standing.value for name, standing in iteration.standings.items()},
        anchors=iteration.anchors,
    )


def _metrics(
    judgments: Sequence[Judgment], outcomes: dict[str, Outcome], pairs: Sequence
) -> dict[str, float]:
    return {
        **judging_metrics(judgments, list(outcomes.values())),
        "num_pairs": sum(not pair.drop for pair in pairs),
    }


def draw(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """One fresh instruction a duel."""
    return fresh_sample(instructions, config.match.duels, seed=config.seed, iteration=number)


def lesson(config: Config, number: int, name: str) -> str:
    """Every learner learns from all pairs (the paper), or from those of its own duels."""
    return "pairs" if config.train.scope == "all" else "own pairs"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One iteration up to its pairs; learning is the loop's business.

    ``iteration.number`` counts from 1. ``iteration.instructions`` are the duels' instructions.
    """
    members = {member.name: member for member in iteration.members}
    reputations = {
        name: iteration.standings[name].value
        for name, member in members.items()
        if "contest" in member.roles
    }
    match_settings = config.match
    if "match-making" in config.without:
        match_settings = match_settings.model_copy(update={"random_probability": 1.0})
    place = (iteration.seed, iteration.number)
    duels = match(
        iteration.instructions,
        reputations,
        match_settings,
        rng=derived_random("match", *place),
        id_parts=place,
    )
    requests = _answer_requests(duels, members, iteration, config)
    replies = ask("answer", requests)
    sides = [(duel.id, name) for duel in duels for name in duel.contestants]
    answers = _Answers(dict(zip(sides, replies, strict=True)))
    settled = answers.settled(duels)
    judgments = _judge(duels, answers, settled, iteration, ask, config)
    outcomes, reliability = _outcomes(duels, settled, judgments, iteration, config)
    faded = fade(
        getattr(config.reputation, "fade", "none"),
        iteration.faded,
        reputations,
        iteration.number - 1,
    )
    standings, changes = update_all(
        iteration.standings,
        duels,
        outcomes,
        config.reputation,
        num_duels_before=iteration.num_duels_before,
        faded=faded,
    )
    pairs = make_pairs(duels, outcomes, answers.responses, config.pairs)
    return IterationResult(
        duels=tuple(duels),
        responses={side: request.id for side, request in zip(sides, requests, strict=True)},
        judgments=tuple(judgments),
        outcomes=tuple(outcomes[duel.id] for duel in duels),
        changes=tuple(changes),
        standings=standings,
        reliability=reliability,
        pairs=tuple(pairs),
        metrics=_metrics(judgments, outcomes, pairs),
        faded=faded,
    )


METHOD = Method(
    title="members duel and judge each other; reputations weigh the judgments; all learn by DPO",
    paper="Sparta Alignment, NeurIPS 2025, arXiv 2506.04721",
    kind="several",
    run=run,
    draw=draw,
    lesson=lesson,
)
