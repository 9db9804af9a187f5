"""The notebook from its page: ``python -m tests.docs.notebook`` runs it and writes it anew.

The page is Markdown, so that it is read and reviewed as text; the ``.ipynb`` beside it has the same
cells with what they printed and showed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.docs.pages import FENCE, ROOT

PAGE = ROOT / "docs/notebooks/first-run.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
PICTURE = PAGE.with_suffix(".svg")


def cells() -> list[tuple[str, str]]:
    """(``markdown`` or ``code``, text) of each cell; shown output and pictures are no cells."""
    text, found, start = PAGE.read_text(encoding="utf-8"), [], 0
    for match in FENCE.finditer(text):
        found.append(("markdown", text[start : match.start()]))
        if match[1] == "python":
            found.append(("code", match[3]))
        start = match.end()
    found.append(("markdown", text[start:]))
    kept = [(kind, _without_pictures(body).strip()) for kind, body in found]
    return [(kind, body) for kind, body in kept if body]


def _without_pictures(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("!["))


def executed(folder: Path) -> list[dict[str, Any]]:
    """The cells as a notebook has them, run one after the other in ``folder``."""
    made: list[dict[str, Any]] = []
    variables: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for number, (kind, text) in enumerate(cells()):
            cell: dict[str, Any] = {
                "cell_type": kind, "id": f"cell-{number}", "metadata": {},
                "source": text.splitlines(keepends=True),
            }  # fmt: skip
            if kind == "code":
                count = 1 + sum(one["cell_type"] == "code" for one in made)
                cell |= {"execution_count": count, "outputs": _outputs(text, variables, count)}
            made.append(cell)
    return made


def _outputs(text: str, variables: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    shown, value = io.StringIO(), None
    with contextlib.redirect_stdout(shown):
        exec(compile(tree, PAGE.name, "exec"), variables)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), variables)
    outputs: list[dict[str, Any]] = []
    if shown.getvalue():
        lines = shown.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        for mime, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
            if hasattr(value, method):
                data[mime] = getattr(value, method)().splitlines(keepends=True)
        if "image/svg+xml" in data:
            data["text/plain"] = [type(value).__name__]  # the address of an object says nothing
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": data,
            }
        )
    return outputs


def printed(made: list[dict[str, Any]]) -> list[str]:
    """What each code cell prints and shows as text."""
    texts = []
    for cell in made:
        if cell["cell_type"] == "code":
            parts = [out.get("text") or out["data"]["text/plain"] for out in cell["outputs"]]
            texts.append("\n".join("".join(lines) for lines in parts))
    return texts


def pictures(made: list[dict[str, Any]]) -> list[str]:
    """The pictures among the outputs."""
    data = [out["data"] for cell in made for out in cell.get("outputs", []) if "data" in out]
    return ["".join(one["image/svg+xml"]) for one in data if "image/svg+xml" in one]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = executed(Path(folder))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    NOTEBOOK.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (picture,) = pictures(made)
    PICTURE.write_text(picture + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
