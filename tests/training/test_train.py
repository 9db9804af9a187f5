"""Training real tiny models: what changes, what must not, and what stops it."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from pathlib import Path

import numpy
import pytest
import torch

from phalanx.config.schema import LoraSettings, OptimiserSettings, TrainSettings
from phalanx.errors import TrainingError
from phalanx.training import train_dpo, train_sft
from phalanx.types import Demonstration, Instruction, Member, PreferencePair
from phalanx.weights import Weights
from tests.tiny import make_adapter, make_tiny

TENSORS = "adapter_model.safetensors"
LORA = LoraSettings(rank=4, alpha=8)
DPO = TrainSettings(learning_rate=1e-3, batch_size=4, lora=LORA)
SFT = OptimiserSettings(learning_rate=1e-3, batch_size=4, lora=LORA)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory) -> Path:
    return make_adapter(base, tmp_path_factory.mktemp("tiny") / "adapter", seed=3)


@pytest.fixture
def weights():
    held = Weights(device="cpu", threads=1)
    yield held
    held.close()


@pytest.fixture
def member(base, adapter) -> Member:
    return Member("ada", str(base), adapter=str(adapter), system="answer with one word")


WORDS = "the cat sat on a mat and said hello to every small dog in town"


def make_pairs(count: int, **changes) -> list[PreferencePair]:
    words = WORDS.split()
    rng = random.Random(5)
    return [
        PreferencePair(
            id=f"pair-{number}",
            instruction=Instruction(f"i{number}", " ".join(rng.sample(words, 2 + number % 5))),
            chosen=" ".join(rng.sample(words, 1 + number % 4)),
            rejected=" ".join(rng.sample(words, 2 + number % 3)) + " no",
            **changes,
        )
        for number in range(count)
    ]


def make_demonstrations(count: int) -> list[Demonstration]:
    return [Demonstration(p.id, p.instruction.text, p.chosen) for p in make_pairs(count)]


def test_one_step_with_full_warm_up_still_trains(weights, member, tmp_path):
    settings = DPO.model_copy(update={"warmup": 1.0})
    result = train_dpo(
        weights, member, make_pairs(4), settings, tmp_path / "ada", seed=1, version=1
    )
    assert len(result.steps) == 1
    assert result.steps[0]["learning_rate"] == pytest.approx(1e-3)
    assert result.summary["adapter_change"] > 0
    assert result.member == dataclasses.replace(member, adapter=str(tmp_path / "ada"), version=1)
    assert (tmp_path / "ada" / TENSORS).read_bytes() != Path(member.adapter, TENSORS).read_bytes()


def test_before_the_first_step_policy_and_reference_agree_exactly(weights, member, tmp_path):
    settings = DPO.model_copy(update={"epochs": 2})
    result = train_dpo(
        weights, member, make_pairs(10), settings, tmp_path / "ada", seed=1, version=1
    )
    first = result.steps[0]
    assert first["rewards/chosen"] == first["rewards/rejected"] == first["kl/chosen"] == 0
    assert first["loss"] == pytest.approx(0.693147, abs=1e-6)
    assert result.steps[-1]["rewards/margins"] > 0
    assert len(result.steps) == 6
    assert [step["step"] for step in result.steps] == [1, 2, 3, 4, 5, 6]


def test_the_initial_reference_is_the_adapter_before_the_run(weights, member, base, tmp_path):
    """Against log-probabilities computed here with PEFT alone, for an adapter and for none."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    settings = DPO.model_copy(update={"reference": "initial", "batch_size": 8})
    pairs = make_pairs(6)
    other = make_adapter(base, tmp_path / "other", seed=9, rank=2)
    chat = weights.chat(member)

    def mean_log_prob(adapter: str | None) -> float:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, adapter)
        total = 0.0
        for pair in pairs:
            prompt = chat.prompt_ids(member.messages(pair.instruction.text))
            answer = chat.completion_ids(pair.chosen, True)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
            scores = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            total += scores[torch.arange(len(answer)), answer].sum().item()
        return total / len(pairs)

    policy = mean_log_prob(member.adapter)
    for name, initial in (("some", str(other)), ("none", None)):
        result = train_dpo(
            weights,
            member,
            pairs,
            settings,
            tmp_path / name,
            seed=1,
            version=1,
            initial_adapter=initial,
        )
        first = result.steps[0]
        assert first["logps/chosen"] == pytest.approx(policy, rel=1e-4)
        expected = DPO.named().beta * (policy - mean_log_prob(initial))
        assert abs(expected) > 0.01
        assert first["rewards/chosen"] == pytest.approx(expected, rel=1e-3)
        saved = (tmp_path / name / "adapter_config.json").read_text()
        assert '"r": 4' in saved
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [
            "adapter_config.json",
            TENSORS,
            "training.json",
        ]


def test_weights_of_one_give_trls_own_loss(weights, member, base, tmp_path):
    """The stock DPOTrainer, made here, on the same pairs in the same batch."""
    from datasets import Dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    pairs = make_pairs(4)
    settings = DPO.model_copy(update={"nll_weight": 0.5, "warmup": 0.0, "epochs": 3})
    ours = train_dpo(weights, member, pairs, settings, tmp_path / "ours", seed=1, version=1)
    chat = weights.chat(member)
    rows = [
        {
            "prompt_ids": chat.prompt_ids(member.messages(pair.instruction.text)),
            "chosen_ids": chat.completion_ids(pair.chosen, True),
            "rejected_ids": chat.completion_ids(pair.rejected, True),
        }
        for pair in pairs
    ]

    class Stock(DPOTrainer):
        def _prepare_dataset(self, dataset, *_, **__):
            return dataset

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    stock = Stock(
        model=PeftModel.from_pretrained(model, member.adapter, is_trainable=True),
        args=DPOConfig(
            output_dir=str(tmp_path / "stock"),
            per_device_train_batch_size=4,
            num_train_epochs=3,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, 0.5],
            weight_decay=0.0,
            max_length=None,
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=weights.tokenizer(member),
    )
    stock.train()
    theirs = [entry for entry in stock.state.log_history if "grad_norm" in entry]
    assert len(theirs) == len(ours.steps) == 3
    for mine, other in zip(ours.steps, theirs, strict=True):
        for name in ("loss", "grad_norm", "logps/chosen", "rewards/margins", "learning_rate"):
            assert mine[name] == pytest.approx(other[name], rel=2e-4, abs=1e-6), name


def test_pair_weights_change_what_is_learned(weights, member, tmp_path):
    """A pair of weight 0 teaches nothing: the others give the same adapter without it, scaled."""
    pairs = make_pairs(4)
    heavy = [dataclasses.replace(p, weight=2.0 * (n < 2)) for n, p in enumerate(pairs)]
    settings = DPO.model_copy(update={"max_grad_norm": 1e9})
    both = train_dpo(weights, member, heavy, settings, tmp_path / "w", seed=1, version=1)
    half = train_dpo(weights, member, pairs[:2], settings, tmp_path / "h", seed=1, version=1)
    assert both.steps[0]["loss"] == pytest.approx(half.steps[0]["loss"], rel=1e-5)
    assert both.steps[0]["grad_norm"] == pytest.approx(half.steps[0]["grad_norm"], rel=1e-4)


def test_all_weights_zero_is_an_error_not_a_silent_success(weights, member, tmp_path):
    with pytest.raises(TrainingError, match="changed nothing"):
        train_dpo(
            weights, member, make_pairs(4, weight=0.0), DPO, tmp_path / "a", seed=1, version=1
        )
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_stops_and_names_the_pairs(weights, member, base, tmp_path):
    from safetensors.torch import load_file, save_file

    broken = make_adapter(base, tmp_path / "broken")
    tensors = load_file(broken / TENSORS)
    tensors[max(tensors)].fill_(float("inf"))
    save_file(tensors, broken / TENSORS)
    start = dataclasses.replace(member, adapter=str(broken))
    with pytest.raises(TrainingError, match=r"ada: the loss is nan in step 1") as caught:
        train_dpo(weights, start, make_pairs(4), DPO, tmp_path / "out", seed=1, version=1)
    assert all(f"pair-{number}" in str(caught.value) for number in range(4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken"]
    # The weights can be used again at once.
    train_dpo(weights, member, make_pairs(4), DPO, tmp_path / "out", seed=1, version=1)


def test_a_gradient_that_is_not_finite_stops_and_names_the_step(weights, member, tmp_path):
    settings = DPO.model_copy(update={"learning_rate": 1e30, "warmup": 0.0, "epochs": 9})
    with pytest.raises(TrainingError, match=r"in step \d|not finite") as caught:
        train_dpo(weights, member, make_pairs(4), settings, tmp_path / "out", seed=1, version=1)
    assert "pair-" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fresh", [False, True])
def test_same_inputs_same_adapter_bit_for_bit(base, member, tmp_path, fresh):
    if fresh:
        member = dataclasses.replace(member, adapter=None)
    files = []
    for name in ("one", "two"):
        torch.manual_seed(len(files))
        weights = Weights(device="cpu", threads=1)
        train_dpo(weights, member, make_pairs(9), DPO, tmp_path / name, seed=8, version=1)
        weights.close()
        files.append((tmp_path / name / TENSORS).read_bytes())
    assert files[0] == files[1]
    weights = Weights(device="cpu", threads=1)
    train_dpo(weights, member, make_pairs(9), DPO, tmp_path / "three", seed=9, version=1)
    assert (tmp_path / "three" / TENSORS).read_bytes() != files[0]


def test_a_finished_folder_is_not_trained_again(weights, member, tmp_path):
    pairs, folder = make_pairs(6), tmp_path / "ada"
    first = train_dpo(weights, member, pairs, DPO, folder, seed=1, version=1)
    written = (folder / TENSORS).stat().st_mtime_ns
    nothing = Weights(device="nowhere")  # would fail if a model were loaded
    again = train_dpo(nothing, member, pairs, DPO, folder, seed=1, version=1)
    assert again == first
    assert (folder / TENSORS).stat().st_mtime_ns == written
    folder.rename(tmp_path / "moved")
    moved = train_dpo(nothing, member, pairs, DPO, tmp_path / "moved", seed=1, version=1)
    assert moved.member.adapter == str(tmp_path / "moved")
    for other in (
        {"seed": 2},
        {"pairs": pairs[:-1]},
        {"settings": DPO.model_copy(update={"beta": 0.2})},
        {"member": dataclasses.replace(member, system="")},
    ):
        inputs = {"member": member, "pairs": pairs, "settings": DPO, "seed": 1} | other
        with pytest.raises(TrainingError, match="other examples, settings, seed or start"):
            train_dpo(nothing, **inputs, folder=tmp_path / "moved", version=1)
    (tmp_path / "moved" / TENSORS).write_bytes(b"torn")
    with pytest.raises(TrainingError, match="not the one that training wrote"):
        train_dpo(nothing, member, pairs, DPO, tmp_path / "moved", seed=1, version=1)


def test_a_folder_of_something_else_is_left_alone(weights, member, tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="no finished training"):
        train_dpo(weights, member, make_pairs(4), DPO, tmp_path / "ada", seed=1, version=1)
    assert (tmp_path / "ada" / "notes.txt").read_text() == "mine"


def test_a_process_killed_before_the_rename_leaves_no_adapter(weights, member, tmp_path):
    """A child dies for real (SIGKILL) with everything written and nothing renamed."""
    pairs, folder = make_pairs(4), tmp_path / "ada"
    child = os.fork()
    if child == 0:
        import signal

        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        torch.set_num_threads(1)  # the parent's threads do not exist here
        train_dpo(weights, member, pairs, DPO, folder, seed=1, version=1)
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert not folder.exists()
    assert (tmp_path / ".ada.partial" / "training.json").exists()
    result = train_dpo(weights, member, pairs, DPO, folder, seed=1, version=1)
    assert result.num_examples == 4
    assert [path.name for path in tmp_path.iterdir()] == ["ada"]


def test_training_leaves_the_base_and_the_random_numbers_alone(weights, member, tmp_path):
    ids = torch.arange(40)[None] + 300
    bare = dataclasses.replace(member, adapter=None)

    def state():
        with weights.serving(bare) as model, torch.no_grad():
            logits = model(input_ids=ids).logits
            config, generation = model.config.to_dict(), model.generation_config.to_dict()
            return logits, {n: w.clone() for n, w in model.state_dict().items()}, config, generation

    logits, tensors, config, generation = state()
    with weights.serving(bare) as model:
        held, forward = model, model.forward
    random.seed(77)
    numpy.random.seed(77)
    torch.manual_seed(77)
    wanted = random.random(), numpy.random.random(), torch.rand(1).item()
    random.seed(77)
    numpy.random.seed(77)
    torch.manual_seed(77)
    threads = torch.get_num_threads()
    train_dpo(weights, member, make_pairs(6), DPO, tmp_path / "a", seed=1, version=1)
    train_sft(weights, bare, make_demonstrations(6), SFT, tmp_path / "b", seed=1, version=0)
    assert (random.random(), numpy.random.random(), torch.rand(1).item()) == wanted
    assert torch.get_num_threads() == threads
    after, tensors_after, config_after, generation_after = state()
    assert torch.equal(after, logits)
    assert tensors.keys() == tensors_after.keys()
    assert all(torch.equal(tensors[name], tensors_after[name]) for name in tensors)
    assert (config_after, generation_after) == (config, generation)
    with weights.serving(bare) as model:
        assert model is held
        assert model.forward == forward
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())


def test_base_dropout_is_off_and_comes_back(tmp_path):
    """GPT-2 has dropout of its own: with it on, the first margin would not be zero."""
    base = make_tiny(tmp_path / "gpt2", architecture="gpt2", template="plain")
    weights, member = Weights(device="cpu", threads=1), Member("gpt", str(base))
    with weights.serving(member) as model:
        dropout = model.transformer.drop
        assert dropout.p == 0.1
    result = train_dpo(weights, member, make_pairs(6), DPO, tmp_path / "g", seed=1, version=1)
    assert result.steps[0]["rewards/margins"] == 0
    assert dropout.p == 0.1


def test_recomputed_activations_give_the_same_gradients(weights, member, tmp_path, monkeypatch):
    from phalanx.training import trainers

    pairs = make_pairs(6)
    plain = train_dpo(weights, member, pairs, DPO, tmp_path / "plain", seed=1, version=1)
    monkeypatch.setattr(trainers, "CHECKPOINT_FROM", 1)
    saved = train_dpo(weights, member, pairs, DPO, tmp_path / "saved", seed=1, version=1)
    for one, other in zip(plain.steps, saved.steps, strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    with weights.serving(dataclasses.replace(member, adapter=None)) as model:
        assert not model.is_gradient_checkpointing
        assert not model.get_input_embeddings()(torch.tensor([[1]])).requires_grad


def test_large_batches_take_trls_head_and_agree(weights, member, tmp_path, monkeypatch):
    from phalanx.training import scoring

    pairs, shown = make_pairs(6), make_demonstrations(6)
    dpo = train_dpo(weights, member, pairs, DPO, tmp_path / "d", seed=1, version=1)
    sft = train_sft(weights, member, shown, SFT, tmp_path / "s", seed=1, version=1)
    monkeypatch.setattr(scoring, "MAX_KEPT_LOGITS", 0)
    dpo_fused = train_dpo(weights, member, pairs, DPO, tmp_path / "df", seed=1, version=1)
    sft_fused = train_sft(weights, member, shown, SFT, tmp_path / "sf", seed=1, version=1)
    for ours, fused in ((dpo, dpo_fused), (sft, sft_fused)):
        for one, other in zip(ours.steps, fused.steps, strict=True):
            assert one.keys() == other.keys()
            for name in one:
                assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name


def test_no_usable_pair_keeps_the_adapter(weights, member, tmp_path):
    pairs = [dataclasses.replace(pair, chosen="") for pair in make_pairs(3)]
    result = train_dpo(weights, member, pairs, DPO, tmp_path / "ada", seed=1, version=4)
    assert (result.num_examples, result.num_dropped, result.steps) == (0, {"empty": 3}, ())
    assert result.member.version == 4
    copied = Path(result.member.adapter, TENSORS).read_bytes()
    assert copied == Path(member.adapter, TENSORS).read_bytes()
    assert train_dpo(weights, member, pairs, DPO, tmp_path / "ada", seed=1, version=4) == result
    bare = dataclasses.replace(member, adapter=None)
    result = train_dpo(weights, bare, [], DPO, tmp_path / "bare", seed=1, version=1)
    assert result.member == dataclasses.replace(bare, version=1)
    assert train_dpo(weights, bare, [], DPO, tmp_path / "bare", seed=1, version=1) == result


def test_rows_beyond_the_models_context_are_dropped(tmp_path):
    base = make_tiny(tmp_path / "short", context=24)
    weights, member = Weights(device="cpu", threads=1), Member("ada", str(base))
    pairs = make_pairs(12)
    result = train_dpo(weights, member, pairs, DPO, tmp_path / "a", seed=1, version=1)
    assert result.num_examples + sum(result.num_dropped.values()) == 12
    assert 0 < result.num_examples < 12


def test_the_saved_adapter_names_the_members_base(weights, member, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    train_sft(weights, member, make_demonstrations(6), SFT, tmp_path / "ada", seed=1, version=1)
    config = json.loads((tmp_path / "ada" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == member.base
    assert config["target_modules"] == sorted(config["target_modules"])
    model = AutoModelForCausalLM.from_pretrained(member.base, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(model, tmp_path / "ada")
    assert list(loaded.peft_config) == ["default"]


def test_sft_learns_the_completions_and_nothing_else(weights, member, base, tmp_path):
    """The first loss is the mean over completion tokens, by transformers' own forward pass."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    shown = make_demonstrations(5)
    settings = SFT.model_copy(
        update={"batch_size": 2, "accumulate": 3, "epochs": 9, "learning_rate": 1e-2}
    )
    result = train_sft(weights, member, shown, settings, tmp_path / "ada", seed=1, version=1)
    chat = weights.chat(member)
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), member.adapter
    )
    total, tokens = 0.0, 0
    for one in shown:
        prompt = chat.prompt_ids(member.messages(one.prompt))
        answer = chat.completion_ids(one.response, True)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
        scores = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        total -= scores[torch.arange(len(answer)), answer].sum().item()
        tokens += len(answer)
    assert result.steps[0]["loss"] == pytest.approx(total / tokens, rel=1e-4)
    assert len(result.steps) == 9
    assert result.steps[-1]["loss"] < 0.8 * result.steps[0]["loss"]


def test_progress_counts_the_steps(weights, member, tmp_path):
    class Seen:
        def __init__(self) -> None:
            self.calls: list[tuple] = []

        def start(self, phase, total, unit=""):
            self.calls.append(("start", phase, total, unit))

        def advance(self, amount=1):
            self.calls.append(("advance", amount))

        def finish(self, note=""):
            self.calls.append(("finish",))

        def say(self, text): ...

    seen = Seen()
    settings = DPO.model_copy(update={"accumulate": 2})
    train_dpo(
        weights, member, make_pairs(9), settings, tmp_path / "a", seed=1, version=1, progress=seen
    )
    assert seen.calls == [
        ("start", "train ada", 2, "step"),
        ("advance", 1),
        ("advance", 1),
        ("finish",),
    ]


def test_nothing_is_printed_or_sent(weights, member, tmp_path, capfd, monkeypatch):
    import trl.trainer.base_trainer as base_trainer

    def sent(*args, **kwargs):
        raise AssertionError("telemetry")

    monkeypatch.setattr(base_trainer, "send_telemetry", sent)
    train_dpo(weights, member, make_pairs(4), DPO, tmp_path / "a", seed=1, version=1)
    train_sft(weights, member, make_demonstrations(4), SFT, tmp_path / "b", seed=1, version=1)
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_half_precision_weights_train_a_full_precision_adapter(weights, member, tmp_path):
    from safetensors.torch import load_file

    half = dataclasses.replace(member, dtype="bfloat16")
    pairs = make_pairs(8)
    result = train_dpo(weights, half, pairs, DPO, tmp_path / "a", seed=1, version=1)
    assert result.steps[0]["kl/chosen"] == 0
    full = train_dpo(weights, member, pairs, DPO, tmp_path / "b", seed=1, version=1)
    assert result.steps[0]["logps/chosen"] == pytest.approx(full.steps[0]["logps/chosen"], rel=0.02)
    tensors = load_file(tmp_path / "a" / TENSORS).values()
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    shown = make_demonstrations(8)
    train_sft(weights, result.member, shown, SFT, tmp_path / "c", seed=1, version=2)


def test_dropout_of_an_adapter_is_its_own(base, weights, tmp_path):
    """It acts while the policy trains, not on the reference, and needs no equal start."""
    dropping = LoraSettings(rank=4, alpha=8, dropout=0.5)
    settings = DPO.model_copy(update={"lora": dropping})
    bare = Member("ada", str(base))
    first = train_dpo(weights, bare, make_pairs(8), settings, tmp_path / "a", seed=1, version=1)
    again = train_dpo(
        weights, first.member, make_pairs(8), settings, tmp_path / "b", seed=1, version=2
    )
    assert again.steps[0]["rewards/margins"] != 0
    assert '"lora_dropout": 0.5' in (tmp_path / "b" / "adapter_config.json").read_text()
