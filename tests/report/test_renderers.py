"""Terminal, HTML and Markdown: complete, safe, and readable where they are read."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report import charts, html, markdown, words
from phalanx.report.facts import gather
from phalanx.report.html import write_html
from phalanx.report.markdown import write_markdown
from phalanx.report.records import Event
from phalanx.report.terminal import status, summary
from phalanx.statistics import Interval
from tests.report import fixture_run

VOID = {"meta", "link", "br", "img", "input", "hr"}


def printed(renderable, width: int = 80, encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    console = Console(file=io.TextIOWrapper(buffer, encoding=encoding), width=width)
    console.print(renderable)
    console.file.flush()
    return buffer.getvalue().decode(encoding)


class Page(HTMLParser):
    """Checks that tags close, and collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page_text(facts):
    return html.render(facts)


@pytest.fixture(scope="module")
def page(page_text):
    return Page(page_text)


def unfinished(tmp_path, *, tasks: bool, iterations_done: int):
    sections = {} if tasks else {"evaluate": {}}
    settings = fixture_run.config(duels=12, **sections)
    with fixture_run.start(tmp_path / "run", settings) as ledger:
        if tasks:
            fixture_run.measure(ledger, settings, 0)
        for number in range(1, iterations_done + 1):
            fixture_run.play(ledger, settings, number)
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        return gather(ledger)


def test_the_summary_fits_80_columns_and_names_what_matters(facts):
    # Commands and places below "Next" are whole, however long the run's folder is.
    facts = replace(facts, folder="runs/demo-run")
    text = printed(summary(facts))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for name in (*fixture_run.NAMES, *facts.evaluation.domains, "collective"):
        assert name in text
    mean = facts.evaluation.change()
    line = next(row for row in text.splitlines() if row.strip().startswith("all domains   "))
    assert words.percent(mean.before) in line
    assert words.percent(mean.after) in line
    assert "▲" in line
    assert f"{facts.accounting.pairs_kept} preference pairs kept" in text
    assert "phalanx export" in text
    assert f"iteration-{facts.evaluation.best_aligned.iteration}" in text


def test_a_narrow_window_cuts_no_number(facts):
    """Tables that do not fit become paragraphs; nothing is wider than the window."""
    text = printed(status(facts), width=40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert "…" not in text
    whole = " ".join(text.split())
    for line in facts.reputations:
        assert f"{line.member}: start {line.start:.1f}, now {line.value:.1f}, deviation" in whole
        assert f"won {line.wins:,}, lost {line.losses:,}, tied {line.ties:,}" in whole
    judged = sum(p.asked for p in facts.accounting.phases if p.phase == "judge")
    assert f"judge: asked {judged:,}, answered " in whole


def test_an_arrow_stands_only_where_the_interval_excludes_zero(facts):
    mean = facts.evaluation.change()
    for low, high, sign in ((0.01, 0.2, "▲"), (-0.2, -0.01, "▼"), (-0.1, 0.1, "")):
        change = replace(mean, interval=Interval(low, high))
        measured = replace(facts.evaluation, changes=(change,), collective=(), domains=())
        shown = printed(summary(replace(facts, evaluation=measured)))
        line = next(row for row in shown.splitlines() if row.strip().startswith("all domains   "))
        assert [mark for mark in "▲▼" if mark in line] == list(sign)


def test_terminals_without_unicode_get_ascii(facts):
    text = printed(summary(facts), encoding="ascii")
    assert text.isascii()
    assert "?" not in text
    assert "^" in text


def test_no_color_and_colour(facts, monkeypatch):
    def coloured() -> str:
        console = Console(file=io.StringIO(), width=80, force_terminal=True)
        console.print(summary(facts))
        return console.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1m" in coloured()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", coloured())


def test_status_of_a_run_in_progress(tmp_path):
    facts = unfinished(tmp_path, tasks=False, iterations_done=1)
    text = printed(status(facts))
    assert "iteration 2 of 2, answering, 0 of 24 requests done" in text
    assert "nothing is done twice" in text
    busy = replace(facts, pace=replace(facts.pace, holder=1234))
    assert "Continue" not in printed(status(busy)), "it goes on by itself"


def test_status_says_once_what_a_guard_stopped_time_and_again(tmp_path):
    facts = unfinished(tmp_path, tasks=False, iterations_done=1)
    text = "guard max_flips stopped the run in iteration 2: many. Or: phalanx run CONFIG"
    events = tuple(Event(1e9 + n, "stopped", text) for n in range(3))
    stopped = replace(facts, progress=replace(facts.progress, last_error=text),
                      pace=replace(facts.pace, events=events))  # fmt: skip
    shown = " ".join(printed(status(stopped)).split())
    assert shown.count("guard max_flips stopped") == 1
    assert "(3 times, last 2001-09-09 01:46:42 UTC)" in shown
    assert "nothing is done twice" not in shown
    assert "The same command stops here again: change the limit" in shown
    assert "Finished" in printed(
        status(replace(facts, progress=replace(facts.progress, finished="2026-01-02")))
    )


@pytest.mark.parametrize(("tasks", "done"), [(False, 0), (False, 1), (True, 0), (True, 1)])
def test_every_renderer_takes_a_run_that_is_not_finished(tmp_path, tasks, done):
    facts = unfinished(tmp_path, tasks=tasks, iterations_done=done)
    page = Page(html.render(facts))
    assert "not finished" in page.text
    for text in (page.text, printed(summary(facts)), markdown.render(facts)):
        assert ("No evaluation task is configured" in text) == (not tasks)
    if not done:
        assert "No duel has been judged yet" in page.text


@pytest.mark.parametrize("tasks", [True, False])
def test_accuracy_comes_first_only_where_there_is_any(tmp_path, tasks):
    page = Page(html.render(unfinished(tmp_path, tasks=tasks, iterations_done=1)))
    order = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sorted(order) == sorted(
        [
            "overview",
            "progress",
            "accuracy",
            "reputation",
            "judges",
            "pairs",
            "training",
            "time",
            "examples",
            "notes",
        ]
    )
    assert order.index("accuracy") == (2 if tasks else order.index("time") - 1)
    links = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a"][1:]
    assert links == order


def test_every_section_stands_alone_without_a_style_or_a_script(facts):
    """The live page swaps them in by id, under a policy that knows no inline style."""
    found = html.sections(facts)
    assert [one.id for one in found] == [
        attributes["id"] for tag, attributes in Page(html.render(facts)).tags if tag == "section"
    ]
    for one in found:
        tags = Page(str(one.html)).tags
        assert tags[0][0] == "section"
        assert tags[0][1]["id"] == one.id
        assert not [tag for tag, attributes in tags if tag in ("style", "script")]
        assert not [attributes for _, attributes in tags if "style" in attributes]


def test_words_that_need_explaining_are_explained(facts):
    text = " ".join(printed(summary(facts)).split())
    assert "Agrees as judge: its untied judgments on decided duels" in text
    assert "Flipped:" not in text, "nothing is flipped in this run"
    account = replace(facts.accounting, judgments_flipped=3)
    text = " ".join(printed(summary(replace(facts, accounting=account))).split())
    assert "3 flipped" in text
    assert "Flipped: the verdict changed when the two responses changed places" in text
    assert "Owed:" not in text
    phases = (replace(account.phases[0], owed=2), *account.phases[1:])
    text = printed(summary(replace(facts, accounting=replace(account, phases=phases))))
    assert "Owed: not answered yet" in text
    page = Page(html.render(facts)).text
    assert "Flipped: the verdict changed when the two responses changed places" in page
    assert "Owed: asked and not answered yet" in page


def test_frozen_reputations_have_a_table_and_no_chart(tmp_path):
    settings = fixture_run.config(
        iterations=1, duels=12, evaluate={}, reputation={"rule": "frozen"}
    )
    with Ledger(run_ledger_path(fixture_run.build(tmp_path / "run", settings))) as ledger:
        facts = gather(ledger)
    text = Page(html.render(facts)).text
    assert "Reputations did not change in this run" in text
    assert "Who beats whom" in text
    assert "No duel has been judged" not in text
    assert "100.000" in printed(summary(facts))


def test_the_page_is_self_contained_and_small(page, page_text):
    assert len(page_text.encode()) < 300_000
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "img", "iframe", "object")]
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "src"
            if name == "href":
                assert value.startswith("#")
    assert "url(" not in page_text
    assert "@import" not in page_text
    assert "http://" not in page_text.replace("http-equiv", "")
    assert "https://" not in page_text
    assert "default-src 'none'" in page_text


def test_hostile_text_is_shown_not_run(page, page_text):
    assert fixture_run.HOSTILE in page.text, "the fixture's text reaches the page"
    assert "<script>" not in page_text
    assert "<img" not in page_text


def test_hostile_names_in_charts_are_escaped():
    line = charts.Line("<b>&x", [(0, 1.0), (1, 2.0)], 0)
    drawn = charts.line_chart([line], '"><script>', x_label="x", y_label="y")
    assert "<script>" not in drawn
    assert "<b>" not in drawn
    ElementTree.fromstring(drawn)


def test_anchors_labels_and_keyboard(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for tag, a in page.tags if tag == "a"]
    assert set(links) <= set(ids)
    assert len(links) > 8
    for tag, attributes in page.tags:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        if "scroll" in attributes.get("class", "").split():
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]


def test_every_chart_is_well_formed_and_inside_its_box(page_text):
    drawings = re.findall(r"<svg.*?</svg>", page_text, re.DOTALL)
    assert len(drawings) >= 12
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for node in root.iter():
            for key, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                if key in node.attrib:
                    assert -0.5 <= float(node.attrib[key]) <= most + 0.5, drawing
        assert "nan" not in drawing


def test_the_page_says_the_numbers(page, facts):
    mean = facts.evaluation.change()
    assert f"{words.percent(mean.before)} → {words.percent(mean.after)} %" in page.text
    assert f"{facts.accounting.pairs_kept} pairs kept" in page.text
    assert f"one seed ({facts.seed})" in page.text
    assert "match.duels" in page.text


def test_every_renderer_shows_the_adjusted_tests(page, facts):
    cell = next(c for c in facts.evaluation.changes if c.proven)
    unclear = next(c for c in facts.evaluation.changes if c.detectable and not c.proven)
    assert words.tested(cell).startswith("Holm p ")
    assert "finds" not in words.tested(cell)
    assert words.tested(unclear).endswith(f"finds {words.percent(unclear.detectable)}")
    assert words.tested(facts.evaluation.change()) == ""
    for one in (cell, unclear):
        assert words.tested(one) in page.text
    text, document = printed(summary(facts)), markdown.render(facts)
    for shown in (" ".join(text.split()), document, page.text):
        assert "adjusted by Holm over the domains" in shown
    assert "tests by domain" in text
    assert "| tests by domain | better | worse | unclear |" in document


def test_the_title_counts_and_does_not_claim(facts):
    measured = facts.evaluation
    assert len(measured.domains) == 4

    def with_intervals(*intervals):
        changes = [
            replace(measured.change("", domain), interval=Interval(*interval))
            for domain, interval in zip(measured.domains, intervals, strict=True)
        ]
        return replace(facts, evaluation=replace(measured, changes=tuple(changes)))

    up, down, none = (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1)
    assert html.finding(with_intervals(up, up, none, down)) == (
        "Mean accuracy: higher in 2, lower in 1, no clear change in 1 of 4 domains"
    )
    assert html.finding(with_intervals(*[none] * 4)) == (
        "Mean accuracy: no clear change in 4 of 4 domains"
    )


def test_long_texts_are_shortened_with_a_mark(facts):
    example = replace(facts.examples[0], left_text="a" * 100_000, instruction="b" * 100_000)
    text = html.render(replace(facts, examples=(example,)))
    assert "96,000 more characters" in text
    assert len(text.encode()) < 300_000


def test_long_runs_stay_small(facts):
    line = facts.reputations[0]
    many = tuple((place, 100 + place % 7) for place in range(20_000))
    long = tuple(replace(line, member=f"m{n}", points=many) for n in range(10))
    members = tuple(replace(facts.members[0], name=f"m{n}") for n in range(10))
    text = html.render(replace(facts, reputations=long, members=members, trainings=(),
                               evaluation=replace(facts.evaluation, trajectory=None)))  # fmt: skip
    assert len(text.encode()) < 300_000


def test_files_are_written_whole(facts, tmp_path):
    write_html(facts, tmp_path / "new" / "report.html")
    write_markdown(facts, tmp_path / "new" / "report.md")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["report.html", "report.md"]
    text = (tmp_path / "new" / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# demo-run\n")
    assert all(f"| {domain} |" in text for domain in facts.evaluation.domains)
    assert len(text.splitlines()) < 80


@pytest.mark.parametrize(
    ("folder", "command"),
    [("runs/demo-run", "`phalanx report runs/demo-run` "),
     ("demo-run", "`phalanx report demo-run` "),
     ("/tmp/elsewhere/demo-run", "demo-run as RUN: `phalanx report RUN` "),
     ("../demo-run", "demo-run as RUN: `phalanx report RUN` "),
     ("my runs/demo-run", "demo-run as RUN: `phalanx report RUN` ")],
)  # fmt: skip
def test_commands_in_markdown_hold_where_it_was_written(facts, folder, command):
    text = markdown.render(replace(facts, folder=folder))
    assert command in text
    assert "/tmp/" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_commands_are_never_cut_or_wrapped(facts, width):
    folder = "runs/" + "long-name-" * 9
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(replace(facts, folder=folder)), crop=False)
    lines = console.file.getvalue().splitlines()
    assert f"  phalanx report {folder}" in lines
    assert f"  phalanx export {folder} preferences --out preferences.jsonl" in lines
    long = [line for line in lines if len(line) > width and folder not in line]
    assert not long, "all else keeps the width"
    console.print(summary(replace(facts, folder="my runs/one")), crop=False)
    assert "  phalanx report 'my runs/one'\n" in console.file.getvalue()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.25, 0.5, 0.75, 1]), (3, 3, None), (-2.2, 4.1, [-4, -2, 0, 2, 4, 6]),
     (99.99998, 100.00002, None)],
)  # fmt: skip
def test_ticks_span_the_data_with_round_numbers(low, high, expected):
    marks = charts.ticks(low, high)
    if expected:
        assert marks == pytest.approx(expected)
    assert marks[0] <= low + 1e-12
    assert high <= marks[-1] + 1e-12
    labels = [charts.number(mark, marks[1] - marks[0]) for mark in marks]
    assert len(set(labels)) == len(labels), "ticks must be told apart"


def test_words():
    assert words.points(0.087) == "+8.7"
    assert words.points(-0.0121) == "−1.2"
    assert words.points(0.0) == "0.0"
    assert words.points(0.0001, 0) == "+0"
    assert words.duration(3.21) == "3.2 s"
    assert words.duration(245) == "4 min 05 s"
    assert words.duration(7620) == "2 h 07 min"
    assert words.share_of(0, 0) == "–"
    nested = {"a": {"b": 1, "c": {}}, "d": [2], "e": [{"f": None}], "g": "x"}
    assert words.flat(nested) == [
        ("a.b", "1"), ("a.c", "{}"), ("d", "[2]"), ("e.0.f", "null"), ("g", "x"),
    ]  # fmt: skip
