"""Rows in the forms of other trainers: what their documented loaders read is what was recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import phalanx
from phalanx.errors import ConfigError, LedgerError
from phalanx.export import TOOLS, rows_of
from phalanx.handing import export_for
from phalanx.ledger import Ledger, run_ledger_path
from tests.handing.runs import ODD, SYSTEM, TALK, record
from tests.tiny import make_tiny

DIALOGUE = [{"role": turn.role, "content": turn.content} for turn in TALK]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    folder = record(tmp_path_factory.mktemp("tools") / "run")
    with Ledger(run_ledger_path(folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The same without conversations."""
    folder = record(tmp_path_factory.mktemp("tools") / "short", talk=False)
    with Ledger(run_ledger_path(folder)) as opened:
        yield opened


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def kept(ledger: Ledger, what: str) -> list[dict]:
    rows = rows_of(ledger, what, conversational=True)
    return [r for r in rows if not r.get("truncated") and not r.get("chosen_truncated")]


def yaml(path: Path) -> dict:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def loaded(kind: str, path: Path, tmp_path: Path):
    import datasets

    return datasets.load_dataset(
        kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )


def test_axolotl_hands_pairs_to_trl_as_they_are(ledger, tmp_path):
    """Its strategy for chat templates finds a short answer in the words of the template."""
    made = export_for(ledger, "preferences", "axolotl", out=tmp_path / "it's here")
    assert (made.count, made.left_out) == (3, 1), "a cut-off chosen response teaches its end"
    config = yaml(made.folder / "axolotl.yaml")
    assert config["rl"] == "dpo"
    assert config["chat_template"] == "tokenizer_default"
    assert config["skip_prepare_dataset"] is True, "it would measure texts, and these are turns"
    (entry,) = config["datasets"]
    assert (entry["ds_type"], entry["split"], entry["type"]) == (
        "json", "train", "passthrough.default",
    )  # fmt: skip
    rows = loaded(entry["ds_type"], Path(entry["path"]), tmp_path)
    expected = kept(ledger, "preferences")
    for name in ("prompt", "chosen", "rejected"):
        assert rows[name] == [row[name] for row in expected]
    assert DIALOGUE in rows["prompt"]
    assert any(ODD in row["rejected"][0]["content"] for row in rows), "texts are kept as they are"


def test_axolotl_learns_the_last_answer_alone(ledger, tmp_path):
    made = export_for(ledger, "demonstrations", "axolotl", out=tmp_path / "sft")
    assert (made.count, made.left_out) == (3, 1)
    (entry,) = yaml(made.folder / "axolotl.yaml")["datasets"]
    assert (entry["roles_to_train"], entry["train_on_eos"]) == ([], "turn")
    for row in loaded("json", Path(entry["path"]), tmp_path):
        flags = [turn[entry["message_field_training"]] for turn in row[entry["field_messages"]]]
        assert flags == [False] * (len(flags) - 1) + [True]
        assert row["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("what", ["preferences", "demonstrations", "prompts"])
def test_llama_factory_finds_its_rows_by_dataset_info(ledger, tmp_path, what):
    made = export_for(ledger, what, "llama-factory", out=tmp_path / what, system_of="ada")
    settings = yaml(made.folder / "llamafactory.yaml")
    info = json.loads((Path(settings["dataset_dir"]) / "dataset_info.json").read_text("utf-8"))
    entry = info[settings["dataset"]]
    kind = "parquet" if what == "prompts" else "json"
    rows = loaded(kind, Path(settings["dataset_dir"]) / entry["file_name"], tmp_path)
    assert len(rows) == made.count == len(kept(ledger, what))
    assert {*entry["columns"].values()} == set(rows.column_names)
    if what == "prompts":
        assert settings["stage"] == "ppo"
        assert set(rows["system"]) == {SYSTEM}
        talk = next(row for row in rows if row["history"])
        assert talk["history"] == [[TALK[0].content, TALK[1].content]]
        assert talk["instruction"] == TALK[2].content
        return
    turns = [[turn["from"] for turn in row["conversations"]] for row in rows]
    ends = 0 if what == "preferences" else 1
    assert all(t[:2] == ["system", "human"] and len(t[1:]) % 2 == 1 - ends for t in turns)
    assert {row["conversations"][0]["value"] for row in rows} == {SYSTEM}
    if what == "preferences":
        assert (settings["stage"], entry["ranking"]) == ("dpo", True)
        assert {row["chosen"]["from"] for row in rows} == {"gpt"}
    else:
        assert (settings["stage"], settings["mask_history"]) == ("sft", True)


@pytest.mark.parametrize(
    ("what", "module", "keys"),
    [
        ("preferences", "train_dpo", {"prompt_key": "prompt", "chosen_key": "chosen",
                                      "rejected_key": "rejected"}),
        ("demonstrations", "train_sft", {"input_key": "prompt", "output_key": "completion"}),
        ("prompts", "train_ppo_ray", {"input_key": "prompt", "label_key": "label"}),
    ],
)  # fmt: skip
def test_openrlhf_gets_its_keys_on_the_command_line(ledger, tmp_path, what, module, keys):
    """The script is run by a shell that has a stand-in for the launcher: what it is told counts."""
    made = export_for(ledger, what, "openrlhf", out=tmp_path / "a b")
    for name in ("deepspeed", "python3"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    told = subprocess.run(
        ["sh", str(made.folder / "openrlhf.sh"), "--model.model_name_or_path", "org/m"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert f"openrlhf.cli.{module}" in told
    assert told[-2:] == ["--model.model_name_or_path", "org/m"]
    assert "--data.apply_chat_template" in told
    for key, column in keys.items():
        assert told[told.index(f"--data.{key}") + 1] == column
    flag = "--data.prompt_dataset" if what == "prompts" else "--data.dataset"
    rows = loaded("json", Path(told[told.index(flag) + 1]), tmp_path)
    assert {*keys.values()} == set(rows.column_names)
    for row, source in zip(rows, kept(ledger, what), strict=True):
        for column in keys.values():
            expected = (source["answer"] or "") if column == "label" else source[column]
            assert row[column] == expected


def test_verl_has_the_columns_of_its_data_page(ledger, tmp_path):
    made = export_for(ledger, "prompts", "verl", out=tmp_path / "rl", system_of="ada")
    rows = loaded("parquet", made.folder / "prompts.parquet", tmp_path).to_list()
    assert list(rows[0]) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert [row["extra_info"]["index"] for row in rows] == list(range(4))
    assert {row["reward_model"]["style"] for row in rows} == {"rule"}
    assert {row["ability"]: row["reward_model"]["ground_truth"] for row in rows}["sums"] == "2"
    assert [{"role": "system", "content": SYSTEM}, *DIALOGUE] in [row["prompt"] for row in rows]
    assert "data.train_files=" in (made.folder / "verl.sh").read_text("utf-8")
    made = export_for(ledger, "demonstrations", "verl", out=tmp_path / "sft")
    rows = loaded("parquet", made.folder / "demonstrations.parquet", tmp_path).to_list()
    assert [r["messages"] for r in rows] == [
        [*source["prompt"], *source["completion"]] for source in kept(ledger, "demonstrations")
    ]


def test_a_run_exports_for_tools_in_python(ledger, tmp_path):
    run = phalanx.open_run(ledger.folder)
    out = tmp_path / "rows"
    assert run.export("preferences", out, format="openrlhf", system_of="ada") == 3
    assert {row["prompt"][0]["content"] for row in lines(out / "preferences.jsonl")} == {SYSTEM}
    assert run.export("preferences", tmp_path / "rows.jsonl", conversational=True) == 4


def test_what_cannot_be_is_refused_before_anything_is_written(ledger, tmp_path):
    with pytest.raises(ConfigError, match="axolotl takes preferences, demonstrations, not prompts"):
        export_for(ledger, "prompts", "axolotl", out=tmp_path / "x")
    with pytest.raises(
        ConfigError, match=r"takes demonstrations, prompts, not pref.*no trainer for"
    ):
        export_for(ledger, "preferences", "verl", out=tmp_path / "x")
    with pytest.raises(ConfigError, match=r"verl takes preferences.*not judgments"):
        export_for(ledger, "judgments", "verl", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="no such member; there are ada, bob"):
        export_for(ledger, "preferences", "openrlhf", out=tmp_path / "x", system_of="eve")
    with pytest.raises(ConfigError, match="has no system prompt"):
        export_for(ledger, "preferences", "openrlhf", out=tmp_path / "x", system_of="bob")
    with pytest.raises(LedgerError, match="nothing to export: "):
        export_for(ledger, "preferences", "openrlhf", out=tmp_path / "x", iteration=2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds something else, such as thesis\.tex"):
        export_for(ledger, "preferences", "openrlhf", out=tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    again = [export_for(ledger, "preferences", tool, out=tmp_path / "again")
             for tool in ("openrlhf", "openrlhf")]  # fmt: skip
    assert again[0] == again[1]


def test_places_with_odd_names_reach_the_tool_as_they_are(ledger, tmp_path, monkeypatch):
    """Hydra, which reads verl's arguments, has quotation marks of its own; OpenRLHF splits."""
    monkeypatch.chdir(tmp_path)
    made = export_for(ledger, "prompts", "verl", out="it's 1=2, é (x)")
    assert made.folder == tmp_path / "it's 1=2, é (x)", "found from every other folder"
    (tmp_path / "python3").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    told = subprocess.run(
        ["sh", str(made.folder / "verl.sh")], env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    place = str(made.folder / "prompts.parquet").replace("'", "\\'")
    assert f"data.train_files='{place}'" in told
    for name in ("a,b", "a@b"):
        with pytest.raises(
            ConfigError, match=f"openrlhf cannot read a file whose place has {name[1]}"
        ):
            export_for(ledger, "prompts", "openrlhf", out=name)
        assert not Path(name).exists()


def test_rows_without_earlier_turns_say_what_earlier_turns_would_be(ledger, short, tmp_path):
    """A reader that takes types from the first rows must not stumble over the first history."""
    import pyarrow.parquet

    types = set()
    for number, one in enumerate((ledger, short)):
        made = export_for(one, "prompts", "llama-factory", out=tmp_path / str(number))
        types.add(str(pyarrow.parquet.read_schema(made.folder / made.files[0]).field("history")))
    assert len(types) == 1
    assert "list<element: list<element: string>>" in types.pop()


def turned(row: dict) -> dict:
    """A row for LLaMA-Factory in TRL's names."""
    roles = {"human": "user", "gpt": "assistant"}

    def turns(found: list[dict]) -> list[dict]:
        return [{"role": roles[one["from"]], "content": one["value"]} for one in found]

    if "chosen" not in row:
        return {"messages": turns(row["conversations"])}
    return {"prompt": turns(row["conversations"]), "chosen": turns([row["chosen"]]),
            "rejected": turns([row["rejected"]])}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "what"),
    [(tool, what) for tool in TOOLS for what in ("preferences", "demonstrations")
     if (tool, what) != ("verl", "preferences")],
)  # fmt: skip
def test_trl_takes_a_step_on_the_rows_of_every_tool(ledger, tool, what, tmp_path):
    """As they are, where TRL knows the names; LLaMA-Factory's in TRL's names."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    made = export_for(ledger, what, tool, out=tmp_path / "rows")
    file = made.folder / made.files[0]
    rows = loaded("parquet" if file.suffix == ".parquet" else "json", file, tmp_path)
    if tool == "llama-factory":
        rows = rows.map(turned, remove_columns=rows.column_names)
    trainer, config = {
        "preferences": (DPOTrainer, DPOConfig), "demonstrations": (SFTTrainer, SFTConfig),
    }[what]  # fmt: skip
    folder = make_tiny(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    made = trainer(
        model=model,
        args=config(
            output_dir=str(tmp_path / "out"), report_to=[], use_cpu=True, max_steps=1,
            per_device_train_batch_size=3, save_strategy="no", learning_rate=1e-3,
        ),
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )  # fmt: skip
    made.train()
    after = made.model.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
