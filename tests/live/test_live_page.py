"""The live page in a real browser, while real runs go on in other processes."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.live.guarded import served

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from phalanx.live.application import application
from phalanx.live.watching import Runs

ROOT = Path(__file__).resolve().parent.parent.parent


def start_run(folder: Path, iterations: int = 30) -> subprocess.Popen:
    config = ROOT / "configs" / "smoke" / "pairwise.yaml"
    command = ["run", config, f"iterations={iterations}", "match.duels=30", "--out", folder, "-q"]
    code = "from phalanx.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, command)],
        stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def eventually(look, seconds: float = 60.0):
    """The first true answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"still {look()!r} after {seconds} s")


def ask(url: str, path: str, method: str = "GET", **headers: str):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_run_is_followed_from_before_it_starts_until_it_ends(page_of, tmp_path):
    folder = tmp_path / "going"
    with served(application(Runs([folder]), every=0.2)) as url, page_of() as page:
        page.goto(url)
        state = page.locator("#state")
        eventually(lambda: "There is no run yet" in state.inner_text())
        process = start_run(folder, iterations=40)
        try:
            seen = set()

            def going() -> bool:
                text = state.inner_text()
                seen.add(text)
                return "of 40, " in text and len(seen) > 2

            eventually(going)
            assert page.locator("#dot.on").count() == 1
            # What is read stays where it is while sections change around it.
            page.wait_for_selector("#notes details, main details")
            page.locator("main details > summary").first.click()
            page.locator("#duels").wait_for()
            page.wait_for_selector(".rows button")
            first = page.locator(".browser [role=status]").inner_text()
            page.locator("#duels-words").focus()
            place = "document.activeElement.getBoundingClientRect().top"
            y = page.evaluate(place)
            more = eventually(lambda: page.locator(".browser [role=status]").inner_text() != first)
            assert more
            assert page.evaluate("document.activeElement.id") == "duels-words"
            assert abs(page.evaluate(place) - y) < 100
            assert page.locator("main details[open]").count() == 1
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()
            process.wait()
        eventually(lambda: state.inner_text() == "Finished.")
        eventually(lambda: "1,200 duels" in page.locator(".browser [role=status]").inner_text())
        assert page.locator("#said").inner_text() == "Finished."
        assert page.locator("#dot.on").count() == 0


def test_two_runs_stand_side_by_side_and_each_has_its_page(page_of, plain_run, hostile_run):
    with served(application(Runs([plain_run, hostile_run]))) as url, page_of() as page:
        page.goto(url)
        page.wait_for_selector("table.runs tbody td")
        heads = page.locator("table.runs thead th").all_inner_texts()
        assert heads[1:] == ["plain", "hostile"]
        row = page.locator("table.runs tbody tr").first
        eventually(lambda: row.inner_text().count("Finished.") == 2)
        assert page.locator("progress").first.get_attribute("value") == "1.000"
        page.get_by_role("link", name="hostile").click()
        page.wait_for_selector(".rows button")
        assert page.locator("h1").inner_text() == "hostile"
        page.get_by_role("link", name="All runs").click()
        page.wait_for_selector("table.runs")


def test_runs_of_a_comparison_are_found_also_those_that_come_later(small_run, tmp_path):
    folder = tmp_path / "compared"
    shutil.copytree(small_run, folder / "seed-1" / "sparta")
    runs = Runs([folder])
    assert [run.name for run in runs.all()] == ["seed-1/sparta"]
    shutil.copytree(small_run, folder / "seed-2" / "sparta")
    assert [run.key for run in runs.all()] == ["seed-1-sparta", "seed-2-sparta"]


def test_a_run_that_goes_away_is_still_shown_with_that_said(page_of, small_run, tmp_path):
    folder = tmp_path / "gone"
    shutil.copytree(small_run, folder)
    with served(application(Runs([folder]), every=0.2)) as url, page_of() as page:
        page.goto(url)
        eventually(lambda: page.locator("#state").inner_text() == "Finished.")
        page.wait_for_selector(".rows button")
        shutil.rmtree(folder)
        eventually(lambda: "no longer in" in page.locator("#state").inner_text())
        assert page.locator("#reputation").count() == 1


def test_a_ledger_that_cannot_be_read_is_said_on_the_page(small_run, tmp_path):
    folder = tmp_path / "newer"
    shutil.copytree(small_run, folder)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.put("schema_version", "999")
    with served(application(Runs([folder]))) as url:
        status, body = ask(url, "/run/newer")
        assert status == 200
        assert b"schema 999, which is newer" in body
        status, body = ask(url, "/run/newer/rows/duels")
        assert status == 503
        assert b"schema 999" in body


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("no run")
    with pytest.raises(ConfigError, match="file is a file"):
        Runs([tmp_path / "file"])


def test_nothing_is_written_and_foreign_names_are_refused(plain_run):
    before = {one.name: one.stat().st_mtime_ns for one in plain_run.glob("ledger.sqlite")}
    with served(application(Runs([plain_run]))) as url:
        for method in ("POST", "PUT", "DELETE"):
            for path in ("/", "/run/plain", "/run/plain/rows/duels"):
                assert ask(url, path, method)[0] in (403, 405), (method, path)
        assert ask(url, "/run/plain", Host="evil.example")[0] == 421
        assert ask(url, "/run/nobody")[0] == 404
        assert ask(url, "/run/plain/rows/cats")[0] == 404
        assert ask(url, "/run/plain/detail/duels?id=%00")[0] == 404
        assert ask(url, "/run/plain/detail/answers?id=[1]")[0] == 404
        assert ask(url, "/run/plain/search/duels?words=")[0] == 400
        for path in ("/static/application.py", "/static/..%2fguarded.py", "/static/page.html.j2"):
            assert ask(url, path)[0] == 404
    assert before == {one.name: one.stat().st_mtime_ns for one in plain_run.glob("ledger.sqlite")}
