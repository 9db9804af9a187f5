"""Writing responses in a batch whose finished rows leave it.

``generate`` carries a row on until the last one ends. Here it stops when a quarter of the rows
have ended; the others go on in a smaller batch, with their part of the cache. What a row gets
depends on its own seed and position, so its response stays the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.engines.hf_sampling import Sampler
from phalanx.types import Sampling, UserTurn

if TYPE_CHECKING:
    import torch

Watch = Callable[[int, Sequence[int]], object]
LEAVE = 0.25
"""Share of a batch's rows that have to end before they leave it."""


class Scores(Protocol):
    """Notes what the model thought of each token, at each step."""

    def around(self, sampler: Any, rows: Sequence[int]) -> Any:
        """The logits processor to use instead of ``sampler``, for these rows."""


def write(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    wants: Sequence[Sampling | UserTurn],
    seeds: Sequence[int],
    stop_ids: Sequence[int],
    pad_id: int,
    watch: Watch | None = None,
    scores: Scores | None = None,
) -> list[list[int]]:
    """The new tokens of each row, up to its limit or with the end token that stopped it.

    ``ids`` and ``mask`` are left-padded prompts, int64 [rows, longest]. Behind the end token of
    a row there may be more: what was written while others went on. ``watch`` gets each row's
    number and all its new tokens after each step; a row for which it returns True ends there.
    ``scores`` notes log-probabilities of each step.
    """
    import torch
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    length = ids.shape[1]
    rows = list(range(len(wants)))
    written: list[list[int]] = [[] for _ in wants]
    cache = _divisible_cache(model)
    while rows:
        own = [wants[row] for row in rows]
        done = Ended([want.max_new_tokens for want in own], length, stop_ids, ids.device)
        done.share = LEAVE if cache else 1.0
        left = max(want.max_new_tokens for want in own) - (ids.shape[1] - length)
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=left,
            pad_token_id=pad_id,
            eos_token_id=list(stop_ids),
            use_cache=True,
        )
        if watch is not None:
            done.watch = partial(_watched, watch, rows)
        sampler: Any = Sampler(own, [seeds[row] for row in rows], length, ids.device)
        if scores is not None:
            sampler = scores.around(sampler, rows)
        with torch.no_grad():
            ids = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
                stopping_criteria=StoppingCriteriaList([done]),
                **cache,
            )
        for row, tokens in zip(rows, ids[:, length:].tolist(), strict=True):
            written[row] = tokens
        going_on = (~done.ended).nonzero().squeeze(1)
        rows = [rows[at] for at in going_on.tolist()]
        if rows:
            for held in cache.values():
                held.batch_select_indices(going_on)
            mask = torch.nn.functional.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1)
            ids, mask = ids[going_on], mask[going_on]
    return written


class Ended:
    """A stopping criterion: which rows have ended, at an end token or at their own limit.

    All are stopped when ``share`` of them have ended. ``ended`` is a mask [rows]. ``watch`` sees
    the new tokens of all rows as they come, and says which rows are to end.
    """

    share = 1.0
    watch: Callable[[list[list[int]]], list[bool]] | None = None

    def __init__(
        self, limits: Sequence[int], prompt_length: int, stop_ids: Sequence[int], device: object
    ) -> None:
        import torch

        self.limits = torch.tensor(limits, device=device)
        self.stop_ids = torch.tensor(list(stop_ids), device=device)
        self.prompt_length = prompt_length
        self.ended = torch.zeros_like(self.limits, dtype=torch.bool)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        import torch

        at_limit = self.limits <= input_ids.shape[1] - self.prompt_length
        if self.watch is not None:
            told = self.watch(input_ids[:, self.prompt_length :].tolist())
            self.ended |= torch.tensor(told, device=self.ended.device)
        self.ended |= at_limit | torch.isin(input_ids[:, -1], self.stop_ids)
        if int(self.ended.sum()) >= max(1, math.ceil(self.share * len(self.ended))):
            return torch.ones_like(self.ended)
        return self.ended


def _watched(watch: Watch, rows: Sequence[int], written: Sequence[Sequence[int]]) -> list[bool]:
    """Which rows of a batch are to end, by their numbers among all rows."""
    return [bool(watch(row, tokens)) for row, tokens in zip(rows, written, strict=True)]


def _divisible_cache(model: Any) -> dict[str, Any]:
    """A cache for ``generate`` that rows can be taken out of; empty where the model has none."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(bare, "_is_stateful", False):
        return {}
    accepted = inspect.signature(bare.forward).parameters
    name = next((name for name in ("cache", "past_key_values") if name in accepted), None)
    cache = DynamicCache(config=bare.config)
    plain = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
    return {name: cache} if name and plain else {}
