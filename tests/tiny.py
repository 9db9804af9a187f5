"""Tiny random models, tokenizers and adapters on disk: real ones, small enough for quick tests."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Literal

Template = Literal["chatml", "no_system", "adds_eos", "plain"]
Architecture = Literal["llama", "qwen2", "gpt2"]

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{%- for m in messages -%}{%- if m['role'] == 'system' -%}"
    "{{ raise_exception('no system role here') }}{%- endif -%}"
    "<turn:{{ m['role'] }}>{{ m['content'] }}<end>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<turn:assistant>{%- endif -%}"
)
ADDS_EOS = (
    "{{ bos_token }}{%- for m in messages -%}<turn:{{ m['role'] }}>{{ m['content'] }}"
    "{{ eos_token }}\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<turn:assistant>{%- endif -%}"
)
SPECIAL: dict[str, dict[str, str]] = {
    "chatml": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"},
    "no_system": {"bos_token": "<s>", "eos_token": "<end>"},
    "adds_eos": {"bos_token": "<s>", "eos_token": "</s>"},
    "plain": {"eos_token": "<|endoftext|>"},
}
TEMPLATES = {"chatml": CHATML, "no_system": NO_SYSTEM, "adds_eos": ADDS_EOS, "plain": None}
WORDS = (
    "the cat sat on a mat and said hello to every small dog in town what is two plus three "
    "answer with one word only score rate this response from to please the capital of france is "
    "paris lima rome user assistant system yes no true false good bad question"
)


def make_tokenizer(
    template: Template = "chatml",
    chat_template: str | None = None,
    special: dict[str, str] | None = None,
    words: str = WORDS,
):
    """A byte-level BPE tokenizer trained on a few words; digits are split one by one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = SPECIAL[template] if special is None else special
    marks = list(dict.fromkeys([*special.values(), *(["<|endoftext|>"] * (template == "chatml"))]))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=marks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(itertools.repeat(words, 5), trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    made.chat_template = chat_template or TEMPLATES[template]
    return made


def make_tiny(
    folder: str | Path,
    *,
    seed: int = 0,
    template: Template = "chatml",
    architecture: Architecture = "llama",
    context: int = 512,
    hidden: int = 32,
    words: str = WORDS,
) -> Path:
    """Write a tiny random causal model with its tokenizer to ``folder`` and return the folder.

    Two layers, float32. Other ``words`` give another vocabulary.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(folder)
    tokenizer = make_tokenizer(template, words=words)
    common = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    common["bos_token_id"] = tokenizer.bos_token_id
    if architecture == "gpt2":
        sizes = {"n_embd": hidden, "n_layer": 2, "n_head": 2, "n_positions": context}
    else:
        sizes = {
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": context,
            "tie_word_embeddings": True,
        }
    config = AutoConfig.for_model(architecture, **common, **sizes, initializer_range=0.15)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_adapter(
    base: str | Path,
    folder: str | Path,
    *,
    rank: int = 4,
    seed: int = 0,
    scale: float = 0.3,
    targets: str | list[str] = "all-linear",
    **options: object,
) -> Path:
    """Write a random LoRA adapter for the model in ``base`` (its B matrices are not zero).

    ``options`` go to ``peft.LoraConfig``, such as ``use_rslora=True`` or ``use_dora=True``.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        config = LoraConfig(
            r=rank, lora_alpha=rank, target_modules=targets, task_type="CAUSAL_LM", **options
        )
        wrapped = get_peft_model(model, config)
        with torch.no_grad():
            for name, weight in wrapped.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0.0, scale)
                elif "modules_to_save" in name:
                    weight.add_(torch.randn_like(weight) * scale)
        wrapped.save_pretrained(str(folder))
    return Path(folder)
