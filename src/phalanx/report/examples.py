"""A few duels worth reading: the most contested, the clearest, and one that made no pair."""

from __future__ import annotations

import json
from typing import Any

from phalanx.ledger import Ledger
from phalanx.report.records import Example, ExampleJudgment

NUM_CONTESTED, NUM_CLEAR, NUM_DROPPED = 2, 2, 1

_DUELS = (
    "SELECT d.*, i.text AS instruction_text, i.domain, i.answer, o.status, o.winner, "
    "o.score_left, o.score_right, o.agreement, o.reason, o.num_judges, "
    "coalesce(p.dropped, '') AS dropped, l.text AS left_text, r.text AS right_text, "
    "l.finish_reason AS left_finish, r.finish_reason AS right_finish, "
    "l.error_kind AS left_error, r.error_kind AS right_error "
    "FROM duels d JOIN outcomes o ON o.duel = d.id JOIN instructions i ON i.id = d.instruction "
    # A duel's pair has its iteration, its instruction and its two contestants.
    "LEFT JOIN pairs p ON p.iteration = d.iteration AND p.instruction = d.instruction "
    "AND ((p.chosen_member = d.left AND p.rejected_member = d.right) "
    "OR (p.chosen_member = d.right AND p.rejected_member = d.left)) "
    "LEFT JOIN responses l ON l.id = d.left_response "
    "LEFT JOIN responses r ON r.id = d.right_response "
)


def examples(ledger: Ledger) -> tuple[Example, ...]:
    """At most five duels, none twice. Ties in the ranking go to the earlier duel."""
    place = "d.iteration, d.position"
    decided = "WHERE o.status = 'decided' AND o.num_judges > 1 GROUP BY d.id ORDER BY"
    gap = "abs(o.score_left - o.score_right)"
    picks = [
        (
            "contested",
            f"{decided} o.agreement, {gap}, {place}",
            NUM_CONTESTED,
        ),
        (
            "clear",
            f"{decided} o.agreement DESC, {gap} DESC, {place}",
            NUM_CLEAR,
        ),
        (
            "dropped",
            f"WHERE p.dropped NOT IN ('', 'margin_rank') ORDER BY o.status = 'unanswered', {place}",
            NUM_DROPPED,
        ),
    ]
    used: set[str] = set()
    result = []
    for why, rest, wanted in picks:
        rows = ledger.query(f"{_DUELS} {rest} LIMIT ?", (wanted + len(used),))
        for row in [row for row in rows if row["id"] not in used][:wanted]:
            used.add(row["id"])
            result.append(_example(ledger, why, row))
    return tuple(result)


def _example(ledger: Ledger, why: str, row: dict[str, Any]) -> Example:
    return Example(
        why=why,
        iteration=row["iteration"],
        duel=row["id"],
        instruction=row["instruction_text"],
        domain=row["domain"],
        answer=row["answer"],
        left=row["left"],
        right=row["right"],
        left_text=row["left_text"] or "",
        right_text=row["right_text"] or "",
        left_note=_note(row, "left"),
        right_note=_note(row, "right"),
        status=row["status"],
        winner=row["winner"],
        score_left=row["score_left"],
        score_right=row["score_right"],
        agreement=row["agreement"],
        reason=row["reason"],
        dropped=row["dropped"],
        judgments=tuple(
            ExampleJudgment(
                judge=judgment["judge"],
                score_left=judgment["score_left"],
                score_right=judgment["score_right"],
                reason=judgment["reason"],
                flipped=bool(judgment["flipped"]),
                raw=json.loads(judgment["raw"]),
                flags=tuple(json.loads(judgment["flags"])),
            )
            for judgment in ledger.query(
                "SELECT *, full_raw(raw, requests) AS raw FROM judgments WHERE duel = ? "
                "ORDER BY judge",
                (row["id"],),
            )
        ),
    )


def _note(row: dict[str, Any], side: str) -> str:
    if row[f"{side}_error"]:
        return f"failed: {row[f'{side}_error']}"
    return "truncated at the token limit" if row[f"{side}_finish"] == "length" else ""
