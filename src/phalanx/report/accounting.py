"""What was asked and what came of it: requests, judgments, outcomes, pairs, reputations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from phalanx.config.rules_guarding import JUDGED_ALONE
from phalanx.ledger import Ledger
from phalanx.report.records import (
    Accounting,
    Encounter,
    PhaseAccount,
    ReputationLine,
)

# How many judgments flipped; no number where all are of protocols whose judgments cannot.
FLIPPED = (
    "CASE WHEN count(*) AND NOT total(protocol NOT IN "
    f"({', '.join(map(repr, JUDGED_ALONE))})) THEN NULL ELSE total(flipped) END"
)
_SLOT = re.compile(r"^(?:left|right|first|second): ")


def short_reason(reason: str) -> str:
    """The class of a reason: its first clause, without the side and without particulars.

    >>> short_reason("left: truncated at the token limit (no score); right: no score")
    'truncated at the token limit'
    """
    first = _SLOT.sub("", reason.split("; ")[0])
    return re.split(r" \(|: ", first)[0].strip() or "unknown"


def accounting(ledger: Ledger) -> Accounting:
    """Counts of the whole run; see :class:`Accounting` for the sums that hold."""
    unreadable: Counter[str] = Counter()
    for row in ledger.iterate(
        "SELECT reason, count(*) AS n FROM judgments "
        "WHERE score_left IS NULL OR score_right IS NULL GROUP BY 1 ORDER BY min(rowid)"
    ):
        unreadable[short_reason(row["reason"])] += row["n"]
    judgments = ledger.query(f"SELECT count(*) AS n, {FLIPPED} AS flipped FROM judgments")[0]
    dropped = _counts(ledger, "SELECT dropped AS key, count(*) AS n FROM pairs GROUP BY 1")
    unshown = _counts(ledger, "SELECT dropped AS key, count(*) AS n FROM demonstrations GROUP BY 1")
    return Accounting(
        phases=tuple(_phases(ledger)),
        num_duels=ledger.count("duels"),
        num_responses_needed=2 * ledger.count("duels"),
        outcomes=_counts(ledger, "SELECT status AS key, count(*) AS n FROM outcomes GROUP BY 1"),
        judgments_asked=judgments["n"],
        judgments_readable=judgments["n"] - sum(unreadable.values()),
        judgments_flipped=None if judgments["flipped"] is None else int(judgments["flipped"]),
        unreadable=dict(unreadable.most_common()),
        pairs_kept=dropped.pop("", 0),
        dropped=dropped,
        demonstrations_kept=unshown.pop("", 0),
        demonstrations_dropped=unshown,
    )


def _counts(ledger: Ledger, sql: str) -> dict[str, int]:
    rows = ledger.query(sql)
    return {row["key"]: row["n"] for row in sorted(rows, key=lambda r: (-r["n"], r["key"]))}


def _phases(ledger: Ledger) -> list[PhaseAccount]:
    """What a phase asks is in ``phases`` once it has begun; where not, what is stored was asked.

    A request that several phases share is stored, and counts, where it was asked first. So only a
    phase that may still be under way owes anything.
    """
    open_ = _open_phases(ledger)
    planned = {
        (row["iteration"], row["phase"]): row["asked"]
        for row in ledger.query("SELECT iteration, phase, asked FROM phases")
    }
    failed: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    for row in ledger.query(
        "SELECT iteration, phase, error_kind, count(*) AS n FROM responses "
        "WHERE status = 'failed' GROUP BY 1, 2, 3 ORDER BY n DESC, 3"
    ):
        failed[row["iteration"], row["phase"]][row["error_kind"]] = row["n"]
    result = []
    for row in ledger.query(
        "SELECT iteration, phase, count(*) AS stored, sum(status = 'done') AS answered, "
        "sum(finish_reason = 'length') AS truncated, sum(num_shortened_tokens > 0) AS shortened, "
        "total(num_completion_tokens) AS tokens, min(at) AS began "
        "FROM responses GROUP BY iteration, phase ORDER BY iteration, began"
    ):
        place = (row["iteration"], row["phase"])
        asked = max(planned.get(place, 0), row["stored"]) if place in open_ else row["stored"]
        result.append(
            PhaseAccount(
                *place,
                asked=asked,
                answered=row["answered"],
                failed=failed[place],
                owed=asked - row["stored"],
                truncated=row["truncated"],
                shortened=row["shortened"],
                num_completion_tokens=int(row["tokens"]),
            )
        )
    return result


def _open_phases(ledger: Ledger) -> set[tuple[int, str]]:
    """The phase under way of every step that is not recorded as done."""
    recorded = {row["iteration"] for row in ledger.query("SELECT iteration FROM states")}
    open_: dict[tuple[int, bool], str] = {}
    for row in ledger.query(PHASES):
        number, phase = row["iteration"], row["phase"]
        measuring = phase.startswith("evaluate")
        if not (ledger.has_evaluation(number) if measuring else number in recorded):
            open_[number, measuring] = phase
    return {(number, phase) for (number, _), phase in open_.items()}


PHASES = (
    "SELECT iteration, phase, sum(stored) AS stored, max(asked) AS asked FROM ("
    "SELECT iteration, phase, count(*) AS stored, NULL AS asked, max(at) AS at, "
    "max(rowid) AS place FROM responses GROUP BY 1, 2 "
    "UNION ALL SELECT iteration, phase, 0, asked, 0, 0 FROM phases "
    "WHERE phase NOT IN ('train', 'recruit')) GROUP BY 1, 2 "
    "ORDER BY coalesce(max(asked), 0) > sum(stored), max(at), max(place)"
)
"""What each phase has stored and, where that was recorded, asked; last the one under way.

That is one that owes something; else one that was answered last, since the phases of a conversation
begin again with every turn.
"""


MAX_POINTS = 640
"""A member's line keeps fewer points than this: far more than a chart shows."""


_Point = tuple[int, float, float]  # duels so far, reputation, deviation


class _Points:
    """A line that never grows beyond :data:`MAX_POINTS`: every n-th point, and the last."""

    def __init__(self, first: _Point) -> None:
        self._kept = [first]
        self._last = first
        self._count = self._stride = 1

    def add(self, point: _Point) -> None:
        self._last = point
        if self._count % self._stride == 0:
            self._kept.append(point)
        self._count += 1
        if len(self._kept) >= MAX_POINTS:
            del self._kept[1::2]
            self._stride *= 2

    @property
    def all(self) -> list[_Point]:
        return self._kept if self._kept[-1] is self._last else [*self._kept, self._last]


def reputations(
    ledger: Ledger, names: Sequence[str]
) -> tuple[tuple[ReputationLine, ...], tuple[int, ...]]:
    """Each contestant's line, and the number of duels after which each iteration ended."""
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    for row in ledger.query("SELECT iteration, count(*) AS n FROM duels GROUP BY 1 ORDER BY 1"):
        begins[row["iteration"]] = max(ends.values(), default=0)
        ends[row["iteration"]] = begins[row["iteration"]] + row["n"]
    points: dict[str, _Points] = {}
    for row in ledger.iterate(
        "SELECT r.iteration, r.member, r.before, r.after, r.deviation, d.position "
        "FROM reputations r LEFT JOIN duels d ON d.id = r.duel ORDER BY r.iteration, r.position"
    ):
        line = points.setdefault(row["member"], _Points((0, row["before"], 0.0)))
        iteration, position = row["iteration"], row["position"]
        end = ends.get(iteration, 0)
        place = end if position is None else begins[iteration] + position + 1
        line.add((place, row["after"], row["deviation"] or 0.0))
    last = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"]
    standings = ledger.state(last)["standings"] if last is not None else {}
    records = _records(ledger)
    lines = []
    for name in names:
        standing = standings.get(name)
        if standing is None or (name not in points and name not in records):
            continue
        line = points[name].all if name in points else [(0, standing.value, 0.0)]
        lines.append(
            ReputationLine(
                member=name,
                points=tuple((place, value) for place, value, _ in line),
                deviations=tuple(deviation for *_, deviation in line),
                start=line[0][1],
                value=standing.value,
                deviation=standing.deviation,
                num_updates=standing.num_updates,
                wins=records[name]["won"],
                losses=records[name]["lost"],
                ties=records[name]["tie"],
            )
        )
    return tuple(lines), tuple(ends.values())


_JUDGED = (
    "SELECT d.left, d.right, o.status, o.winner, count(*) AS n "
    "FROM duels d JOIN outcomes o ON o.duel = d.id "
    "WHERE o.status IN ('decided', 'tie') GROUP BY 1, 2, 3, 4"
)


def _records(ledger: Ledger) -> dict[str, Counter[str]]:
    records: dict[str, Counter[str]] = defaultdict(Counter)
    for row in ledger.iterate(_JUDGED):
        for side in ("left", "right"):
            result = "tie" if row["status"] == "tie" else "won" if row["winner"] == side else "lost"
            records[row[side]][result] += row["n"]
    return records


def encounters(ledger: Ledger) -> tuple[Encounter, ...]:
    """Both directions of every pairing that was judged at least once."""
    wins: Counter[tuple[str, str]] = Counter()
    judged: Counter[tuple[str, str]] = Counter()
    for row in ledger.iterate(_JUDGED):
        here, there = (row["left"], row["right"]), (row["right"], row["left"])
        for pairing in (here, there):
            judged[pairing] += row["n"]
        if row["status"] == "decided":
            wins[here if row["winner"] == "left" else there] += row["n"]
    return tuple(Encounter(*key, wins[key], judged[key]) for key in sorted(judged))
