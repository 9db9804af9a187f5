"""LoRA adapters: found or refused, loaded with PEFT, merged exactly, taken off without a trace.

A missing or misfitting adapter is an error; the base never answers in its place.
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import LoraSettings
from phalanx.errors import EngineError, MissingPackage

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from peft.tuners.lora.layer import LoraLayer

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def resolve_adapter(source: str, owner: str = "") -> Path:
    """The folder of an adapter: a PEFT folder, or ``hub:org/name`` (downloaded once).

    Raises :class:`EngineError` that names the folder, what it lacks, and the adapters beside it.
    """
    who = f"{owner}: " if owner else ""
    if source.startswith("hub:"):
        return _from_hub(source.removeprefix("hub:"), who)
    folder = Path(source).expanduser()
    missing = [part for part in (CONFIG, TENSORS) if not (folder / part).is_file()]
    if not missing:
        return folder
    lack = "does not exist" if not folder.is_dir() else f"has no {' and no '.join(missing)}"
    beside = []
    if folder.parent.is_dir():
        beside = sorted(str(found.parent) for found in folder.parent.glob(f"*/{CONFIG}"))
    shown = ", ".join(beside[:20]) or "none"
    raise EngineError(f"{who}the adapter folder '{source}' {lack}; adapters beside it: {shown}")


def _from_hub(repository: str, who: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingPackage("huggingface_hub", "hf", "adapters from the hub") from error
    try:
        folder = snapshot_download(repository, allow_patterns=[CONFIG, TENSORS])
    except Exception as error:
        raise EngineError(
            f"{who}the adapter 'hub:{repository}' could not be fetched: {error}"
        ) from error
    return resolve_adapter(folder, who.removesuffix(": "))


def hash_files(paths: Iterable[Path]) -> str:
    """A content hash of files in this order, 20 hexadecimal digits.

    A file is read again only where its size or time is another.
    """
    parts = [(path, path.stat()) for path in paths]
    return _hash_of(tuple((str(path), s.st_size, s.st_mtime_ns) for path, s in parts))


@functools.lru_cache(maxsize=512)
def _hash_of(parts: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.blake2b(digest_size=10)
    for path, _, _ in parts:
        with open(path, "rb") as stream:
            while chunk := stream.read(1 << 20):  # a whole model may not fit in memory
                digest.update(chunk)
    return digest.hexdigest()


def adapter_hash(folder: str | Path) -> str:
    """A content hash of an adapter folder (configuration and weights), 20 hexadecimal digits."""
    return hash_files(Path(folder) / name for name in (CONFIG, TENSORS))


def load_adapter(
    model: torch.nn.Module, folder: Path, owner: str, trainable: bool = False
) -> PeftModel:
    """Put the adapter, called ``default``, on a pristine base.

    Raises :class:`EngineError` when it was made for another model: wrong shapes, layers that do
    not exist here, or weights left over.
    """
    from peft import PeftModel

    _refuse_changed_base(folder, owner)
    problem: Exception | str
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            wrapped = PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    except (RuntimeError, ValueError, KeyError) as error:
        problem = error
    else:
        problem = _leftovers(wrapped, folder)
        if not problem:
            return wrapped
    made_for = _made_for(folder)
    raise EngineError(
        f"{owner}: the adapter '{folder}' does not fit its base '{model.name_or_path}' "
        f"(it was made for '{made_for}'): {str(problem)[:400]}"
    )


def _refuse_changed_base(folder: Path, owner: str) -> None:
    """PiSSA, OLoRA and their kin rewrite the base's own weights when PEFT loads them."""
    start = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("init_lora_weights")
    if str(start).lower().startswith(("pissa", "olora", "corda", "loftq", "lora_ga")):
        raise EngineError(
            f"{owner}: the adapter '{folder}' was made with init_lora_weights={start!r}, which "
            "changes the base's own weights, but members share their base; convert it to a plain "
            "LoRA (PEFT: save_pretrained with path_initial_model_for_weight_conversion)"
        )


def _made_for(folder: Path) -> str:
    from peft import PeftConfig

    return str(PeftConfig.from_pretrained(folder).base_model_name_or_path)


def _leftovers(wrapped: PeftModel, folder: Path) -> str:
    """What the file has and the model did not take, or the other way round; "" if all fits."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    with safe_open(folder / TENSORS, framework="pt") as stored:
        in_file = set(stored.keys())
    state = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    absent = sorted(key for key in set(state) - in_file)
    extra = sorted(key for key in in_file - set(state) if "lora_" in key)
    if absent:
        return f"{len(absent)} layers get no weights from the file, such as {absent[0]}"
    if extra:
        return f"{len(extra)} weights of the file have no place here, such as {extra[0]}"
    return ""


def new_adapter(model: torch.nn.Module, lora: LoraSettings) -> PeftModel:
    """A fresh trainable adapter called ``default``. Its first weights come from torch's global
    random numbers: seed them before."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=_targets(model, lora.targets),
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise EngineError(
            f"no adapter can be put on '{model.name_or_path}': {error}; see `train.lora.targets`"
        ) from error


def _targets(model: torch.nn.Module, targets: list[str] | str) -> list[str] | str:
    if targets != "attention":
        return targets
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    found = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and "att" in name.lower()
    }
    if not found:
        raise EngineError(
            f"no attention projections were found in '{model.name_or_path}'; "
            "name the modules in `train.lora.targets`"
        )
    return sorted(found)


def plain_layers(wrapped: PeftModel) -> dict[str, LoraLayer] | None:
    """Base weight name -> LoRA layer; None where the adapter is more than deltas on weights.

    DoRA, trained biases, ``modules_to_save``, trained tokens, quantised and tied weights cannot
    be written as deltas on a base weight; such an adapter is served as it is. The layers go on
    giving their deltas after the adapter was taken off.
    """
    from peft.tuners.lora import Linear
    from peft.tuners.lora.layer import LoraLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    base = wrapped.base_model.model
    owners = Counter(id(w) for _, w in base.named_parameters(remove_duplicate=False))
    layers: dict[str, LoraLayer] = {}
    for name, layer in base.named_modules():
        if isinstance(layer, AuxiliaryTrainingWrapper):
            return None
        if not isinstance(layer, LoraLayer):
            continue
        if not _is_plain(layer, Linear) or owners[id(layer.get_base_layer().weight)] > 1:
            return None
        layers[f"{name}.weight"] = layer
    return layers


def num_bytes(layers: dict[str, LoraLayer]) -> int:
    """Memory that the adapter's own weights take."""
    return sum(
        weight.nbytes
        for layer in layers.values()
        for part in (layer.lora_A, layer.lora_B)
        for weight in part.parameters()
    )


def _is_plain(layer: Any, linear: type) -> bool:
    return (
        type(layer) is linear
        and not layer.lora_variant
        and not any(layer.lora_bias.values())
        and layer.get_base_layer().weight.is_floating_point()
    )


def merged(model: torch.nn.Module, folder: Path, owner: str) -> torch.nn.Module:
    """The model with the adapter's changes in its own weights, and no adapter any more.

    Raises :class:`EngineError` for an adapter that does not fit, whose sum is not finite, or that
    sits on weights which two layers share (the other layer would be changed, too).
    """
    from peft.tuners.lora.layer import LoraLayer

    wrapped = load_adapter(model, folder, owner)
    owners = Counter(
        id(w) for _, w in wrapped.base_model.model.named_parameters(remove_duplicate=False)
    )
    for name, layer in wrapped.named_modules():
        if isinstance(layer, LoraLayer) and owners[id(layer.get_base_layer().weight)] > 1:
            raise EngineError(
                f"{owner}: the adapter '{folder}' is on {name}, whose weights another layer "
                "shares, so it cannot be merged into the model; train with weights: lora"
            )
    try:
        return wrapped.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise EngineError(
            f"{owner}: the adapter '{folder}' cannot be merged into the model: {error}"
        ) from error


def take_off(wrapped: PeftModel) -> torch.nn.Module:
    """The base without any adapter. PEFT's own unload would leave ``modules_to_save`` behind."""
    from peft.utils.other import ModulesToSaveWrapper

    base = wrapped.base_model.model
    originals = {
        name: module.original_module
        for name, module in base.named_modules()
        if isinstance(module, ModulesToSaveWrapper)
    }
    bare = wrapped.unload()
    for name, module in originals.items():
        parent, _, child = name.rpartition(".")
        setattr(bare.get_submodule(parent), child, module)
    return bare
