"""The code of a Markdown page, run as a reader would: in order, in one folder.

A block with ``title="NAME"`` is a file of that name. ``sh`` blocks run in bash, with what they
export; ``python`` blocks run together as one program would, each in the variables of the last.
``text`` is what the block before it prints: each of its lines must be there, ``…`` stands for
anything. ``console`` blocks are shown, and not run: the page says so.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    kind: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page. Raises AssertionError where a fence is not understood."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(match[1], match[2] or "", match[3], text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]
    assert 2 * len(found) == len(re.findall(r"^ *```", text, re.MULTILINE)), page
    return found


def run_page(page: Path, folder: Path, replaced: dict[str, str] | None = None) -> list[str]:
    """Run a page in ``folder``; the kinds of the blocks that were run, in order.

    ``replaced`` is what stands on the page for what only a test knows, such as a free port.
    """
    variables: dict[str, Any] = {"__name__": "__page__"}
    printed, done = "", []
    (folder / ".environment").touch()
    for block in blocks(page):
        text = block.text
        for old, new in (replaced or {}).items():
            text = text.replace(old, new)
        where = f"{page.name}, line {block.line}"
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(text, encoding="utf-8")
        elif block.kind == "sh":
            printed = _shell(text, folder, where)
        elif block.kind == "python":
            printed = _python(text, folder, where, variables)
        elif block.kind == "text":
            assert_printed(text, printed, where)
        else:
            assert block.kind in ("console", "yaml", "json"), f"{where}: {block.kind}"
            continue
        done.append(block.kind)
    return done


def assert_printed(expected: str, printed: str, where: str) -> None:
    """Every line of ``expected``, in its order, is in ``printed``; spaces count as one."""
    rest = " ".join(printed.split())
    for line in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = ".*?".join(re.escape(part) for part in line.split("…"))
        found = re.search(pattern, rest, re.DOTALL)
        assert found, f"{where}: {line!r} is not what is printed:\n{printed}"
        rest = rest[found.end() :]


def _shell(text: str, folder: Path, where: str) -> str:
    whole = f"source ./.environment\n{text}\nexport -p > ./.environment\n"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", whole], cwd=folder, env=environment, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, f"{where}: exit code {ended.returncode}\n{ended.stdout}"
    return ended.stdout


def _python(text: str, folder: Path, where: str, variables: dict[str, Any]) -> str:
    shown = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(shown):
        exec(compile(text, where, "exec"), variables)
    return shown.getvalue()
