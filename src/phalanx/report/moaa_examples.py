"""A few instructions with what the proposers wrote and what the mixture made of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

from phalanx.config.mixing import MIXTURE
from phalanx.ledger import Ledger
from phalanx.report.moaa_records import MixtureExample

NUM_EXAMPLES = 3
# The last turn alone, unpacked; NULL where there is no response.
_TURN = (
    "iif(r.messages IS NULL, NULL, full_messages('[' || json_extract(r.messages, '$[#-1]') || ']'))"
)
Proposal = tuple[str, str, str]
"""(phase, member, text)."""


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
    examples = []
    for iteration, places in groupby(rows, key=lambda place: place["iteration"]):
        made = [(place, _demonstration(ledger, place)) for place in places]
        written = _proposals(ledger, iteration, [row["turn"] for _, row in made])
        examples += [_example(*one, written[one[1]["turn"]], proposers) for one in made]
    return tuple(examples)


def _demonstration(ledger: Ledger, place: dict[str, Any]) -> dict[str, Any]:
    return ledger.query(
        f"SELECT d.prompt, d.response, r.member AS writer, {_TURN} AS turn FROM demonstrations d "
        "LEFT JOIN responses r ON r.id = d.response_id "
        "WHERE d.iteration = ? AND d.builder = ? AND d.position = ?",
        (place["iteration"], MIXTURE, place["position"]),
    )[0]


def _example(
    place: dict[str, Any],
    row: dict[str, Any],
    written: Sequence[Proposal],
    proposers: Collection[str],
) -> MixtureExample:
    return MixtureExample(
        iteration=place["iteration"],
        domain=place["domain"],
        instruction=row["prompt"],
        proposals=tuple(proposal for proposal in written if proposal[1] in proposers),
        writer=row["writer"] or MIXTURE,
        response=row["response"],
    )


def _proposals(
    ledger: Ledger, iteration: int, turns: Sequence[str | None]
) -> dict[str | None, list[Proposal]]:
    """The proposals by the user turn that they answer; none where its prompt is not known.

    Only the last turn is unpacked: with every whole prompt of a stage, this would take longer than
    the rest of the report. Packed ones cannot be compared, as the same line may have two numbers.
    """
    by_turn: dict[str | None, list[Proposal]] = {turn: [] for turn in turns}
    marks = ",".join("?" * len(by_turn))
    for row in ledger.query(
        f"SELECT phase, member, text, error_kind, {_TURN} AS turn FROM responses r "
        "WHERE iteration = ? AND purpose = 'propose' AND phase NOT LIKE 'evaluate%' "
        f"AND turn IN ({marks}) ORDER BY phase, at, rowid",
        (iteration, *by_turn),
    ):
        by_turn[row["turn"]].append((row["phase"], row["member"], _said(row)))
    return by_turn


def _said(row: dict[str, Any]) -> str:
    if row["error_kind"]:
        return f"(failed: {row['error_kind']})"
    return row["text"] or "(empty)"
