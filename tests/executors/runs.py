"""One small run, wherever its members work, and what of its ledger must not depend on that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.ledger import Ledger, run_ledger_path
from tests.tiny import make_adapter, make_tiny


def make_bases(folder: Path) -> dict[str, Path]:
    base = make_tiny(folder / "base", seed=1)
    return {"base": base, "adapter": make_adapter(base, folder / "adapter", rank=4, seed=2)}


def configuration(base: Path, adapter: Path, **more: Any) -> Config:
    """Three members of one base: a bare one, one with an adapter, one with a system prompt."""
    settings = {
        "iterations": 2,
        "seed": 3,
        "pool.members": [
            {"name": "ada", "model": str(base)},
            {"name": "bob", "model": str(base), "adapter": str(adapter)},
            {"name": "cora", "model": str(base), "system": "Answer shortly."},
        ],
        "instructions.source": "builtin:skills",
        "match.duels": 8,
        "answer.max_new_tokens": 8,
        "pairs.truncated": "allow",
        "pairs.keep": 1.0,
        "train.epochs": 1,
        "resources.threads": 1,
        "resources.batch_size": 4,
        "evaluate.tasks": [{"name": "skills", "source": "builtin:skills", "limit": 1}],
        "evaluate.max_new_tokens": 4,
    }
    return load("preset:sparta-small", {**settings, **more})


def results(folder: Path) -> dict[str, Any]:
    """Every table but the configuration's, and the adapters' bytes."""
    with Ledger(run_ledger_path(folder)) as ledger:
        found: dict[str, Any] = ledger.contents()
    del found["run"]
    found["adapters"] = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "adapters").rglob("adapter_*"))
    }
    assert len(found["adapters"]) == 12  # 2 iterations, 3 members, 2 files
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in one if one[name] != other.get(name)]
