"""kill -9 anywhere in ``eval`` and ``judge-bench``: the same records, and nothing asked twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.ledger import run_ledger_path
from tests.kill_commands import COUNTED
from tests.measuring.test_judges import PAIRS, PAIRWISE
from tests.measuring.test_judges import RULES as JUDGES
from tests.measuring.test_work import GSM8K, MEDQA
from tests.measuring.test_work import RULES as ANSWERS
from tests.scripts import command, write_pool, write_rows

ROOT = Path(__file__).resolve().parent.parent
GRADES = """
options:
  - {when: boxed, weights: {"yes": 3, "no": 1}}
  - {when: ., weights: {"yes": 1, "no": 3}}
"""
MORE = """
judge: {{protocol: pairwise}}
aggregate: {{rule: mean}}
mixture: {{proposers: [ada, bob], aggregator: cora}}
resources: {{batch_size: 4}}
evaluate:
  judges: [cora, dora]
  tasks:
    - {{name: gsm8k, kind: gsm8k, source: '{folder}/gsm8k.jsonl'}}
    - {{name: often, kind: gsm8k, source: '{folder}/gsm8k.jsonl', samples: 3, temperature: 0.7}}
    - {{name: medqa, kind: medqa, source: '{folder}/medqa.jsonl'}}
    - {{name: graded, match: judged, source: '{folder}/graded.jsonl'}}
    - {{name: open, kind: open, source: '{folder}/open.jsonl'}}
    - {{name: mt, kind: mt_bench, source: '{folder}/mt.jsonl'}}
"""
ASKED = ["How many apples?", "How many pears?", "Is the broken one whole?"]
MT = [
    {"question_id": number, "category": "math", "turns": [text, "And plums?"]}
    for number, text in enumerate(ASKED)
]


@pytest.fixture
def pool(tmp_path) -> Path:
    write_rows(tmp_path / "gsm8k.jsonl", GSM8K)
    write_rows(tmp_path / "medqa.jsonl", MEDQA)
    write_rows(tmp_path / "mt.jsonl", MT)
    write_rows(tmp_path / "open.jsonl", [{"instruction": text} for text in ASKED])
    write_rows(
        tmp_path / "graded.jsonl", [{"instruction": text, "answer": "seven"} for text in ASKED]
    )
    names = ["ada", "bob", "cora", "dora"]
    return write_pool(tmp_path, names, ANSWERS + GRADES, MORE.format(folder=tmp_path))


def killed(commands: list[list[str]], folder: Path, *, kills: int, seed: int) -> dict[str, list]:
    """By table the numbers of rows that killed processes left behind."""
    listed = folder / "commands.json"
    listed.write_text(json.dumps(commands), encoding="utf-8")
    words = [str(listed), str(folder), str(kills), str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.kill_commands", *words],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    where = json.loads(done.stdout)["where"]
    assert len(where) == kills
    return {name: sorted({row[at] for row in where}) for at, name in enumerate(COUNTED)}


def test_an_evaluation_that_grows(pool, tmp_path):
    few = ["eval", str(pool), "--members", "ada,bob,majority", "--task", "gsm8k,often,graded"]
    more = ["eval", str(pool), "--members", "bob,mixture,best_of", "--task", "gsm8k,medqa,graded"]
    contests = ["eval", str(pool), "--members", "ada,bob,mixture", "--task", "gsm8k,open,mt"]
    left = killed([few, more, contests], tmp_path, kills=14, seed=5)
    # The kills landed all along: nothing yet, within tasks, between tasks, within contests.
    assert len(left["responses"]) >= 7, left
    assert len(left["evaluations"]) >= 3, left
    assert len(left["games"]) >= 2, left


def test_a_folder_of_a_process_that_died_before_it_had_tables(pool, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    run_ledger_path(out).touch()
    done = command("eval", pool, "--members", "ada", "--task", "medqa", "--out", out, "-q")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("seed", "protocol"), [(3, "pairwise"), (4, "likelihood")])
def test_judges_under_test(tmp_path, seed, protocol):
    more = PAIRWISE + "resources: {batch_size: 2}"
    config = write_pool(tmp_path, ["ada", "bob", "cora"], JUDGES, more)
    file = write_rows(tmp_path / "pairs.jsonl", PAIRS)
    words = ["judge-bench", str(config), f"judge.protocol={protocol}", "--data", str(file)]
    left = killed([words], tmp_path, kills=12, seed=seed)
    # Before anything, within, and at the end, at least.
    assert len(left["responses"]) >= 3, left
