"""Stage 1 of MoAA: the mixture, and the baselines of the paper, write demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.collective.conversation import Repair, Turn, converse
from phalanx.collective.mixture import mixture_from
from phalanx.collective.panel import judging_metrics
from phalanx.config.base import sampling
from phalanx.config.mixing import MIXTURE, USER_TURN_TOKENS, named, rewriter_of, teachers_of
from phalanx.config.schema import Config, StudentSettings
from phalanx.errors import JudgmentError
from phalanx.identity import content_id
from phalanx.methods.builders import Bench, builder_of
from phalanx.types import Ask, Demonstration, Iteration, IterationResult, Member

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
        made = [_demonstration(name, turn, config) for turn in turns]
        _refuse_nothing(name, made)
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


def _demonstration(builder: str, turn: Turn, config: Config) -> Demonstration:
    answer, instruction = turn.answer, turn.instruction
    drop = answer.drop
    if not drop and answer.truncated and config.moaa.truncated == "drop":
        drop = "truncated"
    return Demonstration(
        id=content_id(builder, instruction.id, turn.number, answer.writer),
        prompt=turn.prompt,
        response=answer.text,
        domain=instruction.domain,
        history=turn.history,
        builder=builder,
        instruction=instruction.id,
        turn=turn.number,
        writer=answer.writer,
        response_id=answer.response_id,
        truncated=answer.truncated,
        drop=drop,
    )


def _refuse_nothing(builder: str, rows: Sequence[Demonstration]) -> None:
    if any(not row.drop for row in rows):
        return
    reasons = Counter(row.drop for row in rows)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    raise JudgmentError(
        f"the builder {builder!r} made no demonstration that can be learned ({listed or 'no rows'})"
        f". Look at the responses (phalanx export RUN responses){_remedy(set(reasons))}"
    )


def _remedy(reasons: set[str]) -> str:
    """What helps against these reasons: only what failed is asked again in the same folder."""
    again = ""
    if "failed" in reasons:
        again = "; failed ones are asked again next time"
    elif reasons & {"too_few_proposals", "unscored"}:
        again = "; those among them that failed are asked again next time"
    if "truncated" not in reasons:
        return again
    return (
        f"{again}. Against truncation, raise max_new_tokens or set moaa.truncated: allow; either "
        "is another configuration, which needs another folder (--out)"
    )


def _metrics(bench: Bench, names: Sequence[str], rows: Sequence[Demonstration]) -> dict[str, float]:
    """Plain numbers; ``num_demonstrations.B`` and all ``num_dropped.B.*`` are B's rows."""
    counts: Counter[str] = Counter()
    for name in names:
        counts[f"num_demonstrations.{name}"] = 0
    for row in rows:
        if row.drop:
            counts[f"num_dropped.{row.builder}.{row.drop}"] += 1
        else:
            counts[f"num_demonstrations.{row.builder}"] += 1
    return {
        "num_instructions": len(bench.iteration.instructions),
        "num_demonstrations": sum(not row.drop for row in rows),
        **counts,
        **dict(sorted(bench.counts.items())),
        **(judging_metrics(bench.judgments, bench.outcomes) if bench.duels else {}),
    }
