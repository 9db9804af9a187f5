"""All weights trained: the new version is a model of its own that anything can load."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch

from phalanx.config.schema import LoraSettings, OptimiserSettings, TrainSettings
from phalanx.engines.hf import HFEngine
from phalanx.errors import ConfigError, EngineError, TrainingError
from phalanx.training import TrainJob, train_dpo, train_sft
from phalanx.types import (
    Demonstration,
    Instruction,
    Member,
    Message,
    PreferencePair,
    Request,
    Sampling,
)
from phalanx.weights import Weights
from tests.tiny import make_adapter, make_tiny

SFT = OptimiserSettings(learning_rate=1e-3, batch_size=4, weights="full")
DPO = TrainSettings(learning_rate=1e-3, batch_size=4, weights="full")
LORA = OptimiserSettings(learning_rate=1e-3, batch_size=4, lora=LoraSettings(rank=4, alpha=8))
SENTENCE = "the cat sat on a mat and said hello to every small dog in town"
WORDS = SENTENCE.split()


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "base", seed=1)


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory) -> Path:
    return make_adapter(base, tmp_path_factory.mktemp("tiny") / "adapter", seed=3)


@pytest.fixture
def weights():
    held = Weights(device="cpu", threads=1)
    yield held
    held.close()


def shown(count: int) -> list[Demonstration]:
    return [Demonstration(f"d{n}", f"say {WORDS[n]}", " ".join(WORDS[n:])) for n in range(count)]


def pairs(count: int) -> list[PreferencePair]:
    return [
        PreferencePair(f"p{n}", Instruction(f"i{n}", f"say {WORDS[n]}"), WORDS[n], "no no")
        for n in range(count)
    ]


def logits(folder: str | Path, text: str = "the cat") -> torch.Tensor:
    """Through transformers alone: what anybody gets who loads the folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits


def served(weights: Weights, member: Member, text: str = "the cat") -> torch.Tensor:
    ids = weights.tokenizer(member)(text, return_tensors="pt")
    with weights.serving(member) as model, torch.no_grad():
        return model(**ids).logits.clone()


def weights_of(folder: str | Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(Path(folder) / "model.safetensors")


def test_every_weight_moves_and_the_member_has_a_base_of_its_own(weights, base, tmp_path):
    ada = Member("ada", str(base))
    result = train_sft(weights, ada, shown(8), SFT, tmp_path / "ada", seed=1, version=1)
    assert result.member == dataclasses.replace(ada, base=str(tmp_path / "ada"), version=1)
    assert result.summary["weights_change"] > 0
    assert "adapter_change" not in result.summary
    before, after = weights_of(base), weights_of(tmp_path / "ada")
    assert before.keys() == after.keys()
    assert not [name for name in before if torch.equal(before[name], after[name])]
    torch.testing.assert_close(served(weights, result.member), logits(tmp_path / "ada"))
    assert result.steps[-1]["loss"] < result.steps[0]["loss"]


def test_the_shared_base_and_its_other_members_are_as_before(weights, base, tmp_path):
    ada, bob = Member("ada", str(base)), Member("bob", str(base))
    files = {path.name: path.read_bytes() for path in base.iterdir()}
    expected = served(weights, bob)
    train_sft(weights, ada, shown(4), SFT, tmp_path / "ada", seed=1, version=1)
    assert torch.equal(served(weights, bob), expected)
    assert {path.name: path.read_bytes() for path in base.iterdir()} == files
    with weights.serving(bob) as model:
        assert not any(weight.requires_grad for weight in model.parameters())


def test_prompts_ends_and_answers_go_on_as_they_were(weights, base, tmp_path):
    """The saved tokenizer and generation config give the same prompt, end and stop ids."""
    source = tmp_path / "base"
    shutil.copytree(base, source)
    (source / "generation_config.json").write_text('{"eos_token_id": [1, 7], "temperature": 0.3}')
    ada = Member("ada", str(source), system="answer with one word")
    now = train_sft(weights, ada, shown(4), SFT, tmp_path / "ada", seed=1, version=1).member
    was, new = weights.chat(ada), weights.chat(now)
    turns = ada.conversation(
        (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    )
    assert was.prompt_ids(turns) == new.prompt_ids(turns)
    assert (was.stop_ids, was.end_id, was.pad_id) == (new.stop_ids, new.end_id, new.pad_id)
    assert 7 in new.stop_ids
    request = Request("r", now, turns, Sampling(0.0, 1.0, 0, 4), "answer")
    (reply,) = HFEngine(weights).respond([request])
    assert reply.error is None
    config = json.loads((tmp_path / "ada" / "config.json").read_text())
    original = json.loads((source / "config.json").read_text())
    assert {key: config[key] for key in original if key != "transformers_version"} == {
        key: original[key] for key in original if key != "transformers_version"
    }


def test_a_model_without_generation_config_gets_none(weights, base, tmp_path):
    source = tmp_path / "base"
    shutil.copytree(base, source)
    (source / "generation_config.json").unlink(missing_ok=True)
    ada = Member("ada", str(source))
    now = train_sft(weights, ada, shown(4), SFT, tmp_path / "ada", seed=1, version=1).member
    assert not (tmp_path / "ada" / "generation_config.json").exists()
    assert weights.chat(now).stop_ids == weights.chat(ada).stop_ids


def test_an_adapter_is_merged_first(weights, base, adapter, tmp_path):
    """A rate so small that the weights stay: the saved model is base + adapter."""
    ada = Member("ada", str(base), adapter=str(adapter))
    expected = served(weights, ada)
    settings = SFT.model_copy(update={"learning_rate": 1e-12})
    now = train_sft(weights, ada, shown(4), settings, tmp_path / "ada", seed=1, version=1).member
    assert now.adapter is None
    assert not torch.allclose(logits(base), expected, atol=1e-2)
    torch.testing.assert_close(logits(now.base), expected, atol=1e-4, rtol=1e-4)


def test_an_adapter_on_shared_weights_is_refused(weights, base, tmp_path):
    """The embedding of this base is its head, too: merged, the adapter would change both."""
    made = make_adapter(base, tmp_path / "made", seed=3, targets=["embed_tokens"])
    ada = Member("ada", str(base), adapter=str(made))
    with pytest.raises(EngineError, match=r"ada: .*whose weights another layer shares"):
        train_sft(weights, ada, shown(4), SFT, tmp_path / "ada", seed=1, version=1)
    assert not (tmp_path / "ada").exists()


def test_a_step_is_that_of_plain_torch(weights, base, tmp_path):
    """One batch, one step of AdamW on all weights, computed here without TRL."""
    from transformers import AutoModelForCausalLM

    ada = Member("ada", str(base))
    rows, chat = shown(4), weights.chat(ada)
    settings = SFT.model_copy(
        update={"warmup": 0.0, "schedule": "constant", "max_grad_norm": 1e9, "weight_decay": 0.0}
    )
    train_sft(weights, ada, rows, settings, tmp_path / "ada", seed=1, version=1)

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    total, count = torch.zeros(()), 0
    for row in rows:
        prompt = chat.prompt_ids(ada.messages(row.prompt))
        answer = chat.completion_ids(row.response, True)
        scores = model(input_ids=torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        total = (
            total - scores[torch.arange(len(prompt) - 1, len(prompt + answer) - 1), answer].sum()
        )
        count += len(answer)
    (total / count).backward()
    optimiser.step()
    trained = weights_of(tmp_path / "ada")
    for name, weight in model.state_dict().items():
        if name in trained:  # Adam's first step has the size of the rate, whatever the gradient
            close = (trained[name] - weight).abs() < 2e-4
            assert close.float().mean() > 0.99, name


def test_dpo_starts_at_its_reference_without_a_second_model(weights, base, tmp_path, monkeypatch):
    from trl.trainer import dpo_trainer

    monkeypatch.setattr(dpo_trainer, "create_model_from_path", None)
    ada = Member("ada", str(base))
    settings = DPO.model_copy(update={"epochs": 2})
    result = train_dpo(weights, ada, pairs(8), settings, tmp_path / "ada", seed=1, version=1)
    first = result.steps[0]
    assert first["rewards/chosen"] == first["rewards/rejected"] == first["kl/chosen"] == 0
    assert first["loss"] == pytest.approx(0.693147, abs=1e-6)
    assert result.steps[-1]["rewards/margins"] > 0
    assert result.member.base == str(tmp_path / "ada")
    initial = settings.model_copy(update={"reference": "initial"})
    with pytest.raises(ConfigError, match=r"ada: train\.reference: initial"):
        train_dpo(weights, ada, pairs(4), initial, tmp_path / "bad", seed=1, version=1)


def test_the_next_training_goes_on_from_it_whole_or_as_an_adapter(weights, base, tmp_path):
    ada = Member("ada", str(base))
    one = train_sft(weights, ada, shown(4), SFT, tmp_path / "1", seed=1, version=1).member
    two = train_dpo(weights, one, pairs(4), DPO, tmp_path / "2", seed=1, version=2).member
    assert (two.base, two.adapter, two.version) == (str(tmp_path / "2"), None, 2)
    lora = DPO.model_copy(update={"weights": "lora", "lora": LORA.lora})
    three = train_dpo(weights, two, pairs(4), lora, tmp_path / "3", seed=1, version=3).member
    assert (three.base, three.adapter) == (two.base, str(tmp_path / "3"))
    four = train_sft(weights, three, shown(4), SFT, tmp_path / "4", seed=1, version=4).member
    assert (four.base, four.adapter) == (str(tmp_path / "4"), None)
    seen = [served(weights, who) for who in (ada, one, two, three, four)]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(seen))


def test_sft_on_a_member_with_an_adapter_goes_on_from_it(weights, base, adapter, tmp_path):
    ada = Member("ada", str(base), adapter=str(adapter))
    expected = served(weights, ada)
    settings = LORA.model_copy(update={"learning_rate": 1e-12})
    now = train_sft(weights, ada, shown(4), settings, tmp_path / "ada", seed=1, version=1).member
    assert now.adapter == str(tmp_path / "ada")
    torch.testing.assert_close(served(weights, now), expected, atol=1e-5, rtol=1e-5)


def test_a_finished_folder_is_recognised_wherever_it_lies(weights, base, tmp_path):
    """The run folder was moved between two starts: nothing is trained again, or refused."""
    old, new = tmp_path / "old", tmp_path / "new"
    ada = Member("ada", str(base))
    first = train_sft(weights, ada, shown(4), SFT, old / "1", seed=1, version=1)
    second = train_dpo(weights, first.member, pairs(4), DPO, old / "2", seed=1, version=2)
    weights.close()
    old.rename(new)
    again = train_sft(weights, ada, shown(4), SFT, new / "1", seed=1, version=1)
    assert again == dataclasses.replace(
        first, member=dataclasses.replace(first.member, base=str(new / "1"))
    )
    then = train_dpo(weights, again.member, pairs(4), DPO, new / "2", seed=1, version=2)
    assert (then.steps, then.member.base) == (second.steps, str(new / "2"))
    assert weights.loaded == {}, "nothing was trained"
    shard = new / "1" / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4] + b"zzzz")
    with pytest.raises(TrainingError, match=r"the model in .* is not the one that training wrote"):
        train_sft(weights, ada, shown(4), SFT, new / "1", seed=1, version=1)


def test_nothing_is_printed(weights, base, tmp_path, capfd):
    train_sft(weights, Member("ada", str(base)), shown(4), SFT, tmp_path / "a", seed=1, version=1)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_same_inputs_same_weights_bit_for_bit(base, tmp_path):
    ada = Member("ada", str(base))
    for name in ("a", "b"):
        with_own = Weights(device="cpu", threads=1)
        train_sft(with_own, ada, shown(6), SFT, tmp_path / name, seed=1, version=1)
        with_own.close()
    first, second = (tmp_path / name / "model.safetensors" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_nothing_to_learn_keeps_the_weights(weights, base, adapter, tmp_path):
    ada = Member("ada", str(base), adapter=str(adapter))
    empty = [Demonstration("d", "say no", " ")]
    result = train_sft(weights, ada, empty, SFT, tmp_path / "ada", seed=1, version=1)
    assert result.num_dropped == {"empty": 1}
    assert (result.member.base, result.member.version) == (str(base), 1)
    torch.testing.assert_close(served(weights, result.member), served(weights, ada))


def test_half_precision_members_train_in_full_precision(weights, base, tmp_path):
    """A step of 1e-6 is far below bfloat16's steps, and is kept all the same."""
    ada = Member("ada", str(base), dtype="bfloat16")
    settings = SFT.model_copy(update={"learning_rate": 1e-6})
    result = train_sft(weights, ada, shown(4), settings, tmp_path / "ada", seed=1, version=1)
    trained, before = weights_of(tmp_path / "ada"), weights_of(base)
    assert {weight.dtype for weight in trained.values()} == {torch.float32}
    moved = [(trained[name] != before[name]).float().mean() for name in before]
    assert min(moved) > 0.2
    with weights.serving(result.member) as model:
        assert model.dtype == torch.bfloat16


def test_where_a_whole_model_could_not_be_served_it_is_not_trained(base, tmp_path):
    from phalanx.config.schema import Config
    from phalanx.progress import Silent
    from phalanx.workshop import Workshop

    def job(engine: str) -> TrainJob:
        member = Member("ada", str(base), engine=engine)
        return TrainJob(member, tuple(shown(2)), SFT, tmp_path / "ada", seed=1, version=1)

    with (
        Workshop(Config.model_validate({"pool": {"base": str(base)}})) as shop,
        pytest.raises(ConfigError, match=r"ada is served by vLLM.*serve: here"),
    ):
        list(shop.train("train", [job("vllm")], Silent(), lambda: None))
    ray = {"pool": {"base": str(base)}, "resources": {"executor": "ray"}}
    with (
        Workshop(Config.model_validate(ray)) as shop,
        pytest.raises(ConfigError, match=r"ada: .*resources\.ray\.adapters: folder"),
    ):
        list(shop.train("train", [job("hf")], Silent(), lambda: None))
