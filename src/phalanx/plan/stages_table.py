"""The plan of a run that is no duels in words: who takes part, what is asked, and of whom."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from phalanx.config.mixing import (
    panel_of,
    pool_settings,
    proposers_of,
    ranker_of,
    rewriter_of,
    selector_of,
    students_of,
    verdict_of,
)
from phalanx.config.uses import trains
from phalanx.plan.make import Plan
from phalanx.plan.rounds import Demand, Round, all_demands

PHASE_WORDS = {
    "teachers": "teachers' answers",
    "aggregate": "answers of the mixture",
    "fit": "user turns looked at",
    "rewrite": "user turns rewritten, at most",
    "sample": "responses",
    "criteria": "choices of criteria",
    "assess": "evaluations of two responses",
    "verdict": "verdicts",
    "judge": "requests to judges and reward models",
}
"""Of phases; others are called by the name that the ledger and reports have for them."""


def who_mixes(plan: Plan) -> list[str]:
    """Layers, aggregator, the panel of the reward, the students."""
    config = plan.config
    settings, layers = config.mixture, proposers_of(config)
    samples = f", {settings.samples} samples each" if settings.samples > 1 else ""
    lines = []
    if len(set(layers)) == 1:
        rounds = f" in each of {len(layers)} layers" if len(layers) > 1 else ""
        lines.append(f"Proposers: {', '.join(layers[0])}{rounds}{samples}")
    else:
        lines += [f"Layer {n}: {', '.join(layer)}{samples}" for n, layer in enumerate(layers, 1)]
    lines.append(f"Aggregator: {settings.aggregator}")
    students = students_of(config)
    purposes = {demand.purpose for _, demand in all_demands(plan.rounds)}
    if "verdict" in purposes:
        choice = f"; {selector_of(config)} chooses criteria" if "criteria" in purposes else ""
        panel = ", ".join(panel_of(config))
        lines.append(f"Reward: {panel} evaluate, {verdict_of(config)} decides{choice}")
    if "fit" in purposes:
        lines.append(f"User turns that do not fit: {config.moaa.multi_turn}, {rewriter_of(config)}")
    if any(student.data == "best_of" for student in students):
        lines.append(f"Best of the teachers' answers: as {ranker_of(config)} ranks them")
    for student in students:
        learns = "" if student.name in plan.learners else "; not trained"
        words = f"demonstrations: {student.data}, reward: {student.reward}{learns}"
        lines.append(f"Student {student.name} ({words})")
    return lines


def who_learns(plan: Plan) -> list[str]:
    """The method and its learners, or who answers together."""
    from phalanx.methods import METHODS  # all of them, which takes a while

    method = METHODS[plan.config.method]
    lines = [f"{plan.config.method}: {method.title}"]
    if trains(plan.config):
        lines.append(f"Learners: {', '.join(_learning(plan))}")
    else:
        lines.append(f"Measured: {', '.join(plan.contestants)}")
    judging = {d.member for _, d in all_demands(plan.rounds) if d.purpose == "judge"}
    if plan.config.method in ("self_rewarding", "meta_rewarding"):
        lines.append("Judges: each learner judges its own responses")
    elif judging:
        lines.append(f"Judges: {', '.join(name for name in plan.judges if name in judging)}")
    return lines


def _learning(plan: Plan) -> list[str]:
    """Who learns; whose data are made and no more is said to be not trained."""
    names = [m.name for m in pool_settings(plan.config) if "learn" in m.roles] or plan.learners
    return [name if name in plan.learners else f"{name} (not trained)" for name in names]


def stage_tables(plan: Plan) -> list[RenderableType]:
    """Requests and training of each kind of stage, and everything that is asked of each member.

    Of a method that only answers: all that it is measured with.
    """
    if not trains(plan.config):
        return [_measuring(plan), Text(""), _members([(1, one) for one in plan.measuring])]
    asked = list(all_demands(plan.rounds))
    work = _work(plan)
    if not work.row_count:
        return [Text("Nobody is asked, and nobody learns.")]
    return [work, *([Text(""), _members(asked)] if asked else [])]


def _table(title: str, headings: list[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _work(plan: Plan) -> Table:
    rounds = plan.rounds
    mixes = plan.config.method == "moaa"
    kind = "stages" if mixes else "iterations"
    headings = [_heading(one, mixes) for one in rounds]
    table = _table("Work", [*headings, f"all {plan.iterations} {kind}"])
    rows = [("instructions", [float(one.instructions) for one in rounds])]
    for phase in dict.fromkeys(phase for one in rounds for phase in one.phases):
        words = PHASE_WORDS.get(phase, f"requests: {phase}")
        rows.append((words, [_requests(one, phase) for one in rounds]))
    rows.append(("tokens read, at most", [_tokens(one, "read") for one in rounds]))
    rows.append(("tokens written, at most", [_tokens(one, "written") for one in rounds]))
    trained = [[t for t in one.trainings if t.examples] for one in rounds]
    rows += [
        ("training examples, at most", [sum(sum(t.examples.values()) for t in s) for s in trained]),
        ("optimiser steps", [sum(t.steps for t in some) for some in trained]),
        ("tokens to train, at most", [sum(t.tokens for t in some) for some in trained]),
    ]
    for words, counts in rows:
        if any(counts):
            total = sum(one.count * count for one, count in zip(rounds, counts, strict=True))
            table.add_row(words, *(f"{count:,.0f}" for count in counts), f"{total:,.0f}")
    if plan.evaluation_requests:
        blank = [""] * len(rounds)
        table.add_row("evaluation requests", *blank, f"{plan.evaluation_requests:,}")
    return table


def _heading(one: Round, mixes: bool) -> str:
    if mixes:
        return f"{one.name} (x{one.count})" if one.count > 1 else one.name
    return one.name or "an iteration"


def _measuring(plan: Plan) -> Table:
    """What is asked to measure the members, and then all of them together, by phase."""
    table = _table("Work", ["requests", "tokens read, at most", "tokens written, at most"])
    sums: dict[str, list[float]] = {}
    for demand in plan.measuring:
        total = sums.setdefault(demand.when, [0.0, 0.0, 0.0])
        for place, amount in enumerate(_amounts(demand)):
            total[place] += amount
    for phase, total in sums.items():
        words = "members, each alone" if phase == "evaluate" else phase
        table.add_row(words, *(f"{ceil(round(amount, 6)):,}" for amount in total))
    return table


def _requests(one: Round, phase: str) -> float:
    return sum(demand.requests for demand in one.demands if demand.when == phase)


def _tokens(one: Round, which: str) -> float:
    return sum(demand.requests * getattr(demand, which) for demand in one.demands)


def _members(demands: Iterable[tuple[int, Demand]]) -> Table:
    """Every member's requests and tokens in the whole run; where it trains, without evaluation."""
    table = _table("Asked of each member", ["requests", "tokens read", "written, at most"])
    sums: dict[str, list[float]] = {}
    for times, demand in demands:
        total = sums.setdefault(demand.member, [0.0, 0.0, 0.0])
        for place, amount in enumerate(_amounts(demand)):
            total[place] += times * amount
    for name, total in sums.items():
        table.add_row(name, *(f"{amount:,.0f}" for amount in total))
    return table


def _amounts(demand: Demand) -> tuple[float, float, float]:
    count = demand.requests
    return count, count * demand.read, count * demand.written
