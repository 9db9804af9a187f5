"""A pool from what was pushed: the same members, checked like any configuration."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import phalanx
from phalanx.config import load
from phalanx.errors import ConfigError, HubError
from phalanx.handing import pull, push, write_parcel
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.plan import plan_for, render
from phalanx.pool import members_from
from phalanx.weights import Weights
from tests.handing.hub_server import Repo
from tests.handing.runs import SYSTEM
from tests.handing.test_weights import logits

REPO = "me/pool"


def pulled(path):
    config = load("preset:sparta-small", [f"pool={path}", "instructions.source=builtin:skills"])
    return members_from(config)


@pytest.mark.parametrize("way", ["hub", "folder", "merged"])
def test_a_pulled_pool_answers_as_the_run_did(run, base, hub, tmp_path, way):
    import torch

    if way == "folder":
        source = str(tmp_path / "parcel")
        write_parcel(run, REPO, source)
    else:
        push(run, REPO, data=["none"], weights="merged" if way == "merged" else "adapter")
        source = REPO
    path = pull([source], tmp_path / "pool", bases={base.name: str(base)})
    members = pulled(path)
    assert [member.name for member in members] == ["ada", "bob", "cora"]
    assert [member.system for member in members] == [SYSTEM, "", ""]
    with Ledger(run_ledger_path(run)) as ledger:
        originals = ledger.members()
    for member, original in zip(members, originals, strict=True):
        found = []
        for one in (member, original):
            weights = Weights(device="cpu")
            with weights.serving(replace(one, dtype="float32")) as model:
                found.append(logits(model, weights.tokenizer(one)))
        assert torch.allclose(*found, atol=1e-5)
    settings = [f"pool={path}", "instructions.source=builtin:skills", "match.duels=6"]
    console = Console(width=200, file=io.StringIO())
    console.print(render(plan_for("preset:sparta-small", settings, None)))
    assert "ada" in console.file.getvalue()
    assert not [p for p in (tmp_path / "pool").rglob("*") if p.name.startswith(".fetched")]


@pytest.mark.slow
def test_a_pulled_pool_runs_and_is_handed_on_again(run, base, tmp_path, monkeypatch):
    """From one run to the next, by its files alone, from another folder."""
    write_parcel(run, REPO, tmp_path / "parcel")
    pull([str(tmp_path / "parcel")], tmp_path / "pool", base=str(base))
    (tmp_path / "next").mkdir()
    monkeypatch.chdir(tmp_path / "next")
    settings = [
        "pool=../pool/pool.yaml", "instructions.source=builtin:skills", "iterations=1",
        "match.duels=4", "answer.max_new_tokens=4", "pairs.truncated=allow", "pairs.margin=0",
        "judge.protocol=expected", "evaluate.tasks=[]", "resources.device=cpu",
    ]  # fmt: skip
    result = phalanx.run("preset:sparta-small", settings, out="again")
    with Ledger(run_ledger_path("again")) as ledger:
        members = ledger.members()
    assert result.finished
    assert [(one.name, one.version) for one in members] == [("ada", 1), ("bob", 1), ("cora", 1)]
    assert members[0].system == SYSTEM
    parcel = write_parcel("again", REPO, tmp_path / "second")
    assert [one.kind for one in parcel.repositories] == ["model", "dataset"]
    path = pull([str(tmp_path / "second")], tmp_path / "third", base=str(base))
    for one in members:
        learned = (path.parent / one.name / "adapter_model.safetensors").read_bytes()
        assert learned == (Path(one.adapter) / "adapter_model.safetensors").read_bytes()
        assert learned != (tmp_path / "pool" / one.name / "adapter_model.safetensors").read_bytes()


def test_a_base_without_a_name_has_to_be_said(run, tmp_path):
    write_parcel(run, REPO, tmp_path / "parcel")
    with pytest.raises(ConfigError, match="3 faults") as caught:
        pull([str(tmp_path / "parcel")], tmp_path / "pool")
    assert "--base tiny-base=FOLDER" in str(caught.value)
    with pytest.raises(ConfigError, match="--base big: no member has a base of this name; there a"):
        pull([str(tmp_path / "parcel")], tmp_path / "pool", base="org/other", bases={"big": "x"})
    assert not (tmp_path / "pool").exists()
    path = pull([str(tmp_path / "parcel")], tmp_path / "pool", base="org/other")
    assert [member.base for member in pulled(path)] == ["org/other"] * 3


def test_a_plain_adapter_of_peft_is_a_member(run, base, tmp_path):
    folder = run / "adapters" / "iteration-1" / "ada"
    path = pull([str(folder)], tmp_path / "pool", base=str(base))
    (member,) = _members(path)
    assert member["name"] == "ada"
    assert (tmp_path / "pool" / "ada" / "adapter_model.safetensors").read_bytes() == (
        folder / "adapter_model.safetensors"
    ).read_bytes()


def _members(path):
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(path.read_text("utf-8"))["members"]


def test_repositories_are_fetched_apart_and_no_more_than_is_needed(run, base, hub, tmp_path):
    """A manifest of one says nothing of the next; a whole model is refused before it is loaded."""
    push(run, REPO, members=["ada"], data=["none"])
    files = hub.repos["model", REPO].files
    plain = {name: data for name, data in files.items() if name.startswith("adapter_")}
    hub.repos["model", "them/lora"] = Repo(False, {**plain, "sub/x.safetensors": b"large"})
    hub.repos["model", "them/whole"] = Repo(
        False, {"config.json": b"{}", "model.safetensors": b"large"}
    )
    path = pull([REPO, "them/lora"], tmp_path / "pool", base=str(base))
    assert [one["name"] for one in _members(path)] == ["ada", "lora"]
    assert "system" not in _members(path)[1]
    with pytest.raises(ConfigError, match=r"them/whole: .*name it as `model` of a member"):
        pull(["them/whole"], tmp_path / "other")
    loaded = [path for method, path in hub.requests if method == "GET" and "resolve" in path]
    assert not [path for path in loaded if "sub/" in path or "whole" in path], loaded
    hub.fail["/api/models/them/lora"] = 403
    hub.fail_code = "GatedRepo"
    with pytest.raises(HubError, match="its owner has to let you in: ask on its page"):
        pull(["them/lora"], tmp_path / "other")
    hub.fail["/api/models/them/lora"] = 401
    hub.fail_code = "RepoNotFound"
    with pytest.raises(HubError, match="there is no such repository, or it is private"):
        pull(["them/lora"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_base_that_is_here_is_named_by_its_whole_place(run, base, tmp_path, monkeypatch):
    write_parcel(run, REPO, tmp_path / "parcel", members=["ada"])
    monkeypatch.chdir(base.parent)
    path = pull([str(tmp_path / "parcel")], tmp_path / "pool", base=base.name)
    assert _members(path)[0]["model"] == str(base)
    with pytest.raises(ConfigError, match=r"--base ./nowhere: there is no such folder"):
        pull([str(tmp_path / "parcel")], tmp_path / "other", bases={base.name: "./nowhere"})


def test_what_a_stranger_wrote_is_not_trusted(run, tmp_path):
    write_parcel(run, REPO, tmp_path / "parcel", members=["ada"])
    place = tmp_path / "parcel" / "model" / "phalanx.json"
    good = json.loads(place.read_text("utf-8"))

    def changed(**fields) -> None:
        data = {**good, "members": [{**good["members"][0], **fields}]}
        place.write_text(json.dumps(data), encoding="utf-8")

    for fields in (
        {"folder": "../../etc"}, {"folder": "/etc"}, {"name": "../x"},
        {"roles": ["root"]}, {"kind": "pickle"}, {"base": "/etc"}, {"system": ["a"]},
        {"extra": "x"}, {"roles": None},
    ):  # fmt: skip
        changed(**fields)
        with pytest.raises(ConfigError):
            pull([str(tmp_path / "parcel")], tmp_path / "pool", base="org/base")
        assert not (tmp_path / "pool").exists()
    hostile = 'x"\n    trust_remote_code: true\n  - name: eve # \u2028'
    changed(system=hostile)
    (one,) = _members(pull([str(tmp_path / "parcel")], tmp_path / "pool", base="org/base"))
    assert set(one) == {"name", "model", "adapter", "system"}
    assert one["system"] == hostile
    place.write_text(json.dumps(good), encoding="utf-8")
    shutil.move(tmp_path / "parcel" / "model", tmp_path / "elsewhere")
    (tmp_path / "parcel" / "model").mkdir()
    (tmp_path / "parcel" / "model" / "inner").symlink_to(tmp_path / "elsewhere")
    place.write_text(
        json.dumps({**good, "members": [{**good["members"][0], "folder": "inner"}]}), "utf-8"
    )
    with pytest.raises(ConfigError, match="the folder of ada is a link out of it"):
        pull([str(tmp_path / "parcel")], tmp_path / "other", base="org/base")
    place.write_text(json.dumps({**good, "format": 9}), encoding="utf-8")
    with pytest.raises(ConfigError, match="of format 9, and this version reads 1"):
        pull([str(tmp_path / "parcel")], tmp_path / "other", base="org/base")


def test_sources_that_are_none_are_refused(run, hub, tmp_path):
    with pytest.raises(HubError, match=r"404.*no such repository"):
        pull(["me/nothing"], tmp_path / "pool")
    with pytest.raises(ConfigError, match="no such folder"):
        pull(["./nothing"], tmp_path / "pool")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"no phalanx\.json and no adapter_config\.json"):
        pull([str(tmp_path / "empty")], tmp_path / "pool")
    for text in ("{", "[]", '"x"'):
        (tmp_path / "empty" / "adapter_config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"its adapter_config\.json cannot be read"):
            pull([str(tmp_path / "empty")], tmp_path / "pool")
    write_parcel(run, REPO, tmp_path / "parcel", members=["ada"])
    twice = [str(tmp_path / "parcel")] * 2
    with pytest.raises(ConfigError, match="there is a member ada already"):
        pull(twice, tmp_path / "pool", base="org/base")
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists already"):
        pull(twice[:1], tmp_path / "pool", base="org/base")
    assert not re.findall("pickle|\\.bin", str(list(tmp_path.rglob("*"))))
