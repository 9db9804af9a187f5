"""Answers of contests as the published tools read them, to be judged there.

``alpaca-eval``: a JSON list of ``{instruction, output, generator, dataset}``. ``arena-hard``: the
JSON lines of its folder ``model_answer``, of the version of the questions. One file a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.collective.ownwords import answer_alone
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger
from phalanx.ledger.rows import CONTEST
from phalanx.placing import placed


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a model said to one question; "" where it has no answer."""

    item: str
    prompt: str
    group: str
    text: str
    response: str
    at: float


def _alpaca(model: str, answers: Sequence[_Answer], version: str) -> str:
    rows = [
        {"instruction": one.prompt, "output": one.text, "generator": model, "dataset": one.group}
        for one in answers
    ]
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _arena(model: str, answers: Sequence[_Answer], version: str) -> str:
    rows = [_arena_row(model, one, version) for one in answers]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _arena_row(model: str, one: _Answer, version: str) -> dict[str, Any]:
    question = one.item.rpartition("/")[2]
    if version == "v2.0":
        turns = [
            {"role": "user", "content": one.prompt},
            {"role": "assistant", "content": {"answer": one.text}},
        ]
        return {"uid": question, "ans_id": one.response, "model": model, "messages": turns,
                "tstamp": one.at, "metadata": {}}  # fmt: skip
    choice = {"index": 0, "turns": [{"content": one.text}]}
    return {"question_id": question, "answer_id": one.response, "model_id": model,
            "choices": [choice], "tstamp": one.at}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kind:
    tasks: tuple[str, ...]
    suffix: str
    write: Callable[[str, Sequence[_Answer], str], str]


ANSWERS = {
    "alpaca-eval": _Kind(("alpaca_eval", "open"), ".json", _alpaca),
    "arena-hard": _Kind(("arena_hard",), ".jsonl", _arena),
}


def export_answers(ledger: Ledger, what: str, *, out: Path | str) -> int:
    """Write the answers of every model to the folder ``out``, one file each: how many answers.

    ``out`` may be a file where there is one model alone. Files are named after the models, or
    TASK+MODEL where there are several tasks. Raises LedgerError where there are no such answers,
    ConfigError where ``out`` is a file for several models or two of them have one file's name.
    """
    kind, out = ANSWERS[what], Path(out)
    ledger.refuse_target(out)
    found = _files(ledger, kind)
    files = dict(found)
    if len(files) < len(found):
        names = [name for name, _ in found]
        twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
        raise ConfigError(
            f"several models or tasks would be written to the same file: {twice}{kind.suffix}; "
            "give them names that still differ where each sign but _ . @ - is a _"
        )
    if not files:
        raise LedgerError(
            f"nothing to export: no task of kind {' or '.join(kind.tasks)} was measured here; "
            "see phalanx eval"
        )
    alone = out.suffix in (".json", ".jsonl") and not out.is_dir()
    if alone and len(files) > 1:
        raise ConfigError(
            f"there are answers of {len(files)} models ({', '.join(files)}), one file each; name "
            "a folder with --out"
        )
    if out.is_file() and not alone:
        raise ConfigError(f"{out} is a file; {what} writes a folder, or a {kind.suffix} file")
    for name, (text, _) in files.items():
        path = out if alone else out / f"{name}{kind.suffix}"
        with placed(path) as place:
            place.write_text(text, encoding="utf-8")
    return sum(count for _, count in files.values())


def _files(ledger: Ledger, kind: _Kind) -> list[tuple[str, tuple[str, int]]]:
    """(name without its ending, (text, number of answers)) of every file."""
    stored = ledger.query(
        "SELECT key, value FROM run WHERE key LIKE ? ORDER BY key", (f"{CONTEST}%",)
    )
    tasks = {row["key"].removeprefix(CONTEST): json.loads(row["value"]) for row in stored}
    tasks = {name: facts for name, facts in tasks.items() if facts["kind"] in kind.tasks}
    times = {
        row["id"]: row["at"]
        for row in ledger.query("SELECT id, at FROM responses WHERE phase LIKE 'evaluate%'")
    }
    found = []
    for task, facts in tasks.items():
        for model, ids in _responses(ledger, task, facts).items():
            answers = _answers(ledger, ids, facts, times)
            parts = (model,) if len(tasks) == 1 else (task, model)
            name = "+".join(re.sub(r"[^\w.@-]", "_", part) for part in parts)
            text = kind.write(model, answers, facts["version"])
            found.append((name, (text, len(answers))))
    return found


def _responses(ledger: Ledger, task: str, facts: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Model -> item -> id of its response; the baseline's too, where it answered here."""
    found: dict[str, dict[str, str]] = {}
    if facts["baseline_answers"]:
        found[facts["baseline"]] = facts["baseline_answers"]
    for row in ledger.query(
        "SELECT DISTINCT member, item, response FROM games WHERE task = ?", (task,)
    ):
        found.setdefault(row["member"], {})[row["item"]] = row["response"]
    return found


def _answers(
    ledger: Ledger, ids: Mapping[str, str], facts: Mapping[str, Any], times: Mapping[str, float]
) -> list[_Answer]:
    """In the order of the questions, without reasoning that went before an answer."""
    known = ledger.responses([key for key in ids.values() if key])
    found = []
    for item, turns in facts["turns"].items():
        if item not in ids:
            continue
        reply = known[ids[item]][0] if ids[item] else None
        text = answer_alone(reply.text or "") if reply and not reply.error else ""
        at = times.get(ids[item], 0.0)
        found.append(_Answer(item, turns[0], facts["groups"][item], text, ids[item], at))
    return found
