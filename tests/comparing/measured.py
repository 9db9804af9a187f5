"""Finished runs with made-up marks, in ledgers as runs leave them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from phalanx.asking import start_facts
from phalanx.comparing.spec import Arm
from phalanx.config import Config
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Member

ITEMS = {**{f"a{n}": "addition" for n in range(6)}, **{f"k{n}": "kinds" for n in range(2)}}
DEV = {"d": "addition", "e": "kinds"}
Marks = Mapping[str, tuple[str, ...]]


def arm_of(
    folder: Path, name: str, marks: Marks, seed: int = 1, method: str = "sparta", **more: Marks
) -> Arm:
    """An arm with members' dev and test marks at the start, and at the end ("1" is right).

    ``together``: name of the collective -> its dev and test marks, instead of an end.
    """
    config = Config.model_validate(
        {
            "seed": seed,
            "method": method,
            "iterations": 1,
            "pool": {"members": [{"name": one, "engine": "scripted"} for one in marks]},
            "evaluate": {"tasks": [{"name": "skills", "source": "builtin:skills"}]},
        }
    )
    arm = Arm(name, seed, folder / f"seed-{seed}" / name, config)
    members = [Member(one, "script:s", engine="scripted") for one in marks]
    with Ledger(run_ledger_path(arm.folder), writable=True) as ledger:
        facts = start_facts(config, members, method=method, inputs="", iterations=1)
        ledger.record_start(facts, members, [])
        for member, given in {**marks, **more.get("together", {})}.items():
            for number, place in enumerate(range(0, len(given), 2)):
                ledger.record_evaluation(
                    [
                        row
                        for split, items, line in (
                            ("dev", DEV, given[place]),
                            ("test", ITEMS, given[place + 1]),
                        )
                        for row in _rows(number, member, split, items, line)
                    ]
                )
        ledger.put("finished", "now")
    return arm


def _rows(number: int, member: str, split: str, items: Mapping[str, str], line: str):
    for (item, domain), mark in zip(items.items(), line, strict=True):
        right = mark == "1"
        yield {
            "iteration": number,
            "member": member,
            "task": "skills",
            "item": item,
            "domain": domain,
            "split": split,
            "correct": int(right),
            "readable": int(mark != "?"),
            "score": float(right),
            "answer": "yes" if right else f"no, says {member}",
            "reason": "",
            "response": f"{number} {member} {item}",
        }
