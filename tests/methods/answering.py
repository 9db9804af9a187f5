"""What the tests of the methods that only answer have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.config import Config
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS, Question, Reached
from phalanx.tasks.comparing import reader_of
from phalanx.types import Member, Message, Sampling
from tests.methods.rivals import Asked

PLACE = ("evaluate", 7)
WANT = Sampling(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=64)
NAMES = ("ada", "bob", "cora", "dan")


def member(name: str, **changes: Any) -> Member:
    return Member(name, "script:s", engine="scripted", **changes)


def question(text: str, match: str = "number") -> Question:
    """``match`` "" asks for a free answer."""
    turns = (Message("user", text),)
    return Question(text, turns, *reader_of(match)) if match else Question(text, turns)


def reach(
    method: str,
    settings: Mapping[str, Any],
    script: Mapping[str, Any],
    questions: Sequence[Question],
    *,
    members: Sequence[Member] = tuple(map(member, NAMES)),
    best: str = "ada",
    want: Sampling = WANT,
    place: tuple = PLACE,
) -> tuple[Asked, list[Reached]]:
    config = Config.model_validate({"seed": 7, "method": method, **settings})
    asked = Asked(script)
    answer = METHODS[method].answer
    assert answer is not None
    found = answer(questions, members, asked, config, best=best, want=want, place=place)
    assert len(found) == len(questions)
    assert all(phase.startswith("evaluate") for phase in asked.phases)
    assert all((one.response is None) == bool(one.reason) for one in found)
    return asked, found


def as_text(asked: Asked, found: Sequence[Reached]) -> str:
    """Who was asked what, and what was reached. Marks are random but for their seed."""
    lines = [*asked.lines, ""]
    for one in found:
        said = one.response.text if one.response else None
        lines.append(f"reached {said!r} by {one.writer!r} reason={one.reason!r} {one.counts}")
    return "\n".join(lines) + "\n"


def ids(asked: Asked) -> list[str]:
    return [request.id for request in asked.requests]


SYSTEMS = {"ada": "", "bob": "You are brief.", "cora": "Count."}


def real_run(
    folder: Path, method: str, names: Sequence[str] = tuple(SYSTEMS), **sections: Any
) -> tuple[dict[str, list[dict]], dict]:
    """A run on the embedded model: rows by member's name, and the facts of the ledger.

    One item and few tokens: every one of them is a pass through the model.
    """
    source = folder / "sums.jsonl"
    row = '{"id": "a", "instruction": "What is 2 plus 3?", "answer": "5"}\n'
    source.write_text(row, encoding="utf-8")
    task = {"name": "sums", "source": str(source), "match": "number"}
    settings = {
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": name, "system": SYSTEMS[name]} for name in names],
        },
        "method": method,
        "evaluate": {"tasks": [task], "dev_share": 0.0, "max_new_tokens": 4},
        "resources": {"threads": 1},
        **sections,
    }
    run = align(Config.model_validate(settings), folder / "run")
    with Ledger(run_ledger_path(run)) as ledger:
        rows: dict[str, list[dict]] = {}
        for row in ledger.query("SELECT * FROM evaluations ORDER BY member, item"):
            rows.setdefault(row["member"], []).append(row)
        facts = {row["key"]: row["value"] for row in ledger.query("SELECT * FROM run")}
        assert not ledger.count("trainings")
    assert all(len(mine) == 1 for mine in rows.values())
    return rows, facts
