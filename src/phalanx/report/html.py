"""One self-contained HTML page of a run: no request, everything escaped; the one script that it has
shows duels out of data in the file."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from phalanx.ledger import Ledger
from phalanx.placing import placed
from phalanx.report.duel_file import MAX_BYTES, DuelFile, duel_file
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


def write_html(facts: RunFacts, path: Path | str, ledger: Ledger | None = None) -> None:
    """Write the page to ``path``; a reader never sees half of it.

    With the ``ledger`` it has the browser of duels, and as much of their texts as there is room
    for in a file of :data:`~phalanx.report.duel_file.MAX_BYTES`.
    """
    page = render(facts)
    duels = duel_file(ledger, MAX_BYTES - len(page.encode("utf-8", "replace"))) if ledger else None
    write_whole(path, render(facts, duels) if duels else page)


def write_whole(path: Path | str, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    with placed(path) as place:
        place.write_text(text, encoding="utf-8", errors="replace")


def render(facts: RunFacts, duels: DuelFile | None = None) -> str:
    """The page as text: the sections in a frame, the browser of duels last."""
    return (
        environment_of_page()
        .get_template("report.html.j2")
        .render(
            css=Markup(STYLE.read_text(encoding="utf-8")),
            name=run_name(facts),
            subtitle=subtitle(facts),
            sections=sections(facts),
            duels=duels,
        )
    )
