"""Ctrl-C in ``eval`` and ``judge-bench``: a stop after the batch, and the same command goes on."""

from __future__ import annotations

import os
import signal

import pytest

from phalanx.engines.scripted import ScriptedEngine
from phalanx.ledger import Ledger, run_ledger_path
from tests.measuring.test_judges import PAIRS, PAIRWISE
from tests.measuring.test_judges import RULES as JUDGES
from tests.measuring.test_work import GSM8K, RULES
from tests.scripts import command, write_pool, write_rows

STOPPED = (
    "phalanx: stopped in iteration 0, phase {}; everything answered is recorded, and the same "
    "command goes on from here"
)


@pytest.fixture(params=["eval", "judge-bench"])
def words(request, tmp_path) -> list[str]:
    names, more = ["ada", "bob", "cora"], "resources: {batch_size: 2}"
    if request.param == "eval":
        write_rows(tmp_path / "gsm8k.jsonl", GSM8K)
        pool = write_pool(tmp_path, names, RULES, more)
        return ["eval", str(pool), "--task", "gsm8k", "--data", str(tmp_path), "-q"]
    pool = write_pool(tmp_path, names, JUDGES, PAIRWISE + more)
    rows = write_rows(tmp_path / "pairs.jsonl", PAIRS)
    return ["judge-bench", str(pool), "--data", str(rows), "-q"]


def contents(folder) -> dict:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def test_ctrl_c_stops_after_the_batch_and_the_same_command_goes_on(words, tmp_path, monkeypatch):
    respond, batches = ScriptedEngine.respond, 0

    def interrupting(engine, requests):
        nonlocal batches
        batches += 1
        if batches == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return respond(engine, requests)

    assert command(*words, "--out", tmp_path / "whole").returncode == 0
    monkeypatch.setattr(ScriptedEngine, "respond", interrupting)
    stopped = command(*words, "--out", tmp_path / "cut")
    phase = "evaluate" if words[0] == "eval" else "judge"
    assert (stopped.returncode, stopped.stderr.strip()) == (130, STOPPED.format(phase))
    assert len(contents(tmp_path / "cut")["responses"]) == 4  # both batches, and no third
    assert batches == 2
    done = command(*words, "--out", tmp_path / "cut")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
