"""Seconds a preference pair, against TRL as it is and a bare loop over the same batches."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import plain
from bench.measuring import Item, ratio, seconds_of
from bench.setting import Setting, dtype_of, instructions, weights_of
from phalanx.config.schema import TrainSettings
from phalanx.training.batches import plan_batches
from phalanx.training.examples import PairRow, pair_rows
from phalanx.types import Instruction, Member, PreferencePair

BATCH = 8
SETTINGS = TrainSettings(learning_rate=1e-5, batch_size=BATCH).named()
_TEXT = (
    "It works with a frame, a moving part and something that drives it; the maker measures, cuts "
    "and joins the pieces, tries them, and then tells everybody in the town how good it is to have "
    "one, because it saves time, lasts for years, and asks for nothing but a drop of oil."
)


def pairs(count: int) -> list[PreferencePair]:
    """Responses of about 64 tokens, none like another."""
    made = []
    for number, text in enumerate(instructions(count)):
        words = _TEXT.split()
        turn = number % len(words)
        words = words[turn:] + words[:turn]
        chosen, rejected = " ".join(words), " ".join(reversed(words))
        made.append(PreferencePair(f"p{number}", Instruction(f"i{number}", text), chosen, rejected))
    return made


def run(setting: Setting) -> list[Item]:
    import datasets  # noqa: F401  (loading packages belongs to no side)
    import torch
    import trl  # noqa: F401

    count = setting.size(6, 4)
    (member,) = setting.members(1)
    # One thread a side on a CPU: there several members learn side by side, one thread each.
    threads = 1 if setting.device == "cpu" else None
    weights = weights_of(setting, threads)
    if threads:
        torch.set_num_threads(threads)
    learned = pairs(count)
    rows, dropped = pair_rows(weights.chat(member), member, learned, SETTINGS.max_length)
    if dropped:
        raise SystemExit(f"pairs were dropped: {dropped}")
    spent: dict[str, list[float]] = {}
    ways = {
        "ours": lambda: _ours(setting, weights, member, learned, spent),
        "floor": lambda: bare_loop(weights, member, rows, spent),
        "trl": lambda: plain.train(setting, member, learned, spent, "trl"),
    }
    seconds_of({"first": ways["floor"]}, 1)
    spent.clear()
    seconds_of({name: ways[name] for name in ("ours", "floor")}, setting.size(1, 0))
    seconds_of(ways, 1)
    each = {name: statistics.median(times) / count for name, times in spent.items()}
    tokens = sum(len(r.prompt_ids) * 2 + len(r.chosen_ids) + len(r.rejected_ids) for r in rows)
    raw = {
        "seconds": spent,
        "seconds_a_pair": each,
        "pairs": count,
        "tokens_a_pair": tokens / count,
    }
    raw["dtype"] = str(dtype_of(setting))
    return [
        Item("DPO: time against a bare loop", ratio(spent["ours"], spent["floor"]), "x time",
             at_most=1.25, raw=raw, note="the loop: reference, forward and backward of two rows a "
             "pair, no optimiser; ours also saves, checks and logs"),
        Item("DPO: speed against TRL as it is", ratio(spent["trl"], spent["ours"]), "x faster",
             raw={"seconds_a_pair": each}, note="TRL's defaults, but float32 where the CPU has no "
             "bfloat16 of its own (they ask for it even there)"),
        Item("DPO: seconds a pair", each["ours"], "s"),
    ]  # fmt: skip


def timed(spent: dict[str, list[float]], name: str, work: Callable[[], Any]) -> None:
    began = time.perf_counter()
    work()
    spent.setdefault(name, []).append(time.perf_counter() - began)


def _ours(
    setting: Setting,
    weights: Any,
    member: Member,
    learned: list[PreferencePair],
    spent: dict[str, list[float]],
) -> None:
    from phalanx.training import train_dpo

    folder = Path(setting.scratch) / "trained"
    shutil.rmtree(folder, ignore_errors=True)
    timed(
        spent,
        "ours",
        lambda: train_dpo(weights, member, learned, SETTINGS, folder, seed=1, version=1),
    )


def bare_loop(
    weights: Any, member: Member, rows: list[PairRow], spent: dict[str, list[float]]
) -> None:
    """The arithmetic of DPO and nothing else, on the very batches that ours has."""
    batches = plan_batches([row.length for row in rows], BATCH, 1, 1)[0]
    with weights.training(member, SETTINGS.lora) as model:
        tensors = [_tensors([rows[at] for at in batch], model.device) for batch in batches]
        timed(spent, "floor", lambda: [_step(model, *given) for given in tensors])


def _tensors(rows: list[PairRow], device: Any) -> tuple[Any, Any, Any]:
    import torch

    prompts = [row.prompt_ids for row in rows] * 2
    answers = [row.chosen_ids for row in rows] + [row.rejected_ids for row in rows]
    width = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    seen, learned = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids[at, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        seen[at, : len(prompt) + len(answer)] = 1
        learned[at, len(prompt) : len(prompt) + len(answer)] = True
    return ids.to(device), seen.to(device), learned.to(device)


def _step(model: Any, ids: Any, seen: Any, learned: Any) -> None:
    import torch

    def log_probs() -> Any:
        start = int(learned.any(0).nonzero()[0]) - 1
        keep = torch.arange(start, ids.shape[1] - 1, device=ids.device)
        logits = model(
            input_ids=ids, attention_mask=seen, use_cache=False, logits_to_keep=keep
        ).logits
        mask = learned[:, start + 1 :]
        wanted = ids[:, start + 1 :][mask]
        scores = -torch.nn.functional.cross_entropy(logits[mask].float(), wanted, reduction="none")
        return scores.new_zeros(mask.shape).masked_scatter(mask, scores).sum(1)

    with torch.no_grad():
        reference = log_probs()
    chosen, rejected = (log_probs() - reference).chunk(2)
    loss = -torch.nn.functional.logsigmoid(SETTINGS.beta * (chosen - rejected)).mean()
    loss.backward()
    model.zero_grad()
