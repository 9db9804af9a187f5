"""What every item is measured with: the model, its adapters, the instructions, and sizes."""

from __future__ import annotations

import functools
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.types import Member

ROOT = Path(__file__).resolve().parent.parent
EMBEDDED = "builtin:smollm2-135m"
# Dimensions of published models, for weights drawn at random: speed needs no knowledge.
RANDOM = {
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, True),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, True),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, False),
}
_SUBJECTS = (
    "clock", "bridge", "kite", "sailing boat", "water pump", "lamp", "camera", "piano", "bicycle",
    "lighthouse", "windmill", "telescope", "compass", "printing press", "steam engine", "lock",
    "refrigerator", "radio", "elevator", "greenhouse", "parachute", "barometer", "sewing machine",
    "canal", "telephone", "balloon", "violin", "thermometer", "dam", "satellite", "loom", "battery",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """``model`` is a folder of a base, whose parent holds what else is made for it."""

    model: Path
    device: str
    quick: bool
    scratch: Path

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def threads(self) -> int | None:
        """CPU threads of the side-by-side items: one in the smoke test, torch's choice else."""
        return 1 if self.quick else None

    def members(self, count: int) -> list[Member]:
        """Members of the one base, each with a LoRA adapter of its own."""
        names = [f"member-{number}" for number in range(count)]
        return [
            Member(name, str(self.model), str(self._adapter(number)))
            for number, name in enumerate(names)
        ]

    def _adapter(self, number: int) -> Path:
        folder = self.scratch / "adapters" / f"member-{number}"
        if not folder.exists():
            make_adapter(self.model, folder, number)
        return folder


def instructions(count: int) -> list[str]:
    """Open questions of like length, whose answers are longer than any limit used here."""
    forms = (
        "Explain in detail, in five long paragraphs, how a {} works and why people use it.",
        "Tell a long story of many pages in which a {} is lost and found again by a child.",
    )
    return [
        forms[number // len(_SUBJECTS) % 2].format(_SUBJECTS[number % len(_SUBJECTS)])
        for number in range(count)
    ]


def make_model(name: str, folder: Path) -> Path:
    """The folder of a base: what Phalanx knows under the name, ``random:NAME``, or ``tiny``."""
    if name == "tiny":
        from tests.tiny import make_tiny

        return make_tiny(folder / "tiny", context=4096, words=" ".join(instructions(64)))
    from phalanx.weights.builtin import resolve_model

    if name.startswith("random:"):
        return _random_model(name.removeprefix("random:"), folder)
    source = resolve_model(name, lambda text: print(text, file=sys.stderr))
    return Path(source)


def _random_model(name: str, folder: Path) -> Path:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from phalanx.weights.builtin import resolve_model

    if name not in RANDOM:
        raise SystemExit(f"no dimensions for 'random:{name}'; known: {', '.join(RANDOM)}")
    hidden, inner, layers, heads, groups, tied = RANDOM[name]
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(EMBEDDED))
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        tie_word_embeddings=tied,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    target = folder / name
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def make_adapter(base: Path, folder: Path, seed: int) -> Path:
    """A LoRA adapter of rank 16 on all linear layers that changes the base a little."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    wrapped = get_peft_model(model, lora)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.01)
    scratch = folder.with_name(f".{folder.name}")
    wrapped.save_pretrained(str(scratch))
    shutil.move(scratch, folder)
    return folder


@functools.cache
def dtype_of(setting: Setting) -> Any:
    """The precision that Phalanx would choose; the plain side gets the same."""
    import torch

    from phalanx.weights.store import _dtype

    return _dtype("auto", torch.device(setting.device))


def weights_of(setting: Setting, threads: int | None = None, **options: Any) -> Any:
    from phalanx.weights.store import Weights

    return Weights(device=setting.device, threads=threads or setting.threads, **options)
