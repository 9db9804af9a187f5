"""The folder of evaluation rows, and writing small files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder named by PHALANX_DATA; skips where there is none."""
    folder = Path(os.environ.get("PHALANX_DATA", ROOT / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no evaluation rows at {folder}")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write rows as JSONL, or text as it is; returns the path."""

    def put(content: list[Any] | str, name: str = "rows.jsonl") -> str:
        lines = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
        (tmp_path / name).write_text(lines, encoding="utf-8")
        return str(tmp_path / name)

    return put
