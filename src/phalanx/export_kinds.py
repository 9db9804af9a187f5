"""What can be exported: the columns of each kind, and the query that gives its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.ledger.labels import LAST_LABELS
from phalanx.ledger.rows import ITEM_TEXTS
from phalanx.sources import WHOLE


@dataclass(frozen=True, slots=True)
class Kind:
    """``columns`` name an Arrow type each: one schema, whatever the rows happen to hold.

    ``sql`` selects those columns for the iterations that ``{where}`` allows.
    """

    columns: dict[str, str]
    sql: str
    convert: Callable[[dict[str, Any]], dict[str, Any]]


def decoded(*lists: str, flags: Sequence[str] = ()) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """JSON columns to lists, 0/1 columns to booleans; ``raw`` and the like stay JSON text."""

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        changed = {name: json.loads(row[name]) for name in lists}
        return {**row, **changed, **{name: bool(row[name]) for name in flags}}

    return convert


def with_history(row: dict[str, Any]) -> dict[str, Any]:
    """A pair whose prompt is a whole conversation: its last user turn, and the turns before it."""
    if "later" not in row:
        return row
    kept = {name: value for name, value in row.items() if name not in ("flags", "later")}
    if WHOLE not in json.loads(row["flags"]):
        return kept
    turns = [{"role": "user", "content": row["prompt"]}, *json.loads(row["later"])]
    return {**kept, "prompt": turns[-1]["content"], "history": json.dumps(turns[:-1])}


def without_history(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name != "history"}
    for name in kept.keys() & _FLAGS:
        kept[name] = bool(kept[name])
    return kept


_FLAGS = {"truncated", "chosen_truncated", "rejected_truncated"}


# What members were asked, by the iteration that asked first. Pairs of members about anything else
# than an instruction (a judge's own prompt) have no duel; a preference file's have no member.
ASKED = (
    "SELECT instruction, min(iteration) AS iteration FROM ("
    "SELECT instruction, iteration FROM duels "
    "UNION ALL SELECT instruction, iteration FROM demonstrations "
    "UNION ALL SELECT instruction, iteration FROM pairs WHERE chosen_member = '') "
    "GROUP BY instruction"
)

KINDS = {
    "preferences": Kind(
        {
            "prompt": "string",
            "chosen": "string",
            "rejected": "string",
            "margin": "double",
            "weight": "double",
            "chosen_member": "string",
            "rejected_member": "string",
            "iteration": "int64",
            "instruction_id": "string",
            "domain": "string",
            "chosen_truncated": "bool",
            "rejected_truncated": "bool",
        },
        "SELECT i.text AS prompt, p.chosen, p.rejected, p.margin, p.weight, p.chosen_member, "
        "p.rejected_member, p.iteration, p.instruction AS instruction_id, i.domain, "
        "p.chosen_truncated, p.rejected_truncated, i.flags, i.later "
        "FROM pairs p "
        "JOIN instructions i ON i.id = p.instruction WHERE p.dropped = '' AND {where} "
        "ORDER BY p.iteration, p.id",
        lambda row: without_history(with_history(row)),
    ),
    "demonstrations": Kind(
        {
            "prompt": "string",
            "completion": "string",
            "builder": "string",
            "writer": "string",
            "domain": "string",
            "turn": "int64",
            "truncated": "bool",
            "iteration": "int64",
            "instruction_id": "string",
        },
        "SELECT p.prompt, p.response AS completion, p.builder, p.writer, p.domain, p.turn, "
        "p.truncated, p.iteration, p.instruction AS instruction_id, p.history "
        "FROM demonstrations p WHERE p.dropped = '' AND {where} "
        "ORDER BY p.iteration, p.builder, p.position",
        without_history,
    ),
    "prompts": Kind(
        {
            "prompt": "string",
            "answer": "string",
            "domain": "string",
            "iteration": "int64",
            "instruction_id": "string",
        },
        f"SELECT i.text AS prompt, i.answer, i.domain, p.iteration, i.id AS instruction_id, "
        f"i.flags, i.later FROM ({ASKED}) p JOIN instructions i ON i.id = p.instruction "
        "WHERE {where} ORDER BY p.iteration, i.id",
        lambda row: without_history(with_history(row)),
    ),
    "judgments": Kind(
        {
            "iteration": "int64",
            "duel_id": "string",
            "instruction_id": "string",
            "left": "string",
            "right": "string",
            "judge": "string",
            "protocol": "string",
            "score_left": "double",
            "score_right": "double",
            "reason": "string",
            "flipped": "bool",
            "flags": "strings",
            "raw": "string",
            "outcome": "string",
            "winner": "string",
        },
        "SELECT p.iteration, p.duel AS duel_id, d.instruction AS instruction_id, d.left, d.right, "
        "p.judge, p.protocol, p.score_left, p.score_right, p.reason, p.flipped, p.flags, "
        "full_raw(p.raw, p.requests) AS raw, "
        "o.status AS outcome, o.winner FROM judgments p JOIN duels d ON d.id = p.duel "
        "JOIN outcomes o ON o.duel = p.duel WHERE {where} "
        "ORDER BY p.iteration, d.position, p.judge",
        decoded("flags", flags=("flipped",)),
    ),
    "responses": Kind(
        {
            "id": "string",
            "iteration": "int64",
            "phase": "string",
            "member": "string",
            "version": "int64",
            "messages": "messages",
            "status": "string",
            "text": "string",
            "finish_reason": "string",
            "probabilities": "string",
            "option_mass": "double",
            "logprob_sum": "double",
            "num_scored_tokens": "int64",
            "reward": "double",
            "num_prompt_tokens": "int64",
            "num_completion_tokens": "int64",
            "num_shortened_tokens": "int64",
            "flags": "strings",
            "error_kind": "string",
            "error": "string",
        },
        "SELECT id, iteration, phase, member, version, full_messages(messages) AS messages, "
        "status, text, finish_reason, full_probabilities(probabilities, want) AS probabilities, "
        "option_mass, logprob_sum, num_scored_tokens, reward, num_prompt_tokens, "
        "num_completion_tokens, num_shortened_tokens, flags, error_kind, error "
        "FROM responses p WHERE {where} ORDER BY iteration, phase, member, id",
        decoded("messages", "flags"),
    ),
    "reputations": Kind(
        {
            "iteration": "int64",
            "position": "int64",
            "duel_id": "string",
            "member": "string",
            "before": "double",
            "after": "double",
            "deviation": "double",
        },
        "SELECT iteration, position, duel AS duel_id, member, before, after, deviation "
        "FROM reputations p WHERE {where} ORDER BY iteration, position",
        decoded(),
    ),
    "evaluations": Kind(
        {
            "iteration": "int64",
            "member": "string",
            "task": "string",
            "item": "string",
            "domain": "string",
            "split": "string",
            "correct": "bool",
            "readable": "bool",
            "score": "double",
            "answer": "string",
            "reason": "string",
            "question": "string",
            "gold": "string",
            "text": "string",
            "finish_reason": "string",
            "response_id": "string",
        },
        f"{ITEM_TEXTS} SELECT p.iteration, p.member, p.task, p.item, p.domain, p.split, p.correct, "
        "p.readable, p.score, p.answer, p.reason, i.question, i.gold, r.text, r.finish_reason, "
        "p.response AS response_id FROM evaluations p "
        "LEFT JOIN items i ON i.task = p.task AND i.item = p.item "
        "LEFT JOIN responses r ON r.id = p.response WHERE {where} "
        "ORDER BY p.iteration, p.member, p.task, p.item",
        decoded(flags=("correct", "readable")),
    ),
    "games": Kind(
        {
            "iteration": "int64",
            "task": "string",
            "member": "string",
            "rival": "string",
            "item": "string",
            "judge": "string",
            "game": "string",
            "domain": "string",
            "label": "string",
            "value": "double",
            "reason": "string",
            "length": "int64",
            "rival_length": "int64",
            "response_id": "string",
            "request_id": "string",
        },
        "SELECT iteration, task, member, rival, item, judge, game, domain, label, value, reason, "
        "length, rival_length, response AS response_id, request AS request_id FROM games p "
        "WHERE {where} ORDER BY iteration, task, member, rival, item, judge, game",
        decoded(),
    ),
    "labels": Kind(
        {
            "duel_id": "string",
            "iteration": "int64",
            "person": "string",
            "verdict": "string",
            "swapped": "bool",
            "seconds": "double",
            "note": "string",
            "instruction": "string",
            "left": "string",
            "right": "string",
            "left_text": "string",
            "right_text": "string",
            "outcome": "string",
            "winner": "string",
        },
        "SELECT l.duel AS duel_id, p.iteration, l.person, l.verdict, l.swapped, l.seconds, l.note, "
        "p.instruction, p.left, p.right, p.left_text, p.right_text, o.status AS outcome, o.winner "
        f"FROM ({LAST_LABELS}) l JOIN ("
        "SELECT d.id, d.iteration, i.text AS instruction, d.left, d.right, a.text AS left_text, "
        "b.text AS right_text FROM duels d JOIN instructions i ON i.id = d.instruction "
        "JOIN responses a ON a.id = d.left_response JOIN responses b ON b.id = d.right_response "
        "UNION ALL SELECT id, NULL, json_extract(messages, '$[#-1].content'), left, right, "
        "left_text, right_text FROM bouts) p ON p.id = l.duel "
        "LEFT JOIN outcomes o ON o.duel = l.duel WHERE {where} ORDER BY l.number",
        decoded(flags=("swapped",)),
    ),
}
