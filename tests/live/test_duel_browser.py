"""The browser of duels, on the live page and in a report file opened from disk."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.live.guarded import served
from phalanx.report import html
from phalanx.report.duel_file import duel_file, inlined
from phalanx.report.duel_texts import details, holding
from phalanx.report.duels import COLUMNS, browsable, lines
from phalanx.report.facts import gather
from tests.live.conftest import HUGE

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from phalanx.live.application import application
from phalanx.live.watching import Runs


@pytest.fixture(scope="module")
def hostile_id(hostile_run):
    with Ledger(run_ledger_path(hostile_run)) as ledger:
        return ledger.query("SELECT id FROM duels WHERE left LIKE '%script%'")[0]["id"]


@pytest.fixture(scope="module")
def report_file(plain_run, hostile_run, tmp_path_factory):
    """The report of the hostile run; its sections are those of the plain one, whose members the
    configuration knows."""
    with Ledger(run_ledger_path(plain_run)) as ledger:
        facts = gather(ledger)
    with Ledger(run_ledger_path(hostile_run)) as ledger:
        duels = duel_file(ledger, 5_000_000)
    path = tmp_path_factory.mktemp("report") / "report.html"
    html.write_whole(path, html.render(facts, duels))
    return path


@pytest.fixture(scope="module")
def served_url(hostile_run):
    with served(application(Runs([hostile_run]))) as url:
        yield f"{url}run/hostile"


@pytest.fixture(params=["file", "live"])
def url(request):
    if request.param == "file":
        return request.getfixturevalue("report_file").as_uri()
    return request.getfixturevalue("served_url")


def found(page) -> str:
    return page.locator(".browser [role=status]").inner_text()


def opened(page, url):
    page.goto(url)
    page.wait_for_selector(".rows button")


def test_hostile_text_is_only_text(page_of, url, hostile_id):
    with page_of() as page:
        opened(page, f"{url}#duels/{hostile_id}")
        page.wait_for_selector(".detail .text")
        detail = page.locator(".detail")
        text = detail.inner_text()
        assert "</script><script>document.title" in text
        assert "[U+202E]evil[U+202C]" in text
        assert "bell ␇ null ␀" in text
        assert "␛[31m" in text
        assert "broken \ufffd half </script>" in text
        assert "{{ 7 * 7 }}" in text
        assert "<b>flag</b>" in text
        assert "<i>right</i>" in text
        assert page.title() != "owned"
        assert page.locator(".browser script, .browser img, .browser b, .browser i").count() == 0
        # The long text is cut, with a mark and a way to the whole.
        assert "characters are not shown" in text
        detail.get_by_role("button", name=f"Show all {len(HUGE):,} characters").click()
        page.wait_for_function("document.querySelector('.detail').innerText.includes('long end')")
        assert len(detail.inner_text()) > 100_000
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_filters_find_what_the_ledger_has(page_of, url, hostile_run):
    with Ledger(run_ledger_path(hostile_run)) as ledger:
        rows = list(lines(ledger, "duels"))
        one = rows[7]["id"]
        quoted = details(ledger, "duels", [one])[one]["sides"][0]["text"][:24].strip()
        holds = len(set(holding(ledger, "duels", quoted.upper())))
    bob = [row for row in rows if "bob" in (row["left"], row["right"])]
    won = [row for row in bob if row["winner"] and row[row["winner"]] == "bob"]
    over_dan = [row for row in won if "dan" in (row["left"], row["right"])]
    split = [row for row in rows if len([1 for c in ("for_left", "for_right", "for_tie") if row[c]])
             > 1]  # fmt: skip
    long = [row for row in rows if max(row["length_left"] or 0, row["length_right"] or 0) >= 900]
    assert all(0 < len(one) < len(rows) for one in (bob, won, over_dan, split, long))
    with page_of() as page:
        opened(page, url)
        assert found(page) == f"{len(rows)} duels"
        page.select_option("#duels-member", "bob")
        assert found(page) == f"{len(bob)} of {len(rows)} duels"
        page.select_option("#duels-outcome", "won")
        assert found(page) == f"{len(won)} of {len(rows)} duels"
        page.select_option("#duels-against", "dan")
        assert found(page) == f"{len(over_dan)} of {len(rows)} duels"
        page.get_by_role("button", name="Show all", exact=True).click()
        page.select_option("#duels-judged", "split")
        assert found(page) == f"{len(split)} of {len(rows)} duels"
        page.get_by_role("button", name="Show all", exact=True).click()
        page.fill("#duels-least", "900")
        page.wait_for_function(
            "n => document.querySelector('.browser [role=status]').textContent.startsWith(n)",
            arg=f"{len(long)} of",
        )
        page.get_by_role("button", name="Show all", exact=True).click()
        page.fill("#duels-words", quoted.upper())
        page.wait_for_function(
            "n => document.querySelector('.browser [role=status]').textContent.startsWith(n)",
            arg=f"{holds} of",
        )
        page.get_by_role("button", name="Show all", exact=True).click()
        page.select_option("#duels-order", "long")
        assert "<script>" in page.locator(".rows button").first.inner_text()


def test_everything_is_reached_by_the_keyboard(page_of, url):
    with page_of() as page:
        opened(page, url)
        page.locator("#duels-member").focus()
        order = []
        for _ in range(20):
            order.append(page.evaluate("document.activeElement.id || document.activeElement.type"))
            if page.evaluate("document.activeElement.closest('.rows') !== null"):
                break
            page.keyboard.press("Tab")
        assert order[:3] == ["duels-member", "duels-against", "duels-outcome"]
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid"
        rows = page.locator(".rows button")
        second = rows.nth(1).get_attribute("data-row")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.dataset.row") == second
        page.keyboard.press("Enter")
        page.wait_for_selector(".detail .bar")
        assert page.evaluate("document.activeElement.className") == "detail"
        assert rows.nth(1).get_attribute("aria-current") == "true"
        page.keyboard.press("Escape")
        assert page.locator(".detail").is_hidden()
        assert page.evaluate("document.activeElement.dataset.row") == second
        page.keyboard.press("PageDown")
        assert page.locator(".pager span").inner_text() == "51 to 100"
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.dataset.row") == "99"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone_has_labels_headings_and_contrast(page_of, url, scheme):
    with page_of(viewport={"width": 360, "height": 800}, color_scheme=scheme) as page:
        opened(page, url)
        page.locator(".rows button").first.click()
        page.wait_for_selector(".detail .bar")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        # Judges and warnings are lists there, read without scrolling sideways.
        assert page.locator(".stack").count() > 1
        assert page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((one) => "
            "one.querySelector('.stack') && one.scrollWidth > one.clientWidth).length"
        ) == 0  # fmt: skip
        assert page.evaluate(
            "[...document.querySelectorAll('input, select')].filter((one) => "
            "!document.querySelector(`label[for=\"${one.id}\"]`)).length"
        ) == 0  # fmt: skip
        levels = page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map((one) => Number(one.nodeName[1]))"
        )
        assert levels.count(1) == 1
        assert page.evaluate("document.documentElement.lang") == "en"
        names = page.evaluate(
            "[...document.querySelectorAll('button')].filter((one) => !one.innerText.trim()).length"
        )
        assert names == 0
        for name in (".rows .facts", ".rows .who", ".detail h5 .muted", ".detail .text",
                     ".filters label", ".browser button", ".browser [role=status]"):  # fmt: skip
            assert contrast(page, name) >= 4.5, name


def contrast(page, selector: str) -> float:
    """WCAG's ratio of an element's colour and the background behind it."""
    colours = page.locator(selector).first.evaluate(
        """(one) => { let back = one;
        const clear = (at) => getComputedStyle(at).backgroundColor === 'rgba(0, 0, 0, 0)';
        while (clear(back)) back = back.parentElement;
        return [getComputedStyle(one).color, getComputedStyle(back).backgroundColor]; }"""
    )
    shades = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        shades.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    bright, dark = max(shades), min(shades)
    return (bright + 0.05) / (dark + 0.05)


def test_other_kinds_are_browsed_by_the_same_component(page_of, served_url):
    with page_of() as page:
        opened(page, served_url)
        for kind, words in (("pairs", "preference pairs"), ("answers", "measured answers")):
            page.select_option("#duels-kind", kind)
            page.wait_for_function(
                "n => document.querySelector('.browser [role=status]').textContent.includes(n)",
                arg=words,
            )
            page.locator(".rows button").first.click()
            page.wait_for_selector(".detail .text")
            page.keyboard.press("Escape")


def test_verdicts_of_contests_are_browsed(page_of, small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "contest")
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        answers = ledger.query("SELECT id, text FROM responses WHERE phase = 'answer' LIMIT 2")
        verdict = ledger.query("SELECT id, text FROM responses WHERE phase = 'judge' LIMIT 1")[0]
        row = {
            "iteration": 0, "task": "arena", "member": "ada", "rival": "base", "item": "i1",
            "judge": "bob", "game": "first", "domain": "", "label": "A", "value": 1.0,
            "reason": "", "length": 12, "rival_length": 30, "response": answers[0]["id"],
            "request": verdict["id"],
        }  # fmt: skip
        rated = {"rival": "", "rival_length": None, "game": "turn 1", "value": 7.0}
        unread = {"game": "second", "value": None, "reason": "no label", "request": ""}
        ledger.record_games([row, row | rated, row | unread])
        ledger.put("contest:arena", json.dumps({"baseline_answers": {"i1": answers[1]["id"]}}))
    with Ledger(run_ledger_path(folder)) as ledger:
        assert browsable(ledger)["contests"] == 3
        rows = {row["status"]: row for row in lines(ledger, "contests")}
        assert set(rows) == {"decided", "rated", "unreadable"}
        assert (rows["decided"]["winner"], rows["decided"]["score_right"]) == ("left", 0.0)
        whole = details(ledger, "contests", [row["id"] for row in rows.values()])
        sides = [one["text"] for one in whole[rows["decided"]["id"]]["sides"]]
        assert sides == [answer["text"] for answer in answers]
        assert len(whole[rows["rated"]["id"]]["sides"]) == 1
        assert len(set(holding(ledger, "contests", verdict["text"][:40]))) == 2
    with served(application(Runs([folder]))) as url, page_of() as page:
        opened(page, url)
        page.select_option("#duels-kind", "contests")
        page.wait_for_selector(".rows button:has-text('bob on arena')")
        assert found(page) == "3 verdicts of contests"
        page.select_option("#duels-outcome", "won")
        page.locator(".rows button").click()
        page.wait_for_selector(".detail .bar")
        detail = page.locator(".detail").inner_text()
        assert "ada against base" in detail
        assert answers[1]["text"][:60].split(chr(10))[0] in detail
        page.select_option("#duels-outcome", "rated")
        page.locator(".rows button").click()
        page.wait_for_selector(".detail td:has-text('7.00')")


def test_a_report_is_readable_without_scripts(chromium, report_file):
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(report_file.as_uri())
        assert page.locator("#reputation table").count()
        assert "takes JavaScript" in page.locator("#duel-browser").inner_text()
    finally:
        context.close()


def test_a_small_file_says_what_it_leaves_out_and_shows_what_it_has(page_of, plain_run, tmp_path):
    with Ledger(run_ledger_path(plain_run)) as ledger:
        facts = gather(ledger)
        duels = duel_file(ledger, 150_000)
    assert "Texts are in this file for one in " in duels.note
    size = sum(map(len, (duels.data, duels.script, duels.style)))
    assert size <= 150_000
    path = tmp_path / "small.html"
    html.write_whole(path, html.render(facts, duels))
    with page_of() as page:
        opened(page, path.as_uri())
        assert found(page) == "300 duels"
        page.select_option("#duels-order", "newest")
        page.locator(".rows button").first.click()
        page.wait_for_selector(".detail .text")
        left_out = page.locator(".rows button", has_text="texts left out").first
        left_out.click()
        page.wait_for_selector(".detail .notice")
        assert "phalanx serve" in page.locator(".detail .notice").inner_text()
        page.select_option("#duels-texts", "here")
        assert page.locator(".rows button", has_text="texts left out").count() == 0


def test_every_duel_is_in_the_rows_and_its_judgments_in_the_details(plain_run):
    with Ledger(run_ledger_path(plain_run)) as ledger:
        assert browsable(ledger)["duels"] == 300
        rows = list(lines(ledger, "duels"))
        assert set(rows[0]) == set(COLUMNS)
        found = details(ledger, "duels", [row["id"] for row in rows])
        assert len(found) == 300
        num = sum(len(one["judgments"]) for one in found.values())
        assert num == ledger.count("judgments")
        exported = ledger.query("SELECT duel, judge, full_raw(raw, requests) AS raw FROM judgments")
        said = {(duel, one["judge"]): dict(one["said"])
                for duel, detail in found.items() for one in detail["judgments"]}  # fmt: skip
        texts = 0
        for row in exported:
            for slot, raw in json.loads(row["raw"]).items():
                if isinstance(raw, str):
                    texts += said[row["duel"], row["judge"]][slot] == raw
        assert texts > 300
        weights = [one["weight"] for detail in found.values() for one in detail["judgments"]]
        assert all(weight is not None for weight in weights)


def test_one_script_has_no_imports_and_cannot_be_closed_from_inside():
    script = inlined()
    assert not re.search(r"(?m)^(import|export) ", script)
    assert "</script" not in script
