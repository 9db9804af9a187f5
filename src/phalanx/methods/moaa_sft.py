"""Stage 1 of MoAA: the mixture, and the baselines of the paper, write demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.conversation import Repair, Turn, converse
from phalanx.collective.mixture import mixture_from
from phalanx.collective.panel import judging_metrics
from phalanx.config.base import sampling
from phalanx.config.mixing import MIXTURE, USER_TURN_TOKENS, named, rewriter_of, teachers_of
from phalanx.config.schema import Config, StudentSettings
from phalanx.methods.builders import Bench, builder_of
from phalanx.methods.demonstrations import of_answer, refuse_nothing, row_counts
from phalanx.types import Ask, Demonstration, Iteration, IterationResult, Member, Message

_TURN = {MIXTURE: 0, "combined": 1, "best_of": 2}
# Whoever asks most comes first. Engines answer in batches of one member; a builder that needs some
# of the answers then finds whole batches answered, and none is computed twice for a part of it.


def demonstrate(
    iteration: Iteration,
    students: Sequence[StudentSettings],
    members: Sequence[Member],
    joined: Sequence[str],
    ask: Ask,
    config: Config,
) -> IterationResult:
    """The demonstrations of every builder that some student learns from, in the students' order.

    ``members`` are those that the mixture is made of, ``joined`` the students that propose, too.
    Every user turn of every instruction is one row for each of its writers, learnable or with the
    reason why not. Raises JudgmentError where a builder made no row that can be learned.
    """
    mixture = mixture_from(config, members, joined)
    bench = Bench(iteration, mixture, members, ask, config, teachers_of(config))
    repair = _repair(members, bench, config)
    built: dict[str, list[Demonstration]] = {}
    names = list(dict.fromkeys(s.data for s in students if s.data != "none"))
    for name in sorted(names, key=lambda name: _TURN.get(name, len(_TURN))):
        builder = builder_of(name, bench)
        turns, counts = converse(builder.asked, builder.answer, repair)
        made = [_demonstration(name, turn, config, bench.place) for turn in turns]
        refuse_nothing(name, made, "moaa.truncated")
        built[name] = made
        if reasoned := sum(turn.answer.reasoned for turn in turns):
            bench.counts[f"reasoning_removed.{name}"] += reasoned
        if any(turn.number for turn in turns):
            bench.counts.update({f"turns.{name}.{key}": n for key, n in counts.items()})
    rows = [row for name in names for row in built[name]]
    return IterationResult(
        duels=tuple(bench.duels),
        responses=bench.responses,
        judgments=tuple(bench.judgments),
        outcomes=tuple(bench.outcomes),
        standings=iteration.standings,
        reliability=iteration.reliability,
        faded=iteration.faded,
        demonstrations=tuple(rows),
        metrics=_metrics(bench, names, rows),
    )


def _repair(members: Sequence[Member], bench: Bench, config: Config) -> Repair:
    name = rewriter_of(config)
    known = named([name], members, "moaa.rewriter")
    settings = config.mixture.aggregate
    shortest = min(settings.max_new_tokens, USER_TURN_TOKENS)
    want = sampling(settings.model_copy(update={"max_new_tokens": shortest}))
    return Repair(config.moaa.multi_turn, known[name], want, bench.ask, bench.place)


def _demonstration(builder: str, turn: Turn, config: Config, place: tuple) -> Demonstration:
    row = of_answer(
        builder,
        turn.instruction,
        turn.answer,
        config.moaa.truncated,
        place=place,
        turns=(*turn.history, Message("user", turn.prompt)),
        at=turn.number,
    )
    return replace(row, turn=turn.number)


def _metrics(bench: Bench, names: Sequence[str], rows: Sequence[Demonstration]) -> dict[str, float]:
    return {
        "num_instructions": len(bench.iteration.instructions),
        "num_demonstrations": sum(not row.drop for row in rows),
        **row_counts(names, rows),
        **dict(sorted(bench.counts.items())),
        **(judging_metrics(bench.judgments, bench.outcomes) if bench.duels else {}),
    }
