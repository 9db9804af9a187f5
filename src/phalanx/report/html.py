"""One self-contained HTML page of a run: no script, no request, everything escaped."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from phalanx.placing import placed
from phalanx.report.headlines import finding, headline, notes, subtitle
from phalanx.report.paging import PageSection, environment_of_page, sections
from phalanx.report.records import RunFacts
from phalanx.report.words import run_name

__all__ = [
    "STYLE",
    "PageSection",
    "finding",
    "headline",
    "notes",
    "render",
    "sections",
    "write_html",
    "write_whole",
]

STYLE = Path(__file__).parent / "report.css"
"""The style sheet of the fragments; the live page serves it, the report file has it inside."""


def write_html(facts: RunFacts, path: Path | str) -> None:
    """Write the page to ``path``; a reader never sees half of it."""
    write_whole(path, render(facts))


def write_whole(path: Path | str, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    with placed(path) as place:
        place.write_text(text, encoding="utf-8", errors="replace")


def render(facts: RunFacts) -> str:
    """The page as text: the sections in a frame."""
    return (
        environment_of_page()
        .get_template("report.html.j2")
        .render(
            css=Markup(STYLE.read_text(encoding="utf-8")),
            name=run_name(facts),
            subtitle=subtitle(facts),
            sections=sections(facts),
        )
    )
