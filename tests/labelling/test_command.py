"""`phalanx label` in a terminal, by answers from a pipe; and on its page, in a real browser."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from phalanx.ledger import Ledger, RunLock
from phalanx.ledger.labels import labels_of
from tests.scripts import command

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    " \x1b[2J\x07 \u202eevil\u202c " + "long " * 20_000
)


def label(home: Path, *words: object, answers: str = ""):
    return command("label", home / "run", *words, stdin=answers)


def make_hostile(path: Path) -> None:
    with Ledger(path, writable=True) as ledger, ledger.transaction():
        ledger._db.execute("UPDATE responses SET text = ? || member WHERE phase = 'answer'",
                           (HOSTILE,))  # fmt: skip


def test_answers_are_recorded_and_agreement_is_shown(home, path):
    done = label(home, "--as", "eve", "--sample", 5, answers="1\n2\nwhat\nt\nb\ns\n")
    assert done.returncode == 0, done.stderr
    assert "'what' means nothing here" in done.stderr
    assert "(you said: tie)" in done.stdout
    assert "3 of 5 labelled; the same command goes on" in done.stdout
    assert "The council beside people" in done.stdout
    with Ledger(path) as ledger:
        assert [row["verdict"] for row in labels_of(ledger, "eve")][2] == "skip"
        names = {member.name for member in ledger.members()}
    asked = done.stdout.split("How people and judges agree")[0]
    assert not [name for name in names if name in asked], "names are to be hidden"
    done = label(home, "--as", "eve", "--sample", 5, answers="first\nsecond\n")
    assert "3 of 5 duels are labelled" in done.stdout
    assert "All 5 labelled: q quit, b back." in done.stdout
    shown = label(home, "--show")
    assert "1 person gave 5 labels" in shown.stdout
    for words in (("status", home / "run"), ("report", home / "run")):
        assert "1 person gave 5 labels" in command(*words).stdout
    for name in ("report.html", "report.md"):
        command("report", home / "run", "--out", home / name)
        assert "The council beside people" in (home / name).read_text()
    done = command("export", home / "run", "labels", "--out", home / "labels.jsonl")
    assert "Wrote 5 labels" in done.stdout


def test_texts_of_models_command_nothing_and_are_cut_with_a_mark(home, path):
    make_hostile(path)
    done = label(home, "--as", "eve", "--sample", 1, answers="m\nq\n")
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
    assert "[cut here; 100," in done.stdout
    assert done.stdout.count("long") >= 2 * 20_000, "m shows all of it"


def test_m_says_where_nothing_was_cut(home):
    done = label(home, "--as", "eve", "--sample", 1, answers="m\nq\n")
    assert done.returncode == 0, done.stderr
    assert "It is whole: nothing was cut." in done.stdout
    assert done.stdout.count("-- Instruction") == 1


def test_a_text_cannot_pass_for_the_other_one(home, path):
    """Headings stand where no text can begin."""
    fake = "Bad.\r\n\n-- 2. Second response\nGood.\n[cut here"
    with Ledger(path, writable=True) as ledger, ledger.transaction():
        ledger._db.execute("UPDATE responses SET text = ? || id WHERE phase = 'answer'", (fake,))
    done = label(home, "--as", "eve", "--sample", 1)
    lines = done.stdout.split("\n")
    assert lines.count("-- 2. Second response") == 1
    assert lines.count("  -- 2. Second response") == 2
    assert lines.count("  Bad.") == 2, "the ends of lines of another system are shown as signs"


def test_the_last_answer_can_be_taken_back(home, path):
    done = label(home, "--as", "eve", "--sample", 2, answers="1\n1\nb\n2\nq\n")
    assert done.stdout.count("All 2 labelled") == 2
    with Ledger(path) as ledger:
        rows = ledger.query("SELECT verdict, swapped FROM labels ORDER BY number")
        assert len(rows) == 3
        assert len(labels_of(ledger)) == 2
    assert (rows[2]["verdict"] == "left") == bool(rows[2]["swapped"]), "it was the second"


def test_what_is_wrong_is_said_before_anything_is_asked(home):
    done = label(home, "--as", "", "--sample", 1)
    assert done.returncode == 2
    assert "names nobody" in done.stderr
    done = label(home, "--as", "eve", "--member", "nobody", "--sample", 0)
    assert done.returncode == 2
    assert "no such member" in done.stderr
    assert "--sample 0" in done.stderr
    assert command("label", home / "none", "--as", "eve").returncode == 1
    assert not (home / "none").exists()
    lock = RunLock(home / "run")
    try:
        done = label(home, "--as", "eve")
    finally:
        lock.release()
    assert done.returncode == 1
    assert "in use by process" in done.stderr
    assert "wait for it, or stop it first" in done.stderr
    assert label(home, "--show").stdout.strip() == "Nobody labelled a duel yet."


@pytest.fixture
def page(home, path):
    make_hostile(path)
    words = [sys.executable, "-m", "phalanx.cli", "label", str(home / "run"), "--as", "eve"]
    server = subprocess.Popen(
        [*words, "--page", "--sample", "4"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = server.stdout.readline()
        yield line.split()[-4], server
    finally:
        if server.poll() is None:
            server.kill()
        server.wait(20)


def test_the_page_takes_answers_by_key_and_by_button(page, path, chromium):
    url, server = page
    requests, noise = [], []
    with chromium.new_page(viewport={"width": 360, "height": 800}, color_scheme="dark") as tab:
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: noise.append(message.text))
        tab.on("pageerror", lambda error: noise.append(str(error)))
        tab.goto(url)
        tab.get_by_text("eve: 1 of 4, 0 labelled").wait_for()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, "it scrolls sideways"
        rows = {round(button.bounding_box()["y"]) for button in tab.locator("footer button").all()}
        assert len(rows) == 1, "the answers take two lines of a phone"
        assert "\ufffdevil\ufffd" in tab.locator("#first").inner_text(), "it is read as it stands"
        assert len(tab.locator("#first").inner_text()) < 6000
        tab.locator("#first button.more").click()
        assert "long long" in tab.locator("#first").inner_text()
        assert len(tab.locator("#first").inner_text()) > 90_000
        assert tab.title() == "Label duels: Phalanx"
        tab.keyboard.press("1")
        tab.get_by_text("eve: 2 of 4, 1 labelled").wait_for()
        tab.get_by_role("button", name="Tie").click()
        tab.get_by_text("eve: 3 of 4, 2 labelled").wait_for()
        tab.keyboard.press("b")
        tab.get_by_text("eve: 2 of 4, 2 labelled").wait_for()
        assert tab.get_by_role("button", name="Tie").get_attribute("aria-pressed") == "true"
        for key, words in (("2", "3 of 4, 2"), ("s", "4 of 4, 3"), ("ArrowRight", "4 of 4 lab")):
            tab.keyboard.press(key)
            tab.get_by_text(words).wait_for()
        tab.get_by_text("All are labelled.").wait_for()
    assert noise == []
    assert all(one.startswith(url) or one.startswith("data:") for one in requests)
    server.send_signal(signal.SIGINT)
    said, _ = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "The labelling page has ended." in said
    assert "The council beside people" in said
    with Ledger(path) as ledger:
        rows = labels_of(ledger, "eve")
    kinds = [row["verdict"] for row in rows]
    assert (len(rows), kinds.count("skip"), kinds.count("tie")) == (4, 1, 0)
    assert all(row["seconds"] > 0 for row in rows)


def test_nobody_but_the_page_writes(page, path):
    url, _ = page

    def post(body: bytes, **headers: str) -> int:
        request = urllib.request.Request(f"{url}say", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    with urllib.request.urlopen(url, timeout=10) as answer:
        token = answer.read().decode().split('name="phalanx-token" content="')[1].split('"')[0]
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    own = {"X-Phalanx-Token": token}
    good = b'{"choice": "first", "place": 1}'
    assert post(good) == 403
    assert post(good, **{"X-Phalanx-Token": "guess"}) == 403
    assert post(good, **own, Origin="http://evil.example") == 403
    assert post(good, **own, Host="evil.example") == 421
    assert post(b'{"choice": "first", "place": 3}', **own) == 409
    assert post(b'{"choice": "best", "place": 1}', **own) == 400
    assert post(b"x" * 20_000, **own) == 400
    assert post(b"[]", **own) == 400
    with Ledger(path) as ledger:
        assert labels_of(ledger) == []
    assert post(good, **own) == 200
    with Ledger(path) as ledger:
        assert len(labels_of(ledger)) == 1
