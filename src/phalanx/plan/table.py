"""A plan as something that rich prints; it wraps on a narrow terminal and never cuts a number."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from phalanx.collective.alarms import in_words
from phalanx.config.uses import USES
from phalanx.plan.make import Plan
from phalanx.plan.rounds import VERDICT_TOKENS
from phalanx.plan.speed import RoundTimes
from phalanx.plan.stages_table import stage_tables, who_learns, who_mixes
from phalanx.plan.where import behind, where
from phalanx.plan.work import Work

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def render(plan: Plan) -> RenderableType:
    """Who takes part, the counts, the memory, the time, and what is worth knowing."""
    parts: list[RenderableType] = []
    if plan.assumed:
        parts += [Text(f"Note: {plan.assumed}."), Text("")]
    tables = stage_tables(plan) if plan.work is None else [_counts(plan, plan.work)]
    parts += [_who(plan), Text(""), *tables, Text(""), where(plan), *behind(plan)]
    parts += [Text(""), _time(plan), Text(f"Guards: {in_words(plan.config)}.")]
    if plan.notes:
        parts += [Text(""), Text("Worth knowing")]
        parts += [Text(f"- {note}") for note in plan.notes]
    return Group(*parts)


def _who(plan: Plan) -> Text:
    kinds = {"sparta": _who_duels, "moaa": who_mixes}
    lines = kinds.get(plan.config.method, who_learns)(plan)
    if plan.recruits:
        lines.append(
            f"Recruits to make first: {', '.join(plan.recruits)} "
            f"({plan.recruit_examples:,} demonstrations)"
        )
    found = plan.instructions
    pairs = plan.config.method == "preference_file"
    if "instructions" not in USES[plan.config.method] and not pairs:
        return Text("\n".join(lines))
    count = "" if found.count is None else f"{found.count:,}, "
    turns = f", {found.turns:.1f} user turns each" if found.turns > 1 else ""
    each = "a turn" if turns else "each"
    what = "Pairs, their prompts" if pairs else "Instructions"
    lines.append(f"{what}: {count}about {found.tokens} tokens {each} ({found.how}){turns}")
    return Text("\n".join(lines))


def _who_duels(plan: Plan) -> list[str]:
    contestants, judges, learners = plan.contestants, plan.judges, plan.learners
    lines = [f"{len(contestants)} contestants: {', '.join(contestants)}"]
    lines.append("Judges: " + ("the same" if judges == contestants else ", ".join(judges)))
    same = learners == contestants
    lines.append("Learners: " + ("the same" if same else ", ".join(learners) or "nobody"))
    return lines


def _counts(plan: Plan, work: Work) -> Table:
    times, learners = plan.iterations, len(plan.learners)
    table = Table(title="Work", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in ("an iteration", f"all {times}"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [
        ("duels", work.duels),
        ("responses", work.responses),
        ("judgments", work.judgments),
        ("judge requests", work.judge_requests),
        ("pairs, at most", work.pairs),
        ("training examples, at most", work.training_pairs * learners),
        ("optimiser steps", work.training_steps * learners),
        ("tokens to answer, at most", work.answer_tokens),
        ("tokens to judge, at most", work.judge_tokens),
        ("tokens to train, at most", work.train_tokens),
    ]
    for words, count in rows:
        table.add_row(words, f"{count:,}", f"{count * times:,}")
    if plan.evaluation_requests:
        table.add_row("evaluation requests", "", f"{plan.evaluation_requests:,}")
    return table


def _time(plan: Plan) -> Text:
    if plan.times is None or plan.total_seconds is None:
        why = "a base has no known size" if plan.placement.units.known else "the cluster is unknown"
        return Text(f"Time: cannot be estimated, {why}.")
    if plan.total_seconds == 0:
        alone = "members behind endpoints take as long as those take"
        words = alone if plan.endpoints else "scripted members take next to none"
        return Text(f"Time: {words}.")
    once = plan.times.once
    phases = "; ".join(map(_round_time, plan.times.rounds))
    beside = "; ".join(f"{name} {duration(value)} in all" for name, value in once.items())
    ours = " Endpoints are not counted." if plan.endpoints else ""
    written = f", verdicts of {VERDICT_TOKENS} tokens" if plan.writes_verdicts else ""
    return Text(
        f"Time, a rough estimate: about {duration(plan.total_seconds)} in all; "
        f"{phases}{'; ' if beside else ''}{beside}. Reckoned for {plan.assumption}, and responses "
        f"half as long as allowed{written}; half or double would be no surprise.{ours}"
    )


def _round_time(one: RoundTimes) -> str:
    kind = f"a stage {one.name}" if one.name else "an iteration"
    shown = [(name, value) for name, value in one.each.items() if value or not one.name]
    return f"{kind}: " + ", ".join(f"{name} {duration(value)}" for name, value in shown)


def duration(seconds: float) -> str:
    """``90 s``, ``12 min``, ``3.5 h``, ``2 d``: two figures are all an estimate has.

    >>> duration(754), duration(0.2)
    ('13 min', '0.2 s')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit in UNITS:
        if seconds >= 2 * size or size == 1:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    raise AssertionError("unreachable")
