"""What was asked and what came of it: requests, judgments, outcomes, pairs, reputations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from phalanx.ledger import Ledger
from phalanx.report.records import (
    Accounting,
    Encounter,
    JudgeFacts,
    PhaseAccount,
    ReputationLine,
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
    unreadable = Counter(
        short_reason(row["reason"])
        for row in ledger.iterate(
            "SELECT reason FROM judgments WHERE score_left IS NULL OR score_right IS NULL"
        )
    )
    judgments = ledger.query("SELECT count(*) AS n, total(flipped) AS flipped FROM judgments")[0]
    dropped = _counts(ledger, "SELECT dropped AS key, count(*) AS n FROM pairs GROUP BY 1")
    return Accounting(
        phases=tuple(_phases(ledger)),
        num_duels=ledger.count("duels"),
        num_responses_needed=2 * ledger.count("duels"),
        outcomes=_counts(ledger, "SELECT status AS key, count(*) AS n FROM outcomes GROUP BY 1"),
        judgments_asked=judgments["n"],
        judgments_readable=judgments["n"] - sum(unreadable.values()),
        judgments_flipped=int(judgments["flipped"]),
        unreadable=dict(unreadable.most_common()),
        pairs_kept=dropped.pop("", 0),
        dropped=dropped,
    )


def _counts(ledger: Ledger, sql: str) -> dict[str, int]:
    rows = ledger.query(sql)
    return {row["key"]: row["n"] for row in sorted(rows, key=lambda r: (-r["n"], r["key"]))}


def _phases(ledger: Ledger) -> list[PhaseAccount]:
    """A phase that is running has no row in ``phases`` yet; then what is stored was asked."""
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
        asked = max(planned.get(place, 0), row["stored"])
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


def reputations(
    ledger: Ledger, names: Sequence[str]
) -> tuple[tuple[ReputationLine, ...], tuple[int, ...]]:
    """Each contestant's line, and the number of duels after which each iteration ended."""
    order = {
        row["id"]: number
        for number, row in enumerate(
            ledger.iterate("SELECT id FROM duels ORDER BY iteration, position"), start=1
        )
    }
    ends: dict[int, int] = {}
    for row in ledger.query("SELECT iteration, count(*) AS n FROM duels GROUP BY 1 ORDER BY 1"):
        ends[row["iteration"]] = row["n"] + max(ends.values(), default=0)
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in ledger.iterate("SELECT * FROM reputations ORDER BY iteration, position"):
        line = points[row["member"]]
        if not line:
            line.append((0, row["before"]))
        line.append((order.get(row["duel"], ends.get(row["iteration"], 0)), row["after"]))
    last = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"]
    standings = ledger.state(last)["standings"] if last is not None else {}
    records = _records(ledger)
    lines = []
    for name in names:
        standing = standings.get(name)
        if standing is None or (name not in points and name not in records):
            continue
        line = points.get(name) or [(0, standing.value)]
        lines.append(
            ReputationLine(
                member=name,
                points=tuple(line),
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
    "SELECT d.left, d.right, o.status, o.winner FROM duels d JOIN outcomes o ON o.duel = d.id "
    "WHERE o.status IN ('decided', 'tie')"
)


def _records(ledger: Ledger) -> dict[str, Counter[str]]:
    records: dict[str, Counter[str]] = defaultdict(Counter)
    for row in ledger.iterate(_JUDGED):
        for side in ("left", "right"):
            result = "tie" if row["status"] == "tie" else "won" if row["winner"] == side else "lost"
            records[row[side]][result] += 1
    return records


def encounters(ledger: Ledger) -> tuple[Encounter, ...]:
    """Both directions of every pairing that was judged at least once."""
    wins: Counter[tuple[str, str]] = Counter()
    judged: Counter[tuple[str, str]] = Counter()
    for row in ledger.iterate(_JUDGED):
        here, there = (row["left"], row["right"]), (row["right"], row["left"])
        judged.update((here, there))
        if row["status"] == "decided":
            wins[here if row["winner"] == "left" else there] += 1
    return tuple(Encounter(*key, wins[key], judged[key]) for key in sorted(judged))


def judges(ledger: Ledger, names: Sequence[str]) -> tuple[JudgeFacts, ...]:
    """One line per member that judged."""
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    for row in ledger.iterate(
        "SELECT j.judge, j.score_left, j.score_right, j.reason, j.flipped, o.status, o.winner, "
        "length(l.text) AS left_length, length(r.text) AS right_length FROM judgments j "
        "JOIN duels d ON d.id = j.duel JOIN outcomes o ON o.duel = j.duel "
        "LEFT JOIN responses l ON l.id = d.left_response "
        "LEFT JOIN responses r ON r.id = d.right_response"
    ):
        tallies[row["judge"]].add(row)
    last = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"]
    reliability = ledger.state(last)["reliability"] if last is not None else {}
    return tuple(tallies[name].facts(name, reliability) for name in names if name in tallies)


class _Tally:
    """Counts of one judge."""

    def __init__(self) -> None:
        self.asked = self.flipped = self.ties = 0
        self.unreadable: Counter[str] = Counter()
        self.agreed: list[bool] = []
        self.longer: list[bool] = []
        self.scores: list[float] = []

    def add(self, row: dict) -> None:
        self.asked += 1
        self.flipped += row["flipped"]
        left, right = row["score_left"], row["score_right"]
        if left is None or right is None:
            self.unreadable[short_reason(row["reason"])] += 1
            return
        self.scores += [left, right]
        if left == right:
            self.ties += 1
            return
        side = "left" if left > right else "right"
        if row["status"] == "decided":
            self.agreed.append(side == row["winner"])
        lengths = (row["left_length"], row["right_length"])
        if None not in lengths and lengths[0] != lengths[1]:
            self.longer.append(side == ("left" if lengths[0] > lengths[1] else "right"))

    def facts(self, name: str, reliability: dict[str, float]) -> JudgeFacts:
        return JudgeFacts(
            member=name,
            asked=self.asked,
            readable=self.asked - sum(self.unreadable.values()),
            unreadable=dict(self.unreadable.most_common()),
            flipped=self.flipped,
            ties=self.ties,
            agreement=_mean(self.agreed),
            num_compared=len(self.agreed),
            mean_score=_mean(self.scores),
            longer=_mean(self.longer),
            num_lengths=len(self.longer),
            reliability=reliability.get(name),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
