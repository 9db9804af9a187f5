"""The sampler draws from the distribution it should, row by row."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from phalanx.engines.hf_sampling import Sampler, gumbel_noise
from phalanx.types import Sampling

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, 1.5])


def draw(want: Sampling, count: int = 20_000, logits: torch.Tensor = LOGITS) -> torch.Tensor:
    """Relative frequencies of the tokens over ``count`` seeds."""
    sampler = Sampler([want] * count, list(range(count)), 0, "cpu")
    out = sampler(torch.zeros(count, 3, dtype=torch.long), logits.expand(count, -1))
    assert torch.isfinite(out).sum(-1).eq(1).all()
    return torch.bincount(out.argmax(-1), minlength=len(logits)).double()


def expected(want: Sampling) -> torch.Tensor:
    logits = LOGITS.double()
    if 0 < want.top_k < len(logits):
        logits[logits < logits.topk(want.top_k).values[-1]] = -torch.inf
    probabilities = (logits / want.temperature).softmax(-1)
    order = probabilities.argsort(descending=True)
    total = 0.0
    for token in order.tolist():
        here = float(probabilities[token])
        if total >= want.top_p:
            probabilities[token] = 0.0
        total += here
    return probabilities / probabilities.sum()


@pytest.mark.parametrize(
    "want",
    [
        Sampling(temperature=1, top_k=0, top_p=1),
        Sampling(temperature=0.7, top_k=5, top_p=1),
        Sampling(temperature=1.3, top_k=0, top_p=0.8),
        Sampling(temperature=0.7, top_k=6, top_p=0.9),
        Sampling(temperature=1, top_k=50, top_p=0.95),
    ],
)
def test_frequencies_are_those_of_the_distribution(want):
    counts, wanted = draw(want), expected(want)
    assert counts[wanted == 0].sum() == 0
    kept = wanted > 0
    chance = stats.chisquare(counts[kept].numpy(), (wanted[kept] * counts.sum()).numpy()).pvalue
    assert chance > 1e-3


def test_greedy_and_single_choices():
    assert draw(Sampling(temperature=0), 50).argmax() == 0
    assert draw(Sampling(temperature=0), 50)[0] == 50
    assert draw(Sampling(temperature=1, top_k=1), 50)[0] == 50
    assert draw(Sampling(temperature=1, top_p=1e-9, top_k=0), 50)[0] == 50


def test_noise_is_gumbel_and_fresh_for_each_seed_step_and_token():
    seeds = torch.arange(200)
    tokens = torch.arange(100).expand(200, -1)
    noise = torch.stack([gumbel_noise(seeds, step, tokens) for step in range(5)])
    assert torch.isfinite(noise).all()
    assert stats.kstest(noise.flatten().numpy(), "gumbel_r").pvalue > 1e-3
    assert noise.unique().numel() > 0.99 * noise.numel()
    for one, two in (
        (noise[0], noise[1]),
        (noise[:, 0], noise[:, 1]),
        (noise[..., 0], noise[..., 1]),
    ):
        correlation = torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]
        assert abs(correlation) < 0.15


def test_noise_of_a_token_does_not_depend_on_its_rank():
    seeds = torch.tensor([7])
    forward = gumbel_noise(seeds, 3, torch.tensor([[4, 9, 2]]))
    backward = gumbel_noise(seeds, 3, torch.tensor([[2, 9, 4]]))
    assert torch.equal(forward, backward.flip(-1))


def test_any_seed_is_taken():
    for seed in (0, -1, 2**63 - 1, 2**64 + 5):
        sampler = Sampler([Sampling()], [seed], 0, "cpu")
        assert torch.isfinite(sampler(torch.zeros(1, 1, dtype=torch.long), LOGITS[None])).any()
