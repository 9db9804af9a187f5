"""Responses that another run of the same seed has are copied, not asked for again.

Ids of requests are content ids: the same question to the same member in the same place of a run
has the same id, whichever method asks it. The measurement at the start is the largest part. Taken
is what was answered by a member that nobody has trained yet (version 0), where all that it answers
by (base, adapter, system prompt ...: its record without its roles) and the request itself are the
same; the machinery is that of the comparison. A response so taken is a row like any other, with no
attempt. On engines that compute in batches, the same request may have been answered beside others
than here: numbers then differ by rounding, and a text may differ from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.identity import canonical_json, messages_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Member, Request, Response


def taken_from(folders: Sequence[Path]) -> Callable[[Sequence[Request]], Any]:
    """What an arm may take from the runs in the folders, arms of the same comparison and seed.

    They must be of members whose files are unchanged since (a run that is opened checks its own).
    """

    def find(requests: Sequence[Request]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        wanted = [request for request in requests if request.member.version == 0]
        for folder in folders:
            owed = [request for request in wanted if request.id not in found]
            if owed and run_ledger_path(folder).exists():
                with Ledger(run_ledger_path(folder)) as ledger:
                    found |= _same(ledger, owed)
        return found

    return find


def _same(ledger: Ledger, requests: Sequence[Request]) -> dict[str, Response]:
    """Responses to exactly these requests by exactly these members."""
    members = {member.name: _answering(member) for member in ledger.members(0)}
    asked = {
        request.id: request
        for request in requests
        if members.get(request.member.name) == _answering(request.member)
    }
    same = [row["id"] for row in _rows(ledger, asked) if _is(row, asked[row["id"]])]
    replies = ledger.responses(same)
    return {key: reply for key, (reply, _) in replies.items() if reply.error is None}


def _answering(member: Member) -> Member:
    """What it answers by: whatever it may do beside it changes no answer."""
    return replace(member, roles=())


def _rows(ledger: Ledger, ids: Iterable[str]) -> list[dict[str, Any]]:
    return ledger.query(
        "SELECT id, member, version, seed, purpose, full_messages(messages) AS messages, "
        "full_text(want) AS want FROM responses WHERE status = 'done' "
        "AND id IN (SELECT value FROM json_each(?))",
        (canonical_json(list(ids)),),
    )


def _is(row: dict[str, Any], request: Request) -> bool:
    return (
        (row["member"], row["version"]) == (request.member.name, request.member.version)
        and (row["seed"], row["purpose"]) == (request.seed, request.purpose)
        and row["messages"] == messages_json(request.messages)
        and row["want"] == canonical_json(request.want)
    )
