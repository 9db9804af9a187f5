"""A run over every kind of engine: weights here, an endpoint that dies, a managed server."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

import pytest

from phalanx.config import load
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.report.facts import gather
from phalanx.report.markdown import render
from phalanx.types import Member
from tests.server import Abilities, Faults, TestServer
from tests.tiny import make_tiny

CHAT = "/v1/chat/completions"


def endpoint_server(**options) -> TestServer:
    return TestServer(
        ScriptedEngine(), {"m": Member("m", "script:default", engine="scripted")}, **options
    )


def configuration(base, url: str):
    members = [
        {"name": "here", "model": str(base)},
        {"name": "served", "model": str(base), "serve": "vllm"},
        {"name": "far", "engine": "openai", "model": "m"},
        {"name": "judge", "engine": "openai", "model": "m", "roles": ["judge"]},
    ]
    return load(
        "preset:sparta-small",
        {
            "iterations": 2,
            "seed": 5,
            "pool.members": members,
            "endpoints": [{"name": "lab", "url": url, "patience": 1.0, "price_out": 2.0}],
            "instructions.source": "builtin:skills",
            "match.duels": 6,
            "answer.max_new_tokens": 8,
            "judge.protocol": "expected",
            "pairs.truncated": "allow",
            "pairs.keep": 1.0,
            "train.epochs": 1,
            "train.learning_rate": 1e-2,
            "train.lora.rank": 4,
            "resources.threads": 1,
            "resources.device": "cpu",
            "evaluate.tasks": [],
            "vllm.command": [sys.executable, "-m", "tests.server"],
            "vllm.start_timeout": 120,
        },
    )


def answered(server: TestServer) -> Counter[str]:
    return Counter(
        json.dumps(entry.body, sort_keys=True)
        for entry in server.requests(CHAT)
        if entry.status == 200
    )


@pytest.mark.slow
def test_a_run_over_three_engines_survives_the_loss_of_its_endpoint(tmp_path):
    base = make_tiny(tmp_path / "base", seed=1)
    run = tmp_path / "run"
    abilities = Abilities(logprobs="refuse", choice="refuse", prefill="refuse")
    with endpoint_server(faults=Faults(latency=0.02), can=abilities) as server:
        config = configuration(base, server.url)

        def stop_in_the_middle() -> None:
            while answered(server).total() < 8:
                time.sleep(0.01)
            server.stop()

        stopper = threading.Thread(target=stop_in_the_middle, daemon=True)
        stopper.start()
        with pytest.raises(EngineError, match=r"lab .* has not answered .* run the same command"):
            align(config, run)
        stopper.join(5)
        with Ledger(run_ledger_path(run)) as ledger:
            facts = gather(ledger)
            kept = {row["id"] for row in ledger.query("SELECT id FROM responses")}
            heard = ledger.count("responses", "member IN ('far', 'judge')")
        assert "has not answered" in facts.progress.last_error
        before = answered(server)
        assert kept
        assert heard > 0, "what was answered before is recorded"
        server.start()
        align(config, run)

    with Ledger(run_ledger_path(run)) as ledger:
        facts = gather(ledger)
        assert ledger.count("responses", "status = 'failed'") == 0
        assert {m.name: m.version for m in ledger.members()} == {
            "here": 2, "served": 2, "far": 0, "judge": 0,
        }  # fmt: skip
        assert kept <= {row["id"] for row in ledger.query("SELECT id FROM responses")}
    # Only what the dying server had written without anybody hearing it is asked again.
    again = sum(count - 1 for count in answered(server).values())
    assert again <= before.total() - heard
    [lab] = facts.endpoints
    assert lab.requests >= answered(server).total() - again
    assert lab.money == pytest.approx(lab.tokens_out * 2e-6)
    assert facts.written_scores["judge"] > 0
    text = render(facts)
    assert "the server gives none" in text
    assert "far, judge, served" in text or "served, far, judge" in text
    assert "not repeated to the letter" in text
