"""Small recorded runs to hand on: conversations, a system prompt, truncated answers, odd texts."""

from __future__ import annotations

import json
from pathlib import Path

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.sources import WHOLE
from phalanx.types import (
    Demonstration,
    Duel,
    Instruction,
    IterationResult,
    Member,
    Message,
    Outcome,
    PreferencePair,
)

SYSTEM = "Answer in one word, please."
ODD = 'He said: "<|im_end|>"\n\ttwice \u202e\u0000 <script>'
TALK = (
    Message("user", "what is lima"),
    Message("assistant", "the capital"),
    Message("user", "of what"),
)
ASKED = (
    Instruction("i0", "what is two", "sums", answer="2"),
    Instruction("i1", "what is a cat", "words"),
    Instruction("i2", TALK[0].content, "talk", flags=(WHOLE,), later=TALK[1:]),
    Instruction("i3", ODD, "words"),
)
MEMBERS = (
    Member("ada", "base", "pool/ada", system=SYSTEM),
    Member("bob", "base", "pool/bob"),
)


def pairs(talk: bool = True) -> list[PreferencePair]:
    """One for each instruction; that of ``i1`` has a chosen response that was cut off."""
    return [
        PreferencePair(
            f"p{n}", one, f"{one.domain} good", f"{one.domain} bad {ODD}", "ada", "bob", 2.0,
            chosen_truncated=one.id == "i1", rejected_truncated=one.id == "i0",
        )
        for n, one in enumerate(ASKED)
        if talk or not one.later
    ]  # fmt: skip


def shown(talk: bool = True) -> list[Demonstration]:
    rows = [
        Demonstration("d0", "what is two", "2", "sums", builder="mixture", instruction="i0",
                      writer="ada"),
        Demonstration("d1", "what is a cat", "an ani", "words", builder="mixture",
                      instruction="i1", writer="bob", truncated=True),
        Demonstration("d3", ODD, ODD, "words", builder="mixture", instruction="i3", writer="bob"),
    ]  # fmt: skip
    if talk:
        rows.append(
            Demonstration("d2", "of what", "of a town", "talk", history=TALK[:2],
                          builder="mixture", instruction="i2", turn=1, writer="ada")
        )  # fmt: skip
    return rows


def record(
    folder: Path,
    *,
    talk: bool = True,
    members: tuple[Member, ...] = MEMBERS,
    config: str = "",
) -> Path:
    """A run of two iterations with all of it; ``config`` is the configuration's JSON."""
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        facts = {"method": "sparta", "num_iterations": "2", "phalanx_version": "0.1.0"}
        facts["pool_order"] = json.dumps([one.name for one in members])
        ledger.record_start(facts | ({"config": config} if config else {}), members, ASKED)
        asked = [one for one in ASKED if talk or not one.later]
        duels = tuple(Duel(f"u{one.id}", one, "ada", "bob") for one in asked)
        result = IterationResult(
            duels=duels,
            outcomes=tuple(Outcome(duel.id, "decided", "left", 8.0, 6.0, 2) for duel in duels),
            pairs=tuple(pairs(talk)),
            demonstrations=tuple(shown(talk)),
        )
        ledger.record_iteration(1, result)
    return folder
