"""Training leaves no trace: random numbers, the shared base and the tokenizer stay as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed Python, numpy and torch for the block; afterwards each continues where it was."""
    import numpy
    import torch
    from transformers import set_seed

    before = random.getstate(), numpy.random.get_state()
    devices = list(range(torch.cuda.device_count()))
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=devices):
        set_seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before[0])
            numpy.random.set_state(before[1])
            torch.set_num_threads(threads)


@contextmanager
def untouched(model: Any, tokenizer: Any) -> Iterator[None]:
    """Undo what trainers do to a base that others use too.

    TRL patches ``forward`` of the base, sets padding tokens in both configurations, and adds
    tags; gradient checkpointing hooks the embeddings. Dropout of the base itself is off inside
    the block (an adapter's own stays as its configuration says).
    """
    base = model.get_base_model()
    places = (base.config.get_text_config(), base.generation_config)
    padding = [getattr(place, "pad_token_id", None) for place in places]
    config = base.config.get_text_config()
    router = getattr(config, "output_router_logits", None)
    tags = getattr(base, "model_tags", None)
    tags = list(tags) if tags is not None else None
    own_forward = base.__dict__.get("forward")
    pad_token = tokenizer.pad_token
    dropouts = _base_dropouts(base)
    for module, _ in dropouts:
        module.p = 0.0
    try:
        yield
    finally:
        for module, share in dropouts:
            module.p = share
        for place, pad in zip(places, padding, strict=True):
            place.pad_token_id = pad
        if router is not None:
            config.output_router_logits = router
        base.model_tags = tags
        if own_forward is None:
            base.__dict__.pop("forward", None)
        else:
            base.forward = own_forward
        if getattr(base, "_require_grads_hook", None) is not None:
            base.disable_input_require_grads()
        tokenizer.pad_token = pad_token


def _base_dropouts(base: Any) -> list[tuple[Any, float]]:
    from torch import nn

    return [
        (module, module.p)
        for name, module in base.named_modules()
        if isinstance(module, nn.Dropout) and "lora_dropout" not in name
    ]
