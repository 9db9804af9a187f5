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
    with torch.random.fork_rng(devices=devices):
        set_seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before[0])
            numpy.random.set_state(before[1])


@contextmanager
def untouched(base: Any, tokenizer: Any) -> Iterator[None]:
    """Undo what trainers do to a base that others use too.

    TRL patches ``forward`` of the base and adds tags; transformers writes the tokenizer's special
    tokens into both configurations; gradient checkpointing hooks the embeddings, more than once.
    Dropout of the base itself is off inside the block (an adapter's own stays as its
    configuration says).
    """
    configs = [base.config, base.config.get_text_config(), base.generation_config]
    written = [dict(vars(config)) for config in configs]
    embedding = base.get_input_embeddings()
    hooks = set(embedding._forward_hooks)
    own = {name: base.__dict__[name] for name in ("forward", "model_tags") if name in base.__dict__}
    pad_token = tokenizer.pad_token
    dropouts = _base_dropouts(base)
    for module, _ in dropouts:
        module.p = 0.0
    try:
        yield
    finally:
        for module, share in dropouts:
            module.p = share
        for config, values in zip(configs, written, strict=True):
            vars(config).clear()
            vars(config).update(values)
        for hook in set(embedding._forward_hooks) - hooks:
            del embedding._forward_hooks[hook]
        for name in ("forward", "model_tags"):
            base.__dict__.pop(name, None)
        base.__dict__.update(own)
        tokenizer.pad_token = pad_token


@contextmanager
def silence() -> Iterator[None]:
    """Only errors from transformers: what it has to say of token ids has no consequence here."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _base_dropouts(base: Any) -> list[tuple[Any, float]]:
    from torch import nn

    return [
        (module, module.p)
        for name, module in base.named_modules()
        if isinstance(module, nn.Dropout) and "lora_dropout" not in name
    ]
