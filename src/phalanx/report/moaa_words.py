"""Sections and tables of words, and how the method moaa's numbers are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableView:
    """A table of texts; the last column may be long. ``left`` are the columns of words.

    A ``detail`` is for the page and the Markdown, not for a terminal.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: tuple[int, ...] = (0, 1)
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A section: sentences, then tables. ``id`` is its anchor on the page."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[TableView, ...] = ()


def stage_name(generation: int, kind: str) -> str:
    """``1 sft``: the stage of the first generation."""
    return f"{generation} {kind}"


def money(value: float | None) -> str:
    """Four digits; a dash where nobody has a price."""
    return "–" if value is None else f"{value:,.4g}"


def p_value(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")
