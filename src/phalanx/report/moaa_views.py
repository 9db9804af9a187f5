"""From the facts of the method moaa to sections of words and tables, the same in every renderer.

A table fits 80 columns as long as names are short; its last column may be long and then wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.config.mixing import MIXTURE
from phalanx.report.moaa_records import (
    AnswerCost,
    CostFacts,
    MoaaFacts,
    ProposerFacts,
    StageFacts,
    TurnFacts,
)
from phalanx.report.moaa_result import result_section
from phalanx.report.moaa_words import Section, TableView, money, stage_name
from phalanx.report.records import RunFacts
from phalanx.report.views import labels, shortened
from phalanx.report.words import (
    DROP_WORDS,
    STATUS_WORDS,
    counted,
    duration,
    flipped,
    plural,
    share_of,
)

TURN_WORDS = {
    "fitting": "fitting",
    "rewritten": "rewritten",
    "cut": "cut",
    "unreadable_fit": "unreadable",
}
_BEST_OF = {
    "tied": "tied at the top (one at random)",
    "identical": "with identical answers",
    "unranked": "with fewer than two answers",
    "unscored": "with no readable score (dropped)",
}


def sections(facts: RunFacts) -> list[Section]:
    """Result, stages, mixture, reward, cost: those that there is something to say of."""
    moaa = facts.moaa
    if moaa is None:
        return []
    found = [
        result_section(facts, moaa),
        _stages(moaa),
        _mixture(moaa),
        _reward(facts, moaa),
        _cost(moaa),
    ]
    return [section for section in found if section.lines or section.tables]


def _recorded(moaa: MoaaFacts, kind: str = "") -> list[StageFacts]:
    return [s for s in moaa.stages if s.recorded and (not kind or s.kind == kind)]


def _stages(moaa: MoaaFacts) -> Section:
    made, trained = [], []
    for stage in _recorded(moaa):
        name = stage_name(stage.generation, stage.kind)
        for builder in stage.builders:
            whom = f"{builder.name} → {', '.join(builder.students) or 'nobody'}"
            made.append((name, whom, f"{builder.instructions:,}", f"{builder.rows:,}",
                         f"{builder.kept:,}", counted(builder.dropped, DROP_WORDS)))  # fmt: skip
        for pairs in stage.pairs:
            whom = f"{pairs.reward or 'reward'} → {pairs.student}"
            made.append((name, whom, f"{pairs.instructions:,}", f"{pairs.rows:,}",
                         f"{pairs.kept:,}", counted(pairs.dropped, DROP_WORDS)))  # fmt: skip
        for training in stage.trainings:
            loss = training.last("loss")
            trained.append((name, training.member, f"{training.num_examples:,}",
                            "–" if loss is None else f"{loss:.3f}",
                            duration(training.seconds),
                            counted({k.replace("_", " "): n
                                     for k, n in training.num_dropped.items() if n})))  # fmt: skip
    tables = []
    if made:
        tables.append(
            TableView(
                "Demonstrations (sft) and preference pairs (dpo)",
                ("stage", "from → for", "instr.", "made", "kept", "dropped"),
                tuple(made),
                "Nothing is lost: made = kept + dropped. A row of sft is one answer to one user "
                "turn; a row of dpo is one instruction of one student.",
                left=(0, 1, 5),
            )
        )
    if trained:
        tables.append(
            TableView(
                "Students trained",
                ("stage", "student", "examples", "last loss", "time", "dropped"),
                tuple(trained),
                left=(0, 1, 5),
            )
        )
    waiting = [stage for stage in moaa.stages if not stage.recorded]
    lines = [
        f"Under way: {stage_name(stage.generation, stage.kind)}; its rows are written when it ends."
        for stage in waiting
    ]
    return Section("stages", "Stages", tuple(lines), tuple(tables))


def _left_out_rows(name: str, members: Sequence[ProposerFacts]) -> list[tuple[str, ...]]:
    return [
        (name, one.member, f"{one.asked:,}", f"{one.left_out:,}",
         share_of(one.left_out, one.asked))
        for one in members
    ]  # fmt: skip


def _mixture(moaa: MoaaFacts) -> Section:
    rows, turns, unanswered = [], [], []
    for stage in _recorded(moaa, "sft"):
        name = stage_name(stage.generation, stage.kind)
        rows += _left_out_rows(name, stage.proposers)
        turns += [_turn_row(name, one) for one in stage.turns if any(one.counts.values())]
        if stage.num_mixed:
            unanswered.append(_unanswered(name, stage))
        if any((stage.best_of or {}).values()):
            counts = counted(stage.best_of or {}, _BEST_OF)
            unanswered.append(f"{name}, best_of: turns without a single favourite: {counts}.")
        if stage.reasoning_removed:
            unanswered.append(
                f"{name}: answers without the reasoning they came with: "
                f"{counted(stage.reasoning_removed)}."
            )
    tables = []
    if rows:
        tables.append(
            TableView(
                "Proposals",
                ("stage", "proposer", "asked", "left out", "share"),
                tuple(rows),
                "Left out: failed or empty; the aggregator saw the others.",
            )
        )
    if turns:
        tables.append(
            TableView(
                "Later user turns, written for other answers",
                ("stage", "builder", "turns", *TURN_WORDS.values()),
                tuple(turns),
                "turns = fitting + rewritten + cut, where somebody was asked; unreadable ones "
                "count as not fitting. Without such counts every turn was asked as it was found.",
            )
        )
    return Section("mixture", "Mixture", tuple(unanswered), tuple(tables))


def _unanswered(name: str, stage: StageFacts) -> str:
    none = stage.unanswered or {}
    count = sum(none.values())
    if not count:
        return f"{name}: {plural(stage.num_mixed, 'turn')} put to the mixture, all answered."
    why = f" ({counted(none, DROP_WORDS)})"
    return (
        f"{name}: {plural(stage.num_mixed, 'turn')} put to the mixture, {count:,} without an "
        f"answer, {share_of(count, stage.num_mixed)}{why}."
    )


def _turn_row(name: str, one: TurnFacts) -> tuple[str, ...]:
    whole = one.counts.get("later", 0)
    cells = []
    for key in TURN_WORDS:
        count = one.counts.get(key)
        cells.append("–" if count is None else f"{count:,} ({share_of(count, whole)})")
    return (name, one.builder, f"{whole:,}", *cells)


def _reward(facts: RunFacts, moaa: MoaaFacts) -> Section:
    verdicts, panel, criteria, lines = [], [], [], []
    for stage in _recorded(moaa):
        name = stage_name(stage.generation, stage.kind)
        for one in stage.rewards:
            unread = one.asked - one.readable
            verdicts.append((name, f"{one.judge} ({one.protocol})", f"{one.asked:,}",
                             f"{one.decided:,}", f"{one.ties:,}",
                             f"{one.flipped:,} ({share_of(one.flipped, one.asked)})",
                             f"{unread:,}"))  # fmt: skip
            if unread:
                lines.append(f"{name}, {one.judge}: unreadable: {counted(one.reasons)}.")
        if stage.scores_asked:
            lines.append(
                f"{name}: {plural(stage.scores_asked, 'score')} of single responses asked for, "
                f"{stage.scores_unreadable:,} unreadable."
            )
        if stage.rewards and stage.outcomes.keys() - {"decided", "tie"}:
            lines.append(f"{name}: duels {counted(stage.outcomes, STATUS_WORDS)}.")
        panel += _left_out_rows(name, stage.evaluators)
        criteria += _criteria_rows(name, stage)
        if reused := stage.criteria_reused_for:
            lines.append(
                f"{name}: criteria reused for {reused:,} of "
                f"{plural(stage.criteria_chosen_for, 'instruction')}: chosen in an earlier stage, "
                "once in a run."
            )
        if stage.unreadable_criteria:
            count = sum(one.default_criteria for one in stage.rewards)
            lines.append(
                f"{name}: for {plural(stage.unreadable_criteria, 'instruction')} no choice of "
                "criteria could be read; the first ones of the list were used "
                f"({plural(count, 'verdict')})."
            )
    lines += labels(facts)
    tables = []
    if verdicts:
        tables.append(
            TableView(
                "Verdicts",
                ("stage", "judge", "asked", "decided", "ties", "flipped", "unreadable"),
                tuple(verdicts),
                f"asked = decided + ties + unreadable. {flipped(facts.config)} An unreadable "
                "verdict is missing, not a tie.",
            )
        )
    if panel:
        tables.append(
            TableView(
                "Evaluations that the verdicts were read from",
                ("stage", "member", "asked", "left out", "share"),
                tuple(panel),
                detail=True,
            )
        )
    if criteria:
        tables.append(
            TableView(
                "Criteria",
                ("stage", "criterion", "chosen", "share"),
                tuple(criteria),
                "Share: of all choices in that stage.",
                detail=True,
            )
        )
    return Section("reward", "Reward", tuple(lines), tuple(tables))


def _criteria_rows(name: str, stage: StageFacts) -> list[tuple[str, ...]]:
    chosen = stage.criteria or {}
    whole = sum(chosen.values())
    if 0 < stage.criteria_chosen_for == stage.criteria_reused_for:
        name += ", reused"
    return [(name, what, f"{n:,}", share_of(n, whole)) for what, n in chosen.items() if n]


def _cost(moaa: MoaaFacts) -> Section:
    tables = []
    if moaa.costs:
        tables.append(
            TableView(
                "By stage and purpose",
                ("stage", "purpose", "requests", "read", "written", "time", "money"),
                (*(_cost_row(cost) for cost in moaa.costs), _total(moaa.costs)),
                "Read and written in tokens. Time is wall-clock, shared out among the requests of "
                "a batch. Money: tokens times the prices of endpoints, first tries alone.",
            )
        )
    if moaa.answers:
        tables.append(
            TableView(
                "One answer to an evaluation item, on average",
                ("who", "", "requests", "read", "written", "money"),
                tuple(_answer_row(answer) for answer in moaa.answers),
                _weighing(moaa),
            )
        )
    return Section("cost", "Cost", (), tuple(tables))


def _answer_row(answer: AnswerCost) -> tuple[str, ...]:
    return (
        answer.name,
        "" if answer.role == MIXTURE else answer.role,
        f"{answer.requests:.1f}",
        f"{answer.tokens_in:,.0f}",
        f"{answer.tokens_out:,.0f}",
        money(answer.money),
    )


def _weighing(moaa: MoaaFacts) -> str:
    if all(answer.weighted is not None for answer in moaa.answers):
        return "Tokens × parameters weighs the tokens of members of different sizes."
    return (
        "The number of parameters is not known for every member, so a token of a small model "
        "counts like one of a large one."
    )


def _cost_row(cost: CostFacts) -> tuple[str, ...]:
    def count(value: int) -> str:
        return f"{value:,}" if cost.purpose != "train" else "–"

    name = stage_name(cost.generation, cost.kind) if cost.generation else cost.kind
    return (name, cost.purpose, count(cost.requests), count(cost.tokens_in),
            count(cost.tokens_out), duration(cost.seconds), money(cost.money))  # fmt: skip


def _total(costs: Sequence[CostFacts]) -> tuple[str, ...]:
    paid = [cost.money for cost in costs if cost.money is not None]
    return (
        "all",
        "",
        f"{sum(c.requests for c in costs):,}",
        f"{sum(c.tokens_in for c in costs):,}",
        f"{sum(c.tokens_out for c in costs):,}",
        duration(sum(c.seconds for c in costs)),
        money(sum(paid) if paid else None),
    )


def mixture_examples(moaa: MoaaFacts) -> list[dict[str, Any]]:
    """Titles and texts, long ones shortened with a mark."""
    names = {stage.iteration: stage_name(stage.generation, stage.kind) for stage in moaa.stages}
    return [
        {
            "title": names.get(one.iteration, f"iteration {one.iteration}")
            + (f", {one.domain}" if one.domain else ""),
            "instruction": shortened(one.instruction),
            "proposals": [
                {"title": f"{member}, {phase}", "text": shortened(text)}
                for phase, member, text in one.proposals
            ],
            "answer": {"title": f"The mixture ({one.writer})", "text": shortened(one.response)},
        }
        for one in moaa.examples
    ]
