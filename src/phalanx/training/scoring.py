"""Log-probabilities of completions, computed only where there is something to learn.

On a GPU, TRL's fused head scores labelled positions only. On a CPU it scores every position of
every row over the whole vocabulary; for short answers to long prompts that is most of its work.
There the model's own ``logits_to_keep`` does the same on the labelled columns alone, and a prompt
that two completions share goes through the model once.
"""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_KEPT_LOGITS = 2**28
"""Logits held at once (1 GiB in float32); larger batches go through TRL's head, in chunks."""

_SAME, _SAME_HALF = 1e-3, 0.1
"""Nats a token by which two ways through a model may differ and be the same (rounding), in
float32 and in half precision."""
_answers: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""What :func:`shares_prompts` found out about the bases in memory."""


class Scorer:
    """Stands where TRL calls the model, and keeps the log-probabilities of the last call.

    Called as TRL calls a model with its fused head; returns the same kind of ``outputs``.
    ``log_probs`` has shape (rows, tokens - 1) and is 0 where nothing is labelled. With
    ``pairs`` the rows are the chosen ones and then the rejected ones of the same prompts.
    """

    def __init__(self, model: Any, base: Any, pairs: bool = False) -> None:
        self._model = model
        self._base = base
        self._vocabulary = base.config.get_text_config().vocab_size
        takes = inspect.signature(type(base).forward).parameters
        self._compact = base.device.type == "cpu" and "logits_to_keep" in takes
        self._pairs = pairs and self._compact and "position_ids" in takes
        self.outputs: Any
        self.log_probs: torch.Tensor

    def __call__(self, *, labels: torch.Tensor, fused_lm_head: bool = True, **inputs: Any) -> Any:
        columns = (labels[:, 1:] != -100).any(dim=0).nonzero().squeeze(1)
        kept = labels.shape[0] * columns.numel() * self._vocabulary
        if not (self._compact and 0 < kept <= MAX_KEPT_LOGITS):
            outputs = self._model(labels=labels, fused_lm_head=fused_lm_head, **inputs)
        elif self._pairs and shares_prompts(self._base, labels.shape[1]):
            outputs = _score_pairs(self._model, labels, inputs)
        else:
            outputs = _score_columns(self._model, labels, columns, inputs)
        self.outputs, self.log_probs = outputs, outputs.log_probs
        return outputs


def shares_prompts(base: Any, length: int) -> bool:
    """Whether completions packed behind one prompt get the log-probabilities that they get alone.

    Asked of the model itself, once, with two short pairs. What so short a text cannot show is read
    from its configuration: a state that runs through the text, and attention limited to a window
    (packed rows have fewer than twice ``length`` tokens).
    """
    config = base.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    if getattr(base, "_is_stateful", False) or any(w and w < 2 * length for w in windows):
        return False
    if base not in _answers:
        _answers[base] = _same_when_packed(base)
    return _answers[base]


def _same_when_packed(base: Any) -> bool:
    import torch

    ids = torch.arange(32, device=base.device).view(4, 8) * 7
    ids = ids % base.config.get_text_config().vocab_size
    ids[2:, :3] = ids[:2, :3]
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    mask[2, 6:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :3] = -100
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    columns = torch.arange(2, 7, device=base.device)
    training = base.training
    base.eval()
    try:
        with torch.no_grad():
            alone = _score_columns(base, labels, columns, inputs).log_probs
            try:
                packed = _score_pairs(base, labels, inputs).log_probs
            except (RuntimeError, TypeError, ValueError, IndexError):
                return False  # it takes no mask of our own: that is the answer
    finally:
        base.train(training)
    limit = _SAME_HALF if base.dtype.itemsize < 4 else _SAME
    return bool((alone - packed).abs().max() <= limit)


def _score_pairs(model: Any, labels: torch.Tensor, inputs: dict[str, Any]) -> Any:
    """One row a pair: prompt, chosen, rejected; neither completion attends to the other.

    The last token of a completion predicts nothing and is left out.
    """
    import torch

    inputs = dict(inputs)
    ids, seen = inputs.pop("input_ids"), inputs.pop("attention_mask").bool()
    count, width = labels.shape[0] // 2, labels.shape[1]
    targets = labels[:, 1:]
    mask = targets != -100
    place = torch.arange(width, device=ids.device)
    prompt = mask.int().argmax(dim=1)[:count] + 1
    ends = seen.sum(dim=1) - 1
    answer = (place >= prompt.repeat(2)[:, None]) & (place < ends[:, None])
    first, second = answer.chunk(2)
    parts = [(place < prompt[:, None], ids[:count], 0), (first, ids[:count], 1)]
    parts.append((second, ids[count:], 2))
    wide = torch.cat([chosen for chosen, _, _ in parts], dim=1)
    packed_to = wide.int().cumsum(dim=1) - 1
    length = int(wide.sum(dim=1).max())

    def packed(values: list[torch.Tensor], filler: int) -> torch.Tensor:
        found = ids.new_full((count, length), filler)
        rows = torch.arange(count, device=ids.device)[:, None].expand_as(wide)
        found[rows[wide], packed_to[wide]] = torch.cat(values, dim=1)[wide]
        return found

    tokens = packed([own for _, own, _ in parts], int(ids[0, 0]))
    places = packed([place.expand(count, -1) for _ in parts], 0)
    part = packed([torch.full_like(own, number) for _, own, number in parts], 3)
    order = torch.arange(length, device=ids.device)
    before = order[:, None] >= order
    visible = before & ((part[:, None, :] == 0) | (part[:, None, :] == part[:, :, None]))
    start = int(prompt.min()) - 1
    logits = model(
        input_ids=tokens,
        attention_mask=_as_the_model_wants(model, visible[:, None]),
        position_ids=places,
        logits_to_keep=order[start:],
        **inputs,
    ).logits
    # A completion's token at column t + 1 is predicted at t; the first one by the prompt's end.
    pair, column = mask.nonzero(as_tuple=True)
    row = pair % count
    offset = torch.where(pair < count, 0, first.sum(dim=1)[row])
    source = torch.where(column < prompt[row], column, column + offset)
    return _output(_precise(logits[row, source - start]), targets, mask)


def _as_the_model_wants(model: Any, visible: torch.Tensor) -> torch.Tensor:
    """True and False for scaled-dot-product attention; zero and a very low number otherwise."""
    import torch

    if model.config._attn_implementation == "sdpa":
        return visible
    dtype = next(model.parameters()).dtype
    low = torch.finfo(dtype).min
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, low)


def _score_columns(
    model: Any, labels: torch.Tensor, columns: torch.Tensor, inputs: dict[str, Any]
) -> Any:
    logits = model(**inputs, logits_to_keep=columns).logits
    targets = labels[:, 1:]
    mask = targets != -100
    return _output(_precise(logits[mask[:, columns]]), targets, mask)


def _precise(logits: torch.Tensor) -> torch.Tensor:
    """In float32 at least."""
    return logits.float() if logits.itemsize < 4 else logits


def _output(logits: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> Any:
    """TRL's output from the logits [labelled, vocabulary] of the labelled positions, in order."""
    import torch
    from trl.trainer.utils import FusedCausalLMOutput

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
