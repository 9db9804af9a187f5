"""Weights as folders: transformers and PEFT load them alone, and they say what the member says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from phalanx.errors import ConfigError, LedgerError
from phalanx.handing import export_adapter, export_weights
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.weights import Weights

PROMPT = [{"role": "user", "content": "what is two plus three"}]


def logits(model, tokenizer):
    import torch

    tokens = tokenizer.apply_chat_template(
        PROMPT, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        return model(**tokens).logits


def served(run, name: str):
    """What the member of the run computes, by the toolkit's own serving."""
    with Ledger(run_ledger_path(run)) as ledger:
        member = next(one for one in ledger.members() if one.name == name)
    weights = Weights(device="cpu")
    with weights.serving(replace(member, dtype="float32")) as model:
        return logits(model, weights.tokenizer(member))


def test_merged_weights_load_alone_and_compute_the_same(run, base, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = export_weights(run, member="ada", out=tmp_path / "ada")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template
    assert next(model.parameters()).dtype == torch.float32, "the base's own precision"
    got, expected = logits(model, tokenizer), served(run, "ada")
    assert torch.allclose(got, expected, atol=1e-5)
    assert not torch.allclose(got, served(run, "bob"), atol=1e-2), "the adapter is in it"
    card = (folder / "README.md").read_text("utf-8")
    assert "license: mit" in card
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".md", ".jinja"):
            assert str(tmp_path) not in path.read_text("utf-8"), path.name
            assert str(run) not in path.read_text("utf-8"), path.name
            assert str(base) not in path.read_text("utf-8"), path.name
    half = export_weights(run, member="ada", out=tmp_path / "half", dtype="bfloat16")
    small = AutoModelForCausalLM.from_pretrained(half, dtype="auto")
    assert {weight.dtype for weight in small.parameters()} == {torch.bfloat16}
    rounded = model.state_dict()["model.layers.0.self_attn.q_proj.weight"].to(torch.bfloat16)
    assert torch.equal(small.state_dict()["model.layers.0.self_attn.q_proj.weight"], rounded)


def test_an_adapter_loads_with_peft_by_the_name_of_its_base(run, base, tmp_path):
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = export_adapter(run, member="bob", out=tmp_path / "bob")
    named = PeftConfig.from_pretrained(folder).base_model_name_or_path
    assert named == str(base)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(named), folder).eval()
    got = logits(model, AutoTokenizer.from_pretrained(named))
    assert torch.allclose(got, served(run, "bob"), atol=1e-5)


def test_which_member_and_where_are_asked_before_a_model_loads(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Weights, "merged", None)
    with pytest.raises(ConfigError, match="name a member with --member: ada, bob, cora"):
        export_weights(run, out=tmp_path / "x")
    with pytest.raises(ConfigError, match=r"no weights of eve in .*: ada, bob, cora"):
        export_weights(run, member="eve", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="unknown dtype 'int4'; known: auto, bfloat16"):
        export_weights(run, member="ada", out=tmp_path / "x", dtype="int4")
    with pytest.raises(LedgerError, match="among the run's adapters"):
        export_adapter(run, member="ada", out=run / "adapters" / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists already"):
        export_adapter(run, member="ada", out=tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


@pytest.mark.real
def test_the_embedded_model_merges_to_what_it_serves(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from phalanx.handing.weights import write_adapter, write_merged
    from phalanx.types import Member
    from phalanx.weights.builtin import BUILTIN, HUB_TWIN, resolve_model
    from tests.tiny import make_adapter

    adapter = make_adapter(
        resolve_model(BUILTIN), tmp_path / "adapter", scale=0.02, targets=["q_proj", "v_proj"]
    )
    member = Member("ada", BUILTIN, str(adapter), version=1)
    write_merged(member, tmp_path / "whole", dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype="auto").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "whole")
    weights = Weights(device="cpu")
    with weights.serving(replace(member, dtype="float32")) as own:
        assert torch.allclose(logits(model, tokenizer), logits(own, tokenizer), atol=1e-3)
    write_adapter(member, tmp_path / "shared", public=HUB_TWIN)
    settings = json.loads((tmp_path / "shared" / "adapter_config.json").read_text("utf-8"))
    assert settings["base_model_name_or_path"] == HUB_TWIN
