"""Every way a configuration can be wrong, and what the message must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from phalanx.config import load, rules
from phalanx.errors import ConfigError

BAD = Path(__file__).parent / "bad"

# file -> (number of faults, what the message must hold)
EXPECTED = {
    "01_misspelt_key": (
        1,
        ["01_misspelt_key.yaml:9", "train.lerning_rate", "did you mean learning_rate?"],
    ),
    "02_number_as_text": (
        1,
        [
            "02_number_as_text.yaml:10: train.warmup: expected",
            "a number from 0 to 1, got the text '3e-x'",
        ],
    ),
    "03_more_gpus_than_there_are": (
        1,
        ["yaml:10", "need 3 GPUs, available: 1 (resources.gpus)", "keep_all_loaded: false"],
    ),
    "04_unknown_adapter": (
        2,
        ["pool.members.bob.adapter", "'adapters/does-not-exist'", "pool.members.carol", "'mtah'"],
    ),
    "05_prompt_fills_length": (
        1,
        ["yaml:10: train.max_prompt_length", "a prompt of 512 tokens", "max_length 512"],
    ),
    "06_one_member": (1, ["a duel needs two contestants, got 1: alice"]),
    "07_unknown_engine": (
        1,
        [
            "pool.members.alice.engine",
            "'sripted'",
            "hf, openai, reward, scripted",
            "did you mean scripted?",
        ],
    ),
    "08_bad_numbers": (
        4,
        [
            "seed: expected a whole number of at least 0, got the text 'lucky'",
            "iterations: expected a whole number of at least 1, got the number -1",
            "answer.temperature: expected a number of at least 0, got the truth value true",
            "train.batch_size: expected a whole number of at least 1, got the number 2.5",
        ],
    ),
    "09_wrong_shape": (
        2,
        [
            "pool.members: expected a list, got a mapping with the keys alice, bob",
            "train: expected a mapping of keys, got a list of 1 item",
        ],
    ),
    "10_nobody_left_to_judge": (
        1,
        ["alice and bob leaves no judge", "add a third member", "roles: [judge]"],
    ),
    "11_key_twice": (
        2,
        ["yaml:4: seed: this key is given twice (also line 3)", "yaml:7: train.epochs"],
    ),
    "12_many_at_once": (
        4,
        [
            "did you mean protocol?",
            "'nowhere/bob'",
            "10 is not below the highest 1",
            "missing.jsonl",
        ],
    ),
    "13_nobody_of_that_name": (
        5,
        [
            "13_nobody_of_that_name.yaml:12: mixture.proposers: there is no member 'bbo'; did you "
            "mean bob?",
            "yaml:13: mixture.aggregator: there is no member 'dora'",
            "yaml:16: moaa.students.pat.data: there is no member 'adda'; did you mean ada?",
            "yaml:17: moaa.students.pta.name: there is no member 'pta'; did you mean pat?",
            "yaml:19: reward.proposers: there is no member 'core'; did you mean cora?",
        ],
    ),
    "14_a_reward_model_that_writes": (
        5,
        [
            "yaml:7: pool.members.scorer.model: scorer is a reward model and has no model",
            "pool.members.scorer.roles: scorer is a reward model, which neither answers nor learns",
            "mixture.proposers: scorer is a reward model, which gives scores and writes nothing",
            "yaml:14: mixture.aggregator: scorer is a reward model",
            "yaml:17: moaa.students.pat.reward: ada is no reward model",
        ],
    ),
    "15_students_of_nothing": (
        4,
        [
            "moaa.students.pat: pat learns in no stage (data: none, reward: moa, stages: sft)",
            "moaa.students.ada.name: ada has not the role learn",
            "moaa.students.bob.data: 'mixtur' is not known here; did you mean mixture?",
            "mixture.min_proposals: 3 proposals are wanted, but layer 1 has 2 proposers x 1 sample",
        ],
    ),
    "16_whole_weights": (
        2,
        [
            "yaml:17: train.reference: is initial, but full weights change the base",
            "yaml:16: train.weights: full weights are too large for Ray's object store",
        ],
    ),
}


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages about GPUs must not depend on the machine that runs the tests."""
    monkeypatch.setattr(rules, "count_gpus", lambda: 1)


def test_every_bad_file_is_expected() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in BAD.glob("*.yaml"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_bad_config(name: str) -> None:
    number, texts = EXPECTED[name]
    with pytest.raises(ConfigError) as caught:
        load(BAD / f"{name}.yaml")
    message = str(caught.value)
    assert len(caught.value.faults) == number, message
    for text in texts:
        assert text in message
    assert caught.value.exit_code == 2


# The external files use a draft vocabulary; what each message must hold in ours.
EXTERNAL = {
    "01_typo_key": ["train.lerning_rate: unknown key; did you mean learning_rate?"],
    "02_learning_rate_as_text": [
        "train.warmup: expected a number from 0 to 1, got the text '3e-x'"
    ],
    "03_more_gpus_than_machine": ["need 3 GPUs, available: 1", "keep_all_loaded: false"],
    "04_unknown_adapter": ["bob's adapter 'adapters/does-not-exist'", "carol's adapter 'mtah'"],
    "05_lengths_contradict": ["a prompt of 512 tokens", "max_length 512"],
    "06_one_model_only": ["a duel needs two contestants, got 1: alice"],
    "07_unknown_backend": [
        "pool.members.alice.engine: the text 'vlm' is not known here",
        "one of hf",
    ],
    "08_bad_numbers": ["iterations", "train.batch_size", "answer.temperature", "seed", "'lucky'"],
    "09_wrong_shape": [
        "pool.members: expected a list, got a mapping with the keys alice, bob",
        "train: expected a mapping of keys, got a list of 1 item",
    ],
}


def _renamed(draft: dict[str, Any]) -> dict[str, Any]:
    """The draft's keys in the project's vocabulary."""
    ours: dict[str, Any] = {"instructions": {"source": "builtin:skills"}, "output": draft["output"]}
    members = draft["models"]
    if isinstance(members, list):
        members = [
            {("engine" if key == "backend" else key): value for key, value in member.items()}
            for member in members
        ]
        if draft.get("resources"):  # the draft names an engine that this version does not have
            members = [{**member, "engine": "hf"} for member in members]
    ours["pool"] = {"members": members}
    for old, new in (("training", "train"), ("rounds", "iterations"), ("seed", "seed")):
        if old in draft:
            ours[new] = draft[old]
    if "resources" in draft:
        ours["resources"] = draft["resources"]
    if "batch_size" in draft:
        ours.setdefault("train", {})["batch_size"] = draft["batch_size"]
    if "temperature" in draft:
        ours["answer"] = {"temperature": draft["temperature"]}
    return ours


@pytest.mark.parametrize("name", sorted(EXTERNAL))
def test_external_bad_config(name: str, cases_dir: Path, tmp_path: Path) -> None:
    yaml = YAML(typ="safe", pure=True)
    draft = yaml.load((cases_dir / "bad_configs" / f"{name}.yaml").read_text(encoding="utf-8"))
    file = tmp_path / f"{name}.yaml"
    with file.open("w", encoding="utf-8") as stream:
        YAML().dump(_renamed(draft), stream)
    with pytest.raises(ConfigError) as caught:
        load(file)
    for text in EXTERNAL[name]:
        assert text in str(caught.value)
    assert f"{name}.yaml:" in str(caught.value)
    assert "learning_rate: expected" not in str(caught.value)


def test_external_files_are_all_covered(cases_dir: Path) -> None:
    assert sorted(EXTERNAL) == sorted(p.stem for p in (cases_dir / "bad_configs").glob("*.yaml"))
