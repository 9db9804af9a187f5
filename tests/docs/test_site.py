"""The documentation site: built without a warning, whole, and asking nothing of other machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page

LOADS = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(https?:)?//|<link[^>]*href=\"?https?://"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "")
    return folder


def test_every_page_is_there_and_can_be_reached(site):
    front = (site / "index.html").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    for page in [*pages, Path("reference/cli.md")]:
        name = (
            page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")
        )
        assert (site / name).is_file(), page
        assert re.search(rf'href="?{re.escape(str(name))}["# >]', front), f"{page} has no place"
    assert not (site / "building.py").exists()


def test_the_reference_has_every_verb_and_option(site):
    from typer.main import get_command

    from phalanx.cli import app

    page = (site / "reference/cli.html").read_text(encoding="utf-8")
    commands = get_command(app).commands
    starts = {name: re.search(rf'id="?phalanx-{name}[" >]', page).start() for name in commands}
    for name, start in starts.items():
        section = page[start : min([at for at in starts.values() if at > start], default=None)]
        for param in commands[name].params:
            for option in param.opts if param.opts[0].startswith("-") else []:
                assert re.search(rf"[ >]{option}\b", section), f"{name} {option}"


def test_the_reference_has_every_public_name(site):
    import phalanx

    page = (site / "reference/python.html").read_text(encoding="utf-8")
    for name in set(phalanx.__all__) - {"Config", "__version__"}:  # the first has its own page
        assert re.search(rf'id="?phalanx[a-z_.]*\.{name}[" >]', page), name
    assert not re.search(r":(class|func|meth):|<blockquote", page)  # docstrings are Markdown there


def test_the_site_asks_nothing_of_other_machines(site):
    for page in site.rglob("*.html"):
        assert not LOADS.search(page.read_text(encoding="utf-8")), page


def test_pages_open_from_disk_without_a_request_or_an_error(site, chromium):
    asked: list[str] = []
    errors: list[str] = []
    with chromium.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in ("index", "concepts", "reference/python", "configuration"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.locator("h1").first.is_visible()
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{name} is {wide} pixels wider than a phone"
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []


def test_the_quick_start(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    done = run_page(ROOT / "docs/quickstart.md", tmp_path)
    assert done.count("sh") == 2
    assert (tmp_path / "runs/first/report.html").is_file()
    assert (tmp_path / "mine.yaml").is_file()
