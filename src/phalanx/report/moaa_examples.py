"""A few instructions with what the proposers wrote and what the mixture made of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from phalanx.ledger import Ledger
from phalanx.report.moaa_records import MIXTURE, MixtureExample

NUM_EXAMPLES = 3


def mixture_examples(ledger: Ledger, proposers: Collection[str]) -> tuple[MixtureExample, ...]:
    """First turns that the mixture answered, one of each domain and stage, the earliest first.

    ``proposers`` are the members whose answers an aggregator may have read; the others answered
    the same turn as teachers of a baseline.
    """
    rows = ledger.query(
        "SELECT iteration, domain, min(position) AS position FROM demonstrations "
        "WHERE builder = ? AND turn = 0 AND dropped = '' GROUP BY 1, 2 ORDER BY 1, 3 LIMIT ?",
        (MIXTURE, NUM_EXAMPLES),
    )
    return tuple(_example(ledger, row, proposers) for row in rows)


def _example(ledger: Ledger, place: dict[str, Any], proposers: Collection[str]) -> MixtureExample:
    row = ledger.query(
        "SELECT d.prompt, d.response, r.member AS writer, r.messages FROM demonstrations d "
        "LEFT JOIN responses r ON r.id = d.response_id "
        "WHERE d.iteration = ? AND d.builder = ? AND d.position = ?",
        (place["iteration"], MIXTURE, place["position"]),
    )[0]
    return MixtureExample(
        iteration=place["iteration"],
        domain=place["domain"],
        instruction=row["prompt"],
        proposals=tuple(
            proposal
            for proposal in _proposals(ledger, place["iteration"], row["messages"])
            if proposal[1] in proposers
        ),
        writer=row["writer"] or MIXTURE,
        response=row["response"],
    )


def _proposals(
    ledger: Ledger, iteration: int, messages: str | None
) -> tuple[tuple[str, str, str], ...]:
    """(phase, member, text) of the proposals whose conversation ends with the same user turn.

    Compared as stored: unpacking every prompt of a stage would take longer than the whole report.
    """
    if messages is None:
        return ()
    last = messages[messages.rindex('["user"') :]
    rows = ledger.query(
        "SELECT phase, member, text, error_kind FROM responses WHERE iteration = ? "
        "AND purpose = 'propose' AND phase NOT LIKE 'evaluate%' AND substr(messages, -?) = ? "
        "ORDER BY phase, at, rowid",
        (iteration, len(last), last),
    )
    return tuple((row["phase"], row["member"], _said(row)) for row in rows)


def _said(row: dict[str, Any]) -> str:
    if row["error_kind"]:
        return f"(failed: {row['error_kind']})"
    return row["text"] or "(empty)"
