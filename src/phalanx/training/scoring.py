"""Log-probabilities of completions, computed only where there is something to learn.

On a GPU, TRL's fused head scores labelled positions only. On a CPU it scores every position of
every row over the whole vocabulary; for short answers to long prompts that is most of its work.
There the model's own ``logits_to_keep`` does the same on the labelled columns alone.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_KEPT_LOGITS = 2**28
"""Logits held at once (1 GiB in float32); larger batches go through TRL's head, in chunks."""


class Scorer:
    """Stands where TRL calls the model, and keeps the log-probabilities of the last call.

    Called as TRL calls a model with its fused head; returns the same kind of output.
    ``log_probs`` has shape (rows, tokens - 1) and is 0 where nothing is labelled.
    """

    def __init__(self, model: Any, base: Any) -> None:
        self._model = model
        self._vocabulary = base.config.get_text_config().vocab_size
        takes = inspect.signature(type(base).forward).parameters
        self._compact = base.device.type == "cpu" and "logits_to_keep" in takes
        self.log_probs: torch.Tensor

    def __call__(self, *, labels: torch.Tensor, fused_lm_head: bool = True, **inputs: Any) -> Any:
        columns = (labels[:, 1:] != -100).any(dim=0).nonzero().squeeze(1)
        kept = labels.shape[0] * columns.numel() * self._vocabulary
        if self._compact and 0 < kept <= MAX_KEPT_LOGITS:
            outputs = _score_columns(self._model, labels, columns, inputs)
        else:
            outputs = self._model(labels=labels, fused_lm_head=fused_lm_head, **inputs)
        self.log_probs = outputs.log_probs
        return outputs


def _score_columns(
    model: Any, labels: torch.Tensor, columns: torch.Tensor, inputs: dict[str, Any]
) -> Any:
    import torch
    from trl.trainer.utils import FusedCausalLMOutput

    logits = model(**inputs, logits_to_keep=columns).logits
    targets = labels[:, 1:]
    mask = targets != -100
    logits = logits[mask[:, columns]].float()
    wanted = targets[mask]
    scores = -torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
    log_probs = scores.new_zeros(mask.shape)
    log_probs[mask] = scores
    is_top1 = torch.zeros_like(mask)
    is_top1[mask] = logits.detach().argmax(dim=-1) == wanted
    # TRL reports these two; they cost a pass over the vocabulary and are not recorded here.
    unused = torch.zeros_like(log_probs)
    return FusedCausalLMOutput(
        loss=-scores.mean(),
        log_probs=log_probs,
        entropy=unused,
        mean_logits=unused,
        is_top1=is_top1,
        label_mask=mask,
    )
