"""Trained weights on disk: whole or not there, and recognised when the same is asked again.

A folder holds an adapter, or a whole model where all weights were trained.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from phalanx.errors import TrainingError
from phalanx.types import Member, TrainResult
from phalanx.weights import models
from phalanx.weights.adapters import CONFIG, TENSORS, adapter_hash, resolve_adapter

if TYPE_CHECKING:
    from peft import PeftModel

MANIFEST = "training.json"
FORMAT = 1
Held = Literal["adapter", "model", ""]
"""What a folder of a training holds; "" where nothing was trained and there was no adapter."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder that becomes ``folder`` in one rename when the block ends without error.

    What a killed process left in the scratch folder is thrown away at the next try.
    """
    scratch = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def save_adapter(model: PeftModel, folder: Path, base: str) -> None:
    """Write the adapter ``default`` alone, naming the base as the member does.

    The configuration is written with sorted lists: PEFT keeps its targets in a set, whose order
    changes from one process to the next.
    """
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(str(folder), selected_adapters=["default"], save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    for name, value in config.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            config[name] = sorted(value)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def copy_adapter(source: Path, folder: Path) -> None:
    for name in (CONFIG, TENSORS):
        shutil.copyfile(source / name, folder / name)


def held_in(folder: Path) -> Held:
    if (folder / TENSORS).is_file():
        return "adapter"
    return "model" if (folder / models.CONFIG).is_file() else ""


def _hashes(folder: Path) -> dict[str, str | None]:
    """``adapter_hash`` and ``model_hash`` of what the folder holds, None for what it does not."""
    adapter = all((folder / name).is_file() for name in (CONFIG, TENSORS))
    model = (folder / models.CONFIG).is_file()
    return {
        "adapter_hash": adapter_hash(folder) if adapter else None,
        "model_hash": models.model_hash(folder) if model else None,
    }


def write_manifest(folder: Path, key: str, inputs: dict[str, Any], result: TrainResult) -> None:
    """The last file of a finished folder: what went in, and the complete result."""
    body = dataclasses.asdict(result)
    # What was trained is the folder itself, wherever that is moved.
    del body["notes"]  # of this start alone
    del body["member"]["base" if held_in(folder) == "model" else "adapter"]
    manifest = {"format": FORMAT, "key": key, **_hashes(folder), **inputs, "result": body}
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
    path = folder / MANIFEST
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def finished(folder: Path, key: str, member: Member, version: int) -> TrainResult | None:
    """The result of an earlier training with the same inputs; None where there is no folder.

    Raises :class:`TrainingError` when the folder is something else, or its weights were changed.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{member.name}: '{folder}' exists and is no finished training (its {MANIFEST} cannot "
            f"be read: {error}); move it away or choose another output folder"
        ) from error
    if manifest.get("format") != FORMAT or manifest.get("key") != key:
        raise TrainingError(
            f"{member.name}: '{folder}' holds a training with other examples, settings, seed or "
            "start; move it away or choose another output folder"
        )
    for name, now in _hashes(folder).items():
        stored = manifest.get(name)
        if now != stored:
            what = name.removesuffix("_hash")
            raise TrainingError(
                f"{member.name}: the {what} in '{folder}' is not the one that training wrote "
                f"(hash {now}, written {stored}); remove the folder and run again"
            )
    body = manifest["result"]
    return TrainResult(
        member=trained_member(member, folder, version, held_in(folder)),
        num_examples=body["num_examples"],
        num_dropped=body["num_dropped"],
        steps=tuple(body["steps"]),
        summary=body["summary"],
        seconds=body["seconds"],
    )


def trained_member(member: Member, folder: Path, version: int, held: Held) -> Member:
    """The new version: on its base with the folder's adapter, or on the folder as its base."""
    place = str(folder.resolve())
    if held == "model":
        return dataclasses.replace(member, base=place, adapter=None, version=version)
    adapter = place if held == "adapter" else None
    return dataclasses.replace(member, adapter=adapter, version=version)


def start_of(member: Member) -> list[str | None]:
    """What tells the weights that a training starts from, wherever their folder lies."""
    base, adapter = member.base, None
    if (Path(base) / MANIFEST).is_file() and held_in(Path(base)) == "model":
        base = models.model_hash(base)
    if member.adapter is not None:
        adapter = adapter_hash(resolve_adapter(member.adapter, member.name))
    return [base, adapter]
