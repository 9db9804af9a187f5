"""Tokens a second of answering, against ``generate`` as it is and the bare forward pass."""

from __future__ import annotations

import statistics
from typing import Any

from bench.measuring import Item, ratio, seconds_of
from bench.setting import Setting, instructions, weights_of
from phalanx.types import Request, Sampling

NO_TOKEN = 2**30
"""Beyond every vocabulary."""


def run(setting: Setting) -> list[Item]:
    import torch

    from phalanx.engines.hf import HFEngine

    rows, new = setting.size(32, 4), setting.size(16, 8)
    weights = weights_of(setting)
    engine = HFEngine(weights, batch_size=rows)
    (member,) = setting.members(1)
    # No end token may cut a response short: every side writes the same number of tokens.
    weights.chat(member).stop_ids = (NO_TOKEN,)
    want = Sampling(temperature=0.7, top_p=0.95, max_new_tokens=new)
    asked = [
        Request(f"r{number}", member, member.messages(text), want, "bench", seed=number)
        for number, text in enumerate(instructions(rows))
    ]
    prompts = [weights.chat(member).prompt_ids(request.messages) for request in asked]
    longest = max(map(len, prompts))
    device = weights.device
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)

    def ours() -> None:
        responses = engine.respond(asked)
        assert all(r.finish_reason == "length" for r in responses), responses[0]

    def as_it_is() -> None:
        with weights.serving(member) as model:
            _generate(model, ids, mask, new)

    def floor() -> None:
        with weights.serving(member) as model:
            bare_forward(model, ids, mask, new)

    ways = {"ours": ours, "generate": as_it_is, "floor": floor}
    seconds_of(ways, 1)
    found = seconds_of(ways, setting.size(2, 1))
    rate = {name: rows * new / statistics.median(times) for name, times in found.items()}
    raw = {"seconds": found, "tokens_per_s": rate, "rows": rows, "new_tokens": new}
    return [
        Item("generation: time against the bare forward pass", ratio(found["ours"], found["floor"]),
             "x time", at_most=1.3, raw=raw, note="floor: greedy, argmax, one cache"),
        Item("generation: speed against generate as it is", ratio(found["generate"], found["ours"]),
             "x faster", raw={"tokens_per_s": rate}, note="both in one batch, adapter merged"),
        Item("generation: tokens a second", rate["ours"], "tokens/s"),
    ]  # fmt: skip


def _generate(model: Any, ids: Any, mask: Any, new: int) -> None:
    import torch

    with torch.no_grad():
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=0.7,
            top_p=0.95,
            max_new_tokens=new,
            min_new_tokens=new,
            pad_token_id=0,
            eos_token_id=0,
        )


def bare_forward(model: Any, ids: Any, mask: Any, new: int) -> None:
    """Prefill and ``new`` steps with a cache; the likeliest token each time, nothing else."""
    import inspect

    import torch
    from transformers import DynamicCache

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache = DynamicCache(config=model.config)
    place = (mask.cumsum(-1) - 1).clamp(min=0)
    one = mask.new_ones(len(mask), 1)
    with torch.inference_mode():
        for _ in range(new):
            logits = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=place,
                use_cache=True,
                logits_to_keep=1,
                **{name: cache},
            ).logits
            ids = logits[:, -1].argmax(-1, keepdim=True)
            mask = torch.cat([mask, one], dim=1)
            place = place[:, -1:] + 1
