"""Pairs from answers that are in a ledger: one that is right and one that is wrong.

Who wrote which, and which is right, is known; that is where a judge's preference for its own
answers can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.benchmarks.pair_files import PairFile
from phalanx.benchmarks.panel_test import writer_name
from phalanx.benchmarks.records import Pair
from phalanx.collective.ownwords import answer_alone
from phalanx.errors import ConfigError
from phalanx.identity import derived_random
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import messages
from phalanx.measuring.judges_source import family_of


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """``families`` has those of the writers, by name."""

    file: PairFile
    families: dict[str, str]


def own_answers(folder: Path | str, *, per_item: int = 1, seed: int = 0) -> OwnAnswers:
    """Pairs of readable answers to the same item, one right and one wrong, by different writers.

    ``folder`` is that of a run (its last measurement counts) or of ``phalanx eval``. At most
    ``per_item`` pairs an item, and which of the two is A, are drawn by ``seed``. The group is the
    task. Answers are shown without reasoning that goes before them. Those of a vote, a choice or
    the mixture are some member's as well, or nobody's alone: they are left out and counted.

    Raises ConfigError where there is no such pair.
    """
    with Ledger(run_ledger_path(folder)) as ledger:
        number = ledger.query("SELECT max(iteration) AS n FROM evaluations")[0]["n"]
        if number is None:
            raise ConfigError(f"{folder} has no evaluation: there are no answers to make pairs of")
        rows = ledger.query(
            "SELECT e.task, e.item, e.member, e.correct, r.text, r.member AS writer, "
            "full_messages(r.messages) AS messages "
            "FROM evaluations e JOIN responses r ON r.id = e.response "
            "WHERE e.iteration = ? AND e.readable = 1 AND r.text IS NOT NULL "
            "AND r.finish_reason != 'length' ORDER BY e.task, e.item, e.member",
            (number,),
        )
        known = {member.name: family_of(member) for member in ledger.members()}
    by_item: dict[tuple[str, str], list[dict[str, Any]]] = {}
    alone = [row for row in rows if writer_name(row["member"]) == row["writer"]]
    for row in alone:
        row["text"] = answer_alone(row["text"]).strip()
        if row["text"]:
            by_item.setdefault((row["task"], row["item"]), []).append(row)
    pairs = [
        pair
        for (task, item), mine in by_item.items()
        for pair in _pairs_of(task, item, mine, per_item, seed)
    ]
    if not pairs:
        raise ConfigError(
            f"{folder}: of {len(by_item)} items with readable answers (iteration {number}) there "
            "is none that one got right and another wrong; measure more items, or more members"
        )
    writers = {name for pair in pairs for name in pair.writers}
    families = {
        writer_name(name): known.get(name, known.get(writer_name(name), name)) for name in writers
    }
    lacking = len(by_item) - len({pair.id.rpartition("#")[0] for pair in pairs})
    left_out = {
        "answers of a vote, a choice or the mixture": len(rows) - len(alone),
        "items that all got right, or all wrong": lacking,
    }
    counted = tuple((reason, count) for reason, count in left_out.items() if count)
    return OwnAnswers(PairFile(str(folder), "pairs", tuple(pairs), left_out=counted), families)


def _pairs_of(
    task: str, item: str, rows: Sequence[dict[str, Any]], per_item: int, seed: int
) -> list[Pair]:
    right = [row for row in rows if row["correct"]]
    wrong = [row for row in rows if not row["correct"]]
    both = [
        (good, bad)
        for good in right
        for bad in wrong
        if writer_name(good["member"]) != writer_name(bad["member"])
    ]
    draw = derived_random("own answers", seed, task, item)
    found = []
    for number, (good, bad) in enumerate(draw.sample(both, min(per_item, len(both)))):
        label = "A" if draw.random() < 0.5 else "B"
        first, second = (good, bad) if label == "A" else (bad, good)
        found.append(
            Pair(
                id=f"{task}/{item}#{number}",
                instruction=_prompt(good["messages"]),
                response_a=first["text"],
                response_b=second["text"],
                label=label,
                group=task,
                writers=(first["member"], second["member"]),
            )
        )
    return found


def _prompt(stored: str) -> str:
    """The user's turn that was answered; a member's system prompt is its own."""
    return [turn.content for turn in messages(stored) if turn.role == "user"][-1]
