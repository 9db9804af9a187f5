"""A small recorded run of the method moaa: two builders, conversations, dropped rows, pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import (
    Demonstration,
    Instruction,
    IterationResult,
    Member,
    Message,
    PreferencePair,
)

SENTENCE = "the cat sat on a mat and said hello to every small dog in town"
WORDS = SENTENCE.split()
INSTRUCTIONS = tuple(
    Instruction(f"i{n}", f"what is {word}", "words") for n, word in enumerate(WORDS[:6])
)
ASKED = (Message("user", "what is lima"), Message("assistant", "the capital"))
TALK = Instruction("talk", "what is lima", later=(ASKED[1], Message("user", "of what")))


def demonstrations(talk: bool = True) -> tuple[Demonstration, ...]:
    """Builders ``mixture`` (one row dropped, one of a conversation) and ``random``."""
    made = []
    for builder, writer in (("mixture", "mixture"), ("random", "ada")):
        made += [
            Demonstration(
                f"{builder}-{row.id}", row.text, f"{WORDS[n]} {WORDS[-n]}", row.domain,
                builder=builder, instruction=row.id, writer=writer, response_id=f"r{n}",
                truncated=n == 1, drop="failed" if builder == "mixture" and n == 0 else "",
            )
            for n, row in enumerate(INSTRUCTIONS)
        ]  # fmt: skip
    if talk:
        made.append(
            Demonstration(
                "mixture-talk", "of what", "of a small town", history=ASKED, builder="mixture",
                instruction="talk", turn=1, writer="mixture", response_id="r9",
            )
        )  # fmt: skip
    return tuple(made)


def pairs(instructions: Sequence[Instruction] = INSTRUCTIONS) -> tuple[PreferencePair, ...]:
    return tuple(
        PreferencePair(
            f"p{n}", row, f"{WORDS[n]} true", f"{WORDS[n]} false", "student", "student", 1.0,
            drop="tie" if n == 0 else "",
        )
        for n, row in enumerate(instructions)
    )  # fmt: skip


def record(folder: Path, *, talk: bool = True) -> Ledger:
    """A writable ledger with stage sft in iteration 1 and stage dpo in iteration 2."""
    ledger = Ledger(run_ledger_path(folder), writable=True)
    facts = {
        "pool_order": json.dumps(["ada", "student"]),
        "method": "moaa",
        "num_iterations": "3",
    }
    members = [Member("ada", "base"), Member("student", "base")]
    ledger.record_start(facts, members, [*INSTRUCTIONS, TALK])
    ledger.record_iteration(1, IterationResult(demonstrations=demonstrations(talk)))
    ledger.record_iteration(2, IterationResult(pairs=pairs()))
    return ledger
