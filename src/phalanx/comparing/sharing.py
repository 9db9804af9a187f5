"""Responses that another run of the same seed has are copied, not asked for again.

Ids of requests are content ids: the same question to the same member in the same place of a run
has the same id, whichever method asks it. The measurement at the start is the largest part. Taken
is what was answered by a member that nobody has trained yet (version 0), where its whole record
(base, adapter, system prompt ...), the request itself, and the machinery that answers are the same.
A response so taken is a row like any other, with no attempt: the run that takes it has the ledger
that it would have had without. On engines that compute in batches, the same request may have been
answered beside others than here; it differs by no more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from phalanx.asking import stored_config
from phalanx.config.compare import differences
from phalanx.config.schema import Config
from phalanx.identity import canonical_json, messages_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Request, Response

MACHINERY = ("resources", "endpoints", "vllm")
"""Sections that say how members answer; keys that never decide results may differ."""


def taken_from(config: Config, folders: Sequence[Path]) -> Callable[[Sequence[Request]], Any]:
    """What an arm with this configuration may take from the runs in the folders.

    They must be of members whose files are unchanged since (a run that is opened checks its own).
    """

    def find(requests: Sequence[Request]) -> dict[str, Response]:
        found: dict[str, Response] = {}
        wanted = [request for request in requests if request.member.version == 0]
        for folder in folders:
            owed = [request for request in wanted if request.id not in found]
            if owed and run_ledger_path(folder).exists():
                with Ledger(run_ledger_path(folder)) as ledger:
                    found |= _same(ledger, config, owed)
        return found

    return find


def _same(ledger: Ledger, config: Config, requests: Sequence[Request]) -> dict[str, Response]:
    """Responses to exactly these requests by exactly these members."""
    other = stored_config(ledger.folder, ledger.get("config") or "{}")
    if any(key.split(".")[0] in MACHINERY for key, _, _ in differences(other, config)):
        return {}
    members = {member.name: member for member in ledger.members(0)}
    asked = {
        request.id: request
        for request in requests
        if members.get(request.member.name) == request.member
    }
    same = [row["id"] for row in _rows(ledger, asked) if _is(row, asked[row["id"]])]
    replies = ledger.responses(same)
    return {key: reply for key, (reply, _) in replies.items() if reply.error is None}


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
