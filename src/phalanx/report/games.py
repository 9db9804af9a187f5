"""The tables of contests, from the verdicts in ``games`` alone.

A line is one member by one judge, or by all of them together: their verdicts on an item are
averaged (AlpacaEval, open tasks) or counted side by side (Arena-Hard, MT-Bench), and always
resampled with the item.
"""

from __future__ import annotations

import json
import math
import statistics as plain
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from phalanx.benchmarks.alpaca_eval import (
    Comparison,
    Gamed,
    Spread,
    bootstrap_length_controlled,
    raw_win_rate,
)
from phalanx.benchmarks.arena_hard import ArenaHard, Game, arena_hard
from phalanx.benchmarks.mt_bench import MTBench, RatedTurn, mt_bench
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger
from phalanx.ledger.rows import CONTEST
from phalanx.report.accounting import short_reason
from phalanx.report.measured import pairs_of
from phalanx.statistics import (
    Interval,
    clustered_mean,
    detectable,
    difference_interval,
    holm,
    paired_test,
    sign_test,
)
from phalanx.statistics.paired import ALPHA
from phalanx.statistics.shares import wilson_of_share

LC_DRAWS = 100
"""Refits behind the interval of a length-controlled rate."""
_DRAWS = 1000
_NOTHING = 1e-9  # intervals narrower than this have the width of rounding

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with what it is called: a share, a rating from 1 to 10, or points (Elo).

    ``p`` is that of the sign test against one half.
    """

    name: str
    value: float
    interval: Interval | None = None
    error: float | None = None
    unit: str = "share"
    p: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A member by one judge, or by all ("").

    ``games == readable + sum(unreadable) + unanswered + alike``: verdicts that were read, those
    that were not by their reason, answers of the member that are missing (a loss, or the lowest
    rating), and answers equal to the rival's (a tie). ``first`` is (wins of what was shown first,
    decided verdicts); ``swapped`` is (verdicts that changed with the order, items seen in both).
    Lengths are means in characters.
    """

    member: str
    judge: str
    items: int
    games: int
    readable: int
    unreadable: dict[str, int]
    unanswered: int
    alike: int
    first: tuple[int, int]
    swapped: tuple[int, int]
    length: float
    rival_length: float | None
    measures: tuple[Measure, ...]
    domains: dict[str, tuple[float, int]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher ``member`` is than ``against`` on the items that both have.

    In shares, or in points of rating; ``detectable`` is the difference that the test would find
    four times in five. ``adjusted`` is Holm's p over the differences of a contest.
    """

    member: str
    against: str
    items: int
    value: float
    interval: Interval
    pvalue: float
    detectable: float | None
    adjusted: float = 1.0

    @property
    def direction(self) -> int:
        """1 or -1 where the adjusted test says so, else 0."""
        return 0 if self.adjusted >= ALPHA else 1 if self.value > 0 else -1


@dataclass(frozen=True, slots=True)
class Contest:
    """A task with its tables; ``published``: judge and baseline are those of AlpacaEval 2."""

    task: str
    kind: str
    version: str
    baseline: str
    judges: tuple[str, ...]
    published: bool
    lines: tuple[Line, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


def contests(ledger: Ledger, seed: int, only: str = "") -> Iterator[Contest]:
    """Every contest that has verdicts, in the order of the tasks' names, or that of a task."""
    against = ledger.get("against")
    for stored in ledger.query(
        "SELECT key, value FROM run WHERE key LIKE ? ORDER BY key", (f"{CONTEST}%",)
    ):
        task, facts = stored["key"].removeprefix(CONTEST), json.loads(stored["value"])
        if only not in ("", task):
            continue
        rows = ledger.query("SELECT * FROM games WHERE task = ?", (task,))
        if rows:
            yield _contest(task, facts, rows, seed, against)


def _contest(
    task: str, facts: dict[str, Any], rows: Sequence[Row], seed: int, against: str | None
) -> Contest:
    kind = facts["kind"]
    of_member = {name: [row for row in rows if row["member"] == name] for name in facts["subjects"]}
    of_member = {name: mine for name, mine in of_member.items() if mine}
    lines = []
    for member, mine in of_member.items():
        judges = [name for name in facts["judges"] if any(row["judge"] == name for row in mine)]
        groups = {name: [row for row in mine if row["judge"] == name] for name in judges}
        if len(judges) > 1:
            lines.append(_line(member, "", mine, facts, seed))
        lines += [_line(member, name, of_judge, facts, seed) for name, of_judge in groups.items()]
    values = {member: item_values(mine, kind) for member, mine in of_member.items()}
    pairs = pairs_of(list(of_member), against if against in of_member else None)
    return Contest(
        task=task,
        kind=kind,
        version=facts["version"],
        baseline=facts["baseline"],
        judges=tuple(facts["judges"]),
        published=facts["published"],
        lines=tuple(lines),
        differences=tuple(_differences(pairs, values, kind, seed)),
        notes=tuple(facts["notes"]),
    )


def item_values(rows: Sequence[Row], kind: str) -> dict[str, float]:
    """What a member got on each item: the mean over its verdicts, by all judges.

    Of open tasks each judge counts once an item: its two orders together, a tie where they
    disagree and nothing where one of them is missing.
    """
    found: dict[str, list[float]] = {}
    for item, values in _verdicts(rows, kind):
        found.setdefault(item, []).extend(value for value in values if value is not None)
    return {item: plain.fmean(values) for item, values in found.items() if values}


def _verdicts(rows: Sequence[Row], kind: str) -> Iterator[tuple[str, list[float | None]]]:
    """(item, values of one judge on it)."""
    of_judge: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        of_judge.setdefault((row["item"], row["judge"]), []).append(row)
    for (item, _), mine in of_judge.items():
        values = [row["value"] for row in mine]
        if kind == "open" and len(mine) == 2:
            both = None not in values
            values = [(values[0] if values[0] == values[1] else 0.5) if both else None]
        yield item, values


def _line(member: str, judge: str, rows: Sequence[Row], facts: dict[str, Any], seed: int) -> Line:
    judged = [row for row in rows if row["request"]]
    read = [row for row in judged if row["value"] is not None]
    unread = Counter(short_reason(row["reason"]) for row in rows if row["value"] is None)
    others = [row["rival_length"] for row in rows if row["rival_length"] is not None]
    values = item_values(rows, facts["kind"])
    measures, notes = _MEASURES[facts["kind"]](rows, values, facts, seed)
    odd = Counter(flag for row in read for flag in row["reason"].split(", ") if flag)
    return Line(
        member=member,
        judge=judge,
        items=len({row["item"] for row in rows}),
        games=len(rows),
        readable=len(read),
        unreadable=dict(unread.most_common()),
        unanswered=sum(not row["request"] and row["value"] in (0.0, 1.0) for row in rows),
        alike=sum(not row["request"] and row["value"] == 0.5 for row in rows),
        first=_first(read),
        swapped=_swapped(read),
        length=plain.fmean(row["length"] for row in rows),
        rival_length=plain.fmean(others) if others else None,
        measures=tuple(measures),
        domains=_domains(values, facts["groups"]),
        notes=(*notes, *(_ODD[flag].format(n) for flag, n in odd.items())),
    )


_ODD = {
    "low_mass": "in {} verdicts the two letters had less than half of the probability",
    "shortened": "in {} verdicts an answer was shortened to fit",
}


def _first(read: Sequence[Row]) -> tuple[int, int]:
    """(verdicts for what was shown first, decided verdicts) of the games that have an order."""
    decided = [row for row in read if row["game"] in ("first", "second") and row["value"] != 0.5]
    won = sum((row["value"] > 0.5) == (row["game"] == "first") for row in decided)
    return won, len(decided)


def _swapped(read: Sequence[Row]) -> tuple[int, int]:
    """(verdicts that changed with the order, those read in both orders)."""
    both: dict[tuple[str, str], dict[str, float]] = {}
    for row in read:
        both.setdefault((row["item"], row["judge"]), {})[row["game"]] = row["value"]
    pairs = [mine for mine in both.values() if {"first", "second"} <= mine.keys()]
    return sum(mine["first"] != mine["second"] for mine in pairs), len(pairs)


def _domains(
    values: Mapping[str, float], groups: Mapping[str, str]
) -> dict[str, tuple[float, int]]:
    """Mean and number of items by domain; none where all are of one."""
    found: dict[str, list[float]] = {}
    for item, value in values.items():
        found.setdefault(groups[item], []).append(value)
    if len(found) < 2:
        return {}
    return {name: (plain.fmean(mine), len(mine)) for name, mine in sorted(found.items())}


def _differences(
    pairs: Sequence[tuple[str, str]],
    values: Mapping[str, Mapping[str, float]],
    kind: str,
    seed: int,
) -> list[Difference]:
    """Of those who have an item in common."""
    both = {
        (one, other): [item for item in values[one] if item in values[other]]
        for one, other in pairs
    }
    both = {names: items for names, items in both.items() if items}
    # Ratings go from 1 to 10: the test's scores are shares of that.
    scale = 9 if kind == "mt_bench" else 1
    found = []
    for (one, other), items in both.items():
        before = [values[other][item] / scale for item in items]
        after = [values[one][item] / scale for item in items]
        changes = [(values[one][item] - values[other][item]) / scale for item in items]
        interval = difference_interval(changes, seed)
        finds = detectable(before, after, family=len(both))
        found.append(
            Difference(
                member=one,
                against=other,
                items=len(items),
                value=scale * plain.fmean(changes),
                interval=Interval(*(scale * end for end in interval)),
                pvalue=paired_test(before, after, seed=seed).pvalue,
                detectable=None if finds is None else scale * finds,
            )
        )
    adjusted = holm([one.pvalue for one in found])
    return [replace(one, adjusted=p) for one, p in zip(found, adjusted, strict=True)]


def _spread(interval: Interval) -> Interval | None:
    """A bootstrap's interval; None where nothing varied, of which resampling knows nothing."""
    return interval if interval.high - interval.low > _NOTHING else None


def _resampled(name: str, value: float, found: Spread | ArenaHard | MTBench, unit: str) -> Measure:
    """A number with its bootstrap, if that has any spread."""
    interval = _spread(found.interval)
    return Measure(name, value, interval, found.standard_error if interval else None, unit)


# What each kind counts ----------------------------------------------------------------------------


Measured = tuple[list[Measure], list[str]]


def _win_rate(values: Mapping[str, float]) -> list[Measure]:
    """Mean share over items, against one half; none without any verdict."""
    shares = list(values.values())
    if not shares:
        return []
    rate = plain.fmean(shares)
    error = clustered_mean(shares).error if len(set(shares)) > 1 else None
    wins, losses = sum(share > 0.5 for share in shares), sum(share < 0.5 for share in shares)
    p = sign_test(wins, len(shares) - wins - losses, losses)
    return [Measure("win rate", rate, wilson_of_share(rate, len(shares), 0.95), error, p=p)]


def _alpaca(
    rows: Sequence[Row], values: Mapping[str, float], facts: dict[str, Any], seed: int
) -> Measured:
    """Raw and length-controlled. Without difficulties that term is left out."""
    lengths = {row["item"]: (row["rival_length"], row["length"]) for row in rows}
    place = {item: at for at, item in enumerate(facts["turns"])}
    places = {item: facts["index"].get(item, place[item]) for item in values}
    found = [Comparison(places[item], share, *lengths[item]) for item, share in values.items()]
    if not found:
        return [], []
    raw = raw_win_rate(found)
    interval = wilson_of_share(raw.win_rate, raw.n, 0.95)
    measures = [Measure("win rate", raw.win_rate, interval, raw.standard_error or None)]
    known = {int(index): value for index, value in facts["difficulty"].items()}
    difficulty = tuple((row.index, known.get(row.index, 0.0)) for row in found)
    gamed = tuple(Gamed(*row) for row in facts["gamed"])
    try:
        spread = _controlled(tuple(found), difficulty, gamed, seed)
    except (ConfigError, ArithmeticError, ValueError) as error:
        return measures, [f"no length-controlled win rate: {error}"]
    name = "length-controlled" if facts["published"] and gamed else "length-controlled, own judge"
    measures.append(_resampled(name, spread.value, spread, "share"))
    return measures, []


@lru_cache(maxsize=64)
def _controlled(
    found: tuple[Comparison, ...],
    difficulty: tuple[tuple[int, float], ...],
    gamed: tuple[Gamed, ...],
    seed: int,
) -> Spread:
    """Remembered: the summary and the page ask for the same."""
    return bootstrap_length_controlled(found, dict(difficulty), gamed, seed=seed, draws=LC_DRAWS)


def _arena(
    rows: Sequence[Row], values: Mapping[str, float], facts: dict[str, Any], seed: int
) -> Measured:
    """A clear win as three battles (as published) and as one."""
    games = [
        Game(row["item"], row["game"] == "first", row["label"] or None, row["judge"])
        for row in rows
    ]
    if not values:
        return [], []
    measures = []
    for weight in (3, 1):
        found = arena_hard(games, seed=seed, clear_weight=weight, draws=_DRAWS)
        name = f"win rate, weight {weight}"
        measures.append(_resampled(name, found.win_rate, found, "share"))
        if weight == 3 and math.isfinite(found.rating):
            measures.append(Measure("rating", found.rating, unit="points"))
    return measures, []


def _two_turns(
    rows: Sequence[Row], values: Mapping[str, float], facts: dict[str, Any], seed: int
) -> Measured:
    rated = [
        RatedTurn(row["item"], row["domain"], int(row["game"][-1]), row["value"], row["judge"])
        for row in rows
    ]
    if not values:
        return [], []
    found = mt_bench(rated, seed=seed, draws=_DRAWS)
    measures = [_resampled("rating", found.score, found, "rating")]
    measures += [
        Measure(f"turn {turn}", value, unit="rating")
        for turn, value in found.by_turn.items()
        if value is not None
    ]
    return measures, []


def _open(
    rows: Sequence[Row], values: Mapping[str, float], facts: dict[str, Any], seed: int
) -> Measured:
    """The win rate, and how large the differences of scores are beside their spread."""
    measures = _win_rate(values)
    scored = [row for row in rows if row["game"] == "scores" and row["label"]]
    if len({row["judge"] for row in scored}) == 1 and len(scored) > 1:
        differences = [float(row["label"]) for row in scored]
        spread = plain.stdev(differences)
        if spread > 0:
            mean = clustered_mean(differences)
            low, high = (end / spread for end in mean.interval)
            measures.append(
                Measure("difference in SD", mean.value / spread, Interval(low, high), unit="SD")
            )
    return measures, []


_MEASURES = {"alpaca_eval": _alpaca, "arena_hard": _arena, "mt_bench": _two_turns, "open": _open}
