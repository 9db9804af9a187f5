"""What each judge did over the run: read, flipped, agreed, and what it favours."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.ledger import Ledger
from phalanx.report.accounting import FLIPPED, short_reason
from phalanx.report.records import JudgeFacts, Leaning
from phalanx.types import Member

_READABLE = "j.score_left IS NOT NULL AND j.score_right IS NOT NULL"
# What a duel has is put together once (MATERIALIZED): joined to its judgments, the texts behind the
# lengths would be sorted with them. Families come as JSON: {member: family}.
_SIDES = (
    "WITH families AS MATERIALIZED (SELECT key AS name, value AS family FROM json_each(?)), "
    "sides AS MATERIALIZED (SELECT d.id AS duel, d.left, d.right, o.status, "
    "CASE o.winner WHEN 'left' THEN 1 WHEN 'right' THEN -1 ELSE 0 END AS won, "
    "length(l.text) - length(r.text) AS more, "
    "lf.family AS left_family, rf.family AS right_family "
    "FROM duels d CROSS JOIN outcomes o ON o.duel = d.id "
    "LEFT JOIN responses l ON l.id = d.left_response "
    "LEFT JOIN responses r ON r.id = d.right_response "
    "LEFT JOIN families lf ON lf.name = d.left "
    "LEFT JOIN families rf ON rf.name = d.right), "
    # ``said`` and ``won`` are 1 for left and -1 for right; ``own`` and ``kin`` say likewise on
    # which side the judge's own response, or one of its family alone, stands (0: neither, both).
    "said AS (SELECT j.judge, j.protocol, j.flipped, s.status, s.won, s.more, "
    f"({_READABLE}) AS readable, j.score_left + j.score_right AS scores, "
    "(j.score_left > j.score_right) - (j.score_left < j.score_right) AS said, "
    "(s.left = j.judge) - (s.right = j.judge) AS own, "
    "CASE WHEN j.judge IN (s.left, s.right) THEN 0 ELSE "
    "coalesce(s.left_family = jf.family, 0) - coalesce(s.right_family = jf.family, 0) END AS kin "
    "FROM sides s CROSS JOIN judgments j ON j.duel = s.duel "
    "LEFT JOIN families jf ON jf.name = j.judge) "
)


def _leaning(side: str) -> str:
    """Untied judgments with ``side``, those for it, and those where the outcome was for it."""
    there = f"{side} != 0 AND said != 0"
    return (
        f"total({there}) AS num_{side}, total({there} AND said = {side}) AS for_{side}, "
        f"total({there} AND status = 'decided') AS decided_{side}, "
        f"total({there} AND status = 'decided' AND won = {side}) AS won_{side}"
    )


_JUDGES = _SIDES + (
    f"SELECT judge, count(*) AS asked, {FLIPPED} AS flipped, total(readable) AS readable, "
    "total(said = 0) AS ties, "
    "total(status = 'decided' AND said != 0) AS num_compared, "
    "total(status = 'decided' AND said != 0 AND said = won) AS agreed, "
    "total(CASE WHEN readable THEN scores END) AS scores, "
    "total(said != 0 AND more != 0) AS num_lengths, "
    "total(said > 0 AND more > 0 OR said < 0 AND more < 0) AS longer, "
    f"{_leaning('own')}, {_leaning('kin')} FROM said GROUP BY judge"
)


def judges(
    ledger: Ledger, names: Sequence[str], members: Sequence[Member] = ()
) -> tuple[JudgeFacts, ...]:
    """One line per member that judged, in the order of ``names``.

    A member without a family belongs to that of its base.
    """
    unreadable: dict[str, Counter[str]] = defaultdict(Counter)
    for row in ledger.iterate(
        f"SELECT j.judge, j.reason, count(*) AS n FROM judgments j WHERE NOT ({_READABLE}) "
        "GROUP BY 1, 2 ORDER BY min(j.rowid)"
    ):
        unreadable[row["judge"]][short_reason(row["reason"])] += row["n"]
    last = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"]
    reliability = ledger.state(last)["reliability"] if last is not None else {}
    families = {m.name: family for m in members if (family := m.family or m.base)}
    rows = {row["judge"]: row for row in ledger.query(_JUDGES, (json.dumps(families),))}
    return tuple(
        _judge_facts(rows[name], unreadable[name], reliability.get(name))
        for name in names
        if name in rows
    )


def _judge_facts(
    row: Mapping[str, Any], unreadable: Counter[str], reliability: float | None
) -> JudgeFacts:
    return JudgeFacts(
        member=row["judge"],
        asked=row["asked"],
        readable=int(row["readable"]),
        unreadable=dict(unreadable.most_common()),
        flipped=None if row["flipped"] is None else int(row["flipped"]),
        ties=int(row["ties"]),
        agreement=_share(row["agreed"], row["num_compared"]),
        num_compared=int(row["num_compared"]),
        mean_score=_share(row["scores"], 2 * row["readable"]),
        longer=_share(row["longer"], row["num_lengths"]),
        num_lengths=int(row["num_lengths"]),
        reliability=reliability,
        own=_leaning_of(row, "own"),
        family=_leaning_of(row, "kin"),
    )


def _leaning_of(row: Mapping[str, Any], side: str) -> Leaning | None:
    share = _share(row[f"for_{side}"], row[f"num_{side}"])
    if share is None:
        return None
    outcome = _share(row[f"won_{side}"], row[f"decided_{side}"])
    return Leaning(share, int(row[f"num_{side}"]), outcome)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
