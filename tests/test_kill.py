"""kill -9 at random moments, then the same command: the ledger of an uninterrupted run.

Real tiny models, real training. The processes are forked from one that has only imported the
heavy packages, so that a kill lands in the run and not in an import.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import make_adapter, make_tiny

DRIVER = Path(__file__).with_name("kill_driver.py")


def test_kill_at_twenty_random_points_on_the_scripted_engine(tmp_path):
    config = Path(__file__).resolve().parent.parent / "configs" / "smoke" / "pairwise.yaml"
    done = drive(config, tmp_path, kills=20, seed=1)
    assert "20 kills landed" in done


@pytest.mark.slow
def test_kill_at_twenty_random_points_with_real_training(tmp_path):
    base = make_tiny(tmp_path / "base", seed=1)
    adapter = make_adapter(base, tmp_path / "adapter", rank=4, seed=2)
    config = tmp_path / "run.yaml"
    config.write_text(
        f"""
preset: sparta-small
seed: 3
iterations: 2
pool:
  base: {base}
  members:
    - {{name: ada}}
    - {{name: bob, adapter: {adapter}}}
    - {{name: cora, system: Answer shortly., roles: [contest, judge]}}
instructions: {{source: builtin:skills}}
match: {{duels: 6}}
answer: {{max_new_tokens: 8}}
pairs: {{truncated: allow}}
train: {{epochs: 1, max_length: 256}}
evaluate: {{tasks: [{{name: skills, source: "builtin:skills", limit: 2}}], max_new_tokens: 4}}
resources: {{batch_size: 8, threads: 1}}
""",
        encoding="utf-8",
    )
    done = drive(config, tmp_path, kills=20, seed=2)
    assert "20 kills landed" in done


def test_kill_in_every_stage_of_moaa_on_the_scripted_engine(tmp_path):
    config = Path(__file__).resolve().parent.parent / "configs" / "smoke" / "moaa.yaml"
    done = drive(config, tmp_path, kills=12, seed=3)
    # The clock says in which stages the kills land; below, with training, in all of them.
    assert sum(f"making {stage}" in done for stage in range(1, 5)) >= 2, done


@pytest.mark.slow
def test_kill_in_every_stage_of_moaa_with_real_training(tmp_path):
    """Stage sft trains all weights (a base of the student's own), stage dpo an adapter on it.

    In one order each, since a random model contradicts itself in two, and nobody would learn.
    """
    base = make_tiny(tmp_path / "base", seed=1, context=4096)
    adapter = make_adapter(base, tmp_path / "adapter", rank=4, seed=2)
    rows = tmp_path / "rows.jsonl"
    turns = ["what is two plus three", "say hello", "the capital of france is"]
    asked = [{"messages": [{"role": "user", "content": f"{text} {n}"}]}
             for n in range(4) for text in turns]  # fmt: skip
    asked += [
        {
            "messages": [
                {"role": "user", "content": f"name a town {n}"},
                {"role": "assistant", "content": "paris"},
                {"role": "user", "content": "and another"},
            ]
        }
        for n in range(3)
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    config = tmp_path / "run.yaml"
    config.write_text(
        f"""
method: moaa
seed: 3
iterations: 2
pool:
  base: {base}
  members:
    - {{name: wiz, adapter: {adapter}, roles: [contest, judge]}}
    - {{name: gem, system: Answer shortly., roles: [contest, judge]}}
    - {{name: student, roles: [contest, learn]}}
instructions: {{source: {rows}, column: messages}}
mixture:
  proposers: [wiz, gem]
  aggregator: wiz
  propose: {{max_new_tokens: 4, top_k: 20}}
  aggregate: {{max_new_tokens: 4, top_k: 20}}
moaa:
  students: [{{name: student}}]
  sft_instructions: 4
  dpo_instructions: 2
  multi_turn: faithful
  truncated: allow
reward:
  num_criteria: 1
  verdict: options
  samples: 2
  both_orders: false
  evaluate: {{max_new_tokens: 4, top_k: 20}}
  sample: {{temperature: 1.0, max_new_tokens: 4, top_k: 20}}
pairs: {{truncated: allow}}
sft: {{epochs: 1, learning_rate: 1.0e-3, max_length: 384, batch_size: 4, weights: full}}
train: {{epochs: 1, learning_rate: 1.0e-3, max_length: 384, batch_size: 4}}
evaluate: {{tasks: [{{name: skills, source: "builtin:skills", limit: 2}}], max_new_tokens: 4}}
resources: {{batch_size: 8, threads: 1}}
""",
        encoding="utf-8",
    )
    done = drive(config, tmp_path, kills=6, seed=4, each=True)
    for step in ("making 1", "learning 1", "making 2", "learning 2"):
        assert step in done, done


def drive(config: Path, folder: Path, *, kills: int, seed: int, each: bool = False) -> str:
    # -P: a folder beside the script, tests/statistics, has the name of a standard module.
    words = [str(DRIVER), str(config), str(folder), str(kills), str(seed)]
    command = [sys.executable, "-P", *words]
    done = subprocess.run(
        [*command, *(["each"] if each else [])], capture_output=True, text=True, timeout=540
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
