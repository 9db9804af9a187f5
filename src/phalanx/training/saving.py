"""A trained adapter on disk: whole or not there, and recognised when the same is asked again."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import TrainingError
from phalanx.types import Member, TrainResult
from phalanx.weights.adapters import CONFIG, TENSORS, adapter_hash

if TYPE_CHECKING:
    from peft import PeftModel

MANIFEST = "training.json"
FORMAT = 1


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


def write_manifest(folder: Path, key: str, inputs: dict[str, Any], result: TrainResult) -> None:
    """The last file of a finished folder: what went in, and the complete result."""
    body = dataclasses.asdict(result)
    del body["member"]["adapter"]  # it is the folder itself, wherever that is moved
    has_adapter = (folder / TENSORS).exists()
    manifest = {
        "format": FORMAT,
        "key": key,
        "adapter_hash": adapter_hash(folder) if has_adapter else None,
        **inputs,
        "result": body,
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
    path = folder / MANIFEST
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def finished(folder: Path, key: str, member: Member, version: int) -> TrainResult | None:
    """The result of an earlier training with the same inputs; None where there is no folder.

    Raises :class:`TrainingError` when the folder is something else, or its adapter was changed.
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
    stored = manifest["adapter_hash"]
    whole = all((folder / name).is_file() for name in (CONFIG, TENSORS))
    now = adapter_hash(folder) if whole else None
    if now != stored:
        raise TrainingError(
            f"{member.name}: the adapter in '{folder}' is not the one that training wrote "
            f"(hash {now}, written {stored}); remove the folder and run again"
        )
    body = manifest["result"]
    return TrainResult(
        member=trained_member(member, folder, version, stored is not None),
        num_examples=body["num_examples"],
        num_dropped=body["num_dropped"],
        steps=tuple(body["steps"]),
        summary=body["summary"],
        seconds=body["seconds"],
    )


def trained_member(member: Member, folder: Path, version: int, has_adapter: bool) -> Member:
    adapter = str(folder.resolve()) if has_adapter else None
    return dataclasses.replace(member, adapter=adapter, version=version)
