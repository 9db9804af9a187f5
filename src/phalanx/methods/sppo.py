"""SPPO (ICLR 2025, arXiv 2405.00675): a member plays against its own responses by win probability.

Every learner writes K responses to each instruction. A judge says how probable it is that each of
them is preferred to the others; the mean over all K, itself at one half included, is its
probability to beat the policy. The most probable one is chosen, the least probable one rejected,
and the squared loss (``train.loss: auto`` is ``sppo``) moves the log-ratio of each towards
eta (P - 1/2), with eta = 1 / ``train.beta``.

Assumes that preferences can be read as probabilities: a ranker of pairs gives them (published);
what is made of other judges is ours (:mod:`phalanx.collective.win_probabilities`).

Deviations: with ``sppo.judge`` empty the preference is the mean over the other judges of the pool,
not PairRM's. Of several best, or worst, responses one is drawn, and where all are alike there is no
pair (``tie``). A truncated response is not chosen (``pairs.truncated``). Every iteration has fresh
instructions; constants of the optimiser are those of ``train``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phalanx.collective.panel import judging_metrics
from phalanx.collective.preference import keep_and_weigh, make_pair, pair_counts
from phalanx.collective.samples import (
    Samples,
    answers_alone,
    refuse_failed,
    responses_in,
    sample_own,
    sampling_metrics,
)
from phalanx.collective.win_probabilities import Contested, Preferred, hear_all, judges_for
from phalanx.config.schema import Config
from phalanx.identity import content_id, derived_random
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.types import (
    Ask,
    Duel,
    Iteration,
    IterationResult,
    Outcome,
    PreferencePair,
)


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns from its own responses."""
    return "own pairs"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """Responses, their probabilities to be preferred, and a record of a pair for each group."""
    place = (iteration.seed, iteration.number)
    own, settings = learners(iteration.members), config.sppo
    judges = {one.name: judges_for(one.name, settings.judge, iteration.members) for one in own}
    sampled = answers_alone(
        sample_own(own, iteration.instructions, settings.sample, settings.samples, ask, place=place)
    )
    contested = [
        Contested(one.instruction, one.candidates, judges[one.member.name]) for one in sampled
    ]
    heard = hear_all(contested, iteration.members, ask, config, place=place)
    pairs: list[PreferencePair] = []
    for learner in own:
        pairs += keep_and_weigh(
            [
                _pair(one, preferred, config, place)
                for one, preferred in zip(sampled, heard.preferred, strict=True)
                if one.member.name == learner.name
            ],
            config.pairs,
        )
    refuse_failed(sampled, {pair.chosen_member for pair in pairs if not pair.drop})
    return IterationResult(
        duels=heard.said.duels,
        responses=responses_in(heard.said.duels, sampled),
        judgments=heard.said.judgments,
        outcomes=heard.said.outcomes,
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics={
            **judging_metrics(heard.said.judgments, heard.said.outcomes),
            **heard.said.metrics,
            **sampling_metrics(sampled),
            **pair_counts(pairs),
        },
        faded=iteration.faded,
    )


def _pair(one: Samples, preferred: Preferred, config: Config, place: tuple) -> PreferencePair:
    """The most probable winner over the least probable one, with their probabilities.

    A group without them gives a dropped pair that says why.
    """
    name, candidates = one.member.name, one.candidates
    wins = {at: win for at, win in enumerate(preferred.wins) if win is not None}
    usable = [at for at, candidate in enumerate(candidates) if candidate.usable]
    left, right = [*usable, *(at for at in range(len(candidates)) if at not in usable)][:2]
    outcome, cut = _undecided(one, wins), False
    if outcome is None:
        left, right = _extremes(one, wins, config.pairs.truncated, place)
        cut = wins[left] <= wins[right]  # only since a truncated one may not be chosen
        scores = (wins[left], wins[right])
        outcome = Outcome("", "decided", winner="left", score_left=scores[0], score_right=scores[1])
    else:  # two that differ, where some do
        text = candidates[left].text.strip()
        right = next((at for at in usable if candidates[at].text.strip() != text), right)
    duel = Duel("", one.instruction, one.names[left], one.names[right], matched="ranking")
    pair = make_pair(duel, outcome, one.responses[left], one.responses[right], config.pairs)
    return replace(
        pair,
        id=content_id("pair", name, one.instruction.id, *place),
        chosen_member=name,
        rejected_member=name,
        chosen_probability=wins.get(left),
        rejected_probability=wins.get(right),
        drop="truncated" if cut else pair.drop,
    )


def _undecided(one: Samples, wins: Mapping[int, float]) -> Outcome | None:
    """Why a group has no best and worst; None where it has them."""
    usable = [candidate for candidate in one.candidates if candidate.usable]
    if len(usable) < 2:
        failed = any(candidate.failed for candidate in one.candidates)
        return Outcome("", "unanswered", reason="failed" if failed else "empty response")
    if len({candidate.text.strip() for candidate in usable}) == 1:
        return Outcome("", "tie", score_left=0.0, score_right=0.0)
    if len(wins) < 2:
        return Outcome("", "no_quorum", reason="unscored")
    if min(wins.values()) == max(wins.values()):
        return Outcome("", "tie", score_left=0.0, score_right=0.0)
    return None


def _extremes(one: Samples, wins: Mapping[int, float], rule: str, place: tuple) -> tuple[int, int]:
    """Positions of the chosen and the rejected response, of those that ``pairs.truncated`` allows;
    of all where it allows none."""
    whole = [at for at in wins if not one.responses[at].truncated]
    may_win = whole if rule != "allow" and whole else list(wins)
    may_lose = whole if rule == "drop" and whole else list(wins)
    rng = derived_random("sppo", *place, one.member.name, one.instruction.id)
    high, low = max(wins[at] for at in may_win), min(wins[at] for at in may_lose)
    best = rng.choice([at for at in may_win if wins[at] == high])
    return best, rng.choice([at for at in may_lose if wins[at] == low])


METHOD = Method(
    title="each member plays against its own responses, by their probabilities to win",
    paper="Self-Play Preference Optimization (SPPO), ICLR 2025, arXiv 2405.00675",
    kind="single",
    run=run,
    draw=fresh,
    lesson=lesson,
)
