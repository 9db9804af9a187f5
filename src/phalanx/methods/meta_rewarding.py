"""Meta-Rewarding (arXiv 2407.19594): a member also judges its own judgments, and learns to judge.

As Self-Rewarding, with two additions. Pairs are length-controlled: of the nearly best responses the
shortest is chosen, of the nearly worst the longest rejected
(:mod:`phalanx.collective.length_control`). And in the first iterations judging is learned: of each
instruction the response whose judgments vary most is taken, the learner compares its judgments in
pairs and both orders, and the best of them is preferred to the worst
(:mod:`phalanx.collective.meta_judging`). Both kinds of pairs are learned together by DPO.

Assumes a learner that can follow the rubric and tell a good judgment from a bad one. Watch
``meta.follows_score``: near 1 the meta-judge repeats the score, and there is no more to learn.

Deviations: judgments that cannot be read, and repeated ones, are not compared; nor is a response on
which all scores agree. A verdict may be a tie, half a win for both. A learner whose meta-judge
always names one place has no pairs of judgments. The fit has a small penalty, since some judgments
win every comparison. Length is counted in characters; the paper's further caps on length are not
published in full, and ``pairs.max_length_ratio`` is there instead. There is one pass over the
pairs (``train.epochs``), without a choice of checkpoints. Prompts are in our own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.meta_judging import (
    compare_judgments,
    contest_of,
    judgment_pairs,
    meta_metrics,
)
from phalanx.collective.own_pairs import own_pairs
from phalanx.collective.preference import pair_counts
from phalanx.collective.self_judging import Judged
from phalanx.config.schema import Config
from phalanx.methods.method import Method, fresh
from phalanx.methods.self_rewarding import judged_alone, of_own_pairs
from phalanx.types import Ask, Iteration, IterationResult


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns from its own responses and judgments."""
    return "own pairs"


def rho_of(config: Config, number: int) -> float:
    """Length control's rho in an iteration, from 1; the last one that is given goes on."""
    given = config.meta_rewarding.length_control
    return given[min(number, len(given)) - 1]


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """Responses, judgments, judgments of judgments, and the pairs of both kinds."""
    place, settings = (iteration.seed, iteration.number), config.meta_rewarding
    judged = judged_alone(iteration, settings, ask, config)
    rho = rho_of(config, iteration.number)
    result = of_own_pairs(iteration, judged, own_pairs(judged, config.pairs, rho, place=place))
    result = replace(result, metrics={**result.metrics, "length_control": rho})
    if iteration.number > settings.judge_iterations:
        return result
    return _with_judging(result, judged, ask, config, place)


def _with_judging(
    result: IterationResult, judged: Sequence[Judged], ask: Ask, config: Config, place: tuple
) -> IterationResult:
    """The same with the pairs of judgments, whose prompts are the judge's."""
    contests = [contest for one in judged if (contest := contest_of(one)) is not None]
    compared = compare_judgments(contests, config.meta_rewarding.judge, ask, place=place)
    pairs = judgment_pairs(contests, compared, config.pairs, place=place)
    return replace(
        result,
        pairs=(*result.pairs, *pairs),
        prompts=tuple(dict.fromkeys(pair.instruction for pair in pairs)),
        metrics={
            **result.metrics,
            **meta_metrics(contests, compared, pairs),
            **pair_counts((*result.pairs, *pairs)),
        },
    )


METHOD = Method(
    title="as self_rewarding, with length control, and judging is learned from judged judgments",
    paper="Meta-Rewarding Language Models, arXiv 2407.19594",
    kind="single",
    run=run,
    draw=fresh,
    lesson=lesson,
)
