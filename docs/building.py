"""What ``mkdocs`` does besides rendering: the page of commands, and pages without a place.

Named in ``mkdocs.yml`` under ``hooks``; not part of the site.
"""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """Add the page of all commands, made from the program as it is now."""
    from phalanx.cli.document import document

    files.append(File.generated(config, "reference/cli.md", content=document()))
    known = set(_pages(config.nav))
    others = [
        file.src_uri
        for file in files.documentation_pages()
        if file.src_uri not in known and not file.inclusion.is_excluded()
    ]
    if others:
        config.nav = [*config.nav, {"More": sorted(others)}]
    return files


def _pages(nav: Any) -> list[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _pages(entry)]
