"""The numbers of a comparison: every way's scores, and how far they are from those of others.

A way (a method with its settings) is one arm for each seed. What it stands for is the best member
after the run, which is chosen on dev items and reported on test items, or, where nobody trains,
those who answer together. Domains weigh the same. Every difference is paired by item and has two
intervals of 95 %: over items (these seeds, other questions) and over seeds (these questions, other
pools); neither holds for both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from phalanx.comparing.budget import Budget
from phalanx.comparing.reading import Reading, Used, read_arm, same_items
from phalanx.comparing.spec import FROZEN, Arm
from phalanx.errors import LedgerError
from phalanx.methods.method import Kind
from phalanx.report.scores import Item, Scores, macro
from phalanx.statistics import (
    Interval,
    Mean,
    clustered_mean,
    found_with,
    holm,
    least_pvalue,
    stratified_mean,
)
from phalanx.statistics.paired import ALPHA

ROUNDING = 1e-12
"""What sums of shares may differ by and still be the same."""
Triple = tuple[Mapping[Item, str], Scores, Scores]
"""(item -> domain, scores before, scores after) of one seed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two ways, in shares: mean over domains and seeds, paired by item.

    ``p_*`` are those of Student's t over items and over seeds, ``adjusted_*`` Holm's over all ways
    that are compared with the same one. That over items is no smaller than flipping the signs of
    the ``differing`` items could make it. None where there is nothing to estimate from: a domain
    with a single item, fewer than two seeds, or seeds that are all alike. ``finds`` is the
    smallest difference that the adjusted test over items would find with 80 % chance, by the
    spread that is seen; None where so few items differ that it would find nothing.
    """

    value: float
    by_seed: dict[int, float]
    num_items: int
    differing: int
    """Items whose scores differ, in the sum over seeds."""
    items: Interval | None
    seeds: Interval | None
    p_items: float | None
    p_seeds: float | None
    error: float | None
    adjusted_items: float | None = None
    adjusted_seeds: float | None = None
    finds: float | None = None
    alike: bool = False
    """Every item of every seed has the same score on both sides."""

    @property
    def direction(self) -> int:
        """1 better and -1 worse by the adjusted test over items; 0 unclear."""
        if self.adjusted_items is None or self.adjusted_items >= ALPHA:
            return 0
        return 1 if self.value > 0 else -1

    @property
    def over_seeds_too(self) -> bool:
        """Whether the adjusted test over seeds says so as well."""
        return self.adjusted_seeds is not None and self.adjusted_seeds < ALPHA


@dataclass(frozen=True, slots=True)
class Change:
    """From the start of the runs to their end, in shares; each with its value by seed."""

    start: float
    end: float
    difference: Difference


@dataclass(frozen=True, slots=True)
class Row:
    """One way: its level and by seed, whose it is in each seed, and how far it is from others.

    ``mean`` and ``vote`` are of the members, from their start to their end, in ways that train;
    ``domains`` has the level in each domain. ``used`` is that of the mean seed, ``off_budget`` the
    share of the budget in those seeds where it is far from the whole.
    """

    name: str
    method: str
    kind: Kind
    seeds: tuple[int, ...]
    level: float
    by_seed: tuple[float, ...]
    whose: tuple[str, ...]
    differences: dict[str, Difference]
    mean: Change | None
    vote: Change | None
    domains: dict[str, float]
    used: dict[str, float]
    off_budget: dict[int, float]
    warnings: dict[int, tuple[str, ...]]
    """What makes a seed say little of the way, whatever its scores."""

    @property
    def trained(self) -> bool:
        """Whether anybody took a step in it."""
        return self.used["steps"] > 0


@dataclass(frozen=True, slots=True)
class Missing:
    """An arm that has no place in the table, and why."""

    name: str
    seed: int
    why: str


@dataclass(frozen=True, slots=True)
class Findings:
    """All ways in their order. ``against`` are those with whom the others are compared."""

    rows: tuple[Row, ...]
    against: tuple[str, ...]
    seeds: tuple[int, ...]
    missing: tuple[Missing, ...]
    num_dev: int
    num_test: int
    domains: tuple[str, ...]
    fixed_items: bool
    """Whether all seeds have the same test items."""
    budget: dict[str, int]
    """Quantity -> its amount; empty where there is none."""

    @property
    def untrained(self) -> tuple[str, ...]:
        """The ways of methods that train in which nobody learned anything."""
        return tuple(r.name for r in self.rows if r.kind in ("single", "several") and not r.trained)

    def share(self, row: Row) -> float | None:
        """What a way used of the budget; None without one, and for the way that does nothing."""
        if not self.budget or row.kind == "none":
            return None
        ((quantity, amount),) = self.budget.items()
        return row.used[quantity] / amount


def tabulate(
    arms: Sequence[Arm], against: Sequence[str] = (FROZEN,), budget: Budget | None = None
) -> Findings:
    """The comparison of all arms that are finished and can be read; the others are named.

    Raises LedgerError where arms of a seed were measured on other items.
    """
    found: dict[tuple[str, int], Reading] = {}
    missing = []
    for arm in arms:
        try:
            found[arm.name, arm.seed] = read_arm(arm)
        except LedgerError as error:
            missing.append(Missing(arm.name, arm.seed, str(error)))
    _refuse_other_items(found)
    names = list(dict.fromkeys(arm.name for arm in arms))
    ways = {
        name: {seed: reading for (one, seed), reading in found.items() if one == name}
        for name in names
    }
    present = {name: way for name, way in ways.items() if way}
    differences = {name: _compared(present, name) for name in against if name in present}
    some = next(iter(found.values()), None)
    return Findings(
        rows=tuple(_row(name, way, differences, budget) for name, way in present.items()),
        against=tuple(against),
        seeds=tuple(dict.fromkeys(arm.seed for arm in arms)),
        missing=tuple(missing),
        num_dev=len(some.table.of(0, some.members[0], "dev")) if some else 0,
        num_test=len(some.headline) if some else 0,
        domains=some.table.domains if some else (),
        fixed_items=same_items(list(found.values())),
        budget={budget.quantity: budget.amount} if budget else {},
    )


def _refuse_other_items(found: Mapping[tuple[str, int], Reading]) -> None:
    for seed in dict.fromkeys(seed for _, seed in found):
        mine = {name: reading for (name, one), reading in found.items() if one == seed}
        first, *rest = mine
        for name in rest:
            if set(mine[name].headline) != set(mine[first].headline):
                raise LedgerError(
                    f"seed {seed}: {name} was measured on other items than {first}, so the two "
                    "cannot be compared; remove one of their folders and run the command again"
                )


def _compared(ways: Mapping[str, Mapping[int, Reading]], reference: str) -> dict[str, Difference]:
    """Each other way against this one, in the seeds that both have; adjusted together."""
    base = ways[reference]
    found = {}
    for name, way in ways.items():
        seeds = [seed for seed in way if seed in base]
        if name != reference and seeds:
            found[name] = difference(
                {s: (way[s].domain, base[s].headline, way[s].headline) for s in seeds}
            )
    return dict(zip(found, adjusted(list(found.values())), strict=True))


def difference(triples: Mapping[int, Triple]) -> Difference:
    """The difference of the seeds' triples, on the items that both sides of each have.

    Items are a sample of their domains, and clusters over seeds, so that the same question in
    several seeds counts once for the interval over items; over seeds it is Student's t of their
    means.
    """
    rows = {
        seed: {item: after[item] - before[item] for item in sorted(after) if item in before}
        for seed, (_, before, after) in triples.items()
    }
    by_seed = {seed: macro(row, triples[seed][0]) for seed, row in rows.items()}
    changes: dict[Item, float] = {}
    for row in rows.values():
        for item, change in row.items():
            changes[item] = changes.get(item, 0.0) + change
    differing = sum(abs(change) > ROUNDING for change in changes.values())
    domain = {item: name for of, _, _ in triples.values() for item, name in of.items()}
    over_items = stratified_mean(list(rows.values()), domain)
    over_seeds = clustered_mean(list(by_seed.values())) if len(by_seed) > 1 else None
    return Difference(
        value=sum(by_seed.values()) / len(by_seed),
        by_seed=by_seed,
        num_items=len(changes),
        differing=differing,
        items=_spread(over_items),
        seeds=_spread(over_seeds),
        # Without a spread t says nothing, and the signs alone speak.
        p_items=max(over_items.pvalue or 0.0, least_pvalue(differing)) if over_items else None,
        p_seeds=over_seeds.pvalue if over_seeds else None,
        error=over_items.error if over_items else None,
        alike=not any(change for row in rows.values() for change in row.values()),
    )


def _spread(mean: Mean | None) -> Interval | None:
    """The interval, cut at what is possible; None where all are alike, which shows no spread and
    proves none."""
    if mean is None or mean.error < ROUNDING:
        return None
    return Interval(max(-1.0, mean.interval.low), min(1.0, mean.interval.high))


def adjusted(found: Sequence[Difference]) -> list[Difference]:
    """The same differences with Holm's p over all of them, and what could have been found."""
    items = _holm([one.p_items for one in found])
    seeds = _holm([one.p_seeds for one in found])
    family = sum(one.p_items is not None for one in found)
    return [
        replace(
            one,
            adjusted_items=p_items,
            adjusted_seeds=p_seeds,
            finds=_finds(one, family),
        )
        for one, p_items, p_seeds in zip(found, items, seeds, strict=True)
    ]


def _finds(one: Difference, family: int) -> float | None:
    if not one.error or least_pvalue(one.differing) >= ALPHA / family:
        return None
    return found_with(one.error, family=family)


def _holm(pvalues: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of those that are there."""
    found = iter(holm([one for one in pvalues if one is not None]))
    return [None if one is None else next(found) for one in pvalues]


def _row(
    name: str,
    way: Mapping[int, Reading],
    differences: Mapping[str, Mapping[str, Difference]],
    budget: Budget | None,
) -> Row:
    readings = list(way.values())
    by_seed = tuple(macro(one.headline, one.domain) for one in readings)
    first = readings[0]
    measured = first.kind != "answer"  # nobody changes there
    return Row(
        name=name,
        method=first.method,
        kind=first.kind,
        seeds=tuple(way),
        level=sum(by_seed) / len(by_seed),
        by_seed=by_seed,
        whose=tuple(one.headline_of for one in readings),
        differences={ref: rows[name] for ref, rows in differences.items() if name in rows},
        mean=_change(way, Reading.of_pool) if measured else None,
        vote=_change(way, Reading.of_vote) if measured else None,
        domains=_by_domain(readings),
        used=_mean_used([one.used for one in readings]),
        off_budget={
            seed: one.used.share(budget)
            for seed, one in way.items()
            if budget and one.kind != "none" and one.used.off_budget(budget)
        },
        warnings={seed: one.warnings for seed, one in way.items() if one.warnings},
    )


def _change(way: Mapping[int, Reading], of: Callable[[Reading, int], Scores]) -> Change | None:
    """From iteration 0 to the last; None where no item can be counted."""
    triples = {seed: (one.domain, of(one, 0), of(one, one.last)) for seed, one in way.items()}
    if not all(before and after for _, before, after in triples.values()):
        return None
    starts = [macro(before, domain) for domain, before, _ in triples.values()]
    ends = [macro(after, domain) for domain, _, after in triples.values()]
    return Change(
        start=sum(starts) / len(starts),
        end=sum(ends) / len(ends),
        difference=difference(triples),
    )


def _by_domain(readings: Sequence[Reading]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in readings:
        scores: dict[str, list[float]] = {}
        for item, score in one.headline.items():
            scores.setdefault(one.domain[item], []).append(score)
        for domain, values in scores.items():
            found.setdefault(domain, []).append(sum(values) / len(values))
    return {domain: sum(values) / len(values) for domain, values in sorted(found.items())}


def _mean_used(used: Sequence[Used]) -> dict[str, float]:
    return {
        name: sum(getattr(one, name) for one in used) / len(used)
        for name in Used.__dataclass_fields__
    }
