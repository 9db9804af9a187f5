"""A plan as something that rich prints; it wraps on a narrow terminal and never cuts a number."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from phalanx.plan.make import Plan
from phalanx.plan.work import BasePlan

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def render(plan: Plan) -> RenderableType:
    """Who takes part, the counts, the memory, the time, and what is worth knowing."""
    parts: list[RenderableType] = []
    if plan.assumed:
        parts += [Text(f"Note: {plan.assumed}."), Text("")]
    parts += [_who(plan), Text(""), _counts(plan), Text(""), _bases(plan), Text(_turns(plan))]
    parts += [Text(""), _time(plan)]
    if plan.notes:
        parts += [Text(""), Text("Worth knowing")]
        parts += [Text(f"- {note}") for note in plan.notes]
    return Group(*parts)


def _who(plan: Plan) -> Text:
    contestants, judges, learners = plan.contestants, plan.judges, plan.learners
    lines = [f"{len(contestants)} contestants: {', '.join(contestants)}"]
    lines.append("Judges: " + ("the same" if judges == contestants else ", ".join(judges)))
    same = learners == contestants
    lines.append("Learners: " + ("the same" if same else ", ".join(learners) or "nobody"))
    if plan.recruits:
        lines.append(
            f"Recruits to make first: {', '.join(plan.recruits)} "
            f"({plan.recruit_examples:,} demonstrations)"
        )
    found = plan.instructions
    count = "" if found.count is None else f"{found.count:,}, "
    lines.append(f"Instructions: {count}about {found.tokens} tokens each ({found.how})")
    return Text("\n".join(lines))


def _counts(plan: Plan) -> Table:
    work, times, learners = plan.work, plan.iterations, len(plan.learners)
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


def _bases(plan: Plan) -> Text:
    text = Text("Memory, estimated", style="bold")
    for base in plan.bases:
        count = len(base.members)
        text.append(
            f"\n{base.base} ({count} member{'' if count == 1 else 's'}): "
            f"{_parameters(base)}; weights {_bytes(base.weights)}, "
            f"adapters {_bytes(base.adapters)}, training {_bytes(base.training)}",
            style="not bold",
        )
    return text


def _turns(plan: Plan) -> str:
    lines = []
    guessed = [base for base in plan.bases if base.guessed]
    for base in guessed:
        lines.append(f"The size of {base.base} is {base.how}.")
    if plan.take_turns:
        lines.append(f"The {len(plan.bases)} bases take turns in memory.")
    elif len(plan.bases) > 1:
        lines.append(f"The {len(plan.bases)} bases are all held in memory at once.")
    else:
        lines.append("One base in memory, shared by its members.")
    return "\n".join(lines)


def _time(plan: Plan) -> Text:
    if plan.seconds is None or plan.total_seconds is None:
        return Text("Time: cannot be estimated, a base has no known size.")
    if plan.total_seconds == 0:
        return Text("Time: scripted members take next to none.")
    phases = ", ".join(f"{name} {duration(value)}" for name, value in plan.seconds.items())
    return Text(
        f"Time, a rough estimate: about {duration(plan.total_seconds)} in all; an iteration: "
        f"{phases}. Reckoned for {plan.assumption}, and responses half as long as allowed; half "
        "or double would be no surprise. Recruiting and evaluation are not counted."
    )


def _parameters(base: BasePlan) -> str:
    if base.parameters is None:
        return "size unknown"
    if base.parameters == 0:
        return "no parameters"
    mark = "about " if base.guessed else ""
    if base.parameters >= 1e9:
        return f"{mark}{base.parameters / 1e9:.2f}B parameters"
    return f"{mark}{base.parameters / 1e6:.1f}M parameters"


def _bytes(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


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
