"""Stand-ins for your own models: a tiny base without knowledge, and three LoRA adapters on it.

    python make_stand_ins.py

writes ``base/`` and ``adapters/{code,math,chat}/`` beside itself or into the folder given. They are
real files of transformers and PEFT, small enough for seconds on a CPU; what they write is noise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ["what is two plus three", "name a colour", "the answer is yes or no", "red green blue"]


def make_base(folder: Path) -> LlamaForCausalLM:
    """A two-layer model and a byte-level tokenizer with a chat template."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(WORDS * 5, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = CHAT
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
        initializer_range=0.15, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = make_base(folder / "base")
    for name in ("code", "math", "chat"):
        lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        member = get_peft_model(model, lora)
        for key, weight in member.named_parameters():
            if "lora_B" in key:  # zero after creation; here each adapter differs from the base
                torch.nn.init.normal_(weight, std=0.2)
        member.save_pretrained(folder / "adapters" / name)
        model = member.unload()
    print(f"wrote {folder / 'base'} and three adapters")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("."))
