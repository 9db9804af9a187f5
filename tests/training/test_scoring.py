"""Prompts that two completions share: the same log-probabilities and gradients as alone."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from phalanx.training.scoring import Scorer, shares_prompts
from tests.tiny import make_tiny

PROMPTS, CHOSEN, REJECTED = (3, 9, 5), (4, 1, 7), (2, 6, 7)


def batch(vocabulary: int) -> dict[str, torch.Tensor]:
    """Three pairs as TRL lays them out: chosen rows, then rejected rows, padded on the right."""
    made = torch.Generator().manual_seed(1)
    rows, labels = [], []
    prompts = [torch.randint(vocabulary, (size,), generator=made) for size in PROMPTS]
    for sizes in (CHOSEN, REJECTED):
        for prompt, size in zip(prompts, sizes, strict=True):
            answer = torch.randint(vocabulary, (size,), generator=made)
            rows.append(torch.cat([prompt, answer]))
            labels.append(torch.cat([torch.full_like(prompt, -100), answer]))

    def padded(values: list[torch.Tensor], filler: int) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=filler)

    return {
        "input_ids": padded(rows, 0),
        "attention_mask": padded([torch.ones_like(row) for row in rows], 0),
        "labels": padded(labels, -100),
    }


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_a_shared_prompt_changes_neither_scores_nor_gradients(architecture, attention, tmp_path):
    folder = make_tiny(tmp_path / "base", architecture=architecture)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    ).eval()
    inputs = batch(model.config.vocab_size)
    assert shares_prompts(model, 16)
    found = []
    widths: list[tuple[int, ...]] = []
    model.get_input_embeddings().register_forward_hook(
        lambda _, given, __: widths.append(tuple(given[0].shape))
    )
    for pairs in (False, True):
        model.zero_grad()
        log_probs = Scorer(model, model, pairs)(**inputs, use_cache=False).log_probs
        (log_probs.chunk(2)[0].sum() - 0.3 * log_probs.chunk(2)[1].sum()).backward()
        found.append((log_probs, [weight.grad.clone() for weight in model.parameters()]))
    (alone, gradients), (packed, others) = found
    assert widths == [(6, 15), (3, 17)]
    assert (alone != 0).sum() == sum(CHOSEN) + sum(REJECTED)
    assert torch.equal(alone != 0, packed != 0)
    assert torch.allclose(alone, packed, atol=2e-5)
    for one, two in zip(gradients, others, strict=True):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-4 * float(one.abs().max()))


def test_a_model_that_cannot_share_a_prompt_is_scored_row_by_row():
    """Falcon's alibi biases take no mask of our own; Jamba's state runs through the whole row."""
    from transformers import FalconConfig, FalconForCausalLM, JambaConfig, JambaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 2}
    jamba = JambaConfig(**sizes, intermediate_size=32, num_key_value_heads=1, num_experts=2)
    models = [
        FalconForCausalLM(FalconConfig(**sizes, num_hidden_layers=2, alibi=True)).eval(),
        JambaForCausalLM(jamba).eval(),
    ]
    inputs = batch(64)
    for model in models:
        assert not shares_prompts(model, 16)
        with torch.no_grad():
            alone = Scorer(model, model)(**inputs, use_cache=False).log_probs
            asked = Scorer(model, model, pairs=True)(**inputs, use_cache=False).log_probs
        assert torch.equal(asked, alone)


def test_a_window_shorter_than_the_packed_row_shares_no_prompt(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(make_tiny(tmp_path / "base"))
    assert shares_prompts(model, 16)
    model.config.sliding_window = 31
    assert not shares_prompts(model, 16)
    assert shares_prompts(model, 15)
