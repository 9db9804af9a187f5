"""The report file on a phone and on paper: nothing is cut, and nothing is asked of a net."""

from __future__ import annotations

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report import html
from phalanx.report.duel_file import duel_file
from phalanx.report.facts import gather
from tests.report import fixture_moaa


@pytest.fixture(scope="module")
def files(run_folder, tmp_path_factory):
    """Of a run of duels, and of one of the method moaa."""
    folder = tmp_path_factory.mktemp("files")
    paths = []
    for run in (run_folder, fixture_moaa.build(folder / "moaa")):
        with Ledger(run_ledger_path(run)) as ledger:
            page = html.render(gather(ledger), duel_file(ledger, 5_000_000))
        paths.append(folder / f"{run.name}.html")
        html.write_whole(paths[-1], page)
    return paths


@pytest.mark.parametrize(("width", "medium"), [(360, "screen"), (1100, "screen"), (1100, "print")])
def test_no_page_is_wider_than_what_it_is_shown_on(files, chromium, width, medium):
    for path in files:
        page = chromium.new_page(viewport={"width": width, "height": 800})
        said: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, said=said: said.append(request.url))
        page.emulate_media(media=medium)
        page.goto(path.as_uri())
        page.wait_for_function("document.querySelectorAll('.rows li').length > 10")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert said == [path.as_uri()]
        page.close()
