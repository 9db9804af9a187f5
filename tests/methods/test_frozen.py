"""Frozen: the members are measured, and nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from tests.methods.answering import real_run

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "smoke" / "frozen.yaml"


def test_it_neither_runs_nor_answers():
    method = METHODS["frozen"]
    assert (method.kind, method.run, method.answer) == ("none", None, None)


def test_members_are_asked_each_item_once_and_the_run_is_finished(tmp_path):
    align(load(CONFIG, ["iterations=5"]), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        rows = ledger.query("SELECT DISTINCT member, iteration FROM evaluations ORDER BY 1")
        assert [(row["member"], row["iteration"]) for row in rows] == [
            (name, 0) for name in ("ada", "bob", "cora", "dan")
        ]
        assert ledger.count("responses") == 4 * 10
        assert (ledger.get("num_iterations"), bool(ledger.get("finished"))) == ("0", True)
        assert not ledger.count("states")


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    rows, facts = real_run(tmp_path, "frozen")
    assert set(rows) == {"ada", "bob", "cora"}
    assert facts["finished"]
