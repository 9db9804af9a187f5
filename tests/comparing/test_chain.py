"""A comparison on tiny models: a pool of recruits, training, counts, and copied responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.comparing.budget import spent
from phalanx.comparing.running import run_all
from phalanx.comparing.spec import pool_folder
from phalanx.comparing.table import tabulate
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.training.examples import DemonstrationRow, PairRow
from phalanx.training.train import _num_tokens
from tests.comparing.files import comparison
from tests.tiny import make_tiny


def test_tokens_of_a_row_are_those_of_all_its_texts():
    pair = PairRow("p", (1, 2, 3), (4, 5), (6,))
    assert _num_tokens(pair) == (3 + 2) + (3 + 1)
    assert _num_tokens(DemonstrationRow("d", (1, 2, 3), (4, 5))) == 5


def tiny(base: Path, **changes):
    optimiser = {"learning_rate": 1e-3, "batch_size": 4, "max_length": 256, "lora": {"rank": 4}}
    recruit = {
        "specialists": {"ada": ["sentiment"], "bob": ["kinds"], "cora": ["words"]},
        "examples_per_domain": 2,
        "train": optimiser,
    }
    return {
        "iterations": 1,
        "pool": {"base": str(base), "recruit": {**recruit, **changes}},
        "instructions": {"source": "builtin:skills", "domains": ["sentiment", "kinds"]},
        "answer": {"max_new_tokens": 4},
        "judge": {"protocol": "likelihood"},
        "pairs": {"truncated": "allow"},
        "train": optimiser,
        "sppo": {"samples": 2, "sample": {"max_new_tokens": 4}},
        "resources": {"batch_size": 8, "threads": 1},
        "evaluate": {
            "tasks": [
                {"name": "s", "source": "builtin:skills", "domains": ["sentiment"], "limit": 6}
            ],
            "dev_share": 0.5,
            "max_new_tokens": 2,
        },
    }


@pytest.mark.slow
def test_the_chain_on_tiny_models(tmp_path):
    base, out = make_tiny(tmp_path / "base", seed=1), tmp_path / "out"
    methods = {
        "sparta": {},
        "sppo": {},
        "one-judge": {"method": "sparta", "lineup": {"one_judge": True}},
        "self_consistency": {},
    }
    made = comparison(methods, base=tiny(base), budget={"responses": 18})
    assert run_all(made, out, progress=Silent()) == ()
    arms = {arm.name: arm for arm in made.arms(out, 1)}
    found = {}
    for name, arm in arms.items():
        with Ledger(run_ledger_path(arm.folder)) as ledger:
            found[name] = spent(ledger)
            assert ledger.count("trainings", "iteration = 0") == 0  # recruited once, outside
            steps = ledger.query("SELECT member, max(step) AS n FROM training_steps GROUP BY 1")
            assert found[name].steps == sum(row["n"] for row in steps)
    assert {name: use.responses for name, use in found.items()} == {
        "frozen": 0, "sparta": 18, "sppo": 18, "one-judge": 18,
        "self_consistency": 18,
    }  # fmt: skip
    assert found["sparta"].steps > 0 < found["sppo"].steps
    assert found["one-judge"].judgments == found["sparta"].judgments > 0
    with Ledger(run_ledger_path(arms["one-judge"].folder)) as ledger:
        judges = {row["judge"] for row in ledger.query("SELECT DISTINCT judge FROM judgments")}
    assert judges == {"judge"}
    assert {row.name for row in tabulate(list(arms.values())).rows} == set(arms)

    # With responses of another arm or without, computed in batches: the same ledger.
    sparta = arms["sparta"]
    align(sparta.config, tmp_path / "alone")
    with Ledger(run_ledger_path(sparta.folder)) as shared:
        assert shared.count("responses", "attempts = 0") == 18
        contents = shared.contents()
    with Ledger(run_ledger_path(tmp_path / "alone")) as alone:
        assert alone.contents() == contents

    files = {path: path.stat().st_mtime_ns for path in pool_folder(out, 1).rglob("*.safetensors")}
    assert len(files) == 3
    assert run_all(made, out, progress=Silent()) == ()
    assert {path: path.stat().st_mtime_ns for path in files} == files
    other = comparison(methods, base=tiny(base, examples_per_domain=3), budget={"responses": 18})
    with pytest.raises(LedgerError, match=r"pool\.recruit\.examples_per_domain was 2 and is now 3"):
        run_all(other, out, progress=Silent())
