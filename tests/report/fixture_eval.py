"""Evaluations of several subjects, written through the real ledger.

``line`` makes one row; ``build`` makes a whole evaluation of realistic shape, of which only the
numbers are invented: tasks of right and wrong items, of shares, with labels, with samples, judged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phalanx.config.schema import Config
from phalanx.identity import derived_random
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import ITEMS
from phalanx.types import Failure, Member, Message, Request, Response, Sampling

SUBJECTS = ("ada@0", "ada@2", "bob@0", "bob@2", "majority")
HOSTILE = "<script>alert(1)</script>"
TASKS: tuple[dict[str, Any], ...] = (
    {"name": "skills", "source": "builtin:skills"},
    {"name": "normad", "source": "n.jsonl", "kind": "normad_country"},
    {"name": "truth", "source": "t.jsonl", "kind": "truthfulqa_mc2"},
    {"name": "code", "source": "c.jsonl", "kind": "humaneval", "samples": 5, "temperature": 0.8},
    {"name": "com2", "source": "m.jsonl", "kind": "com2"},
)


def config(tasks: Sequence[dict[str, Any]] = TASKS, **sections: Any) -> Config:
    return Config.model_validate(
        {
            "seed": 3,
            "pool": {
                "base": "builtin:smollm2-135m",
                "members": [{"name": "ada"}, {"name": "bob"}],
            },
            "evaluate": {"tasks": list(tasks), "judges": ["bob"]},
            **sections,
        }
    )


def start(folder: Path, settings: Config, subjects: Sequence[str] = (), **facts: str) -> Ledger:
    """A writable ledger of ``eval`` with its facts and members."""
    ledger = Ledger(run_ledger_path(folder), writable=True)
    known = {
        "config": settings.model_dump_json(),
        "pool_order": json.dumps(list(subjects)),
        "method": "eval",
        "seed": str(settings.seed),
        "num_iterations": "0",
        "engines": '["hf"]',
        "phalanx_version": "0.1.0",
        "created_at": "2026-01-02T03:04:05+00:00",
    }
    members = [Member(name.partition("@")[0], "builtin:smollm2-135m") for name in ("ada", "bob")]
    ledger.record_start({**known, **facts}, members, [])
    return ledger


def line(subject: str, task: str, item: str, score: float, **columns: Any) -> dict[str, Any]:
    """A readable row of the test split with a response; ``correct`` is a whole score."""
    return {
        "iteration": 0, "member": subject, "task": task, "item": item, "domain": "",
        "split": "test", "correct": int(score == 1), "readable": 1, "score": float(score),
        "answer": "", "reason": "", "response": f"{subject}/{task}/{item}", **columns,
    }  # fmt: skip


def respond(
    ledger: Ledger,
    rows: Sequence[dict[str, Any]],
    texts: dict[str, str],
    cut: Sequence[str] = (),
) -> None:
    """A response behind each row; of the reason "timeout" it failed, to items ``cut`` it ended at
    the limit of new tokens."""
    member, want = Member("ada", "builtin:smollm2-135m"), Sampling()
    batch = []
    for row in rows:
        request = Request(row["response"], member, (Message("user", "?"),), want, "evaluate")
        failed = Failure("timeout", "too slow") if row["reason"] == "timeout" else None
        text = None if failed else texts.get(row["task"], "four")
        ended = "length" if row["item"] in cut else ""
        reply = Response(request.id, text=text, finish_reason=ended, error=failed)
        batch.append((request, reply, 1))
    ledger.record_responses(0, "evaluate", batch, 1.0)
    ledger.add_seconds(0, "evaluate", 12.5, len(batch))


def build(folder: Path) -> Path:
    """Five subjects on five tasks; bob@2 is much better than bob@0, ada stays as she was."""
    skill = dict(zip(SUBJECTS, (0.55, 0.58, 0.30, 0.62, 0.66), strict=True))
    with start(folder, config(), SUBJECTS) as ledger:
        rows = [
            row
            for subject in SUBJECTS
            for task in ("skills", "normad", "truth", "code", "com2")
            if (subject, task) != ("majority", "truth")
            for row in _task(subject, task, skill[subject])
        ]
        ledger.record_evaluation(rows)
        for task in ("skills", "normad", "truth", "code", "com2"):
            asked = {row["item"]: [f"{HOSTILE} {row['item']}?", "4"] for row in rows
                     if row["task"] == task}  # fmt: skip
            ledger.put(f"{ITEMS}{task}", json.dumps(asked))
        respond(ledger, rows, {"com2": f"A longer answer. {HOSTILE}"})
        ledger.put("finished", "2026-01-02T03:14:15+00:00")
    return folder


def _task(subject: str, task: str, skill: float) -> list[dict[str, Any]]:
    domains = {"skills": ("addition", "capitals", HOSTILE), "normad": ("neutral", "no", "yes")}
    rows = []
    for number in range(120 if task == "skills" else 60):
        # Items have a hardness of their own, so that subjects agree more than by chance.
        hard = derived_random("hard", task, number).random()
        luck = derived_random("luck", subject.partition("@")[0], task, number).random()
        level = min(0.98, max(0.02, 1.4 * skill - 0.8 * hard))
        found = {
            "domain": domains.get(task, ("",))[number % len(domains.get(task, ("",)))],
            "split": "dev" if number % 3 == 0 else "test",
        }
        score = float(luck < level)
        if task == "truth":
            score = round(0.5 * luck + 0.5 * level, 6)
            found["correct"] = int(score > 0.5)
        if task == "code":
            score = round(level * 5 * (0.5 + 0.5 * luck)) / 5
            found["correct"] = int(luck < score)
        if number % 40 == 7:
            reason = "timeout" if number % 80 == 7 else "no number"
            found |= {"readable": 0, "reason": reason, "correct": 0}
            score = 0.0
        rows.append(line(subject, task, f"i{number:03}", score, **found))
    return rows
