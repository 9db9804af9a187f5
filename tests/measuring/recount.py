"""An independent recount of an evaluation: from the responses as written and the source rows.

It shares no code with the scorers. Of each response it reads the prompt as it was shown and the
text, and decides by a few lines of its own, which are simpler than the package's reading: it knows
the forms in which these answers come, and no trap.

    PHALANX_DATA=DIR python -m tests.measuring.recount FOLDER

The exit code is 1 where anything differs.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path

Key = tuple[str, str]


def recount(folder: Path, sources: dict[str, Path]) -> dict[Key, dict[str, bool]]:
    """(subject, task) -> item -> right. Tasks: gsm8k, medqa, truthfulqa (letters)."""
    gold = {task: _gold(task, path) for task, path in sources.items()}
    from phalanx.ledger import Ledger, run_ledger_path  # reads packed texts; nothing is scored

    found: dict[Key, dict[str, bool]] = defaultdict(dict)
    with Ledger(run_ledger_path(folder)) as ledger:
        rows = ledger.query(
            "SELECT e.member, e.task, e.item, r.text, full_messages(r.messages) AS shown "
            "FROM evaluations e JOIN responses r ON r.id = e.response"
        )
    for row in rows:
        prompt = json.loads(row["shown"])[-1]["content"]
        found[row["member"], row["task"]][row["item"]] = _right(
            row["task"], prompt, row["text"] or "", gold[row["task"]]
        )
    return dict(found)


def _gold(task: str, path: Path) -> dict[str, str]:
    """Question -> the right text."""
    gold = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if task == "gsm8k":
            gold[row.get("prompt") or row["question"]] = row["answer"].split("####")[-1].strip()
        elif task == "medqa":
            gold[row["prompt"]] = row["choices"][row["answer"]]
        else:
            marks = row["meta"]["mc1"]
            pairs = zip(marks["choices"], marks["labels"], strict=True) \
                if "labels" in marks else marks.items()  # fmt: skip
            gold[row["prompt"]] = next(text for text, mark in pairs if mark)
    return gold


def _right(task: str, prompt: str, text: str, gold: dict[str, str]) -> bool:
    question = max((one for one in gold if prompt.startswith(one.strip())), key=len)
    if task == "gsm8k":
        stated = re.findall(r"\\boxed\{\$?(-?[\d,]+(?:\.\d+)?)\}", text)
        if not stated:
            stated = re.findall(r"(?:####|[Tt]he (?:final )?answer is:?)\s*\$?(-?[\d,]+(?:\.\d+)?)",
                                text)  # fmt: skip
        return bool(stated) and _number(stated[-1]) == _number(gold[question])
    options = dict(re.findall(r"^\(([A-Z])\) (.*)$", prompt, re.MULTILINE))
    stated = re.findall(r"(?i:answer(?: is)?:?)\s*\(?([A-Z])\b(?!,? (?:and |or )?[A-Z]\b)", text)
    if not stated and re.fullmatch(r"\(?[A-Z]\)?\.?", text.strip()):
        stated = [text.strip().strip("().")]
    if not stated:  # a mark of its own at the beginning of a line: "A) Paris"
        marked = set(re.findall(r"^\(?([A-Z])[).:](?=\s)", text, re.MULTILINE))
        stated = list(marked) if len(marked) == 1 else []
    return bool(stated) and options.get(stated[-1], "").strip() == gold[question].strip()


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def recorded(folder: Path) -> dict[Key, dict[str, bool]]:
    """The same as it is recorded, by plain SQL."""
    database = sqlite3.connect(folder / "ledger.sqlite")
    found: dict[Key, dict[str, bool]] = defaultdict(dict)
    for member, task, item, correct in database.execute(
        "SELECT member, task, item, correct FROM evaluations"
    ):
        found[member, task][item] = bool(correct)
    database.close()
    return dict(found)


def main() -> int:
    import os

    folder, data = Path(sys.argv[1]), Path(os.environ["PHALANX_DATA"])
    ours = recorded(folder)
    tasks = sorted({task for _, task in ours})
    mine = recount(folder, {task: data / f"{task}.jsonl" for task in tasks})
    differs = False
    for key, items in sorted(ours.items()):
        differ = [item for item, right in items.items() if mine[key][item] != right]
        print(*key, f"recorded {sum(items.values())}/{len(items)}",
              f"recount {sum(mine[key].values())}/{len(mine[key])}", "differ:", differ)  # fmt: skip
        differs = differs or bool(differ)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
