"""Self-Rewarding Language Models (arXiv 2401.10020): a member judges and learns its own responses.

Every learner writes N responses to each instruction, scores each of them several times by an
additive rubric of five points (:mod:`phalanx.collective.self_judging`), and learns by DPO to prefer
the one with the highest mean score to the one with the lowest. Where these are the same there is no
pair.

Assumes that the learner can follow the rubric; small models often cannot, and then most judgments
are unreadable, which stops the run (``judge.max_unreadable``). The paper teaches judging first:
``judge_seed`` names demonstrations of it, learned in an iteration of their own.

Deviations: the instructions are those of the run, not written by the model from examples; a
judgment that cannot be read is left out of the mean and counted, and a response needs the share
``judge.quorum`` of its judgments; responses that are the same are
judged once; a truncated response is not chosen (``pairs.truncated``). The rubric is the published
one in our own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.own_pairs import OwnPair, own_metrics, own_pairs
from phalanx.collective.panel import judging_metrics
from phalanx.collective.samples import (
    answers_alone,
    refuse_failed,
    responses_in,
    sample_own,
    sampling_metrics,
)
from phalanx.collective.self_judging import Judged, judge_own
from phalanx.config.schema import Config
from phalanx.config.schema_rivals import MetaRewardingSettings, SelfRewardingSettings
from phalanx.methods.demonstrations import row_counts
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.sources import read_demonstrations
from phalanx.types import Ask, Demonstration, Instruction, Iteration, IterationResult

SEED = "judge_seed"
"""The builder of the demonstrations of judging, and the setting that names their file."""


def _seeds(config: Config, number: int) -> bool:
    """Whether this iteration learns to judge, and makes no pairs."""
    return number == 1 and bool(config.self_rewarding.judge_seed)


def draw(
    config: Config, instructions: Sequence[Instruction], number: int
) -> tuple[Instruction, ...]:
    """Fresh instructions; all of them, each once, where there are fewer than are wanted."""
    return () if _seeds(config, number) else fresh(config, instructions, number)


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns from its own responses, after the demonstrations of judging."""
    return f"demonstrations:{SEED}" if _seeds(config, number) else "own pairs"


def given(config: Config, number: int) -> tuple[Demonstration, ...]:
    """The demonstrations of judging. Raises ConfigError that lists the bad rows."""
    if not _seeds(config, number):
        return ()
    rows = read_demonstrations(config.self_rewarding.judge_seed, domains=False)
    return tuple(replace(row, builder=SEED, writer="file") for row in rows)


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """Responses, judgments on them, and one record of a pair for each learner and instruction."""
    if _seeds(config, iteration.number):
        return _seed(iteration)
    settings = config.self_rewarding
    judged = judged_alone(iteration, settings, ask, config, template=settings.template)
    place = (iteration.seed, iteration.number)
    return of_own_pairs(iteration, judged, own_pairs(judged, config.pairs, None, place=place))


def judged_alone(
    iteration: Iteration,
    settings: SelfRewardingSettings | MetaRewardingSettings,
    ask: Ask,
    config: Config,
    *,
    template: str | None = None,
) -> list[Judged]:
    """Every learner's responses to every instruction, as it judges them itself."""
    place = (iteration.seed, iteration.number)
    sampled = sample_own(
        learners(iteration.members),
        iteration.instructions,
        settings.sample,
        settings.samples,
        ask,
        place=place,
    )
    return judge_own(
        answers_alone(sampled),
        settings.judgments,
        settings.judge,
        ask,
        place=place,
        quorum=config.judge.quorum,
        template=template,
        whole_only=config.pairs.truncated == "drop",
    )


def of_own_pairs(
    iteration: Iteration, judged: Sequence[Judged], found: Sequence[OwnPair]
) -> IterationResult:
    """The pairs, the duels behind them, and the numbers. Raises JudgmentError for a learner
    without a pair since most of its samples failed."""
    pairs = [one.pair for one in found]
    sampled = [one.samples for one in judged]
    refuse_failed(sampled, {pair.chosen_member for pair in pairs if not pair.drop})
    duels = tuple(one.duel for one in found if one.duel is not None)
    judgments = tuple(one.judgment for one in found if one.judgment is not None)
    outcomes = tuple(one.outcome for one in found if one.outcome is not None)
    return IterationResult(
        duels=duels,
        responses=responses_in(duels, sampled),
        judgments=judgments,
        outcomes=outcomes,
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics={
            **judging_metrics(judgments, outcomes),
            **sampling_metrics(sampled),
            **own_metrics(judged, pairs),
        },
        faded=iteration.faded,
    )


def _seed(iteration: Iteration) -> IterationResult:
    rows = tuple(row for row in iteration.given if isinstance(row, Demonstration))
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        demonstrations=rows,
        metrics={"num_demonstrations": len(rows), **row_counts([SEED], rows)},
        faded=iteration.faded,
    )


METHOD = Method(
    title="each member scores its own responses by a rubric and learns its best over its worst",
    paper="Self-Rewarding Language Models, ICML 2024, arXiv 2401.10020",
    kind="single",
    run=run,
    draw=draw,
    lesson=lesson,
    given=given,
)
