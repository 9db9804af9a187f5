"""A real browser, and runs to look at. Every page is watched: nothing leaves the machine, and
nothing is complained of in the console."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bench import big_ledger

from phalanx.ledger import Ledger, run_ledger_path

SCRIPT = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'
TURNED = "\u202eevil\u202c \u2067שלום\u2069"
HUGE = f"begin {'long ' * 20_000}end"


@contextmanager
def watched(browser, **options) -> Iterator:
    """A page; at the end nothing may have been asked elsewhere or complained of."""
    context = browser.new_context(**options)
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}") or dialog.dismiss())
    try:
        yield page
        elsewhere = [
            url for url in asked
            if urlsplit(url).scheme not in ("file", "data", "blob", "about")
            and urlsplit(url).hostname != "127.0.0.1"
        ]  # fmt: skip
        assert not elsewhere
        assert not said
    finally:
        context.close()


@pytest.fixture
def page_of(chromium) -> Callable:
    return lambda **options: watched(chromium, **options)


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory) -> Path:
    """A finished run of 300 duels."""
    return big_ledger.make(tmp_path_factory.mktemp("live") / "plain", 300, mean_chars=400)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Path:
    """A finished run of 60 duels, which is quick to read, for copies that change."""
    return big_ledger.make(tmp_path_factory.mktemp("live") / "small", 60, mean_chars=200)


@pytest.fixture(scope="session")
def hostile_run(plain_run, tmp_path_factory) -> Path:
    """The same, with hostile text wherever a model, a file or a config could have put it.

    The duel is the second one of iteration 1.
    """
    folder = tmp_path_factory.mktemp("live") / "hostile"
    shutil.copytree(plain_run, folder)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        duel = ledger.query("SELECT * FROM duels WHERE iteration = 1 ORDER BY position")[1]
        with ledger.transaction():
            change = ledger._db.execute
            change("UPDATE duels SET left = ? WHERE id = ?", (f"ada{SCRIPT}", duel["id"]))
            change("UPDATE outcomes SET status = 'decided', winner = 'left' WHERE duel = ?",
                   (duel["id"],))  # fmt: skip
            asked = f"{SCRIPT} {TURNED} bell \x07 null \x00"
            change("UPDATE instructions SET text = ?, domain = ? WHERE id = ?",
                   (asked, f"law{SCRIPT}", duel["instruction"]))  # fmt: skip
            change("UPDATE responses SET text = ? WHERE id = ?", (HUGE, duel["left_response"]))
            change("UPDATE responses SET text = ? WHERE id = ?",
                   (f"{SCRIPT}\x1b[31m {TURNED}", duel["right_response"]))  # fmt: skip
            change("UPDATE judgments SET requests = NULL, reason = ?, flags = ?, raw = ? "
                   "WHERE duel = ?",
                   (SCRIPT, '["<b>flag</b>"]', '{"left": "broken \\ud800 half </script>", '
                    '"<i>right</i>": "{{ 7 * 7 }}"}', duel["id"]))  # fmt: skip
    return folder
