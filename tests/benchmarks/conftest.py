"""Writing small files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write rows as JSONL, or text as it is; returns the path."""

    def put(content: list[Any] | str, name: str = "rows.jsonl") -> str:
        lines = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
        (tmp_path / name).write_text(lines, encoding="utf-8")
        return str(tmp_path / name)

    return put
