"""A whole run whose members are behind a managed server and are trained here."""

from __future__ import annotations

import json
import re
import sys

import psutil
import pytest

from phalanx.config import load
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from tests.tiny import make_tiny

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "tests.server"]


def configuration(base, **more):
    members = [
        {"name": "ada", "model": str(base), "serve": "vllm"},
        {"name": "bob", "model": str(base), "serve": "vllm"},
        {"name": "cora", "model": str(base), "serve": "vllm", "roles": ["judge"]},
    ]
    settings = {
        "iterations": 2,
        "seed": 3,
        "pool.members": members,
        "instructions.source": "builtin:skills",
        "match.duels": 4,
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
        "vllm.command": COMMAND,
        "vllm.start_timeout": 120,
    }
    return load("preset:sparta-small", {**settings, **more})


@pytest.mark.parametrize("between", ["sleep", "stop", "keep"])
def test_members_are_served_rest_while_they_train_and_come_back_trained(
    between, tmp_path, monkeypatch
):
    monkeypatch.setenv("TEST_SERVER_LOG", str(tmp_path / "log.jsonl"))
    base = make_tiny(tmp_path / "base", seed=1)
    run = tmp_path / "run"
    align(configuration(base, **{"vllm.between_phases": between}), run)

    with Ledger(run_ledger_path(run)) as ledger:
        assert ledger.count("responses", "status = 'failed'") == 0
        versions = {member.name: member.version for member in ledger.members()}
        assert versions == {"ada": 2, "bob": 2, "cora": 0}
        assert ledger.count("trainings") == 4
    assert len(list((run / "servers").glob("base-*.log"))) == 1

    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    asked = {row["body"]["model"].partition(".")[0] for row in rows if "completions" in row["path"]}
    assert asked == {"base", "ada@1", "bob@1"}
    adapters = run / "adapters" / "iteration-1"
    files = [path.stat().st_mtime for path in adapters.rglob("adapter_model.safetensors")]
    first, last = min(files), max(files)
    before = [row for row in rows if row["at"] < first]
    after = [row for row in rows if row["at"] > last]
    assert not [row for row in rows if first < row["at"] < last]
    at_rest = {"sleep": ["/sleep", "/is_sleeping"], "stop": [], "keep": []}[between]
    ended = [row["path"] for row in before][-len(at_rest) or len(before) :]
    assert ended == at_rest
    woken = {"sleep": ["/wake_up"], "stop": ["/v1/models"], "keep": ["/v1/load_lora_adapter"]}
    assert [row["path"] for row in after][:1] == woken[between]
    assert len({row["pid"] for row in rows}) == (2 if between == "stop" else 1)
    assert not [p for p in psutil.Process().children(recursive=True) if _is_server(p)]


def _is_server(process: psutil.Process) -> bool:
    return "tests.server" in process.cmdline()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"vllm.command": ["/nowhere/vllm"]}, r"vllm.command: there is no program '/nowhere/vllm'"),
        ({"vllm.command": []}, "vllm.command: is empty"),
    ],
)
def test_a_vllm_that_is_not_there_is_refused(more, fault, tmp_path):
    base = make_tiny(tmp_path / "base", seed=1)
    with pytest.raises(ConfigError, match=fault):
        configuration(base, **more)


def test_one_running_server_has_one_base(tmp_path):
    one, two = (make_tiny(tmp_path / name, seed=1) for name in ("one", "two"))
    members = [
        {"name": "ada", "model": str(one), "serve": "vllm"},
        {"name": "bob", "model": str(two), "serve": "vllm"},
        {"name": "cora", "model": str(two)},
        {"name": "dan", "engine": "scripted", "serve": "vllm"},
    ]
    with pytest.raises(ConfigError) as caught:
        configuration(one, **{"pool.members": members, "vllm.url": "http://127.0.0.1:1"})
    assert re.search(r"vllm.url: is one server, but 2 bases", str(caught.value))
    assert re.search(r"dan.*is scripted", str(caught.value))
