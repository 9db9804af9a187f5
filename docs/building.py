"""What ``mkdocs`` does besides rendering: the page of commands, pages without a place, small mends.

Named in ``mkdocs.yml`` under ``hooks``; not part of the site.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object
from mkdocs.structure.files import File, Files

_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


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


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The tables of settings have a layout of their own on a phone."""
    return f'<div class="settings">{html}</div>' if page.url == "configuration.html" else html


class Docstrings(Extension):
    """Docstrings as Markdown: roles (``:class:``) are left out, doctests are blocks of code."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = re.sub(r":(?:class|func|meth|mod|data|attr):`", "`", obj.docstring.value)
            obj.docstring.value = _DOCTEST.sub(r"```pycon\n\g<0>\n```", text)


def _pages(nav: Any) -> list[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in _pages(entry)]
