"""Small scripted pools for tests of commands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from phalanx.cli import main


def write_pool(
    folder: Path, names: Sequence[str], rules: str, more: str = "", engine: str = "scripted"
) -> Path:
    """A configuration whose members all answer by ``rules``, in ``folder``; returns its path."""
    script = folder / "script.yaml"
    script.write_text(rules, encoding="utf-8")
    members = "".join(
        f"    - {{name: {name}, engine: {engine}, model: 'script:{script}'}}\n" for name in names
    )
    path = folder / "config.yaml"
    path.write_text(f"seed: 3\npool:\n  members:\n{members}{more}\n", encoding="utf-8")
    return path


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def command(*words: object, stdin: str = "") -> SimpleNamespace:
    """``phalanx WORDS`` in this process: ``returncode``, ``stdout``, ``stderr``."""
    shown, said = io.StringIO(), io.StringIO()
    before = (sys.argv, sys.stdin)
    sys.argv, sys.stdin = ["phalanx", *map(str, words)], io.StringIO(stdin)
    try:
        with redirect_stdout(shown), redirect_stderr(said):
            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        sys.argv, sys.stdin = before
    return SimpleNamespace(returncode=code, stdout=shown.getvalue(), stderr=said.getvalue())
