"""What can be browsed in a run, one line each: duels, pairs, demonstrations, verdicts of contests,
measured answers.

All kinds have the same columns, so that one browser shows them all: the live page asks for them,
the report file has them inside. The texts are in :mod:`phalanx.report.duel_texts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from phalanx.ledger import Ledger
from phalanx.report.examples import PAIR_OF_DUEL

Kind = Literal["duels", "pairs", "demonstrations", "contests", "answers"]
KINDS: tuple[Kind, ...] = get_args(Kind)

COLUMNS = (
    "id", "iteration", "left", "right", "domain", "head", "status", "winner", "score_left",
    "score_right", "for_left", "for_right", "for_tie", "unread", "flipped", "length_left",
    "length_right", "pair",
)  # fmt: skip
"""``head`` is the beginning of the instruction. ``for_*``: readable judgments for each side, or for
none; ``unread``: those that could not be read. Lengths are characters, None where there is no
response. ``pair`` is "made", why a duel's pair was dropped, or "" where there is none. Of a pair
``left`` is the chosen response; a demonstration, an answer and what is rated alone have no right
side."""
# Few different values: stored as a list of names and positions in it.
_NAMED = frozenset({"left", "right", "domain", "head", "status", "winner", "pair"})
_HEAD = 90  # characters of an instruction that a line of the list shows

# The aggregates are made in one pass over each table, not once for each duel.
_DUELS = (
    "WITH votes AS (SELECT duel, sum(score_left > score_right) AS for_left, "
    "sum(score_right > score_left) AS for_right, sum(score_left = score_right) AS for_tie, "
    "sum(score_left IS NULL OR score_right IS NULL) AS unread, sum(flipped) AS flipped "
    "FROM judgments GROUP BY duel) "
    "SELECT d.id, d.iteration, d.left, d.right, coalesce(i.domain, '') AS domain, "
    f"substr(i.text, 1, {_HEAD}) AS head, coalesce(o.status, '') AS status, "
    "coalesce(o.winner, '') AS winner, o.score_left, o.score_right, "
    "coalesce(v.for_left, 0) AS for_left, coalesce(v.for_right, 0) AS for_right, "
    "coalesce(v.for_tie, 0) AS for_tie, coalesce(v.unread, 0) AS unread, "
    "coalesce(v.flipped, 0) AS flipped, length(l.text) AS length_left, "
    "length(r.text) AS length_right FROM duels d "
    "LEFT JOIN instructions i ON i.id = d.instruction LEFT JOIN outcomes o ON o.duel = d.id "
    "LEFT JOIN votes v ON v.duel = d.id LEFT JOIN responses l ON l.id = d.left_response "
    "LEFT JOIN responses r ON r.id = d.right_response ORDER BY d.iteration, d.position"
)
_PAIR_OF = f"SELECT d.id, p.dropped FROM duels d JOIN {PAIR_OF_DUEL}"
_PAIRS = (
    "SELECT p.id, p.iteration, coalesce(nullif(p.chosen_member, ''), 'not a member') AS left, "
    "coalesce(nullif(p.rejected_member, ''), 'not a member') AS right, "
    f"coalesce(i.domain, '') AS domain, substr(i.text, 1, {_HEAD}) AS head, "
    "CASE p.dropped WHEN '' THEN 'kept' ELSE 'dropped' END AS status, 'left' AS winner, "
    "p.margin AS score_left, NULL AS score_right, 0 AS for_left, 0 AS for_right, 0 AS for_tie, "
    "0 AS unread, 0 AS flipped, length(p.chosen) AS length_left, "
    "length(p.rejected) AS length_right, CASE p.dropped WHEN '' THEN 'made' ELSE p.dropped END "
    "AS pair FROM pairs p LEFT JOIN instructions i ON i.id = p.instruction "
    "ORDER BY p.iteration, p.id"
)
_DEMONSTRATIONS = (
    "SELECT json_array(iteration, builder, position) AS id, iteration, "
    "coalesce(nullif(writer, ''), builder) AS left, '' AS right, coalesce(domain, '') AS domain, "
    f"substr(prompt, 1, {_HEAD}) AS head, CASE dropped WHEN '' THEN 'kept' ELSE 'dropped' END "
    "AS status, '' AS winner, advantage AS score_left, NULL AS score_right, 0 AS for_left, "
    "0 AS for_right, 0 AS for_tie, 0 AS unread, 0 AS flipped, length(response) AS length_left, "
    "NULL AS length_right, CASE dropped WHEN '' THEN 'made' ELSE dropped END AS pair "
    "FROM demonstrations ORDER BY iteration, builder, position"
)
_ANSWERS = (
    "SELECT json_array(e.iteration, e.member, e.task, e.item) AS id, e.iteration, "
    "e.member AS left, '' AS right, coalesce(nullif(e.domain, ''), e.task) AS domain, "
    f"substr(e.task || ': ' || e.item, 1, {_HEAD}) AS head, "
    "CASE WHEN NOT e.readable THEN 'unreadable' WHEN e.score = 1 THEN 'right' "
    "WHEN e.score = 0 THEN 'wrong' ELSE 'partly right' END AS status, "
    "'' AS winner, e.score AS score_left, NULL AS score_right, 0 AS for_left, 0 AS for_right, "
    "0 AS for_tie, 0 AS unread, 0 AS flipped, length(r.text) AS length_left, "
    "NULL AS length_right, '' AS pair FROM evaluations e "
    "LEFT JOIN responses r ON r.id = e.response "
    "ORDER BY e.iteration, e.task, e.item, e.member"
)
_CONTESTS = (
    "SELECT json_array(iteration, task, member, rival, item, judge, game) AS id, iteration, "
    "member AS left, rival AS right, coalesce(nullif(domain, ''), task) AS domain, "
    f"substr(judge || ' on ' || task || ' (' || game || '): ' || item, 1, {_HEAD}) AS head, "
    "CASE WHEN value IS NULL THEN 'unreadable' WHEN rival = '' AND game LIKE 'gold%' THEN "
    "CASE value WHEN 1 THEN 'right' WHEN 0 THEN 'wrong' ELSE 'partly right' END "
    "WHEN rival = '' THEN 'rated' WHEN value = 0.5 THEN 'tie' ELSE 'decided' END AS status, "
    "CASE WHEN rival = '' OR value IS NULL OR value = 0.5 THEN '' WHEN value > 0.5 THEN 'left' "
    "ELSE 'right' END AS winner, value AS score_left, "
    "CASE WHEN rival != '' THEN 1 - value END AS score_right, 0 AS for_left, 0 AS for_right, "
    "0 AS for_tie, value IS NULL AS unread, 0 AS flipped, length AS length_left, "
    "rival_length AS length_right, '' AS pair FROM games "
    "ORDER BY iteration, task, item, member, rival, judge, game"
)
_QUERIES = {
    "pairs": _PAIRS, "demonstrations": _DEMONSTRATIONS, "contests": _CONTESTS, "answers": _ANSWERS,
}  # fmt: skip
_TABLES: dict[Kind, str] = {
    "duels": "duels", "pairs": "pairs", "demonstrations": "demonstrations",
    "contests": "games", "answers": "evaluations",
}  # fmt: skip


def browsable(ledger: Ledger) -> dict[Kind, int]:
    """How many rows there are of each kind that has any, what says most of a run first."""
    counts = {kind: ledger.count(_TABLES[kind]) for kind in KINDS}
    return {kind: count for kind, count in counts.items() if count}


def lines(ledger: Ledger, kind: Kind) -> Iterator[dict[str, Any]]:
    """The rows of a kind in the order of the run, with :data:`COLUMNS`."""
    if kind != "duels":
        yield from ledger.iterate(_QUERIES[kind])
        return
    made = {row["id"]: row["dropped"] or "made" for row in ledger.iterate(_PAIR_OF)}
    for row in ledger.iterate(_DUELS):
        yield {**row, "pair": made.get(row["id"], "")}


def packed(rows: Sequence[dict[str, Any]], kind: Kind, *, total: int | None = None) -> str:
    """The rows by column as JSON (ASCII), small: names are numbers that point into a list.

    ``total`` is how many there are in the run, where ``rows`` are only the last of them.
    """
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        values = [row[column] for row in rows]
        columns[column] = _coded(values) if column in _NAMED else [_short(v) for v in values]
    facts = {"kind": kind, "rows": len(rows), "total": total or len(rows), "columns": columns}
    return json.dumps(facts, ensure_ascii=True, separators=(",", ":"))


def _coded(values: Sequence[str | None]) -> dict[str, list[Any]]:
    place: dict[str, int] = {}
    at = [place.setdefault(value or "", len(place)) for value in values]
    return {"names": list(place), "at": at}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
