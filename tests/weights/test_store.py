"""Weights in memory: exact merges, bit-exact restoration, shared bases, clean training."""

from __future__ import annotations

import pytest
import torch

from phalanx.config.schema import LoraSettings
from phalanx.errors import EngineError
from phalanx.types import Member
from phalanx.weights import Weights
from tests.tiny import make_adapter, make_tiny

IDS = torch.tensor([[5, 9, 14, 30, 7, 21]])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def base(home):
    return make_tiny(home / "llama")


def member(base, adapter=None, **options) -> Member:
    return Member("m", str(base), adapter=str(adapter) if adapter else None, **options)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits.float()


def through_peft(base, adapter) -> torch.Tensor:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return logits(PeftModel.from_pretrained(model, adapter).eval())


def snapshot(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def served(weights, who) -> torch.Tensor:
    with weights.serving(who) as model:
        assert not model.training
        return logits(model)


KINDS = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "bias": {"lora_bias": True},
    "saved": {"modules_to_save": ["norm"]},
    "tied": {"targets": ["q_proj", "lm_head"]},
    "pattern": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 16}},
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_served_weights_are_those_of_peft_and_leave_no_trace(home, kind, merge):
    architecture = "qwen2" if kind == "bias" else "llama"
    base = make_tiny(home / f"{kind}{merge}", architecture=architecture)
    options = {"targets": ["q_proj", "v_proj"]} if kind == "bias" else {}
    adapter = make_adapter(base, home / f"{kind}{merge}-a", **{**options, **KINDS[kind]})
    weights = Weights(device="cpu", merge_adapters=merge)
    plain, adapted = member(base, dtype="float32"), member(base, adapter, dtype="float32")
    with weights.serving(plain) as model:
        before, start = snapshot(model), logits(model)
    out = served(weights, adapted)
    assert torch.allclose(out, through_peft(base, adapter), atol=2e-5)
    assert not torch.allclose(out, start, atol=1e-2)
    with weights.serving(plain) as model:
        assert type(model).__name__.endswith("ForCausalLM")
        after = snapshot(model)
        assert torch.equal(logits(model), start)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_fan_in_fan_out_layers_are_merged(home):
    base = make_tiny(home / "gpt2", architecture="gpt2")
    adapter = make_adapter(base, home / "gpt2-a", fan_in_fan_out=True)
    weights = Weights(device="cpu")
    who = member(base, adapter, dtype="float32")
    assert torch.allclose(served(weights, who), through_peft(base, adapter), atol=2e-5)
    with weights.serving(who) as model:
        assert not hasattr(model, "peft_config")


def test_base_is_bit_exact_after_many_switches_in_bfloat16(home, base):
    made = [make_adapter(base, home / f"many{n}", seed=n, scale=0.05) for n in range(3)]
    weights = Weights(device="cpu")
    plain = member(base, dtype="bfloat16")
    with weights.serving(plain) as model:
        before = snapshot(model)
    first = {}
    for round_ in range(8):
        who = member(base, made[round_ % 3], dtype="bfloat16")
        out = served(weights, who)
        assert torch.equal(out, first.setdefault(who, out))
    with weights.serving(plain) as model:
        after = snapshot(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_merged_weight_is_the_rounded_exact_sum(home, base):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    adapter = make_adapter(base, home / "exact", scale=0.01)
    full = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    name = "model.layers.1.mlp.up_proj"
    wanted = full.get_submodule(name).weight.detach().float().clone()
    layer = PeftModel.from_pretrained(full, adapter).base_model.model.get_submodule(name)
    wanted += layer.get_delta_weight("default").detach().float()
    with Weights(device="cpu").serving(member(base, adapter, dtype="bfloat16")) as model:
        assert torch.equal(model.get_submodule(name).weight, wanted.bfloat16())


def test_same_member_again_does_not_merge_again(home, base, monkeypatch):
    from phalanx.weights import adapters

    adapter = make_adapter(base, home / "again")
    loads = []
    real = adapters.load_adapter
    monkeypatch.setattr(
        adapters, "load_adapter", lambda *a, **k: loads.append(a[1]) or real(*a, **k)
    )
    weights = Weights(device="cpu")
    for _ in range(3):
        served(weights, member(base, adapter))
    assert len(loads) == 1
    make_adapter(base, adapter, seed=5)  # rewritten in place: the old weights must not answer
    out = served(weights, member(base, adapter, dtype="float32"))
    assert torch.allclose(out, through_peft(base, adapter), atol=2e-5)


def test_known_adapters_switch_without_loading_and_are_forgotten_in_turn(home, base, monkeypatch):
    from phalanx.weights import adapters, store

    made = [make_adapter(base, home / f"known{n}", seed=n) for n in range(3)]
    made.append(make_adapter(base, home / "known-attention", seed=9, targets=["q_proj"]))
    loads = []
    real = adapters.load_adapter
    monkeypatch.setattr(
        adapters, "load_adapter", lambda *a, **k: loads.append(a[1]) or real(*a, **k)
    )
    weights = Weights(device="cpu")
    who = [member(base, adapter, dtype="float32") for adapter in made]
    first = [served(weights, m) for m in who]
    assert len(loads) == 4
    for at in (2, 0, 3, 1, 3, 0):
        assert torch.equal(served(weights, who[at]), first[at])
    assert torch.equal(served(weights, member(base, dtype="float32")), served_start(base))
    assert len(loads) == 4
    monkeypatch.setattr(store, "KEPT_BYTES", 0)
    served(weights, who[1])
    served(weights, who[2])
    assert len(loads) == 5


def test_adapter_that_rewrites_its_base_is_refused(home, base):
    adapter = make_adapter(base, home / "pissa")
    config = adapter / "adapter_config.json"
    text = config.read_text().replace('"init_lora_weights": true', '"init_lora_weights": "pissa"')
    config.write_text(text)
    with (
        pytest.raises(EngineError, match="changes the base's own weights"),
        Weights(device="cpu").serving(member(base, adapter)),
    ):
        pass


def test_training_on_a_new_adapter_leaves_the_base_untouched(home, base):
    weights = Weights(device="cpu")
    adapter = make_adapter(base, home / "before-training")
    plain = member(base, dtype="float32")
    with weights.serving(plain) as model:
        before = snapshot(model)
    served(weights, member(base, adapter, dtype="float32"))
    torch.manual_seed(0)
    with weights.training(plain, LoraSettings(rank=2, alpha=4)) as wrapped:
        assert list(wrapped.peft_config) == ["default"]
        assert wrapped.peft_config["default"].r == 2
        assert wrapped.training
        assert torch.equal(logits(wrapped.eval()), served_start(base))  # B starts at zero
        wrapped.gradient_checkpointing_enable()
        _steps(wrapped)
        wrapped.save_pretrained(str(home / "trained"))
        learnt = logits(wrapped.eval())
    with weights.serving(plain) as model:
        after = snapshot(model)
        assert not model.is_activation_checkpointing
        assert not any(p.requires_grad for p in model.parameters())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    out = served(weights, member(base, home / "trained", dtype="float32"))
    assert torch.allclose(out, learnt, atol=2e-5)
    assert not torch.allclose(out, served_start(base), atol=1e-3)


def served_start(base) -> torch.Tensor:
    return served(Weights(device="cpu"), member(base, dtype="float32"))


def _steps(wrapped) -> None:
    wrapped.train()
    trained = [p for p in wrapped.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=0.05)
    for _ in range(3):
        optimiser.zero_grad()
        wrapped(input_ids=IDS, labels=IDS).loss.backward()
        optimiser.step()


def test_training_goes_on_from_the_members_own_adapter(home, base):
    adapter = make_adapter(base, home / "own", rank=3)
    weights = Weights(device="cpu")
    who = member(base, adapter, dtype="float32")
    with weights.training(who, LoraSettings(rank=16)) as wrapped:
        assert wrapped.peft_config["default"].r == 3
        assert any(p.requires_grad for p in wrapped.parameters())
        assert torch.allclose(logits(wrapped.eval()), through_peft(base, adapter), atol=2e-5)
    assert torch.allclose(served(weights, who), through_peft(base, adapter), atol=2e-5)


def test_base_is_clean_after_training_failed(base):
    weights = Weights(device="cpu")

    def fail() -> None:
        with weights.training(member(base), LoraSettings(targets="attention")) as wrapped:
            names = {n.split(".")[-4] for n in wrapped.state_dict() if "lora_A" in n}
            assert names == {"q_proj", "k_proj", "v_proj", "o_proj"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(served(weights, member(base, dtype="float32")), served_start(base))


def test_one_base_in_memory_unless_all_are_kept(home, base):
    other = make_tiny(home / "other", architecture="qwen2", template="no_system")
    for keep, wanted in ((False, 1), (True, 2)):
        weights = Weights(device="cpu", keep_all_loaded=keep)
        served(weights, member(base))
        served(weights, member(other))
        assert len(weights.loaded) == wanted
        assert str(other) in weights.loaded
    with weights.serving(member(base)) as one:
        first = id(one)
    with weights.serving(Member("somebody", str(base))) as two:
        assert id(two) == first


def test_unknown_adapter_never_gets_the_bases_answer(home, base):
    make_adapter(base, home / "math")
    weights = Weights(device="cpu")
    served(weights, member(base))
    with (
        pytest.raises(EngineError, match=r"m: .*mtah.*math"),
        weights.serving(member(base, home / "mtah")),
    ):
        pass


def test_adapter_of_another_model_is_refused_and_the_base_stays_usable(home, base):
    wide = make_tiny(home / "wide", hidden=64)
    deep = make_tiny(home / "gpt", architecture="gpt2")
    weights = Weights(device="cpu")
    for n, foreign in enumerate((wide, deep)):
        adapter = make_adapter(foreign, home / f"foreign{n}")
        with (
            pytest.raises(EngineError, match="does not fit its base"),
            weights.serving(member(base, adapter, dtype="float32")),
        ):
            pass
        assert torch.equal(served(weights, member(base, dtype="float32")), served_start(base))


def test_adapter_with_too_few_layers_is_refused(home, base):
    from safetensors.torch import load_file, save_file

    adapter = make_adapter(base, home / "short")
    path = adapter / "adapter_model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if "layers.0" in k}, path)
    with (
        pytest.raises(EngineError, match="get no weights from the file"),
        Weights(device="cpu").serving(member(base, adapter)),
    ):
        pass


def test_weights_serve_one_at_a_time(base):
    weights = Weights(device="cpu")
    with (
        weights.serving(member(base)),
        pytest.raises(EngineError, match="m is using them"),
        weights.training(member(base), LoraSettings()),
    ):
        pass


def test_text_side_needs_no_weights(home, base):
    weights = Weights(device="cpu")
    assert weights.context_length(member(base)) == 512
    assert weights.tokenizer(member(base)).pad_token == "<|endoftext|>"
    assert weights.chat(member(base)) is weights.chat(Member("x", str(base)))
    assert weights.loaded == {}


def test_unloadable_base_names_the_member(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match="m: "):
        Weights(device="cpu").tokenizer(member(tmp_path))
