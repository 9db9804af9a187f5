"""Rejection sampling (arXiv 2308.01825, 2307.09288): a member learns the best of its own responses.

Every learner writes n responses to each instruction. A reward model, or judges, choose the best of
them, which the learner then learns by supervised fine-tuning (section ``sft``).

Assumes a judge that knows better than the learner writes. With one judge the best response is the
one with the highest score; with several the one that most of them score highest, each with one
voice, as in best of n (:func:`phalanx.collective.choosing.by_voices`). Of several that are best
alike one is drawn. Nobody judges an answer of their own.

Deviations: the papers take a reward model that was trained on people's labels, or check the final
answer against the right one; here any judge of the pool can choose. Llama 2 samples at several
temperatures; here there is one (``rejection_sampling.sample``). Truncated responses do not compete
and are not learned, unless ``rejection_sampling.truncated: allow``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from phalanx.collective.choosing import by_voices
from phalanx.collective.conversation import Answer
from phalanx.collective.panel import judging_metrics
from phalanx.collective.referee import Several
from phalanx.collective.samples import (
    Samples,
    answers_alone,
    responses_in,
    sample_own,
    sampling_metrics,
)
from phalanx.collective.win_probabilities import judges_for
from phalanx.config.schema import Config
from phalanx.methods.demonstrations import of_answer, refuse_nothing, row_counts
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.types import Ask, Demonstration, Iteration, IterationResult


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns what was best of its own responses: the builder has its name."""
    return f"demonstrations:{name}"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """Responses, who is best of them, and a demonstration for each group."""
    place = (iteration.seed, iteration.number)
    own, settings = learners(iteration.members), config.rejection_sampling
    judges = {
        name for one in own for name in judges_for(one.name, settings.judge, iteration.members)
    }
    sampled = answers_alone(
        sample_own(own, iteration.instructions, settings.sample, settings.samples, ask, place=place)
    )
    competing = [_competing(one, settings.truncated) for one in sampled]
    groups = [
        (one.instruction, [one.candidates[at] for at in some])
        for one, some in zip(sampled, competing, strict=True)
    ]
    chosen, said = by_voices(groups, judges, iteration.members, ask, config, place=place)
    best = [
        None if one.at is None else some[one.at]
        for one, some in zip(chosen, competing, strict=True)
    ]
    rows = [
        _row(one, some, at, settings.truncated, place)
        for one, some, at in zip(sampled, competing, best, strict=True)
    ]
    names = [one.name for one in own]
    for name in names:
        mine = [row for row in rows if row.builder == name]
        refuse_nothing(name, mine, "rejection_sampling.truncated", only_failed=True)
    return IterationResult(
        duels=said.duels,
        responses=responses_in(said.duels, sampled),
        judgments=said.judgments,
        outcomes=said.outcomes,
        standings=iteration.standings,
        reliability=iteration.reliability,
        demonstrations=tuple(row for name in names for row in rows if row.builder == name),
        metrics={
            **judging_metrics(said.judgments, said.outcomes),
            **said.metrics,
            **sampling_metrics(sampled),
            **_score_metrics(said, competing, best),
            "num_demonstrations": sum(not row.drop for row in rows),
            **dict(sorted(row_counts(names, rows).items())),
        },
        faded=iteration.faded,
    )


def _competing(one: Samples, truncated: str) -> list[int]:
    """Positions of the responses that can be the best one, the whole ones unless cut ones are
    learned, too."""
    return [
        at
        for at, candidate in enumerate(one.candidates)
        if candidate.usable and (truncated == "allow" or not candidate.truncated)
    ]


def _row(
    one: Samples, competing: Sequence[int], best: int | None, truncated: str, place: tuple
) -> Demonstration:
    """The best response to learn, or one that stands for the group, with the reason why not."""
    answers = [Answer.of(response, one.member.name) for response in one.responses]
    if best is not None or competing:
        answer = answers[competing[0] if best is None else best]
        drop = "unscored" if best is None else ""
    else:  # rather one that was written than one that failed
        answer, drop = min(answers, key=lambda answer: (bool(answer.drop), answer.drop)), ""
    return of_answer(one.member.name, one.instruction, answer, truncated, place=place, drop=drop)


def _score_metrics(
    said: Several, competing: Sequence[Sequence[int]], best: Sequence[int | None]
) -> dict[str, float]:
    """Of each judge, on its own scale: the mean score of all responses, and of the best ones."""
    every: dict[str, list[float]] = {}
    top: dict[str, list[float]] = {}
    for ranked, some, at in zip(said.ranked, competing, best, strict=True):
        if at is None:
            continue
        for judge, one in ranked.items():
            scores = dict(zip(some, one.scores, strict=True))
            if (high := scores[at]) is not None:
                every.setdefault(judge, []).extend(s for s in scores.values() if s is not None)
                top.setdefault(judge, []).append(high)
    return {
        f"score.{what}.{judge}": math.fsum(scores) / len(scores)
        for judge in every
        for what, scores in (("mean", every[judge]), ("best", top[judge]))
    }


METHOD = Method(
    title="each member imitates the best of its own responses, as judges see it",
    paper="Rejection-sampling fine-tuning, arXiv 2308.01825; Llama 2, arXiv 2307.09288",
    kind="single",
    run=run,
    draw=fresh,
    lesson=lesson,
)
