"""Whole runs with members behind a server: trained members beside them, and servers that end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from phalanx.config import Config, load
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import BudgetError, EngineError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.types import Member
from tests.server import Faults, TestServer
from tests.tiny import make_tiny

SMOKE = Path(__file__).resolve().parents[2] / "configs" / "smoke" / "rubric.yaml"
CHAT = "/v1/chat/completions"
KEY = "sk-very-secret-0123456789"


def serve(script: dict[str, Any] | None = None, **options: Any) -> TestServer:
    """Members m and n answer and judge by ``script``, or as the script that ships says."""
    source = "script:own" if script else "script:default"
    served = {name: Member(name, source, engine="scripted") for name in ("m", "n")}
    engine = ScriptedEngine({source: script} if script else None)
    return TestServer(engine, served, **options)


TELLING = {
    "sampling": [
        {"when": ".", "reply": ["Lima.", "I think it is Lima.", "Perhaps Lima, or Cusco."]}
    ],
    "options": [
        {"when": r"<<<response \w+>>>\n[^<]*Lima", "weights": {"9": 1}},
        {"when": ".", "weights": {"2": 1}},
    ],
}
"""Judges that tell the scripted members' responses from those of a model with random weights."""


def behind(name: str, model: str = "m", **more: Any) -> dict[str, Any]:
    return {"name": name, "engine": "openai", "model": model} | more


def configuration(server: TestServer, members: list[dict[str, Any]], **more: Any) -> Config:
    endpoint = {"name": "e", "url": server.url, "patience": 1.0} | more.pop("endpoint", {})
    settings = {"pool.members": members, "endpoints": [endpoint]} | more
    return load(SMOKE, settings)


def scripted_pool() -> list[dict[str, Any]]:
    return [
        behind("ada"),
        behind("bob", "n"),
        behind("cora", system="Be brief."),
        {"name": "dan", "engine": "scripted"},
    ]


def contents(folder: Path) -> dict[str, Any]:
    """What two runs have in common, whatever the port of their server."""
    with Ledger(run_ledger_path(folder)) as ledger:
        found = ledger.contents()
    found["run"] = [row for row in found["run"] if row["key"] not in ("config", "openai:e")]
    return found


def spent(folder: Path) -> dict[str, Any]:
    with Ledger(run_ledger_path(folder)) as ledger:
        return json.loads(ledger.facts("openai")["openai:e"])


def answered(server: TestServer) -> Counter[str]:
    """How often each body was answered."""
    return Counter(
        json.dumps(entry.body, sort_keys=True)
        for entry in server.requests(CHAT)
        if entry.status == 200
    )


def stop_after(server: TestServer, count: int) -> threading.Thread:
    """Stop the server once it has answered so many requests."""

    def watch() -> None:
        while sum(answered(server).values()) < count:
            time.sleep(0.01)
        server.stop()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_run_whose_server_ends_goes_on_with_the_same_command(tmp_path: Path) -> None:
    with serve() as server:
        align(configuration(server, scripted_pool()), tmp_path / "whole")
        num_requests = len(server.requests(CHAT))
    with serve(faults=Faults(latency=0.01)) as server:
        config = configuration(server, scripted_pool())
        for share in (0.2, 0.6):
            stopper = stop_after(server, int(num_requests * share))
            with pytest.raises(EngineError, match="run the same command again"):
                align(config, tmp_path / "cut")
            stopper.join(5)
            server.start()
        align(config, tmp_path / "cut")
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
        # What a stopped server had written but not yet sent is all that may be asked again.
        again = sum(answered(server).values()) - num_requests
        assert 0 <= again <= 2 * server.max_in_flight()
        assert again < num_requests / 2
        assert spent(tmp_path / "cut")["requests"] >= num_requests


def test_a_trained_member_beside_members_behind_a_server_that_is_restarted(tmp_path: Path) -> None:
    base = make_tiny(tmp_path / "base", seed=1)
    members = [
        {"name": "ada", "model": str(base), "roles": ["contest", "learn"]},
        behind("bob", "n"),
        behind("cora"),
        behind("dora", roles=["judge"]),
    ]
    settings = {
        "train.method": "dpo",
        "answer.max_new_tokens": 8,
        "pairs.truncated": "allow",
        "judge.protocol": "expected",
        "resources.threads": 1,
        "endpoint": {"patience": 30.0},
    }
    with serve(TELLING, faults=Faults(latency=0.01)) as server:
        config = configuration(server, members, **settings)
        stopper = stop_after(server, 10)

        def start_again() -> None:
            stopper.join()
            time.sleep(0.5)
            server.start()

        restarter = threading.Thread(target=start_again, daemon=True)
        restarter.start()
        align(config, tmp_path / "run")
        restarter.join(10)
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("responses", "status = 'failed'") == 0
        versions = {member.name: member.version for member in ledger.members()}
        assert versions == {"ada": 2, "bob": 0, "cora": 0, "dora": 0}
        assert ledger.count("judgments", "judge = 'dora'") > 0
    assert spent(tmp_path / "run")["capabilities"] == {"m": "prefill", "n": "prefill"}


def test_a_budget_ends_the_run_and_a_higher_one_takes_it_up(tmp_path: Path) -> None:
    with serve() as server:
        config = configuration(server, scripted_pool(), **{"budget.requests": 25})
        with pytest.raises(BudgetError, match=r"Raise budget\.requests and run the same command"):
            align(config, tmp_path / "run")
        assert len(server.requests(CHAT)) == 25 == spent(tmp_path / "run")["requests"]
        with pytest.raises(BudgetError):
            align(config, tmp_path / "run")
        assert len(server.requests(CHAT)) == 25
        more = configuration(server, scripted_pool(), **{"budget.requests": 5000})
        align(more, tmp_path / "run")
        assert set(answered(server).values()) == {1}
        assert len(server.requests(CHAT)) == spent(tmp_path / "run")["requests"]


def test_a_key_is_nowhere_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TEST_KEY", KEY)
    with serve(key=KEY) as server:
        endpoint = {"key": "PHALANX_TEST_KEY"}
        config = configuration(server, scripted_pool(), iterations=1, endpoint=endpoint)
        align(config, tmp_path / "run")
        server.key = "another one"
        with pytest.raises(EngineError, match="PHALANX_TEST_KEY") as caught:
            align(config.model_copy(update={"iterations": 2}), tmp_path / "run")
        assert KEY not in str(caught.value)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def test_a_killed_run_sends_nothing_again_that_was_recorded(tmp_path: Path) -> None:
    with serve(faults=Faults(latency=0.02)) as server:
        config = configuration(server, scripted_pool(), iterations=1)
        file = tmp_path / "config.yaml"
        file.write_text(config.model_dump_json(), encoding="utf-8")
        folder = tmp_path / "run"
        command = [sys.executable, "-m", "phalanx.cli", "run", str(file), "--out", str(folder)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None and len(server.requests(CHAT)) < 15:
            time.sleep(0.01)
        child.kill()
        child.wait()
        server.settle()
        with Ledger(run_ledger_path(folder)) as ledger:
            recorded = ledger.count("responses", "status = 'done' AND member != 'dan'")
        before = answered(server)
        align(config, folder)
        again = [body for body, count in answered(server).items() if count > 1]
        assert 0 < recorded <= sum(before.values())
        assert len(again) <= sum(before.values()) - recorded


def test_the_examples_of_the_page_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAB_KEY", KEY)
    page = (SMOKE.parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    section = page.split("\n## openai\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "page.yaml").write_text(example, encoding="utf-8")
    config = load(tmp_path / "page.yaml")
    assert config.endpoints[0].max_concurrency == 64
    assert [member.model for member in config.pool.members][-1] == "big-model"


def test_a_misspelt_model_may_be_mended_as_long_as_it_has_answered_nothing(
    tmp_path: Path,
) -> None:
    with serve() as server:
        wrong = [*scripted_pool()[:2], behind("cora", "mm"), {"name": "dan", "engine": "scripted"}]
        with pytest.raises(EngineError, match="does not know the model 'mm'"):
            align(configuration(server, wrong), tmp_path / "run")
        right = [*wrong[:2], behind("cora", "m"), wrong[3]]
        align(configuration(server, right), tmp_path / "run")
        with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
            assert ledger.count("responses", "status = 'failed'") == 0
            assert {m.name: m.base for m in ledger.members()}["cora"] == "m"
        other = [*wrong[:2], behind("cora", "n"), wrong[3]]
        with pytest.raises(LedgerError, match=r"pool\.members\.cora\.model was 'm'"):
            align(configuration(server, other), tmp_path / "run")
