"""What goes wrong around a live page: odd requests, broken ledgers, answers that overtake others,
many pages at once."""

from __future__ import annotations

import json
import shutil
import threading
import time
import urllib.parse

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.live.guarded import served
from phalanx.report import html
from phalanx.report.duel_file import duel_file
from phalanx.report.duels import packed
from phalanx.report.facts import gather
from tests.live.test_live_page import ask, eventually

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from phalanx.live import watching
from phalanx.live.application import application
from phalanx.live.watching import Runs


@pytest.fixture(scope="module")
def url(plain_run):
    with served(application(Runs([plain_run]), every=0.2)) as url:
        yield url


@pytest.fixture
def own_run(small_run, tmp_path):
    """A copy that may be broken."""
    return shutil.copytree(small_run, tmp_path / "own")


def change(folder, sql, *values):
    with Ledger(run_ledger_path(folder), writable=True) as ledger, ledger.transaction():
        ledger._db.execute(sql, values)


def status_of(page) -> str:
    return page.locator(".browser [role=status]").inner_text()


def opened(page, url):
    page.goto(url)
    page.wait_for_selector(".rows button")


ODD = ["", "x" * 5000, "\x00\x1b[2J\r\n", "../../etc/passwd", "%2e%2e%2f", "‮evil", "'; DROP TABLE",
       "[1]", '[1,"a","b",[]]', "[" * 3000, '[99999999999999999999,"a","b","c"]',
       '[1,"\\ud800","b","c"]', '[1.5,"a","b","c"]', "null", '[null,"a","b","c"]']  # fmt: skip


@pytest.mark.parametrize("kind", ["duels", "pairs", "demonstrations", "contests", "answers"])
def test_odd_ids_are_refused_in_words(url, kind):
    for id_ in ODD:
        path = f"/run/plain/detail/{kind}?id={urllib.parse.quote(id_, safe='')}"
        status, body = ask(url, path)
        assert status == (400 if not id_ or len(id_) > 4000 else 404), (id_, status, body)
        assert b"id" in body
    assert ask(url, f"/run/plain/detail/{kind}")[0] == 400
    assert ask(url, f"/run/plain/detail/{kind}?id=%ff%fe")[0] == 404


@pytest.mark.parametrize(
    "path", ["/run/..%2f..%2fetc/rows/duels", "/run/%00", "/../../etc/passwd", "//evil/run/plain",
             "/static/%2e%2e%2fapplication.py", "/run/plain/rows/duels%00"]
)  # fmt: skip
def test_odd_paths_are_refused(url, path):
    assert ask(url, path)[0] == 404


def test_a_fault_of_the_ledger_is_told_from_an_id_that_is_none(own_run):
    with Ledger(run_ledger_path(own_run)) as ledger:
        duel = ledger.query("SELECT duel FROM judgments LIMIT 1")[0]["duel"]
    change(own_run, "UPDATE judgments SET flags = 'no JSON' WHERE duel = ?", duel)
    with served(application(Runs([own_run]))) as url:
        status, body = ask(url, f"/run/own/detail/duels?id={duel}")
    assert status == 503
    assert b"JSONDecodeError" in body


def test_a_fault_that_nobody_expected_is_said_and_the_page_goes_on(page_of, own_run, monkeypatch):
    monkeypatch.setattr(watching, "_SHARE", 0)  # it is read again at once
    with served(application(Runs([own_run]), every=0.1)) as url, page_of() as page:
        opened(page, url)
        change(own_run, "UPDATE states SET standings = 'no JSON'")
        state = page.locator("#state")
        eventually(lambda: "It cannot be read: JSONDecodeError" in state.inner_text())
        assert page.locator("#reputation").count() == 1
        change(own_run, "DELETE FROM states")
        eventually(lambda: "cannot be read" not in state.inner_text())


def test_a_fault_of_looking_is_said_and_the_page_goes_on(page_of, plain_run):
    class Trying(Runs):
        trouble = False

        def all(self):
            if self.trouble:
                raise RuntimeError("the disk is upside down")
            return super().all()

    runs = Trying([plain_run, plain_run.parent / "none"])
    with served(application(runs, every=0.1)) as url, page_of() as page:
        page.goto(url)
        page.wait_for_selector("table.runs td")
        runs.trouble = True
        state = page.locator("#state")
        eventually(lambda: "RuntimeError: the disk is upside down" in state.inner_text())
        assert state.is_visible()
        runs.trouble = False
        eventually(lambda: not state.is_visible())
        assert page.locator("table.runs").count() == 1


def test_rows_that_are_replaced_by_as_many_are_shown(page_of, own_run):
    with Ledger(run_ledger_path(own_run)) as ledger:
        duel = ledger.query(
            "SELECT d.id FROM duels d JOIN outcomes o ON o.duel = d.id "
            "WHERE o.status = 'decided' ORDER BY d.iteration, d.position"
        )[0]["id"]
    with served(application(Runs([own_run]), every=0.1)) as url, page_of() as page:
        opened(page, f"{url}run/own#duels/{duel}")
        page.wait_for_selector(".detail .bar")
        assert "Tie" not in page.locator(".detail").inner_text()
        page.locator("#duels-member").focus()
        change(own_run, "UPDATE outcomes SET status = 'tie', winner = NULL WHERE duel = ?", duel)
        line = page.locator(f".rows button[data-id='{duel}']")
        eventually(lambda: "tie" in line.inner_text())
        eventually(lambda: "Tie" in page.locator(".detail").inner_text())
        assert page.evaluate("document.activeElement.id") == "duels-member"
        status, _ = ask(url, "/run/own/rows/duels")
        assert status == 200


def test_rows_that_are_known_are_not_sent_again(url):
    import urllib.error
    import urllib.request

    asked = urllib.request.Request(f"{url}run/plain/rows/duels")
    with urllib.request.urlopen(asked, timeout=20) as answer:
        asked.add_header("If-None-Match", answer.headers["etag"])
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=20)
    assert refused.value.code == 304


def slowed(page, part, *, only_first=True):
    """Requests whose address has ``part`` wait until the returned function is called."""
    gate: list = []
    free = []

    def handle(route):
        if free or (only_first and gate):
            route.continue_()
        else:
            gate.append(route)

    page.route(lambda address: part in address, handle)

    def let_go():
        free.append(True)
        for route in gate:
            route.continue_()

    return let_go


def test_a_search_is_not_lost_when_a_duel_is_opened_meanwhile(page_of, url):
    with page_of() as page:
        opened(page, f"{url}run/plain")
        let_go = slowed(page, "/search/")
        page.fill("#duels-words", "question 1")
        eventually(lambda: status_of(page).startswith("Searching"))
        page.locator(".rows button").first.click()
        page.wait_for_selector(".detail .bar")
        let_go()
        eventually(lambda: status_of(page).endswith(" of 300 duels"))


def test_a_search_serves_all_filters(page_of, url):
    with page_of() as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        opened(page, f"{url}run/plain")
        page.fill("#duels-words", "question")
        eventually(lambda: status_of(page) == "300 duels" and "/search/" in asked[-1])
        page.select_option("#duels-member", "bob")
        eventually(lambda: " of 300 duels" in status_of(page))
        page.select_option("#duels-order", "long")
        page.locator(".rows button").first.click()
        page.wait_for_selector(".detail .bar")
        assert sum("/search/" in one for one in asked) == 1


def test_rows_that_come_late_do_not_replace_those_of_another_kind(page_of, url):
    with page_of() as page:
        opened(page, f"{url}run/plain")
        let_go = slowed(page, "/rows/pairs")
        page.select_option("#duels-kind", "pairs")
        page.select_option("#duels-kind", "answers")
        eventually(lambda: "measured answers" in status_of(page))
        let_go()
        page.wait_for_timeout(200)
        assert "measured answers" in status_of(page)
        page.locator(".rows button").first.click()
        page.wait_for_selector(".detail .text")


def test_broken_addresses_open_the_list(page_of, url):
    with page_of() as page:
        for part in ("#%E0%A4%A", "#duels/%", "#duels/nobody", "#cats/1", "#duels/"):
            page.goto("about:blank")  # else only the part after # changes, and nothing is loaded
            opened(page, f"{url}run/plain{part}")
            assert page.locator(".detail").is_hidden()
            eventually(lambda part=part: ("nobody" in status_of(page)) == ("nobody" in part))
            assert status_of(page).startswith("300 duels")


def test_ten_pages_read_a_run_once_and_single_duels_do_not_wait(url, plain_run, monkeypatch):
    readings = []
    slow = threading.Event()

    def gathering(ledger, **options):
        readings.append(options)
        slow.wait(10)
        return gather(ledger, **options)

    monkeypatch.setattr(watching, "gather", gathering)
    with Ledger(run_ledger_path(plain_run)) as ledger:
        duel = ledger.query("SELECT id FROM duels LIMIT 1")[0]["id"]
    with served(application(Runs([plain_run]))) as url:
        streams = [threading.Thread(target=ask, args=(url, "/run/plain")) for _ in range(10)]
        for one in streams:
            one.start()
        eventually(lambda: readings)
        began = time.monotonic()
        status, body = ask(url, f"/run/plain/detail/duels?id={duel}")
        assert (status, json.loads(body)["sides"] != []) == (200, True)
        assert time.monotonic() - began < 5
        slow.set()
        for one in streams:
            one.join(20)
    assert len(readings) == 1


HIDING = "Object.defineProperty(document, 'hidden', {get: () => window.away === true})"
AWAY = "(away) => { window.away = away; document.dispatchEvent(new Event('visibilitychange')); }"


def test_more_tabs_than_a_browser_has_connections_follow_a_run(page_of, own_run):
    """A browser has six connections to a server; each stream would keep one."""
    with served(application(Runs([own_run]), every=0.1)) as url, page_of() as first:
        first.context.add_init_script(HIDING)
        tabs = [first, *(first.context.new_page() for _ in range(6))]
        for tab in tabs:
            opened(tab, url)
            tab.evaluate(AWAY, True)
        change(own_run, "DELETE FROM run WHERE key = 'finished'")
        change(own_run, "INSERT INTO events VALUES (NULL, 1.0, 'stopped', 'told to')")
        for tab in (tabs[-1], tabs[0]):
            assert tab.locator("#state").inner_text() == "Finished."
            tab.evaluate(AWAY, False)
            eventually(lambda tab=tab: tab.locator("#state").inner_text() != "Finished.")


# ---- report files with little room --------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 75_000])
def test_a_report_file_with_little_room_says_what_is_left_out(page_of, plain_run, tmp_path, room):
    with Ledger(run_ledger_path(plain_run)) as ledger:
        facts, duels = gather(ledger), duel_file(ledger, room)
    path = tmp_path / "small.html"
    html.write_whole(path, html.render(facts, duels))
    fixed = len(duels.script) + len(duels.style)
    assert len(duels.data) <= max(room - fixed, 1000)
    texted, count = int(duels.attributes["data-texts"]), int(duels.attributes["data-count"])
    assert texted < count or not count
    assert "phalanx serve" in duels.note
    with page_of() as page:
        page.goto(path.as_uri())
        eventually(lambda: "duels" in status_of(page))
        if count < 300:
            assert f"{count} duels, the last of 300" in status_of(page)
        if count:
            page.select_option("#duels-order", "newest")
            left_out = page.locator(".rows button", has_text="texts left out")
            assert left_out.count() > 0
            left_out.first.click()
            page.wait_for_selector(".detail .notice")


def test_a_sample_of_short_texts_does_not_leave_the_newest_without(plain_run, tmp_path):
    """Rows between those of the sample are far longer than it."""
    folder = shutil.copytree(plain_run, tmp_path / "uneven")
    with Ledger(run_ledger_path(folder)) as ledger:
        room = len(packed([], "duels")) + 170_000
        whole = duel_file(ledger, room)
    texted = int(whole.attributes["data-texts"])
    stride = int(whole.attributes["data-stride"])
    assert texted == len(range(299 % stride, 300, stride))


def test_texts_of_people_and_files_are_made_visible(page_of, own_run):
    with Ledger(run_ledger_path(own_run)) as ledger:
        duel = ledger.query("SELECT id, instruction FROM duels ORDER BY iteration, position")[0]
    turns = [{"role": "\u202erole", "content": "earlier\u2028line \U000e0041 tag"}]
    change(own_run, "UPDATE instructions SET answer = ?, later = ? WHERE id = ?",
           "gold\u202e\x00", json.dumps(turns), duel["instruction"])  # fmt: skip
    with served(application(Runs([own_run]))) as url, page_of() as page:
        opened(page, f"{url}run/own#duels/{duel['id']}")
        page.wait_for_selector(".detail .bar")
        text = page.locator(".detail").inner_text()
    assert "gold[U+202E]␀" in text
    assert "Earlier turn: [U+202E]role" in text
    assert "earlier[U+2028]line [U+E0041] tag" in text
