"""kill -9 at random moments, then the same command: the ledger of an uninterrupted run.

Real tiny models, real training. The processes are forked from one that has only imported the
heavy packages, so that a kill lands in the run and not in an import.
"""

from __future__ import annotations

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
    - {{name: cora, system: Answer shortly.}}
instructions: {{source: builtin:skills}}
match: {{duels: 12}}
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


def drive(config: Path, folder: Path, *, kills: int, seed: int) -> str:
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(config), str(folder), str(kills), str(seed)],
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
