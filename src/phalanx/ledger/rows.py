"""Records to rows and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from phalanx.identity import canonical_json
from phalanx.types import Failure, Instruction, IterationResult, Member, Request, Response

RUN_PREFIX = "run:"


def member_row(member: Member, iteration: int, folder: Path) -> dict[str, Any]:
    """Adapters inside the run folder are stored relative to it, so that a run can be moved."""
    adapter = member.adapter
    if adapter is not None and Path(adapter).is_absolute():
        path = Path(adapter)
        if path.is_relative_to(folder.resolve()):
            adapter = RUN_PREFIX + path.relative_to(folder.resolve()).as_posix()
    stored = replace(member, adapter=adapter)
    return {
        "member": member.name,
        "version": member.version,
        "iteration": iteration,
        "base": member.base,
        "adapter": adapter,
        "record": canonical_json(stored),
    }


def member(record: str, folder: Path) -> Member:
    values = json.loads(record)
    adapter = values["adapter"]
    if adapter is not None and adapter.startswith(RUN_PREFIX):
        values["adapter"] = str(folder.resolve() / adapter.removeprefix(RUN_PREFIX))
    return Member(**{**values, "roles": tuple(values["roles"])})


def instruction_row(instruction: Instruction) -> dict[str, Any]:
    return {**asdict(instruction), "flags": canonical_json(instruction.flags)}


def response_row(
    iteration: int,
    phase: str,
    request: Request,
    response: Response,
    attempts: int,
    seconds: float,
    now: float,
) -> dict[str, Any]:
    error = response.error
    return {
        "id": request.id,
        "iteration": iteration,
        "phase": phase,
        "purpose": request.purpose,
        "member": request.member.name,
        "version": request.member.version,
        "messages": canonical_json(request.messages),
        "want": canonical_json(request.want),
        "seed": request.seed,
        "status": "failed" if error else "done",
        "text": response.text,
        "finish_reason": response.finish_reason,
        "probabilities": canonical_json(response.probabilities) if response.probabilities else None,
        "option_mass": response.option_mass,
        "logprob_sum": response.logprob_sum,
        "num_scored_tokens": response.num_scored_tokens,
        "num_prompt_tokens": response.num_prompt_tokens,
        "num_completion_tokens": response.num_completion_tokens,
        "num_shortened_tokens": response.num_shortened_tokens,
        "flags": canonical_json(response.flags),
        "error_kind": error.kind if error else None,
        "error": error.message if error else None,
        "error_transient": int(error.transient) if error else None,
        "attempts": attempts,
        "seconds": seconds,
        "at": now,
    }


def response(row: sqlite3.Row) -> Response:
    failed = row["status"] == "failed"
    return Response(
        request_id=row["id"],
        text=row["text"],
        finish_reason=row["finish_reason"],
        probabilities=json.loads(row["probabilities"]) if row["probabilities"] else None,
        option_mass=row["option_mass"],
        logprob_sum=row["logprob_sum"],
        num_scored_tokens=row["num_scored_tokens"],
        num_prompt_tokens=row["num_prompt_tokens"],
        num_completion_tokens=row["num_completion_tokens"],
        num_shortened_tokens=row["num_shortened_tokens"],
        flags=tuple(json.loads(row["flags"])),
        error=Failure(row["error_kind"], row["error"], bool(row["error_transient"]))
        if failed
        else None,
    )


def duel_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for position, duel in enumerate(result.duels):
        yield {
            "id": duel.id,
            "iteration": number,
            "position": position,
            "instruction": duel.instruction.id,
            "left": duel.left,
            "right": duel.right,
            "matched": duel.matched,
            "left_response": result.responses.get((duel.id, duel.left)),
            "right_response": result.responses.get((duel.id, duel.right)),
        }


def judgment_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for judgment in result.judgments:
        yield {
            "duel": judgment.duel_id,
            "judge": judgment.judge,
            "iteration": number,
            "protocol": judgment.protocol,
            "score_left": judgment.score_left,
            "score_right": judgment.score_right,
            "reason": judgment.reason,
            "flipped": int(judgment.flipped),
            "raw": canonical_json(judgment.raw),
            "flags": canonical_json(judgment.flags),
        }


def outcome_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for outcome in result.outcomes:
        row = asdict(outcome)
        row["duel"] = row.pop("duel_id")
        yield {**row, "iteration": number}


def reputation_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for position, change in enumerate(result.changes):
        row = asdict(change)
        row["duel"] = row.pop("duel_id")
        yield {**row, "iteration": number, "position": position}


def pair_rows(number: int, result: IterationResult) -> Iterator[dict[str, Any]]:
    for pair in result.pairs:
        yield {
            "id": pair.id,
            "iteration": number,
            "instruction": pair.instruction.id,
            "chosen": pair.chosen,
            "rejected": pair.rejected,
            "chosen_member": pair.chosen_member,
            "rejected_member": pair.rejected_member,
            "margin": pair.margin,
            "weight": pair.weight,
            "chosen_truncated": int(pair.chosen_truncated),
            "rejected_truncated": int(pair.rejected_truncated),
            "dropped": pair.drop,
        }
