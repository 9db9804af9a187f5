"""How large a base or an adapter is, from headers and names alone: no weight is read.

Sizes are counted where a header says them and *guessed* elsewhere; a guess is always marked.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

from phalanx.config.rules import BUILTIN_BASES
from phalanx.config.schema import LoraSettings
from phalanx.errors import ConfigError

GGUF_BITS = {"Q2": 3.0, "Q3": 3.9, "Q4": 4.9, "Q5": 5.6, "Q6": 6.6, "Q8": 8.5, "F16": 16, "F32": 32}
"""Bits a weight, by the quantisation in the file name (block scales included)."""
MAX_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model's config.json says of its layers; ``kv`` is the width of keys and values.

    ``context``: the tokens that it can read and write; 0 where that is not known.
    """

    hidden: int
    layers: int
    intermediate: int
    kv: int
    vocabulary: int
    tied: bool = True
    context: int = 0

    @property
    def parameters(self) -> int:
        """Weights of a decoder with gated feed-forward layers (norms left out)."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv
        layer = attention + 3 * self.hidden * self.intermediate
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * layer

    def lora_parameters(self, settings: LoraSettings) -> int:
        """Weights of a new adapter. Named targets are counted as attention projections."""
        rank, hidden = settings.rank, self.hidden
        attention = 2 * rank * (hidden + hidden) + 2 * rank * (hidden + self.kv)
        feed_forward = 3 * rank * (hidden + self.intermediate)
        full = settings.targets == "all-linear"
        return self.layers * (attention + (feed_forward if full else 0))


SMOLLM2_135M = ModelShape(
    hidden=576, layers=30, intermediate=1536, kv=192, vocabulary=49152, tied=True, context=8192
)


@dataclass(frozen=True, slots=True)
class Size:
    """Parameters of a base, how that is known, and its shape where a config.json says it."""

    parameters: int | None
    how: str
    guessed: bool = False
    shape: ModelShape | None = None


def base_size(base: str) -> Size:
    """The size of ``builtin:NAME``, a folder, a ``.gguf`` file or a hub id; no network.

    Raises ConfigError for a folder whose files cannot be read.
    """
    if base.startswith("builtin:"):
        name = base.removeprefix("builtin:")
        return Size(BUILTIN_BASES.get(name), "known", shape=SMOLLM2_135M)
    if base.startswith("script:"):
        return Size(0, "scripted, no weights")
    base = base.removeprefix("hub:")
    path = Path(base).expanduser()
    if path.is_dir():
        try:
            return _folder_size(path)
        except ValueError as error:
            raise ConfigError(f"the base {base}: {error}") from error
    if path.is_file():
        return _gguf_size(path)
    cached = _cached_snapshot(base)
    if cached is not None:
        size = _folder_size(cached)
        if size.parameters is not None:
            return size
    return size_from_name(base)


def _folder_size(folder: Path) -> Size:
    shape = _read_shape(folder / "config.json")
    files = sorted(folder.glob("*.safetensors"))
    if files:
        counted = sum(safetensors_parameters(file) for file in files)
        return Size(counted, "counted in the safetensors headers", shape=shape)
    if shape is not None:
        return Size(shape.parameters, "computed from config.json", guessed=True, shape=shape)
    return size_from_name(folder.name)


def _gguf_size(path: Path) -> Size:
    match = re.search(r"(Q[234568]|F16|F32)", path.name.upper())
    bits = GGUF_BITS[match.group(1)] if match else GGUF_BITS["Q4"]
    parameters = int(path.stat().st_size * 8 / bits)
    return Size(parameters, f"guessed from the file size at {bits:g} bits a weight", guessed=True)


def size_from_name(name: str) -> Size:
    """``Qwen2.5-7B`` is about 7 billion; None where the name has no such number.

    >>> size_from_name("org/tiny-135M").parameters
    135000000
    """
    match = re.search(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bBmM])(?![A-Za-z])", name)
    if match is None:
        return Size(None, "unknown: not on this machine, and not in its name", guessed=True)
    experts, number, unit = match.groups()
    parameters = float(number) * (1e9 if unit in "bB" else 1e6) * int(experts or 1)
    return Size(int(parameters), "guessed from the name", guessed=True)


def _cached_snapshot(hub_id: str) -> Path | None:
    """The newest local copy of a hub model, or None."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    folder = cache / f"models--{hub_id.replace('/', '--')}"
    main = folder / "refs" / "main"
    if main.is_file():
        snapshot = folder / "snapshots" / main.read_text(encoding="utf-8").strip()
        return snapshot if snapshot.is_dir() else None
    return None


def safetensors_parameters(path: Path) -> int:
    """Number of values in a safetensors file, from its JSON header alone.

    Raises ValueError where the file is not a safetensors file.
    """
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= MAX_HEADER:
            raise ValueError(f"{path} is not a safetensors file")
        header = json.loads(file.read(length))
    return sum(prod(entry["shape"]) for key, entry in header.items() if key != "__metadata__")


def adapter_parameters(adapter: str) -> int | None:
    """Weights of an adapter in a folder; None for one that is elsewhere."""
    files = sorted(Path(adapter).expanduser().glob("*.safetensors"))
    return sum(safetensors_parameters(file) for file in files) if files else None


def _read_shape(path: Path) -> ModelShape | None:
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    data = data.get("text_config", data)  # models that also see keep the text part below
    wanted = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
    if not all(isinstance(data.get(key), int) for key in wanted):
        return None
    heads = data.get("num_attention_heads") or 1
    width = data.get("head_dim") or data["hidden_size"] // heads
    return ModelShape(
        hidden=data["hidden_size"],
        layers=data["num_hidden_layers"],
        intermediate=data["intermediate_size"],
        kv=width * (data.get("num_key_value_heads") or heads),
        vocabulary=data["vocab_size"],
        tied=bool(data.get("tie_word_embeddings", False)),
        context=data.get("max_position_embeddings") or 0,
    )
