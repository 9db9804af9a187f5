"""Records to rows and back.

Rows are plain tuples in the order of the ``*_COLUMNS`` beside them: they are made by the thousand.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.config.loading import map_paths
from phalanx.identity import canonical_json
from phalanx.ledger.texts import (
    TextReader,
    TextWriter,
    WantTexts,
    packed_flags,
    packed_probabilities,
)
from phalanx.pool import SCRIPT
from phalanx.types import (
    Demonstration,
    Failure,
    Instruction,
    IterationResult,
    Member,
    Message,
    Request,
    Response,
    TrainResult,
)

RUN_PREFIX = "run:"
Row = tuple[Any, ...]

MEMBER_COLUMNS = ("member", "version", "iteration", "base", "adapter", "record")


def member_row(member: Member, iteration: int, folder: Path) -> Row:
    """What lies inside the run folder is stored relative to it, so that a run can be moved."""
    root = folder.resolve()
    base = stored_place(member.base, root)
    adapter = None if member.adapter is None else stored_place(member.adapter, root)
    stored = canonical_json(replace(member, base=base, adapter=adapter))
    return (member.name, member.version, iteration, base, adapter, stored)


def stored_place(place: str, root: Path) -> str:
    """``run:...`` for a place (also of a script) below ``root``; others as they are."""
    head, text = _apart(place)
    path = Path(text)
    if path.is_absolute() and ".." not in path.parts and path.is_relative_to(root):
        return head + RUN_PREFIX + path.relative_to(root).as_posix()
    return place


def place_here(place: str, root: Path) -> str:
    """What :func:`stored_place` made, as a place below ``root``."""
    head, path = _apart(place)
    if not path.startswith(RUN_PREFIX):
        return place
    return head + str(root / path.removeprefix(RUN_PREFIX))


def _apart(place: str) -> tuple[str, str]:
    head = SCRIPT if place.startswith(SCRIPT) else ""
    return head, place.removeprefix(head)


def stored_config(text: str, folder: Path) -> str:
    """A configuration (JSON) whose files inside the run folder are named as those of members."""
    # Links are not followed: two configurations are compared by the places as they were written.
    return _with_places(text, lambda place: stored_place(place, folder.absolute()))


def config_here(text: str, folder: Path) -> str:
    """What :func:`stored_config` made, with the places that its files have now."""
    if RUN_PREFIX not in text:
        return text
    return _with_places(text, lambda place: place_here(place, folder.absolute()))


def _with_places(text: str, change: Callable[[str], str]) -> str:
    before = json.loads(text)
    after = map_paths(before, change)
    return text if after == before else json.dumps(after, ensure_ascii=False, separators=(",", ":"))


def member(record: str, folder: Path) -> Member:
    values = json.loads(record)
    for name in ("base", "adapter"):
        if values[name] is not None:
            values[name] = place_here(values[name], folder.resolve())
    return Member(**{**values, "roles": tuple(values["roles"])})


INSTRUCTION_COLUMNS = ("id", "text", "domain", "answer", "flags", "later")


def instruction_row(instruction: Instruction) -> Row:
    flags, later = packed_flags(instruction.flags), canonical_json(instruction.later)
    known = (instruction.id, instruction.text, instruction.domain, instruction.answer)
    return (*known, flags, later)


def messages(stored: str) -> tuple[Message, ...]:
    """The messages of a column that holds their canonical JSON."""
    return tuple(Message(one["role"], one["content"]) for one in json.loads(stored))


RESPONSE_COLUMNS = (
    "id", "iteration", "phase", "purpose", "member", "version", "messages", "want", "seed",
    "status", "text", "finish_reason", "probabilities", "option_mass", "logprob_sum",
    "num_scored_tokens", "reward", "num_prompt_tokens", "num_completion_tokens",
    "num_shortened_tokens", "flags", "error_kind", "error", "error_transient", "attempts",
    "seconds", "at",
)  # fmt: skip


def response_rows(
    iteration: int,
    phase: str,
    answered: Sequence[tuple[Request, Response, int]],
    seconds: float,
    now: float,
    texts: TextWriter,
) -> list[Row]:
    """One row for each (request, response, attempts); ``texts`` takes the long lines."""
    wants = WantTexts()
    rows = []
    for request, response, attempts in answered:
        error, member = response.error, request.member
        chances = response.probabilities
        failure = (error.kind, error.message, int(error.transient)) if error else _NO_FAILURE
        rows.append(
            (
                request.id, iteration, phase, request.purpose, member.name, member.version,
                texts.pack(request.messages), texts.number(wants.of(request.want)), request.seed,
                "failed" if error else "done", response.text, response.finish_reason,
                packed_probabilities(chances, request.want), response.option_mass,
                response.logprob_sum, response.num_scored_tokens, response.reward,
                response.num_prompt_tokens, response.num_completion_tokens,
                response.num_shortened_tokens,
                packed_flags(response.flags), *failure, attempts, seconds, now,
            )
        )  # fmt: skip
    return rows


_NO_FAILURE = (None, None, None)


def response(row: sqlite3.Row, texts: TextReader) -> Response:
    failed = row["status"] == "failed"
    return Response(
        request_id=row["id"],
        text=row["text"],
        finish_reason=row["finish_reason"],
        probabilities=texts.probabilities(row["probabilities"], row["want"]),
        option_mass=row["option_mass"],
        logprob_sum=row["logprob_sum"],
        num_scored_tokens=row["num_scored_tokens"],
        reward=row["reward"],
        num_prompt_tokens=row["num_prompt_tokens"],
        num_completion_tokens=row["num_completion_tokens"],
        num_shortened_tokens=row["num_shortened_tokens"],
        flags=tuple(json.loads(row["flags"])) if row["flags"] != "[]" else (),
        error=Failure(row["error_kind"], row["error"], bool(row["error_transient"]))
        if failed
        else None,
    )


DUEL_COLUMNS = (
    "id", "iteration", "position", "instruction", "left", "right", "matched", "left_response",
    "right_response",
)  # fmt: skip


def duel_rows(number: int, result: IterationResult) -> Iterator[Row]:
    answers = result.responses
    for position, duel in enumerate(result.duels):
        yield (
            duel.id, number, position, duel.instruction.id, duel.left, duel.right, duel.matched,
            answers.get((duel.id, duel.left)), answers.get((duel.id, duel.right)),
        )  # fmt: skip


JUDGMENT_COLUMNS = (
    "duel", "judge", "iteration", "protocol", "score_left", "score_right", "reason", "flipped",
    "raw", "flags", "requests",
)  # fmt: skip


def judgment_rows(number: int, result: IterationResult) -> Iterator[Row]:
    for judgment in result.judgments:
        yield (
            judgment.duel_id, judgment.judge, number, judgment.protocol, judgment.score_left,
            judgment.score_right, judgment.reason, int(judgment.flipped),
            None if judgment.requests else canonical_json(judgment.raw),
            packed_flags(judgment.flags),
            canonical_json(judgment.requests) if judgment.requests else None,
        )  # fmt: skip


OUTCOME_COLUMNS = (
    "duel", "iteration", "status", "winner", "score_left", "score_right", "num_judges",
    "num_missing", "agreement", "reason",
)  # fmt: skip


def outcome_rows(number: int, result: IterationResult) -> Iterator[Row]:
    for outcome in result.outcomes:
        yield (
            outcome.duel_id, number, outcome.status, outcome.winner, outcome.score_left,
            outcome.score_right, outcome.num_judges, outcome.num_missing, outcome.agreement,
            outcome.reason,
        )  # fmt: skip


REPUTATION_COLUMNS = ("iteration", "position", "duel", "member", "before", "after", "deviation")


def reputation_rows(number: int, result: IterationResult) -> Iterator[Row]:
    for position, change in enumerate(result.changes):
        yield (
            number, position, change.duel_id, change.member, change.before, change.after,
            change.deviation,
        )  # fmt: skip


PAIR_COLUMNS = (
    "id", "iteration", "instruction", "chosen", "rejected", "chosen_member", "rejected_member",
    "margin", "weight", "chosen_probability", "rejected_probability", "chosen_truncated",
    "rejected_truncated", "dropped",
)  # fmt: skip


def pair_rows(number: int, result: IterationResult) -> Iterator[Row]:
    for pair in result.pairs:
        yield (
            pair.id, number, pair.instruction.id, pair.chosen, pair.rejected, pair.chosen_member,
            pair.rejected_member, pair.margin, pair.weight, pair.chosen_probability,
            pair.rejected_probability, int(pair.chosen_truncated), int(pair.rejected_truncated),
            pair.drop,
        )  # fmt: skip


DEMONSTRATION_COLUMNS = (
    "iteration", "builder", "position", "id", "instruction", "turn", "domain", "history", "prompt",
    "response", "writer", "response_id", "advantage", "truncated", "dropped",
)  # fmt: skip


def demonstration_rows(number: int, result: IterationResult) -> Iterator[Row]:
    """In the order given, each builder's counted from 0."""
    places: Counter[str] = Counter()
    for row in result.demonstrations:
        yield (
            number, row.builder, places[row.builder], row.id, row.instruction, row.turn, row.domain,
            canonical_json(row.history), row.prompt, row.response, row.writer, row.response_id,
            row.advantage, int(row.truncated), row.drop,
        )  # fmt: skip
        places[row.builder] += 1


def demonstration(row: Mapping[str, Any]) -> Demonstration:
    return Demonstration(
        id=row["id"],
        prompt=row["prompt"],
        response=row["response"],
        domain=row["domain"],
        history=messages(row["history"]),
        builder=row["builder"],
        instruction=row["instruction"],
        turn=row["turn"],
        writer=row["writer"],
        response_id=row["response_id"],
        advantage=row["advantage"],
        truncated=bool(row["truncated"]),
        drop=row["dropped"],
    )


STATE_COLUMNS = ("iteration", "standings", "reliability", "faded", "metrics", "num_judged")


def state_row(number: int, result: IterationResult) -> Row:
    """``num_judged``: duels that judges decided or tied, which is what K's decay counts."""
    carried = (result.standings, result.reliability, result.faded, result.metrics)
    judged = sum(o.num_judges > 0 and o.status in ("decided", "tie") for o in result.outcomes)
    return (number, *map(canonical_json, carried), judged)


TRAINING_COLUMNS = (
    "iteration", "member", "version", "num_examples", "num_dropped", "summary", "seconds", "at",
)  # fmt: skip


def training_row(iteration: int, result: TrainResult, now: float) -> Row:
    return (
        iteration, result.member.name, result.member.version, result.num_examples,
        canonical_json(result.num_dropped), canonical_json(result.summary), result.seconds, now,
    )  # fmt: skip


STEP_COLUMNS = ("iteration", "member", "step", "signals")


def step_rows(iteration: int, result: TrainResult) -> Iterator[Row]:
    for number, signals in enumerate(result.steps, start=1):
        yield (iteration, result.member.name, number, canonical_json(signals))


EVALUATION_COLUMNS = (
    "iteration", "member", "task", "item", "domain", "split", "correct", "readable", "score",
    "answer", "reason", "response",
)  # fmt: skip
"""``score`` is the share of the item that is right, from 0 to 1; ``correct`` is 1 where it is
right as a whole. Of a task with several samples ``score`` is the share of them that are right as a
whole, so that ``round(score * samples)`` are (what pass@k needs); the other columns are those of
the first sample, but for a ``reason`` that begins with "sample"."""


ITEMS = "items:"
"""Keys of the facts that have a task's questions and gold answers, {item: [question, gold]}, begin
so; the name of the task follows."""
ITEM_TEXTS = (
    "WITH items AS MATERIALIZED (SELECT substr(f.key, 7) AS task, j.key AS item, "
    "json_extract(j.value, '$[0]') AS question, json_extract(j.value, '$[1]') AS gold "
    "FROM run f, json_each(f.value) j WHERE f.key LIKE 'items:%')"
)
"""The same as rows (task, item, question, gold), to begin a query with."""


def together_key(iteration: int, name: str) -> str:
    """The key of the fact that a collective was measured: what happened on the way, counted."""
    return f"together:{iteration}:{name}"


SUBJECT = "subject:"
"""Keys of the facts that say of whom a subject of an evaluation is made (``together``, and the
keys of its ``members``) begin so; its name follows. A collective that has one answer of its own to
an item, chosen among its members' first ones, has ``majority`` or ``best_of`` in ``together``."""
CONTEST = "contest:"
"""Keys of the facts behind a task's games begin so; the name of the task follows."""
GAME_COLUMNS = (
    "iteration", "task", "member", "rival", "item", "judge", "game", "domain", "label", "value",
    "reason", "length", "rival_length", "response", "request",
)  # fmt: skip
"""One verdict of a judge-based benchmark: ``member`` against ``rival`` ("" where it is rated
alone) on ``item``, by ``judge``. ``game`` tells the verdicts of an item apart: "first" and
"second" are the places that the member's response was shown in, "turn 1" and "turn 2" what was
rated, "gold" (and "gold 2", ... of more samples) the answer compared with the gold one. ``value``
is what counts (the member's share of the win from 0 to 1, a rating, or 1 for the same as the gold
answer), None where it could not be read, for the ``reason`` given; ``label`` is the verdict
as it was read. Lengths are in characters (``rival_length``: also of the gold answer). ``response``
and ``request`` are ids of the member's answer and of the verdict."""


TRIAL_COLUMNS = (
    "number", "rung", "design", "num_items", "num_scored", "score", "low", "high", "calls",
    "tokens", "money", "new_calls", "note",
)  # fmt: skip
