"""The two data sets train with TRL alone: the documented script runs, without phalanx."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.export import export
from tests import moaa_run
from tests.tiny import make_tiny

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "examples" / "train_with_trl.py"


def test_the_script_names_no_part_of_the_toolkit():
    imports = re.findall(r"^\s*(?:from|import) (\S+)", SCRIPT.read_text("utf-8"), re.MULTILINE)
    assert {name.split(".")[0] for name in imports} == {
        "__future__", "argparse", "datasets", "transformers", "trl",
    }  # fmt: skip


@pytest.mark.slow
def test_the_documented_script_trains_on_both_data_sets(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    with moaa_run.record(tmp_path / "run") as ledger:
        shown = export(
            ledger, "demonstrations", out=tmp_path / "demonstrations.jsonl", conversational=True,
            builder="mixture",
        )  # fmt: skip
        paired = export(
            ledger, "preferences", out=tmp_path / "preferences.jsonl", conversational=True
        )
    assert (shown, paired) == (6, 5)
    model = make_tiny(tmp_path / "model", seed=1)
    # As on a machine that has never seen phalanx: importing it is an error.
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "phalanx.py").write_text("raise ImportError('not here')\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "blocked"),
        "HF_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--model", str(model), "--out", "trained",
         "--max-steps", "2", "--batch-size", "2", "--cpu"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    start, after, last = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        for folder in (model, tmp_path / "trained" / "sft", tmp_path / "trained")
    )
    for before, trained in ((start, after), (after, last)):
        assert any(not torch.equal(before[name], trained[name]) for name in before)
