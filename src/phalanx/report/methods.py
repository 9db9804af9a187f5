"""The methods that there are, as a table for a terminal; 80 columns suffice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

KINDS = {
    "several": "Several models train together",
    "single": "Every learner trains by itself",
    "answer": "The pool answers together, and nobody trains",
    "none": "Nobody trains",
}
"""What a kind of method means, in the order in which they are listed."""


def methods_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """One line and its paper for each method, under its kind. ``rows``: those of
    ``phalanx.list_methods``."""
    parts: list[RenderableType] = []
    for kind, words in KINDS.items():
        mine = [row for row in rows if row["kind"] == kind]
        if not mine:
            continue
        parts += [Text(("\n" if parts else "") + words, style="bold")]
        for row in mine:
            line = Text.assemble((row["name"], "bold cyan"), f"  {row['title']}")
            parts.append(Padding(line, (0, 0, 0, 2)))
            parts.append(Padding(Text(row["paper"], style="dim"), (0, 0, 0, 4)))
    return Group(*parts)
