"""The house rules that a script can check: layers, sizes, light imports, plain language."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "phalanx"
FILES = sorted(PACKAGE.rglob("*.py"))


def layers() -> dict[str, int]:
    """The table of docs/architecture.md: module or folder name -> layer."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table: dict[str, int] = {}
    for layer, names in re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE):
        for name in re.findall(r"`([a-z_]+)/?`", names):
            table[name] = int(layer)
    return table


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_units(path: Path) -> set[str]:
    units: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            parts = node.module.split(".")
            if parts[0] == "phalanx":
                units |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "phalanx" and len(parts) > 1:
                    units.add(parts[1])
    return units


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_downhill(path):
    table = layers()
    here = unit(path)
    if here == "__init__":
        return
    assert here in table, f"{here} is not in the layer table of docs/architecture.md"
    for other in imported_units(path) - {here}:
        if other in table:
            assert table[other] < table[here], f"{here} (layer {table[here]}) imports {other}"
        else:
            pytest.fail(f"{path.name} imports {other}, which is not in the layer table")


def functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
    assert not [(name, lines) for name, lines in functions(path) if lines > 80]


def test_importing_phalanx_is_light():
    code = (
        "import sys, phalanx, phalanx.cli, phalanx.plan, phalanx.config\n"
        "heavy = {'torch', 'transformers', 'peft', 'trl', 'datasets', 'accelerate', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_help_loads_neither_the_schema_nor_numpy():
    code = (
        "import sys\n"
        "from phalanx.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'pydantic', 'numpy', 'scipy', 'phalanx.config'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_nothing_unpickles_and_remote_code_is_never_on_by_default():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "pickle.load" not in text, path
        assert not re.search(r"trust_remote_code\s*=\s*True", text), path


def test_no_absolute_paths_of_one_machine():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yaml", ".toml", ".j2", ".txt"} and path.is_file():
            assert not re.search(r"(?<![\w.])/(work|root|home)/", path.read_text("utf-8")), name
