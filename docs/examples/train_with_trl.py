"""Train on the two data sets of a MoAA run with TRL alone: supervised fine-tuning, then DPO.

    phalanx export RUN demonstrations --builder mixture --conversational --out demonstrations.jsonl
    phalanx export RUN preferences --conversational --out preferences.jsonl
    python train_with_trl.py --model org/small-instruct --out trained

Needs `torch`, `transformers`, `trl` and `datasets`; nothing of the toolkit that made the files.
"""

from __future__ import annotations

import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", required=True, help="a folder or a hub id, with chat template")
    options.add_argument("--demonstrations", default="demonstrations.jsonl")
    options.add_argument("--preferences", default="preferences.jsonl")
    options.add_argument("--out", default="trained", help="the trained model's folder")
    options.add_argument("--max-steps", type=int, default=-1, help="of each stage; -1: all rows")
    options.add_argument("--batch-size", type=int, default=4)
    options.add_argument("--cpu", action="store_true")
    given = options.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype="float32")
    common = {
        "per_device_train_batch_size": given.batch_size,
        "max_steps": given.max_steps,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "use_cpu": given.cpu,
        "bf16": not given.cpu,
    }

    # Stage 1. TRL sees prompt and completion, and learns the completion alone. A completion that
    # was cut off at the token limit would be learned with an end that its writer never wrote.
    shown = load_dataset("json", data_files=given.demonstrations, split="train")
    shown = shown.filter(lambda row: not row["truncated"])
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir=f"{given.out}/sft", learning_rate=8e-6, **common),
        train_dataset=shown.select_columns(["prompt", "completion"]),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(f"{given.out}/sft")

    # Stage 2, from the result of stage 1, which is also the reference.
    pairs = load_dataset("json", data_files=given.preferences, split="train")
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(f"{given.out}/sft", dtype="float32"),
        args=DPOConfig(output_dir=f"{given.out}/dpo", learning_rate=1e-6, beta=0.1, **common),
        train_dataset=pairs.select_columns(["prompt", "chosen", "rejected"]),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(given.out)


if __name__ == "__main__":
    main()
