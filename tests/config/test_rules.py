"""Rules that span fields: each one broken alone, and none on a sound configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.config import Config, rules

NAMES = ("ada", "bob", "cora")


def sound(**changes: Any) -> Config:
    data: dict[str, Any] = {
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": name} for name in NAMES]},
        "instructions": {"source": "builtin:skills"},
    }
    return Config.model_validate(data | changes)


def pool_of(*members: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"base": "builtin:smollm2-135m", "members": list(members), **more}


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "count_gpus", lambda: 2)


def test_a_sound_one_has_none() -> None:
    assert rules.faults(sound()) == []
    assert rules.notes(sound()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": {}}, "the pool is empty"),
        ({"instructions": {}}, "names no instructions"),
        ({"instructions": {"source": "no.jsonl"}}, "there is no file 'no.jsonl'"),
        ({"instructions": {"source": "org/set"}}, "written hub:org/set"),
        ({"instructions": {"source": "hub:set"}}, "expected hub:org/name"),
        ({"instructions": {"source": "builtin:skils"}}, "did you mean builtin:skills?"),
        ({"judge": {"low": 5, "high": 5}}, "5 is not below the highest 5"),
        ({"judge": {"template": "no.txt"}}, "there is no file 'no.txt'"),
        ({"judge": {"template": "a", "protocol": "likelihood"}}, "no use with the likelihood"),
        ({"reputation": {"rule": "sparta", "floor": 200}}, "below the floor of 200"),
        ({"resources": {"device": "gpu"}}, "expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        ({"resources": {"device": "cuda:2"}}, "this machine has 2 GPUs"),
        ({"resources": {"gpus": 4}}, "4 GPUs asked for, this machine has 2 GPUs"),
        ({"evaluate": {"tasks": [{"name": "t", "source": "no.csv"}]}}, "there is no file 'no.csv'"),
        (
            {"evaluate": {"tasks": [{"name": "t", "source": "builtin:skills"}] * 2}},
            "the name t is given to 2 tasks",
        ),
        (
            {"evaluate": {"tasks": [{"name": "t", "source": "builtin:skills"}], "dev_share": 1.0}},
            "leaves no items to report",
        ),
        ({"train": {"max_prompt_length": 2048}}, "2048 tokens leaves no room"),
    ],
)
def test_one_fault(changes: dict[str, Any], words: str) -> None:
    faults = rules.faults(sound(**changes))
    assert len(faults) == 1, faults
    assert words in faults[0]


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (pool_of({"name": "a"}), "got 1: a"),
        (pool_of({"name": "a"}, {"name": "b", "roles": ["judge"]}), "got 1: a"),
        (pool_of({"name": "a"}, {"name": "b"}), "leaves no judge"),
        (
            pool_of({"name": "a"}, {"name": "b"}, {"name": "c", "roles": ["contest"]}),
            "leaves no judge (the judges are: a, b)",
        ),
        (pool_of(*[{"name": n} for n in "aab"]), "the name a is given to 2 members"),
        (pool_of(*[{"name": n} for n in "aAb"]), "A and a differ only in case"),
        ({"members": [{"name": n} for n in "ab"] + [{"name": "c", "model": "o/m"}]}, "a has no"),
        (pool_of({"name": "a", "model": "builtin:smolm2-135m"}, *[{"name": n} for n in "bc"]),
         "did you mean builtin:smollm2-135m?"),
        (pool_of({"name": "a", "model": "gpt2"}, *[{"name": n} for n in "bc"]), "'gpt2' is not"),
        (pool_of({"name": "a", "model": "./gone"}, *[{"name": n} for n in "bc"]), "no file or"),
        (pool_of({"name": "a", "model": "x.gguf"}, *[{"name": n} for n in "bc"]), "no file or"),
        (pool_of({"name": "a", "adapter": "hub:x"}, *[{"name": n} for n in "bc"]), "hub:org/name"),
        (pool_of({"name": "a", "engine": "scripted", "model": "o/m"}, *[{"name": n} for n in "bc"]),
         "not a script"),
        (pool_of({"name": "a", "reputation": 1}, *[{"name": n} for n in "bc"]), "a starts at 1"),
        (pool_of({"name": "a", "gpus": 3}, *[{"name": n} for n in "bc"]), "a needs 3 GPUs"),
        (pool_of(*[{"name": n} for n in "abc"], recruit={"specialists": {"a": ["x"]}}),
         "already the name of a member"),
        (pool_of(*[{"name": n} for n in "abc"], recruit={"specialists": {}}), "names nobody"),
        (pool_of(*[{"name": n} for n in "abc"], recruit={"specialists": {"d": []}}), "no domain"),
        (pool_of(*[{"name": n} for n in "abc"], recruit={"specialists": {"d/e": ["x"]}}), "'d/e'"),
        ({"members": [{"name": n, "model": "o/m"} for n in "abc"],
          "recruit": {"specialists": {"d": ["x"]}}}, "pool.base, which is missing"),
    ],
)  # fmt: skip
def test_one_fault_in_the_pool(pool: dict[str, Any], words: str) -> None:
    faults = [fault for fault in rules.faults(sound(pool=pool)) if words in fault]
    assert len(faults) == 1, rules.faults(sound(pool=pool))


def test_two_contestants_and_a_pure_judge_are_enough() -> None:
    pool = pool_of({"name": "a"}, {"name": "b"}, {"name": "c", "roles": ["judge"]})
    assert rules.faults(sound(pool=pool)) == []


def test_recruits_count_as_members() -> None:
    recruit = {"specialists": {name: ["addition"] for name in NAMES}}
    assert rules.faults(sound(pool=pool_of(recruit=recruit))) == []


def test_nobody_learns() -> None:
    pool = pool_of(*[{"name": name, "roles": ["contest", "judge"]} for name in NAMES])
    (fault,) = rules.faults(sound(pool=pool))
    assert "train.method: none" in fault
    assert rules.faults(sound(pool=pool, train={"method": "none"})) == []


def test_gpus_add_up_only_when_all_are_loaded() -> None:
    pool = pool_of(*[{"name": name, "gpus": 1} for name in NAMES])
    assert rules.faults(sound(pool=pool)) == []
    (fault,) = rules.faults(sound(pool=pool, resources={"keep_all_loaded": True}))
    assert "need 3 GPUs, available: 2 (this machine)" in fault
    assert "keep_all_loaded: false" in fault


def test_adapter_folders(tmp_path: Path) -> None:
    for name in ("alice", "bert"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
    (tmp_path / "alice" / "adapter_model.safetensors").write_bytes(
        (2).to_bytes(8, "little") + b"{}"
    )
    (tmp_path / "empty").mkdir()

    def fault_of(adapter: str) -> str:
        members = [{"name": "a", "adapter": str(tmp_path / adapter)}, {"name": "b"}, {"name": "c"}]
        return "".join(rules.faults(sound(pool=pool_of(*members))))

    assert fault_of("alice") == ""
    assert "has no .safetensors file" in fault_of("bert")
    assert "has no adapter_config.json" in fault_of("empty")
    assert "did you mean alice?" in fault_of("alcie")
    assert str(tmp_path / "bert") in fault_of("alcie")


def test_model_folders(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert "has no config.json" in (rules.base_problem(str(tmp_path / "model")) or "")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    assert "holds an adapter" in (rules.base_problem(str(tmp_path / "model")) or "")
    (tmp_path / "model" / "config.json").write_text(json.dumps({}))
    assert rules.base_problem(str(tmp_path / "model")) is None
    (tmp_path / "m.bin").write_bytes(b"")
    assert "not a .gguf one" in (rules.base_problem(str(tmp_path / "m.bin")) or "")


def test_incomplete_ones_have_notes_instead() -> None:
    assert rules.faults(Config(), complete=False) == []
    assert len(rules.notes(Config(), complete=False)) == 2
    assert len(rules.faults(Config())) == 2


def test_notes() -> None:
    (note,) = rules.notes(sound(train={"max_length": 512}))
    assert "512 tokens do not hold a response of answer.max_new_tokens = 512" in note
    (note,) = rules.notes(sound(judge={"per_duel": 2}))
    assert "asks 2 judges" in note


@pytest.mark.parametrize("key", ["baseline", "difficulty", "gamed"])
def test_what_only_comparisons_use_is_noted_elsewhere(key: str) -> None:
    task = {"name": "t", "source": "builtin:skills", key: "ada"}
    (note,) = rules.notes(sound(evaluate={"tasks": [task]}))
    assert note == f"evaluate.tasks.t.{key}: has no use for a task that compares with nobody"


def test_a_cut_off_adapter_is_a_fault(tmp_path) -> None:
    from phalanx.config import load
    from phalanx.errors import ConfigError

    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(b"version https://git-lfs")
    members = [{"name": name, "adapter": str(folder)} for name in ("ada", "bob", "cora")]
    pool = {"base": "builtin:smollm2-135m", "members": members}
    with pytest.raises(ConfigError, match=r"3 faults[\s\S]*not a safetensors file \(23 bytes"):
        load("preset:sparta", {"pool": pool, "instructions": {"source": "builtin:skills"}})


def test_what_is_learned_by_supervised_fine_tuning_has_its_own_section() -> None:
    sft = {"max_length": 1024, "learning_rate": 2e-4}
    assert rules.notes(sound(train={"method": "sft", "label_noise": 0.5}, sft=sft)) == []
    (note,) = rules.notes(sound(sft=sft))
    assert note == "sft: has no use in a run of method: sparta unless train.method is sft"
    (note,) = rules.notes(sound(train={"method": "sft", "beta": 0.3, "epochs": 2}, sft=sft))
    assert "beta, epochs have no use" in note or "epochs, beta have no use" in note
    (note,) = rules.notes(sound(train={"method": "sft"}, pairs={"weight_by_margin": True}))
    assert note.startswith("pairs.weight_by_margin: has no use")


def test_lengths_are_those_of_the_section_that_learns() -> None:
    (note,) = rules.notes(sound(train={"method": "sft"}, sft={"max_length": 300}))
    assert note.startswith("sft.max_length: 300 tokens do not hold")
    prompt = {"max_length": 1024, "max_prompt_length": 1024}
    (fault,) = rules.faults(sound(train={"method": "sft"}, sft=prompt))
    assert fault.startswith("sft.max_prompt_length: a prompt of 1024 tokens leaves no room")


def test_whole_weights_are_those_of_the_section_that_learns() -> None:
    """A reference has no part in supervised fine-tuning, so it refuses nothing there."""
    train = {"reference": "initial", "weights": "full"}
    assert any("train.reference" in fault for fault in rules.faults(sound(train=train)))
    train = {"method": "sft", "reference": "initial"}
    assert rules.faults(sound(train=train, sft={"weights": "full"})) == []
    served = pool_of(*[{"name": name, "serve": "vllm"} for name in NAMES])
    faults = rules.faults(sound(pool=served, train=train, sft={"weights": "full"}))
    assert any(fault.startswith("sft.weights: full weights change the base") for fault in faults)
