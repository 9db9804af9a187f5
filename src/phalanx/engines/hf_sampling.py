"""Sampling in which a response depends on its own seed alone, not on its batch mates.

Order: keep the ``top_k`` largest logits (so the vocabulary is never sorted), divide by the
temperature, keep the smallest set with probability ``top_p``, add Gumbel noise, take the largest.
Adding Gumbel noise and taking the largest is an exact draw from the softmax (Gumbel-max trick).
The noise is a hash of (seed, step, token): the same on every device, whatever else is in the batch
and whichever way near-equal logits are ordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phalanx.types import Sampling, UserTurn

if TYPE_CHECKING:
    import torch

_MASK63 = (1 << 63) - 1


def _signed(value: int) -> int:
    """The 64-bit pattern of ``value`` as torch's signed integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_STEP = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function (Steele, Lea and Flood 2014) on int64 tensors."""

    def shifted(value: torch.Tensor, count: int) -> torch.Tensor:
        return (value >> count) & ((1 << (64 - count)) - 1)

    bits = (bits ^ shifted(bits, 30)) * _MIX_1
    bits = (bits ^ shifted(bits, 27)) * _MIX_2
    return bits ^ shifted(bits, 31)


def gumbel_noise(seeds: torch.Tensor, step: int, tokens: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float32, [rows, kept], for seeds [rows] and token ids [rows, kept]."""
    stream = _mix(_mix(seeds) + _signed((step + 1) * _STEP))
    bits = _mix(stream[:, None] + (tokens + 1) * _STEP)
    uniform = ((bits >> 12) & ((1 << 52) - 1)).double().add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_().log_().neg_().float()


class Sampler:
    """A logits processor for greedy ``generate``: leaves one token per row, the sample.

    ``wants`` and ``seeds`` have one entry a row; the rows' settings may differ. ``prompt_length``
    is the padded length of the prompts in tokens.
    """

    def __init__(
        self,
        wants: Sequence[Sampling | UserTurn],
        seeds: Sequence[int],
        prompt_length: int,
        device: object,
    ) -> None:
        import torch

        def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        self.prompt_length = prompt_length
        self.top_k = 0 if any(w.top_k == 0 for w in wants) else max(w.top_k for w in wants)
        self.sorts = any(w.top_k > 0 or w.top_p < 1 for w in wants)
        self.row_k = column([w.top_k or _MASK63 for w in wants], torch.int64)
        self.row_p = column([w.top_p for w in wants], torch.float32)
        self.cuts = any(w.top_p < 1 for w in wants)
        self.random = column([float(w.temperature > 0) for w in wants], torch.float32)
        self.temperature = column([w.temperature or 1.0 for w in wants], torch.float32)
        self.seeds = torch.tensor([s & _MASK63 for s in seeds], dtype=torch.int64, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``input_ids`` [rows, length], ``scores`` [rows, vocabulary] -> one-hot log-scores."""
        import torch

        scores = scores.float()
        values, tokens = self._kept(scores)
        values = values / self.temperature
        if self.sorts:
            rank = torch.arange(values.shape[1], device=values.device)[None]
            values = values.masked_fill(rank >= self.row_k, -torch.inf)
        if self.cuts:
            probabilities = values.softmax(-1)
            before = probabilities.cumsum(-1) - probabilities
            outside = (before >= self.row_p) & (self.row_p < 1)
            outside[:, 0] = False
            values = values.masked_fill(outside, -torch.inf)
        step = input_ids.shape[1] - self.prompt_length
        values = values + self.random * gumbel_noise(self.seeds, step, tokens)
        chosen = tokens.gather(1, values.argmax(-1, keepdim=True))
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)

    def _kept(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        size = scores.shape[1]
        if 0 < self.top_k < size:
            return torch.topk(scores, self.top_k)
        if self.sorts:
            return scores.sort(-1, descending=True)
        return scores, torch.arange(size, device=scores.device).expand_as(scores)
