"""Whole models on disk: a folder of safetensors, its tokenizer and its configuration."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.weights.adapters import hash_files
from phalanx.weights.builtin import without_bars

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CONFIG, GENERATION = "config.json", "generation_config.json"


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: Path | str,
    folder: Path,
) -> None:
    """Write all that transformers needs to load the model from ``folder`` alone.

    ``source`` is where it was loaded from: what ends a turn (the generation config) and the model's
    own code, if it has any, are taken from there.
    """
    from transformers import GenerationConfig

    with without_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    try:
        generation = GenerationConfig.from_pretrained(source)
    except OSError:  # the source has none; an empty one would hide what its config says
        (folder / GENERATION).unlink(missing_ok=True)
    else:
        generation.to_json_file(folder / GENERATION)
    if Path(source).is_dir():
        for code in Path(source).glob("*.py"):
            shutil.copyfile(code, folder / code.name)


def model_hash(folder: str | Path) -> str:
    """A content hash of a model folder (configuration and weights), 20 hexadecimal digits."""
    weights = sorted(Path(folder).glob("*.safetensors"))
    return hash_files([Path(folder) / CONFIG, *weights])
