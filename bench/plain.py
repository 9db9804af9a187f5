"""The plain way: what a user would script today with transformers, PEFT and TRL."""

from __future__ import annotations

import gc
import json
import re
import shutil
import time
from collections.abc import Sequence
from typing import Any

from bench.setting import Setting, dtype_of
from phalanx.types import Member, PreferencePair

BATCH = 8


def load(setting: Setting, member: Member, trainable: bool = False) -> tuple[Any, Any]:
    """Model with its adapter, not merged, and tokenizer, from the disk."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(member.base, padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(member.base, dtype=dtype_of(setting))
    model = PeftModel.from_pretrained(model, member.adapter, is_trainable=trainable)
    return model.to(setting.device), tokenizer


def write(
    setting: Setting, member: Member, prompts: Sequence[str], new: int, fixed: bool
) -> list[str]:
    """Responses in batches of eight, left-padded; ``fixed``: each has exactly ``new`` tokens."""
    import torch

    model, tokenizer = load(setting, member)
    model.eval()
    texts: list[str] = []
    for start in range(0, len(prompts), BATCH):
        turns = [[{"role": "user", "content": text}] for text in prompts[start : start + BATCH]]
        given = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_tensors="pt", padding=True, return_dict=True
        ).to(setting.device)
        with torch.no_grad():
            out = model.generate(
                **given,
                do_sample=True,
                temperature=0.7,
                top_p=0.95,
                max_new_tokens=new,
                min_new_tokens=new if fixed else None,
                pad_token_id=tokenizer.pad_token_id,
            )
        texts += tokenizer.batch_decode(
            out[:, given["input_ids"].shape[1] :], skip_special_tokens=True
        )
    del model
    gc.collect()
    return texts


def read_score(text: str) -> float | None:
    """The score of a verdict such as ``{"score": 7}``; None where there is none."""
    found = re.search(r"\{[^{}]*\}", text)
    if found:
        try:
            score = json.loads(found[0]).get("score")
        except json.JSONDecodeError:  # broken JSON is a verdict that cannot be read
            return None
        if isinstance(score, int | float) and 1 <= score <= 10:
            return float(score)
    return None


def train(
    setting: Setting,
    member: Member,
    pairs: Sequence[PreferencePair],
    spent: dict[str, list[float]],
    name: str,
) -> None:
    """TRL's DPO trainer on a freshly loaded model; only ``train`` itself is timed."""
    import torch
    from datasets import Dataset
    from transformers.utils import logging
    from trl import DPOConfig, DPOTrainer

    logging.set_verbosity_error()
    model, tokenizer = load(setting, member, trainable=True)
    rows = [
        {
            "prompt": [{"role": "user", "content": pair.instruction.text}],
            "chosen": [{"role": "assistant", "content": pair.chosen}],
            "rejected": [{"role": "assistant", "content": pair.rejected}],
        }
        for pair in pairs
    ]
    folder = setting.scratch / "trl"
    arguments = DPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        learning_rate=1e-5,
        num_train_epochs=1,
        bf16=dtype_of(setting) == torch.bfloat16,
        use_cpu=setting.device == "cpu",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = DPOTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    began = time.perf_counter()
    trainer.train()
    spent.setdefault(name, []).append(time.perf_counter() - began)
    trainer.save_model(str(folder / member.name))
    shutil.rmtree(folder)
    del model, trainer
    gc.collect()
