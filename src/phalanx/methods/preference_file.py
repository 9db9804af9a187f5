"""Preference pairs from a file: DPO, SimPO, ORPO and other losses of pairs as they were proposed.

The rivals of a collective that labels its own responses are the same losses on pairs that somebody
else labelled: DPO (arXiv 2305.18290), SimPO (arXiv 2405.14734), ORPO (arXiv 2403.07691), IPO (arXiv
2310.12036). ``train.loss`` says which. Nobody is asked anything: every iteration takes a fresh
seeded part of the file, and every learner learns from all of it.

Assumes labels, and that they were made for responses that are not too far from what the learners
would write. Prompts of several turns are learned as conversations.

Deviations: a pair has no margin here (it counts as 1), so ``pairs.margin`` and ``pairs.keep`` have
nothing to choose by; ``pairs.max_length_ratio`` has. Rows are checked, and equal ones left out,
before a model loads.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.collective.preference import keep_and_weigh, make_pair, pair_counts
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.methods.method import Method, fresh
from phalanx.sources import preferences_from
from phalanx.types import (
    Ask,
    Duel,
    Iteration,
    IterationResult,
    Outcome,
    PreferencePair,
    Response,
)


def given(config: Config, number: int) -> tuple[PreferencePair, ...]:
    """All pairs of the file; those of the iteration are about its instructions."""
    return preferences_from(config.preference_file).pairs


def lesson(config: Config, number: int, name: str) -> str:
    """Everybody learns from all pairs."""
    return "pairs"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """The pairs of the iteration's prompts, with the reasons of those that do not train."""
    rows = [row for row in iteration.given if isinstance(row, PreferencePair)]
    known = {row.instruction.id: row for row in rows}
    lacking = [one.id for one in iteration.instructions if one.id not in known]
    if lacking:
        raise ConfigError(
            f"{len(lacking)} of {len(iteration.instructions)} pairs are no longer in "
            f"{config.preference_file.source}: it was changed while the run went on; restore it"
        )
    place = (iteration.seed, iteration.number)
    made = [_pair(known[one.id], config, place) for one in iteration.instructions]
    pairs = keep_and_weigh(made, config.pairs)
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics=pair_counts(pairs),
        faded=iteration.faded,
    )


def _pair(row: PreferencePair, config: Config, place: tuple) -> PreferencePair:
    outcome = Outcome("", "decided", winner="left", score_left=1.0, score_right=0.0)
    texts = Response("", text=row.chosen), Response("", text=row.rejected)
    pair = make_pair(Duel("", row.instruction, "", ""), outcome, *texts, config.pairs)
    return replace(pair, id=content_id("pair", row.id, *place))


METHOD = Method(
    title="every learner learns from preference pairs of a file",
    paper="DPO, arXiv 2305.18290; SimPO, arXiv 2405.14734; ORPO, arXiv 2403.07691",
    kind="single",
    run=run,
    draw=fresh,
    lesson=lesson,
    given=given,
)
