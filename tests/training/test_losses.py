"""Every loss against its formula, written out from log-probabilities of a plain forward pass."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import logsigmoid, softplus

from phalanx.config.schema import TrainSettings
from phalanx.config.schema_rivals import GrpoSettings
from phalanx.training.examples import DemonstrationRow, PairRow
from phalanx.training.health import Watch
from phalanx.training.pairs import pair_trainer, sppo_losses
from phalanx.training.rated import rated_trainer
from phalanx.training.trainers import Setup
from tests.tiny import make_tiny, make_tokenizer

BETA, MARGIN, SMOOTHING, NLL = 0.25, 0.75, 0.125, 0.5
PROBABILITIES = torch.tensor([[0.9, 0.2], [0.55, 0.5], [1.0, 0.0]], dtype=torch.float64)
UNEVEN = (0.5, 2.0, 0.0)
LOSSES = (
    "sigmoid", "sppo", "simpo", "sppo_hard", "ipo", "hinge", "robust", "exo_pair", "nca_pair",
    "apo_zero", "apo_down", "sigmoid_norm", "orpo",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny") / "base", seed=2, architecture="gpt2")


def load(base: Path) -> Any:
    """In float64 throughout, which the norms of Llama are not, and without dropout."""
    from transformers import AutoModelForCausalLM

    off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, **off)


def ids(rng: random.Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randrange(5, 250) for _ in range(count))


def pair_rows(weights: Sequence[float]) -> list[PairRow]:
    rng = random.Random(4)
    return [
        PairRow(
            f"p{n}",
            ids(rng, 3 + n),
            ids(rng, 2 + n),
            ids(rng, 6 - 2 * n),
            weight,
            tuple(PROBABILITIES[n].tolist()),
        )
        for n, weight in enumerate(weights)
    ]


def rated(advantages: Sequence[float]) -> list[DemonstrationRow]:
    rng = random.Random(6)
    return [
        DemonstrationRow(f"d{n}", ids(rng, 4 - n), ids(rng, 2 + 2 * n), advantage)
        for n, advantage in enumerate(advantages)
    ]


def setup(model: Any, batches: list[list[int]], folder: Path) -> Setup:
    watch = Watch("ada", [f"r{n}" for n in range(9)])
    return Setup(model, model, make_tokenizer(), batches, watch, 1, str(folder), False)


def moved(model: Any) -> None:
    """Another policy than the one at the start, in which no two weights move alike."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.add_(0.05 * noise)


def log_prob(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
    """Of each token of the completion, without Phalanx and TRL."""
    logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0]
    scores = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return scores[torch.arange(len(completion)), torch.tensor(completion)]


def sums(model: Any, rows: Sequence[PairRow]) -> torch.Tensor:
    return torch.stack(
        [
            torch.stack([log_prob(model, row.prompt_ids, side).sum() for side in sides(row)])
            for row in rows
        ]
    )


def sides(row: PairRow) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return row.chosen_ids, row.rejected_ids


def settings(loss: str, **changes: Any) -> TrainSettings:
    smoothing = SMOOTHING if loss in ("robust", "exo_pair") else 0.0
    kept = {"beta": BETA, "margin": MARGIN, "smoothing": smoothing, "batch_size": 3}
    return TrainSettings(loss=loss, weights="full", **kept, **changes)


def formula(loss: str, policy: torch.Tensor, start: torch.Tensor, counts: torch.Tensor) -> Any:
    """Losses of the pairs, shape (pairs,). ``policy``, ``start``: summed log-probabilities."""
    ratio, mean = policy - start, policy / counts
    chosen, rejected = (BETA * ratio).unbind(dim=1)
    margin = chosen - rejected
    per_token = (ratio / counts)[:, 0] - (ratio / counts)[:, 1]
    sure = torch.tensor([1.0, 0.0], dtype=torch.float64)
    if loss == "exo_pair":
        won = torch.sigmoid(margin)
        kl = won * (won / (1 - SMOOTHING)).log()
        return kl + (1 - won) * ((1 - won) / SMOOTHING).log()
    if loss == "orpo":
        odds = mean - torch.log(1 - mean.exp())
        return -BETA * logsigmoid(odds[:, 0] - odds[:, 1])
    return {
        "sigmoid": softplus(-margin),
        "hinge": (1 - margin).clamp(min=0),
        "ipo": (per_token - 1 / (2 * BETA)) ** 2,
        "robust": ((1 - SMOOTHING) * softplus(-margin) - SMOOTHING * softplus(margin))
        / (1 - 2 * SMOOTHING),
        "nca_pair": softplus(-chosen) + (softplus(chosen) + softplus(rejected)) / 2,
        "sppo_hard": ((ratio - (sure - 0.5) / BETA) ** 2).sum(dim=1),
        "sppo": ((ratio - (PROBABILITIES - 0.5) / BETA) ** 2).sum(dim=1),
        "apo_zero": 1 - torch.sigmoid(chosen) + torch.sigmoid(rejected),
        "apo_down": torch.sigmoid(chosen) + 1 - torch.sigmoid(margin),
        "sigmoid_norm": softplus(-BETA * per_token),
        "simpo": softplus(-(BETA * (mean[:, 0] - mean[:, 1]) - MARGIN)),
    }[loss]


def computed(trainer: Any, model: Any) -> torch.Tensor:
    model.train()
    (batch,) = trainer.loader([[0, 1, 2]])
    return trainer.compute_loss(model, batch)


def ready(loss: str, model: Any, rows: list[PairRow], folder: Path, **changes: Any) -> Any:
    """The trainer of a loss, whose reference is the model now; then the model moves away."""
    asked = settings(loss, **changes)
    trainer = pair_trainer(setup(model, [[0, 1, 2]], folder), rows, asked)
    if asked.has_reference:
        trainer.collect_reference([[0, 1, 2]])
    moved(model)
    return trainer


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_its_formula(loss, weights, base, tmp_path):
    nll = 0.0 if loss == "orpo" else NLL
    rows, model, start = pair_rows(weights), load(base), load(base)
    trainer = ready(loss, model, rows, tmp_path, nll_weight=nll)
    counts = torch.tensor([[len(side) for side in sides(row)] for row in rows])
    with torch.no_grad():
        found = computed(trainer, model).item()
        policy = sums(model, rows)
        each = formula(loss, policy, sums(start, rows), counts)
    weight = torch.tensor(weights, dtype=torch.float64)
    likelihood = (weight * -policy[:, 0]).sum() / counts[:, 0].sum()
    wanted = (weight * each).mean() + (1.0 if loss == "orpo" else nll) * likelihood
    assert found == pytest.approx(wanted.item(), rel=2e-6)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gradient_is_that_of_finite_differences(loss, weights, base, tmp_path):
    model = load(base)
    trainer = ready(loss, model, pair_rows(weights), tmp_path)
    # TRL computes the odds of ORPO in float32.
    step, error = (1e-3, 3e-4) if loss == "orpo" else (1e-5, 1e-8)
    check_gradient(model, lambda: computed(trainer, model), step, error)


def check_gradient(model: Any, loss: Any, step: float = 1e-5, error: float = 1e-8) -> None:
    """By central differences, at places of three layers."""
    model.zero_grad()
    loss().backward()
    rng, seen = random.Random(3), 0
    named = dict(model.named_parameters())
    for name in ("ln_f.weight", "h.0.mlp.c_fc.weight", "wte.weight"):
        weight = named[f"transformer.{name}"]
        for _ in range(2):
            place = tuple(rng.randrange(size) for size in weight.shape)
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    weight[place] += sign * step
                    ends.append(loss().item())
                    weight[place] -= sign * step
            found = weight.grad[place].item()
            assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=error)
            seen += abs(found) > 10 * error
    assert seen >= 2


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def test_weights_of_one_are_trls_loss_bit_for_bit(base, tmp_path):
    from trl import DPOTrainer

    model = load(base)
    trainer = ready("sigmoid", model, pair_rows((1.0, 1.0, 1.0)), tmp_path, nll_weight=NLL)
    ours = gradients(model, computed(trainer, model))
    (batch,) = trainer.loader([[0, 1, 2]])
    stored = trainer.reference[batch.pop("row")]
    del batch["weight"], batch["probabilities"]
    batch["ref_chosen_logps"], batch["ref_rejected_logps"] = stored.unbind(dim=1)
    theirs = DPOTrainer._compute_loss(trainer, trainer.scorer(model), batch, False)
    theirs = gradients(model, theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("loss", ["sigmoid", "ipo", "sppo_hard"])
def test_the_losses_of_pairs_one_by_one_are_trls_of_all(loss, base, tmp_path):
    """Weights all two, which take each pair by itself, double TRL's own loss and gradient."""
    models = [load(base), load(base)]
    found = []
    for model, weight in zip(models, (1.0, 2.0), strict=True):
        trainer = ready(loss, model, pair_rows((weight,) * 3), tmp_path)
        found.append(gradients(model, computed(trainer, model)))
    for name, single in found[0].items():
        torch.testing.assert_close(found[1][name], 2 * single, rtol=1e-6, atol=1e-9)


def test_sppo_with_certain_winners_is_trls_hard_variant(base, tmp_path):
    rows = [
        PairRow(row.id, row.prompt_ids, *sides(row), row.weight, (1.0, 0.0))
        for row in pair_rows((1.0, 1.0, 1.0))
    ]
    losses, found = [], []
    for loss in ("sppo", "sppo_hard"):
        model = load(base)
        trainer = ready(loss, model, rows, tmp_path, nll_weight=NLL)
        losses.append(computed(trainer, model))
        found.append(gradients(model, losses[-1]))
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-7)
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-6, atol=1e-9)


def test_sppo_draws_an_even_pair_to_the_reference():
    """A probability of one half has no pull: the loss is least where nothing has changed."""
    even = torch.full((1, 2), 0.5)
    assert sppo_losses(torch.zeros(1, 2), even, 0.001).item() == 0
    assert sppo_losses(torch.tensor([[0.3, -0.4]]), even, 0.001).item() == pytest.approx(0.25)
    # eta = 1000: a response that wins three of four times is drawn to 250 nats above.
    likely = torch.tensor([[0.75, 0.25]])
    drawn = torch.tensor([[250.0, -250.0]])
    assert sppo_losses(drawn, likely, 0.001).item() == pytest.approx(0, abs=1e-6)


def test_simpo_margin_is_in_units_of_the_reward(base, tmp_path):
    """-log sigmoid(beta * (mean - mean) - gamma): gamma is not multiplied by beta."""
    found = {}
    for margin in (0.0, 1.5):
        model = load(base)
        asked = settings("simpo").model_copy(update={"margin": margin})
        rows = pair_rows((1.0, 1.0, 1.0))
        rows = [PairRow(r.id, r.prompt_ids, r.chosen_ids, r.chosen_ids) for r in rows]
        trainer = pair_trainer(setup(model, [[0, 1, 2]], tmp_path), rows, asked)
        found[margin] = computed(trainer, model).item()
    assert found[0.0] == pytest.approx(math.log(2))
    assert found[1.5] == pytest.approx(math.log1p(math.exp(1.5)))


# GRPO ----------------------------------------------------------------------------------------

ADVANTAGES = (0.75, -1.25, 0.25)


def grpo(loss: str, **changes: Any) -> GrpoSettings:
    return GrpoSettings(loss=loss, weights="full", batch_size=3, max_length=64, **changes)


def rated_loss(trainer: Any, model: Any) -> torch.Tensor:
    model.train()
    trainer.current_gradient_accumulation_steps = 1
    (batch,) = trainer.loader([[0, 1, 2]])
    return trainer.compute_loss(model, trainer._prepare_inputs(batch))


def average(loss: str, values: list[torch.Tensor]) -> torch.Tensor:
    """Of values for each token of each response, as GRPO and its variants average them."""
    tokens = sum(len(value) for value in values)
    total = torch.stack([value.sum() for value in values]).sum()
    if loss == "grpo":
        return torch.stack([value.mean() for value in values]).mean()
    return total / (64 * len(values) if loss == "dr_grpo" else tokens)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "bnpo"])
def test_one_step_of_grpo_is_the_policy_gradient(loss, base, tmp_path):
    """Ratios are 1: the gradient is that of minus the mean of advantage times log-probability."""
    rows, model = rated(ADVANTAGES), load(base)
    trainer = rated_trainer(setup(model, [[0, 1, 2]], tmp_path), rows, grpo(loss), 1)
    assert not trainer.start, "one step and no distance: nothing is computed beforehand"
    found = rated_loss(trainer, model)
    ones = [row.advantage * torch.ones(len(row.completion_ids)) for row in rows]
    assert found.item() == pytest.approx(-average(loss, ones).item(), rel=1e-6)
    ours = gradients(model, found)
    plain = load(base)
    each = [row.advantage * log_prob(plain, row.prompt_ids, row.completion_ids) for row in rows]
    wanted = gradients(plain, -average(loss, each))
    for name in wanted:
        torch.testing.assert_close(ours[name], wanted[name], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_later_steps_clip_ratios_to_the_start_and_add_the_distance(loss, kl, base, tmp_path):
    """The distance is weighted by the ratio, so that its gradient is that of the reverse KL."""
    rows, model, start = rated(ADVANTAGES), load(base), load(base)
    asked = grpo(loss, kl=kl, epochs=2, clip=0.1)
    trainer = rated_trainer(setup(model, [[0, 1, 2], [0, 1, 2]], tmp_path), rows, asked, 1)
    moved(model)
    with torch.no_grad():
        found = rated_loss(trainer, model).item()
        each, clipped = [], 0
        for row in rows:
            now, then = (log_prob(m, row.prompt_ids, row.completion_ids) for m in (model, start))
            ratio, near = (now - then).exp(), (now - then).exp().clamp(0.9, 1.1)
            gain = torch.minimum(ratio * row.advantage, near * row.advantage)
            distance = (then - now).exp() - (then - now) - 1
            each.append(-gain + kl * ratio * distance)
            clipped += int((gain != ratio * row.advantage).sum())
    assert clipped > 0
    assert found == pytest.approx(average(loss, each).item(), rel=1e-6)
    check_gradient(model, lambda: rated_loss(trainer, model))


def test_the_first_step_has_ratios_of_exactly_one(base, tmp_path):
    model = load(base)
    asked = grpo("grpo", kl=0.5, epochs=2)
    trainer = rated_trainer(
        setup(model, [[0, 1, 2], [0, 1, 2]], tmp_path), rated(ADVANTAGES), asked, 1
    )
    found = rated_loss(trainer, model).item()
    assert found == pytest.approx(-sum(ADVANTAGES) / 3, rel=1e-7)
    assert trainer._metrics["train"]["kl"] == [0.0]
