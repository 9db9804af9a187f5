"""Every way of learning through :class:`TrainJob`, with adapters and with all weights."""

from __future__ import annotations

import dataclasses
import math
import os
import random
from pathlib import Path

import pytest
import torch

from phalanx.config.schema import LoraSettings, OptimiserSettings, TrainSettings
from phalanx.config.schema_rivals import GrpoSettings
from phalanx.errors import ConfigError, TrainingError
from phalanx.progress import Silent
from phalanx.training import TrainJob, train_dpo, train_grpo, train_sft
from phalanx.types import Demonstration, Instruction, Member, PreferencePair, TrainResult
from phalanx.weights import Weights
from tests.tiny import make_adapter, make_tiny
from tests.training.test_losses import LOSSES, log_prob

TENSORS = "adapter_model.safetensors"
SENTENCE = "the cat sat on a mat and said hello to every small dog in town"
WORDS = SENTENCE.split()
SIZES = {"learning_rate": 1e-3, "batch_size": 4, "lora": LoraSettings(rank=4, alpha=8)}
STEADY = {"schedule": "constant", "warmup": 0.0, "max_grad_norm": 1e9}
GRPO = GrpoSettings(**SIZES, epochs=2)
WAYS = (*LOSSES, "grpo")


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


def pairs(count: int) -> list[PreferencePair]:
    rng = random.Random(5)
    return [
        PreferencePair(
            id=f"p{n}",
            instruction=Instruction(f"i{n}", " ".join(rng.sample(WORDS, 2 + n % 4))),
            chosen=" ".join(rng.sample(WORDS, 1 + n % 3)),
            rejected=" ".join(rng.sample(WORDS, 2 + n % 2)) + " no",
            chosen_probability=0.6 + 0.04 * n,
            rejected_probability=0.4 - 0.04 * n,
        )
        for n in range(count)
    ]


def rated(count: int) -> list[Demonstration]:
    """Groups of two: the first response is better than the second."""
    return [
        Demonstration(pair.id + side, pair.instruction.text, text, advantage=advantage)
        for pair in pairs(count)
        for side, text, advantage in (("a", pair.chosen, 1.0), ("b", pair.rejected, -1.0))
    ]


def settings_of(way: str, **changes) -> TrainSettings | GrpoSettings:
    if way == "grpo":
        return GRPO.model_copy(update=changes)
    smoothing = 0.1 if way in ("robust", "exo_pair") else 0.0
    beta = {"simpo": 2.0, "sppo": 0.01, "sppo_hard": 0.01}.get(way, 0.1)
    made = TrainSettings(loss=way, beta=beta, smoothing=smoothing, epochs=2, **SIZES)
    return made.model_copy(update=changes)


def learn(way: str, held: Weights, member: Member, folder: Path, **changes) -> TrainResult:
    settings = settings_of(way, **changes)
    examples = tuple(rated(4) if way == "grpo" else pairs(8))
    job = TrainJob(member, examples, settings, folder, seed=1, version=1)
    return job.run(held, Silent())


@pytest.mark.parametrize(("way", "beta"), [("sppo", 0.001), ("simpo", 2.0), ("sigmoid", 0.1)])
def test_a_beta_that_is_not_given_is_the_losss_own(way, beta, tmp_path):
    member = Member("ada", str(make_tiny(tmp_path / "base", seed=1)))
    held = Weights(device="cpu", threads=1)
    own = learn(way, held, member, tmp_path / "own", beta=None)
    assert learn(way, None, member, tmp_path / "own", beta=beta) == own  # which is stored


def ends_of(weights: Weights, member: Member) -> tuple[float, float]:
    """Mean log-probabilities of what is to become likelier and of the other."""
    chat, found = weights.chat(member), ([], [])
    with weights.serving(member) as model, torch.no_grad():
        for pair in pairs(8):
            prompt = chat.prompt_ids(member.messages(pair.instruction.text))
            for side, text in zip(found, (pair.chosen, pair.rejected), strict=True):
                side.append(log_prob(model, prompt, chat.completion_ids(text, True)).mean().item())
    return sum(found[0]) / 8, sum(found[1]) / 8


@pytest.mark.parametrize(
    ("way", "kind"),
    [(way, "lora") for way in WAYS]
    + [(way, "full") for way in ("sppo", "ipo", "simpo", "orpo", "grpo")],
)
def test_a_few_steps_part_the_better_from_the_worse(way, kind, weights, base, adapter, tmp_path):
    own = str(adapter) if kind == "lora" else None
    ada = Member("ada", str(base), adapter=own, system="answer with one word")
    # Adam's steps have the size of the rate: with a larger one, each loss moves what it is about.
    result = learn(way, weights, ada, tmp_path / "ada", weights=kind, learning_rate=3e-3)
    assert (result.num_examples, len(result.steps)) == (8, 4)
    assert all(math.isfinite(value) for step in result.steps for value in step.values())
    place = result.member.base if kind == "full" else result.member.adapter
    assert place == str(tmp_path / "ada")
    before, after = ends_of(weights, ada), ends_of(weights, result.member)
    assert after[0] - after[1] > before[0] - before[1]
    nothing = Weights(device="nowhere")  # would fail if a model were loaded
    again = learn(way, nothing, ada, tmp_path / "ada", weights=kind, learning_rate=3e-3)
    assert again == result


@pytest.mark.parametrize("way", ["sppo", "simpo", "orpo", "grpo"])
def test_same_inputs_same_weights_bit_for_bit(way, base, adapter, tmp_path):
    ada = Member("ada", str(base), adapter=str(adapter))
    for name in ("one", "two"):
        held = Weights(device="cpu", threads=1)
        torch.manual_seed(len(name))
        learn(way, held, ada, tmp_path / name)
        held.close()
    one, two = ((tmp_path / name / TENSORS).read_bytes() for name in ("one", "two"))
    assert one == two
    assert one != (adapter / TENSORS).read_bytes()


@pytest.mark.parametrize("way", ["simpo", "grpo"])
def test_killed_and_repeated_gives_the_same_weights(way, weights, base, adapter, tmp_path):
    """A child dies for real with everything written and nothing renamed."""
    ada = Member("ada", str(base), adapter=str(adapter))
    learn(way, weights, ada, tmp_path / "whole")
    child = os.fork()
    if child == 0:
        import signal

        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        torch.set_num_threads(1)  # the parent's threads do not exist here
        learn(way, weights, ada, tmp_path / "ada")
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert not (tmp_path / "ada").exists()
    learn(way, weights, ada, tmp_path / "ada")
    assert (tmp_path / "ada" / TENSORS).read_bytes() == (tmp_path / "whole" / TENSORS).read_bytes()


def test_losses_without_a_reference_make_none(weights, base, adapter, tmp_path, monkeypatch):
    """No pass before the first step, no second adapter, no second model."""
    from peft import PeftModel
    from trl import DPOTrainer

    def refused(*_, **__):
        raise AssertionError("a reference")

    monkeypatch.setattr(DPOTrainer, "compute_ref_log_probs", refused)
    monkeypatch.setattr(PeftModel, "add_adapter", refused)
    ada = Member("ada", str(base), adapter=str(adapter))
    for way in ("simpo", "orpo"):
        first = learn(way, weights, ada, tmp_path / way).steps[0]
        assert "kl/chosen" not in first
        assert first["length/chosen"] > 1
        assert first["rewards/margins"] == pytest.approx(
            first["rewards/chosen"] - first["rewards/rejected"], rel=1e-4
        )
    with pytest.raises(AssertionError, match="a reference"):
        learn("sigmoid", weights, ada, tmp_path / "sigmoid")


@pytest.mark.parametrize(
    ("way", "own"),
    [
        ("simpo", {}),
        ("orpo", {}),
        ("sppo", {}),
        ("grpo", {"loss": "grpo"}),
        ("grpo", {"loss": "dapo"}),
    ],
)
def test_two_batches_that_make_a_step_are_one_batch(way, own, weights, base, adapter, tmp_path):
    ada = Member("ada", str(base), adapter=str(adapter))
    changes = {"epochs": 1, **STEADY, **own}
    if way == "orpo":  # its likelihood is a mean over the tokens of a batch: rows of one length
        same = tuple(dataclasses.replace(pair, chosen="the cat") for pair in pairs(8))
        settings = settings_of(way, **changes)
        jobs = [
            TrainJob(ada, same, settings.model_copy(update=sizes), tmp_path / f"{n}", 1, 1)
            for n, sizes in enumerate(({"batch_size": 8}, {"batch_size": 4, "accumulate": 2}))
        ]
        whole, parts = (job.run(weights, Silent()) for job in jobs)
    else:
        whole = learn(way, weights, ada, tmp_path / "whole", **changes, batch_size=8)
        parts = learn(way, weights, ada, tmp_path / "parts", **changes, accumulate=2)
    assert len(whole.steps) == len(parts.steps) == 1
    for name in ("loss", "grad_norm"):
        assert parts.steps[0][name] == pytest.approx(whole.steps[0][name], rel=1e-4), name


def test_what_no_advantage_moves_stays_as_it_was(weights, base, adapter, tmp_path):
    ada = Member("ada", str(base), adapter=str(adapter))
    still = [dataclasses.replace(row, advantage=0.0) for row in rated(2)]
    result = train_grpo(weights, ada, still, GRPO, tmp_path / "ada", seed=1, version=1)
    assert (result.num_examples, result.num_dropped, result.steps) == (0, {"no_advantage": 4}, ())
    assert Path(result.member.adapter, TENSORS).read_bytes() == (adapter / TENSORS).read_bytes()
    bad = [dataclasses.replace(row, advantage=None) for row in rated(2)]
    with pytest.raises(TrainingError, match=r"ada: the response 'p0a' has the advantage None"):
        train_grpo(weights, ada, bad, GRPO, tmp_path / "bad", seed=1, version=1)
    assert not (tmp_path / "bad").exists()


def test_grpo_signals_and_a_loss_that_breaks_names_the_responses(weights, base, tmp_path):
    ada = Member("ada", str(base))
    settings = GRPO.model_copy(update={"kl": 0.1, "batch_size": 8, "epochs": 3, **STEADY})
    result = train_grpo(weights, ada, rated(4), settings, tmp_path / "ada", seed=1, version=1)
    assert result.steps[0]["kl"] == 0
    assert result.steps[0]["clip_ratio/region_mean"] == 0
    assert result.steps[-1]["kl"] > 0
    assert result.steps[0]["length/completion"] > 1
    broken = settings.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(TrainingError, match=r"in step \d|not finite") as caught:
        train_grpo(weights, ada, rated(4), broken, tmp_path / "broken", seed=1, version=1)
    assert "p0a" in str(caught.value)
    assert not (tmp_path / "broken").exists()


def test_spin_is_dpo_against_the_member_of_the_iteration_before(weights, base, tmp_path):
    """log(1 + exp(-lambda * t)) (arXiv 2401.01335): given answers against the member's own ones."""
    ada = Member("ada", str(base))
    settings = settings_of("sigmoid", epochs=1, batch_size=8, **STEADY)
    one = train_dpo(weights, ada, pairs(8), settings, tmp_path / "1", seed=1, version=1).member
    # The second step of two is taken at the member that one step gives.
    twice = settings.model_copy(update={"epochs": 2})
    result = train_dpo(weights, one, pairs(8), twice, tmp_path / "2", seed=1, version=2)
    after = train_dpo(weights, one, pairs(8), settings, tmp_path / "3", seed=1, version=2).member
    sums = []
    for member in (after, one):
        chat, found = weights.chat(member), []
        with weights.serving(member) as model, torch.no_grad():
            for pair in pairs(8):
                prompt = chat.prompt_ids(member.messages(pair.instruction.text))
                given, own = (
                    log_prob(model, prompt, chat.completion_ids(text, True)).sum().item()
                    for text in (pair.chosen, pair.rejected)
                )
                found.append(given - own)
        sums.append(found)
    spin = [math.log1p(math.exp(-0.1 * (now - then))) for now, then in zip(*sums, strict=True)]
    assert result.steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert result.steps[1]["loss"] == pytest.approx(sum(spin) / 8, rel=1e-4)
    assert sum(spin) / 8 < math.log(2) - 0.01


def test_rmsprop_is_torchs(weights, base, tmp_path):
    """One step on all weights, computed here without TRL, with decay in the gradient."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    ada, rows = Member("ada", str(base)), rated(2)
    settings = OptimiserSettings(
        optimizer="rmsprop", weight_decay=0.1, weights="full", learning_rate=1e-3, **STEADY
    )
    train_sft(weights, ada, rows, settings, tmp_path / "ada", seed=1, version=1)
    chat = weights.chat(ada)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    decayed = [w for name, w in model.named_parameters() if "norm" not in name]
    others = [w for name, w in model.named_parameters() if "norm" in name]
    optimiser = torch.optim.RMSprop(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others}], lr=1e-3
    )
    found = []
    for row in rows:
        prompt = chat.prompt_ids(ada.messages(row.prompt))
        found.append(log_prob(model, prompt, chat.completion_ids(row.response, True)))
    (-torch.cat(found).mean()).backward()
    optimiser.step()
    trained = load_file(tmp_path / "ada" / "model.safetensors")
    for name, weight in model.state_dict().items():
        if name in trained:  # a first step has one size, whatever the gradient, if it is not tiny
            close = (trained[name] - weight).abs() < 1e-4
            assert close.float().mean() > 0.99, name


def test_what_a_loss_cannot_learn_from_is_refused_before_a_model_loads(base, tmp_path):
    nothing, ada = Weights(device="nowhere"), Member("ada", str(base))
    common = {"folder": tmp_path / "ada", "seed": 1, "version": 1}
    bare = [dataclasses.replace(pair, chosen_probability=None) for pair in pairs(2)]
    with pytest.raises(TrainingError, match=r"the loss sppo needs .*p0, p1\. Take"):
        train_dpo(nothing, ada, bare, settings_of("sppo"), **common)
    initial = settings_of("simpo", reference="initial")
    with pytest.raises(ConfigError, match=r"train\.loss: simpo, which has no reference"):
        train_dpo(nothing, ada, pairs(2), initial, **common)
    assert not (tmp_path / "ada").exists()


def test_nothing_is_printed_or_sent(weights, base, tmp_path, capfd, monkeypatch):
    import trl.trainer.base_trainer as base_trainer

    def sent(*_, **__):
        raise AssertionError("telemetry")

    monkeypatch.setattr(base_trainer, "send_telemetry", sent)
    for way in ("sppo", "simpo", "orpo", "grpo"):
        learn(way, weights, Member("ada", str(base)), tmp_path / way)
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_the_base_is_left_as_it_was(weights, base, adapter, tmp_path):
    bare, ada = Member("bob", str(base)), Member("ada", str(base), adapter=str(adapter))

    def state():
        with weights.serving(bare) as model, torch.no_grad():
            logits = model(input_ids=torch.arange(40)[None] + 300).logits
            return logits, model.config.to_dict(), model.generation_config.to_dict(), model.forward

    before = state()
    for way in ("simpo", "orpo", "grpo"):
        learn(way, weights, ada, tmp_path / way)
    after = state()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("way", ["ipo", "simpo", "orpo", "sppo", "grpo"])
def test_large_batches_take_trls_head_and_agree(way, weights, base, tmp_path, monkeypatch):
    """As on a GPU. Weights of pairs differ, so that each pair is looked at by itself."""
    from phalanx.training import scoring

    ada, settings = Member("ada", str(base)), settings_of(way, **STEADY)
    examples = rated(4)
    if way != "grpo":
        examples = [dataclasses.replace(p, weight=0.5 + n % 2) for n, p in enumerate(pairs(8))]
    found = []
    for limit in (scoring.MAX_KEPT_LOGITS, 0):
        monkeypatch.setattr(scoring, "MAX_KEPT_LOGITS", limit)
        folder = tmp_path / str(limit)
        found.append(TrainJob(ada, tuple(examples), settings, folder, 1, 1).run(weights, Silent()))
    for one, other in zip(*(result.steps for result in found), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name] == pytest.approx(other[name], rel=2e-3, abs=1e-4), name


@pytest.mark.parametrize("way", ["simpo", "sppo", "grpo"])
def test_half_precision_members_learn(way, weights, base, adapter, tmp_path):
    from safetensors.torch import load_file

    ada = Member("ada", str(base), adapter=str(adapter), dtype="bfloat16")
    result = learn(way, weights, ada, tmp_path / way)
    assert result.summary["adapter_change"] > 0
    tensors = load_file(tmp_path / way / TENSORS).values()
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
