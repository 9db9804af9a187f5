"""A small comparison of scripted members, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phalanx.comparing.loading import comparison_of
from phalanx.comparing.spec import Comparison, ComparisonFile

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "configs" / "compare" / "scripts" / "smoke.yaml"


def base(**changes: Any) -> dict[str, Any]:
    members = [
        {"name": name, "engine": "scripted", "model": f"script:{SCRIPT}"}
        for name in ("ada", "bob", "cora")
    ]
    task = {"name": "reviews", "source": "builtin:skills", "domains": ["sentiment"], "limit": 12}
    return {
        "iterations": 1,
        "pool": {"members": members},
        "instructions": {"source": str(ROOT / "configs" / "smoke" / "instructions.jsonl")},
        "judge": {"protocol": "expected"},
        "train": {"method": "none"},
        "match": {"duels": 6},
        "evaluate": {"tasks": [task]},
        **changes,
    }


def comparison(methods: dict[str, Any], *, folder: Path = ROOT, **settings: Any) -> Comparison:
    given = {"base": base(), "seeds": [1], "methods": methods, **settings}
    return comparison_of(ComparisonFile.model_validate(given), "c.yaml", folder)
