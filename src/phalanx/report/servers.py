"""What endpoints were asked and cost, and what of a run cannot be repeated to the letter."""

from __future__ import annotations

import json

from phalanx.ledger import Ledger
from phalanx.report.records import EndpointFacts, RunFacts
from phalanx.report.words import counted, plural

ENGINE = "openai"
REMOTE = ("openai", "vllm")
"""Engines whose responses depend on what else a server was doing."""


def endpoints(ledger: Ledger) -> tuple[EndpointFacts, ...]:
    """One entry for each endpoint that was asked anything, from the facts that its engine kept."""
    found = []
    for key, text in sorted(ledger.facts(ENGINE).items()):
        entry = json.loads(text)
        found.append(
            EndpointFacts(
                name=key.removeprefix(f"{ENGINE}:"),
                requests=entry["requests"],
                tokens_in=entry["tokens_in"],
                tokens_out=entry["tokens_out"],
                money=entry["money"],
                retries=entry["retries"],
                notes=tuple(entry["notes"]),
            )
        )
    return tuple(found)


def written_scores(ledger: Ledger) -> dict[str, int]:
    """Judge -> judgments that a server without probabilities left to the written score."""
    rows = ledger.query(
        "SELECT judge, count(*) AS n FROM judgments WHERE flags LIKE '%\"written_score\"%' "
        "GROUP BY judge ORDER BY judge"
    )
    return {row["judge"]: row["n"] for row in rows}


def endpoint_lines(facts: RunFacts) -> list[str]:
    """One line for each endpoint, then what is worth knowing of it."""
    lines = []
    for entry in facts.endpoints:
        again = sum(entry.retries.values())
        tried = f", {again:,} tried again ({counted(entry.retries)})" if again else ""
        money = f", {entry.money:,.4g} spent" if entry.money else ""
        lines.append(
            f"{entry.name}: {plural(entry.requests, 'request')}{tried}; {entry.tokens_in:,} tokens "
            f"read, {entry.tokens_out:,} written{money}"
        )
        lines += [f"{entry.name}, {note}" for note in entry.notes]
    for judge, count in facts.written_scores.items():
        lines.append(
            f"{plural(count, 'judgment')} of {judge} are the score that was written, not the mean "
            "of its probabilities: the server gives none"
        )
    return lines


def repeatability(facts: RunFacts) -> str:
    """Which members a repeat of the run need not hear the same from; "" where there are none."""
    names = [member.name for member in facts.members if member.engine in REMOTE]
    if not names:
        return ""
    return (
        f"{', '.join(names)} answered through a server, which need not say the same twice: this "
        "run can be taken up again where it stopped, but not repeated to the letter."
    )
