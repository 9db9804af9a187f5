"""``phalanx compare``: read, run, tabulate, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.comparing import rendering
from phalanx.comparing.budget import BOUNDS, NEAR, shared_in_all
from phalanx.comparing.running import Failed, refuse_changes, run_all
from phalanx.comparing.spec import FROZEN, POOL, Arm, Comparison
from phalanx.comparing.table import Findings, tabulate
from phalanx.config.schema import BudgetSettings
from phalanx.errors import LedgerError
from phalanx.ledger import FILE_NAME, Ledger, run_ledger_path
from phalanx.methods import METHODS
from phalanx.plan import Plan, make_plan
from phalanx.plan.rounds import all_demands
from phalanx.report.moaa_words import Section
from phalanx.report.words import duration, plural
from phalanx.types import Progress


@dataclass(frozen=True)
class Compared:
    """What came of it. ``path`` is the table as Markdown; the same as JSON lies beside it."""

    folder: Path
    title: str
    findings: Findings
    notes: tuple[str, ...]
    failed: tuple[Failed, ...]
    path: Path
    more: tuple[Section, ...] = ()


def begun_in(out: Path) -> dict[int, list[str]]:
    """Seed -> the names of those whose runs have begun in a comparison's folder."""
    found: dict[int, list[str]] = {}
    for path in sorted(out.glob(f"seed-*/*/{FILE_NAME}")):
        name, seed = path.parent.name, path.parent.parent.name.removeprefix("seed-")
        if name != POOL and seed.isdecimal():
            found.setdefault(int(seed), []).append(name)
    return found


def compare_to(
    comparison: Comparison,
    out: Path,
    *,
    title: str,
    known: Comparison | None = None,
    jobs: int = 1,
    table: bool = False,
    progress: Progress,
    against: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    more: Callable[[Findings], Sequence[Section]] = lambda _: (),
) -> Compared:
    """Run what is owed (with ``table`` nothing), and write the table of all that is finished.

    ``known`` (default: the comparison) has further ways: those that have begun in ``out`` have
    their place in the table, as further seeds have. ``more`` makes further sections from what was
    found.

    Raises LedgerError where nothing has begun that a ``table`` could show, or anything of what is
    known was made with other settings, and as :func:`phalanx.comparing.running.run_all` and
    :func:`phalanx.comparing.table.tabulate`.
    """
    begun = begun_in(out)
    if table and not begun:
        raise LedgerError(
            f"{out}: no run of a comparison has begun there, so there is no table; name another "
            "folder with --out, or leave out --table"
        )
    seeds = tuple(sorted({*comparison.seeds, *begun}))
    known = replace(known or comparison, seeds=seeds)
    refuse_changes(known, out)
    plans = () if table else reckoned(comparison)
    for note in (*comparison.notes, *sizes(comparison), *plans):
        progress.say(note)
    failed = () if table else run_all(comparison, out, jobs=jobs, progress=progress)
    chosen = {arm.folder for arm in comparison.all_arms(out)}
    arms = [
        arm
        for arm in known.all_arms(out)
        if arm.folder in chosen or run_ledger_path(arm.folder).exists()
    ]
    names = {way.name for way in known.ways}
    references = dict.fromkeys(against or (known.against, FROZEN))
    findings = tabulate(arms, [name for name in references if name in names], known.budget)
    told = (*notes, *comparison.notes, *sizes(known), *shared(arms))
    sections = tuple(more(findings))
    path, _ = rendering.write(findings, out, title, told, sections)
    return Compared(out, title, findings, told, failed, path, sections)


def sizes(comparison: Comparison) -> tuple[str, ...]:
    """How large the budget lets each way be."""
    if comparison.budget is None:
        return ()
    budget = comparison.budget
    head = f"Budget of each run: {budget.amount:,} {budget.quantity}."
    head = " ".join(filter(None, (head, BOUNDS.get(budget.quantity))))
    return (
        head,
        *(f"{way.title}: {way.note}." for way in comparison.ways if way.note),
        *_far_off(comparison),
    )


def _far_off(comparison: Comparison) -> Iterator[str]:
    """A warning of the ways whose plan is not near the budget, before anything runs."""
    budget = comparison.budget
    if budget is None:
        return
    shares = {
        way.name: way.uses / budget.amount
        for way in comparison.ways
        if METHODS[way.config.method].kind != "none"
    }
    far = [f"{name} ({share:.0%})" for name, share in shares.items() if not NEAR <= share <= 1]
    if far:
        yield (
            f"Warning: by their plans these are not near the budget: {', '.join(far)}. They are "
            "not on equal terms with the others; choose another budget, or leave them out."
        )


def plan_of(comparison: Comparison) -> tuple[str, ...]:
    """What is to be run: every way with its members and size, and what all of it takes."""
    ways = (
        f"{way.title}: {plural(len(way.config.pool.members), 'member')}"
        + (f"; {way.note}." if way.note else ".")
        for way in comparison.ways
    )
    return (
        *comparison.notes,
        *sizes(comparison)[:1],
        *ways,
        *_far_off(comparison),
        *reckoned(comparison),
    )


def reckoned(comparison: Comparison) -> tuple[str, ...]:
    """What it all takes, by the plans of its runs: requests, time where that is known, and what
    the limits of the runs come to."""
    seeds, first = len(comparison.seeds), comparison.ways[0].config
    plans = [make_plan(way.config) for way in comparison.ways]
    found = [plan.total_seconds for plan in plans]
    if comparison.base.pool.recruit:
        made = make_plan(first.model_copy(update={"pool": comparison.base.pool})).total_seconds
        found.append(None if made is None or found[0] is None else made - found[0])
    known = [seconds for seconds in found if seconds is not None]
    runs = plural(len(comparison.ways) * seeds, "run")
    requests = seeds * sum(map(_requests, plans))
    text = f"{runs} with about {requests:,.0f} requests"
    if len(known) == len(found) and sum(known):
        text += f", one after another about {duration(seeds * sum(known))}, pools included"
    return (f"{text}: a rough estimate, less for what is finished or shared.", *_limits(comparison))


def _requests(plan: Plan) -> float:
    asked = sum(times * demand.requests for times, demand in all_demands(plan.rounds))
    return asked + plan.evaluation_requests


def _limits(comparison: Comparison) -> Iterator[str]:
    """Limits on endpoints are those of one run; all runs together may use more."""
    for key in BudgetSettings.model_fields:
        given = [getattr(way.config.budget, key) for way in comparison.ways]
        if set(given) != {None}:
            most = len(comparison.seeds) * sum(one or 0 for one in given)
            yield f"budget.{key} is a limit for each run by itself: {most:,.12g} for all of them."


def shared(arms: list[Arm]) -> Iterator[str]:
    """How much was asked once and used by several arms."""
    taken = requests = 0
    for arm in arms:
        path = run_ledger_path(arm.folder)
        if path.exists():
            with Ledger(path) as ledger:
                taken += shared_in_all(ledger)
                requests += ledger.count("responses")
    if taken:
        yield (
            f"Of {requests:,} requests of all runs, measurement included, {taken:,} had been "
            "answered for another run of the seed, and were not asked again."
        )
