"""Finished rows leave the batch, and nobody's response changes."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from phalanx.engines import hf_writing
from phalanx.types import Sampling
from tests.tiny import make_tiny


def prompts(vocabulary: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded prompts of 2 to 9 tokens."""
    made = torch.Generator().manual_seed(3)
    ids = torch.randint(5, vocabulary, (rows, 9), generator=made)
    mask = torch.ones_like(ids)
    for row in range(rows):
        mask[row, : 7 - row % 8] = 0
    return ids * mask, mask


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gpt2"])
def test_rows_leave_and_the_others_go_on_as_before(architecture, tmp_path, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(
        make_tiny(tmp_path / "base", architecture=architecture), dtype=torch.float32
    ).eval()
    ids, mask = prompts(model.config.vocab_size)
    limits = [3, 20, 7, 20, 5, 11, 20, 16]
    wants = [Sampling(temperature=1, top_k=20, max_new_tokens=limit) for limit in limits]
    sizes: list[int] = []
    model.get_input_embeddings().register_forward_hook(
        lambda _, given, __: sizes.append(given[0].shape[0])
    )

    def written(stop_ids: list[int]) -> list[list[int]]:
        sizes.clear()
        rows = hf_writing.write(model, ids, mask, wants, range(8), stop_ids, 0)
        cut = []
        for row, limit in zip(rows, limits, strict=True):
            end = next((at for at, token in enumerate(row) if token in stop_ids), limit - 1)
            cut.append(row[: min(limit, end + 1)])
        return cut

    leaving = written([])
    assert [len(row) for row in leaving] == limits
    assert sizes[0] == 8
    assert sizes[-1] <= 3
    assert sorted(sizes, reverse=True) == sizes
    often = max({t for row in leaving for t in row}, key=lambda t: sum(t in r for r in leaving))
    stopped = written([often])
    total = sum(sizes)
    monkeypatch.setattr(hf_writing, "LEAVE", 1.0)
    assert written([often]) == stopped
    assert total < sum(sizes)
    assert set(sizes) == {8}
    assert written([]) == leaving
    for row in range(8):
        one = slice(row, row + 1)
        alone = hf_writing.write(model, ids[one], mask[one], [wants[row]], [row], [], 0)
        assert alone[0] == leaving[row]


def test_a_model_with_a_running_state_keeps_its_rows():
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4)
    model = MambaForCausalLM(config).eval()
    wants = [Sampling(temperature=1, max_new_tokens=limit) for limit in (2, 6)]
    ids = torch.randint(64, (2, 5), generator=torch.Generator().manual_seed(1))
    rows = hf_writing.write(model, ids, torch.ones_like(ids), wants, [1, 2], [], 0)
    assert [len(row) for row in rows] == [6, 6]
