"""A few duels worth reading: the most contested, the clearest, and one that made no pair."""

from __future__ import annotations

import json
from typing import Any

from phalanx.ledger import Ledger
from phalanx.report.records import Example, ExampleJudgment

NUM_CONTESTED, NUM_CLEAR, NUM_DROPPED, NUM_FLIPPED = 2, 2, 1, 1

# A duel's pair has its iteration, its instruction and its two contestants.
PAIR_OF_DUEL = (
    "pairs p ON p.iteration = d.iteration AND p.instruction = d.instruction "
    "AND ((p.chosen_member = d.left AND p.rejected_member = d.right) "
    "OR (p.chosen_member = d.right AND p.rejected_member = d.left)) "
)
_DUEL = (
    "SELECT d.*, i.text AS instruction_text, i.domain, i.answer, o.status, o.winner, "
    "o.score_left, o.score_right, o.agreement, o.reason, o.num_judges, "
    "coalesce(p.dropped, '') AS dropped, l.text AS left_text, r.text AS right_text, "
    "l.finish_reason AS left_finish, r.finish_reason AS right_finish, "
    "l.error_kind AS left_error, r.error_kind AS right_error "
    "FROM duels d JOIN outcomes o ON o.duel = d.id JOIN instructions i ON i.id = d.instruction "
    f"LEFT JOIN {PAIR_OF_DUEL} "
    "LEFT JOIN responses l ON l.id = d.left_response "
    "LEFT JOIN responses r ON r.id = d.right_response WHERE d.id = ? LIMIT 1"
)
_DECIDED = (
    "SELECT d.id FROM outcomes o JOIN duels d ON d.id = o.duel "
    "WHERE o.status = 'decided' AND o.num_judges > {} ORDER BY"
)
_GAP, _PLACE = "abs(o.score_left - o.score_right)", "d.iteration, d.position"
# Ids first: sorting every duel of a long run with its texts would hold all of them.
_PICKS = (
    # With one judge there is nobody to disagree.
    ("contested", f"{_DECIDED.format(1)} o.agreement, {_GAP}, {_PLACE}", NUM_CONTESTED),
    ("clear", f"{_DECIDED.format(0)} o.agreement DESC, {_GAP} DESC, {_PLACE}", NUM_CLEAR),
    (
        "dropped",
        f"SELECT d.id FROM duels d CROSS JOIN {PAIR_OF_DUEL} JOIN outcomes o ON o.duel = d.id "
        "WHERE p.dropped NOT IN ('', 'margin_rank') "
        f"GROUP BY d.id ORDER BY o.status = 'unanswered', {_PLACE}",
        NUM_DROPPED,
    ),
)

_JUDGED = "SELECT d.id FROM judgments j JOIN duels d ON d.id = j.duel WHERE {} ORDER BY"
# Responses of one student that were ranked: pairs are not made of single duels there.
_RANKED_PICKS = (
    ("clear", f"{_DECIDED.format(0)} {_GAP} DESC, {_PLACE}", NUM_CLEAR),
    ("flipped", f"{_JUDGED.format('j.flipped')} {_PLACE}", NUM_FLIPPED),
    ("unread", f"{_JUDGED.format('j.score_left IS NULL')} {_PLACE}", NUM_DROPPED),
)


def examples(ledger: Ledger, *, ranked: bool = False) -> tuple[Example, ...]:
    """At most five duels, none twice. Ties in the ranking go to the earlier duel.

    ``ranked``: the duels are those of responses that a judge ranked (method moaa).
    """
    used: set[str] = set()
    result = []
    for why, order, wanted in _RANKED_PICKS if ranked else _PICKS:
        ids = [row["id"] for row in ledger.query(f"{order} LIMIT ?", (wanted + len(used),))]
        for duel in [duel for duel in ids if duel not in used][:wanted]:
            used.add(duel)
            result.append(_example(ledger, why, ledger.query(_DUEL, (duel,))[0]))
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
