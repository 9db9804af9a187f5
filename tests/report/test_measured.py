"""The numbers of an evaluation, against rows that are counted by hand or in another way."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report import html, markdown
from phalanx.report.facts import gather
from phalanx.report.measured import measured, pairs_of
from phalanx.report.measured_page import measured_headline
from phalanx.report.measured_views import best_line, measured_sections
from phalanx.report.plots import measured_plot
from phalanx.report.terminal import status, summary
from phalanx.statistics import mcnemar_exact, minimum_detectable, score_interval, tango, wilson
from tests.report import fixture_eval
from tests.report.fixture_eval import HOSTILE, SUBJECTS, line
from tests.report.test_renderers import Page, printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fixture_eval.build(tmp_path_factory.mktemp("evals") / "big")


@pytest.fixture(scope="module")
def facts(folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


def measure(tmp_path, rows, tasks=(), against=None, subjects=(), **facts):
    """Rows through the real ledger, and what the report reads from them."""
    settings = fixture_eval.config(tasks, evaluate={"tasks": list(tasks)})
    with fixture_eval.start(tmp_path / "eval", settings, subjects, **facts) as ledger:
        ledger.record_evaluation(rows)
        fixture_eval.respond(ledger, rows, {})
    with Ledger(run_ledger_path(tmp_path / "eval")) as ledger:
        return measured(ledger, settings, against)


def task(name, **settings):
    return {"name": name, "source": f"{name}.jsonl", **settings}


def marks(subject, name, text, **columns):
    """One row for each letter: 1 right, 0 wrong, ? unreadable, ! failed."""
    trouble = {"?": {"readable": 0, "reason": "no number"},
               "!": {"readable": 0, "reason": "timeout"}}  # fmt: skip
    return [
        line(subject, name, f"{number:03}", float(mark == "1"), **columns, **trouble.get(mark, {}))
        for number, mark in enumerate(text)
    ]


def test_a_table_by_hand(tmp_path):
    rows = marks("base", "sums", "1100?!0000") + marks("new", "sums", "1111111100")
    found = measure(tmp_path, rows, [task("sums")])
    base, new = found.scores
    assert (base.subject, base.task, base.n, base.score) == ("base", "sums", 10, 0.2)
    assert base.interval == wilson(2, 10)
    assert (base.unreadable, base.failed) == (1, 1)
    assert base.reasons == {"no number": 1, "timeout": 1}
    assert (new.score, new.unreadable, new.failed, new.reasons) == (0.8, 0, 0, {})
    assert base.characters == 4.0, "of the nine responses that came"
    (pair,) = found.paired
    assert (pair.subject, pair.other, pair.task, pair.n) == ("new", "base", "sums", 10)
    assert pair.difference == pytest.approx(0.6)
    assert (pair.gained, pair.lost, pair.exact) == (6, 0, True)
    assert pair.pvalue == pair.adjusted == mcnemar_exact(0, 6) == 0.03125
    assert pair.direction == 1
    assert pair.interval.low < 0.6 < pair.interval.high
    assert found.means[0].score == 0.2


def test_a_response_that_never_was_has_failed(tmp_path):
    rows = marks("mixture", "sums", "10")
    rows[1] |= {"response": "", "readable": 0, "reason": "too few proposals"}
    settings = fixture_eval.config([task("sums")])
    with fixture_eval.start(tmp_path / "eval", settings) as ledger:
        ledger.record_evaluation(rows)
        (score,) = measured(ledger, settings).scores
    assert (score.failed, score.unreadable, score.characters) == (1, 0, None)


def test_holm_counts_over_the_tasks_of_one_comparison(tmp_path):
    """Alone, each of three tasks is below .05; adjusted, only the first is."""
    gains = {"one": 9, "two": 6, "three": 6}
    rows = []
    for name, gained in gains.items():
        rows += marks("a", name, "0" * 40) + marks("b", name, "1" * gained + "0" * (40 - gained))
    found = measure(tmp_path, rows, [task(name) for name in gains])
    one, two, three, mean = found.paired
    assert [line.task for line in found.paired] == ["one", "two", "three", ""]
    assert [line.pvalue for line in (one, two, three)] == [2 / 2**9, 2 / 2**6, 2 / 2**6]
    assert [line.adjusted for line in (one, two, three)] == [6 / 2**9, 4 / 2**6, 4 / 2**6]
    assert [line.direction for line in (one, two, three)] == [1, 0, 0]
    assert two.detectable == minimum_detectable(40, 6 / 40, confidence=1 - 0.05 / 3)
    assert mean.difference == pytest.approx((9 + 6 + 6) / 120)
    assert (mean.n, mean.adjusted, mean.direction) == (120, None, 1)
    assert mean.pvalue < 0.001
    assert mean.interval.low > 0


def test_tasks_of_other_sizes_weigh_the_same(tmp_path):
    rows = marks("a", "small", "1" * 5 + "0" * 5) + marks("a", "large", "1" * 90 + "0" * 10)
    (mean,) = measure(tmp_path, rows, [task("small"), task("large")]).means
    assert mean.score == pytest.approx(0.7)
    assert mean.interval.low < 0.7 < mean.interval.high


def test_means_and_the_choice_are_of_the_tasks_that_all_have(tmp_path):
    rows = [*marks("a", "x", "10" * 4), *marks("a", "y", "1" * 8), *marks("b", "x", "1110" * 2)]
    for number, row in enumerate(rows):
        row["split"] = "dev" if number % 2 else "test"
    found = measure(tmp_path, rows, [task("x"), task("y")])
    assert found.common == ("x",)
    assert found.missing == (("b", "y"),)
    assert {mean.subject: mean.score for mean in found.means} == {"a": 0.5, "b": 0.75}
    assert [line.task for line in found.paired] == ["x"]
    # On dev (every second item) "a" has 0 of 4 and "b" 2 of 4; on test "b" has all.
    assert found.best.subject == "b"
    assert (found.best.dev, found.best.num_dev) == (0.5, 4)
    assert (found.best.test, found.best.num_test) == (1.0, 4)


def test_what_is_shown_of_a_comparison_is_of_the_tasks_that_all_have(tmp_path):
    """The majority has no likelihoods: of two tasks one is common, and the other comes last."""
    rows = [*marks("ada", "sums", "0" * 40), *marks("ada", "truth", "1" * 40),
            *marks("bob", "sums", "1" * 20 + "0" * 20), *marks("bob", "truth", "0" * 40),
            *marks("majority", "sums", "1" + "0" * 39)]  # fmt: skip
    found = measure(tmp_path, rows, [task("sums"), task("truth")], subjects=("ada", "bob"))
    bob = found.comparisons["bob", "ada"]
    assert [line.task for line in bob] == ["sums", "truth"]
    assert found.overall(bob) is bob[0]
    (item,) = measured_headline(found)
    assert item["name"] == "bob minus ada on sums"
    assert item["value"] == "+50.0 points"
    shown = str(measured_plot(found))
    assert "+50.0 ▲" in shown
    assert "▼" not in shown


def test_the_luckiest_on_test_is_not_chosen(tmp_path):
    rows = []
    for name, dev, test in (("a", "1100", "0000"), ("b", "1000", "1111"), ("c", "1100", "1111")):
        rows += marks(name, "x", dev, split="dev")
        rows += [{**row, "item": f"t{row['item']}"} for row in marks(name, "x", test)]
    found = measure(tmp_path, rows, [task("x")])
    assert found.best.subject == "a", "of equals the one named first"
    assert found.best.test == 0.0
    assert best_line(found.best).startswith("Best by dev: a (50.0 % of 4 dev items); on 4 test")


def test_no_choice_without_both_splits_or_among_one(tmp_path):
    alone = [*marks("a", "x", "10", split="dev"), line("a", "x", "t", 1)]
    assert measure(tmp_path / "1", alone, [task("x")]).best is None
    assert measure(tmp_path / "2", marks("a", "x", "10") + marks("b", "x", "11")).best is None


def test_few_changes_make_no_mean_better(tmp_path):
    """Three of twelve items: a bootstrap would see nothing but gains, three coins prove nothing."""
    rows = marks("a", "x", "0" * 6) + marks("a", "y", "0" * 6)
    rows += marks("b", "x", "111000") + marks("b", "y", "0" * 6)
    mean = measure(tmp_path, rows, [task("x"), task("y")]).paired[-1]
    assert mean.interval.low < 0
    assert (mean.pvalue, mean.direction, mean.detectable) == (0.25, 0, None)


def test_where_nothing_varies_no_interval_is_without_width(tmp_path):
    """All wrong, all right, nothing changed: six and two items are not certain of it."""
    rows = []
    for name in ("a", "b"):
        for number, row in enumerate([*marks(name, "x", "0" * 6), *marks(name, "y", "1" * 6)]):
            rows.append(row | {"split": "dev" if number % 3 else "test"})
    rows.append(line("b", "x", "more", 1, split="dev"))
    rows.append(line("a", "x", "more", 0, split="dev"))
    found = measure(tmp_path, rows, [task("x"), task("y")])
    spans = [one.interval for one in (*found.scores, *found.means, *found.paired, found.best)]
    assert min(one.high - one.low for one in spans) > 0.2
    assert found.paired[1].interval == tango(0, 0, 6)


def test_answers_that_were_cut_off_are_counted_and_warned_of(tmp_path):
    rows = marks("a", "sums", "?" * 7 + "10!") + marks("b", "sums", "1" * 10)
    settings = fixture_eval.config([task("sums")])
    with fixture_eval.start(tmp_path / "eval", settings) as ledger:
        ledger.record_evaluation(rows)
        fixture_eval.respond(ledger, rows[:10], {}, cut=[f"{n:03}" for n in range(6)])
        fixture_eval.respond(ledger, rows[10:], {}, cut=["000"])
        facts = gather(ledger)
    a, b = facts.measured.scores
    assert (a.unreadable, a.failed, a.cut, a.cut_unread) == (7, 1, 6, {"no number": 6})
    assert (b.cut, b.cut_unread) == (1, {})
    most = settings.evaluate.max_new_tokens
    for shown in (" ".join(printed(summary(facts)).split()), Page(html.render(facts)).text,
                  markdown.render(facts)):  # fmt: skip
        assert "most answers of a could not be read, or failed (8 of 10 on sums, 6 cut" in shown
        assert "most answers of b" not in shown
        assert "7 no number (6 cut off), 1 timeout" in shown
        assert f"raise evaluate.max_new_tokens (now {most})" in shown


def test_a_judge_of_one_verdict_is_warned_of(tmp_path):
    def verdicts(judge, values):
        known = {"iteration": 0, "task": "com2", "member": "a", "rival": "", "judge": judge,
                 "game": "gold", "domain": "", "reason": "", "length": 4, "rival_length": 2,
                 "response": "", "request": ""}  # fmt: skip
        return [{**known, "item": str(n), "value": value, "label": "yes" if value else "no"}
                for n, value in enumerate(values)]  # fmt: skip

    with fixture_eval.start(tmp_path / "e", fixture_eval.config()) as ledger:
        ledger.record_games(verdicts("bob", [1.0] * 10) + verdicts("cy", [0.0] * 9 + [1.0]))
        ledger.record_games(verdicts("few", [1.0] * 9) + verdicts("sad", [0.0] * 12))
        facts = gather(ledger)
    text = " ".join(printed(summary(facts)).split())
    assert "Warning: bob said yes to all 10 answers of com2" in text
    assert "Warning: sad said no to all 12 answers of com2" in text
    assert text.count("Warning:") == 2


def test_where_all_are_equal_on_dev_nobody_is_best(tmp_path):
    rows = [row for name in "ab" for row in marks(name, "x", "???", split="dev")]
    rows += [line(name, "x", "t", name == "b") for name in "ab"]
    assert measure(tmp_path, rows, [task("x")]).best is None


def test_one_item_says_little(tmp_path):
    rows = [*marks("a", "x", "1"), *marks("a", "y", "10"), *marks("b", "x", "1"),
            *marks("b", "y", "10")]  # fmt: skip
    found = measure(tmp_path, rows, [task("x"), task("y")])
    assert found.means[0].interval.high - found.means[0].interval.low > 0.5
    assert found.paired[-1].interval.low < -0.4
    assert [line.direction for line in found.paired] == [0, 0, 0]
    assert "–" in str(measured_sections(found))


def test_shares_are_tested_by_flipping_signs_and_shown_beside_whole_items(tmp_path):
    rows = [line("a", "t", f"{n:02}", 0.25) for n in range(12)]
    rows += [line("b", "t", f"{n:02}", 0.75 if n else 1.0) for n in range(12)]
    found = measure(tmp_path, rows, [task("t", kind="truthfulqa_mc2")])
    (pair,) = found.paired
    assert not pair.exact
    assert pair.pvalue == 2 / 2**12
    assert pair.difference == pytest.approx((11 * 0.5 + 0.75) / 12)
    b = found.score("b", "t")
    assert (b.score, b.whole) == (pytest.approx(9.25 / 12), pytest.approx(1 / 12))
    assert b.interval.low < b.score < b.interval.high < 0.9
    (table,) = (t for s in measured_sections(found) if s.id == "scores" for t in s.tables)
    assert "true mass %" in table.headers
    assert table.headers[-1] == "% right"
    assert [row[-1] for row in table.rows] == ["0.0", "8.3"]


def test_pass_at_k_against_every_subset_of_the_samples(tmp_path):
    right = [0, 1, 2, 4, 4]  # of 4 samples
    rows = [line("a", "c", str(n), count / 4) for n, count in enumerate(right)]
    found = measure(tmp_path, rows, [task("c", kind="humaneval", samples=4, temperature=1.0)])
    for one in found.passes:
        share = 0.0
        for count in right:
            draws = [d for d in product(range(4), repeat=one.k) if len(set(d)) == one.k]
            share += sum(any(place < count for place in draw) for draw in draws) / len(draws)
        assert one.share == pytest.approx(share / 5)
    assert [one.k for one in found.passes] == [1, 2, 4]
    assert found.passes[0].share == pytest.approx(found.scores[0].score)
    assert {one.samples for one in found.passes} == {4}


def test_later_samples_that_went_wrong_are_counted(tmp_path):
    rows = [line("a", "c", "1", 0.5, reason="sample 2: timeout"), line("a", "c", "2", 1.0),
            line("a", "c", "3", 0.0, readable=0, reason="no number")]  # fmt: skip
    found = measure(tmp_path, rows, [task("c", samples=2, temperature=1.0)])
    (score,) = found.scores
    assert (score.unreadable, score.failed, score.later) == (1, 0, 1)
    assert "1 item had a later one that failed" in str(measured_sections(found))


def test_wrong_answers_with_a_reason_are_no_later_samples(tmp_path):
    """Code that failed its tests says why, and is an ordinary wrong answer."""
    rows = [line("a", "c", "1", 0.0, reason="1 of 3 tests failed"),
            line("a", "c", "2", 0.5, reason="sample 2: timeout")]  # fmt: skip
    (score,) = measure(tmp_path, rows, [task("c", samples=2, temperature=1.0)]).scores
    assert (score.unreadable, score.failed, score.later) == (0, 0, 1)


def test_partial_credit_has_no_pass_at_k(tmp_path):
    rows = [line("a", "k", "1", 0.5), line("a", "k", "2", 1 / 3)]
    assert measure(tmp_path, rows, [task("k", samples=2, temperature=1.0)]).passes == ()


def test_labels_are_recalled_one_by_one(tmp_path):
    rows = marks("a", "n", "1101" * 2, domain="yes")
    rows += [{**row, "item": f"no{row['item']}"} for row in marks("a", "n", "01" * 3, domain="no")]
    found = measure(tmp_path, rows, [task("n", kind="normad_country")])
    assert [(one.domain, one.n, one.score) for one in found.by_domain] == [
        ("no", 6, 0.5),
        ("yes", 8, 0.75),
    ]
    section = next(s for s in measured_sections(found) if s.id == "domains")
    assert section.tables[0].title == "n: recall of each label, %"
    assert section.tables[0].rows[1] == ("yes", "8", "75.0 [41 to 93]")


def test_domains_of_few_items_stand_together(tmp_path):
    rows = []
    for domain, text in (("law", "1" * 6), ("art", "1100"), ("war", "0")):
        rows += [{**row, "item": f"{domain}{row['item']}"}
                 for row in marks("a", "mmlu", text, domain=domain)]  # fmt: skip
    found = measure(tmp_path, rows, [task("mmlu")])
    assert [(one.domain, one.n, one.score) for one in found.by_domain] == [
        ("law", 6, 1.0),
        ("other domains (2)", 5, 0.4),
    ]


def test_several_comparisons_are_one_table_and_its_details(facts):
    section = next(s for s in measured_sections(facts.measured) if s.id == "compared")
    first, *details = section.tables
    assert first.headers == ("comparison", "mean", "skills", "normad")
    assert [row[0] for row in first.rows] == [
        "ada@2 minus ada@0", "bob@2 minus bob@0", "majority minus ada@0",
    ]  # fmt: skip
    for row, compared in zip(first.rows, facts.measured.comparisons.values(), strict=True):
        at = {one.task: one.direction for one in compared}
        assert [1 if "▲" in cell else -1 if "▼" in cell else 0 for cell in row[1:]] == [
            at[name] for name in ("", "skills", "normad")
        ]
    assert "▲" in first.rows[1][1]
    assert [table.detail for table in details] == [False, True, True, True]


def test_a_change_that_is_unclear_is_called_so_first(tmp_path):
    rows = marks("a", "x", "0" * 6) + marks("b", "x", "1" + "0" * 5)
    (item,) = measured_headline(measure(tmp_path, rows, [task("x")]))
    assert item["value"] == "unclear (+16.7 points)"
    assert item["note"].endswith("better on 0 of 1 task, worse on 0")


def test_the_page_of_an_evaluation_names_what_it_measured(facts):
    page = Page(html.render(facts)).text
    assert "5 measured" in page
    assert "5 measured" in printed(summary(facts))
    assert "train.method" not in page
    assert "evaluate.tasks.0.name" in page


@pytest.mark.parametrize(
    ("subjects", "against", "expected"),
    [
        (["a", "b", "c"], None, [("b", "a"), ("c", "a")]),
        (["a", "b", "c"], "c", [("a", "c"), ("b", "c")]),
        (["a", "b"], "nobody", []),
        (["ada@0", "bob@0", "ada@2", "bob@2"], None, [("ada@2", "ada@0"), ("bob@2", "bob@0")]),
        (["ada@2", "ada@0", "ada@1"], None, [("ada@2", "ada@0"), ("ada@1", "ada@0")]),
        (["ada@0", "ada@2", "majority"], None, [("ada@2", "ada@0"), ("majority", "ada@0")]),
        (["ada@10", "ada@9"], None, [("ada@10", "ada@9")]),
        (["ada@2"], None, []),
        ([], None, []),
    ],
)
def test_who_is_compared_with_whom(subjects, against, expected):
    assert pairs_of(subjects, against) == expected


@given(st.lists(st.sampled_from(["a", "b", "a@0", "a@1", "a@2", "b@0"]), unique=True))
def test_nobody_is_compared_with_themselves_or_twice(subjects):
    pairs = pairs_of(subjects, None)
    assert all(one != two and {one, two} <= set(subjects) for one, two in pairs)
    assert len({one for one, _ in pairs}) == len(pairs)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(0, 9))
@settings(deadline=None, max_examples=60)
def test_a_score_lies_in_its_interval_and_that_in_0_to_1(scores, seed):
    found = score_interval(scores, seed)
    assert 0 <= found.low <= found.high <= 1 + 1e-12
    if set(scores) <= {0, 1}:
        assert found == wilson(int(sum(scores)), len(scores))
    if len(set(scores)) == 1 and len(scores) < 30:
        assert found.high - found.low > 0.05, "items that are all alike do not make it certain"


def test_the_order_is_that_of_the_evaluation(facts):
    assert facts.measured.subjects == SUBJECTS
    assert facts.measured.tasks == ("skills", "normad", "truth", "code", "com2")
    assert list(facts.measured.comparisons) == [
        ("ada@2", "ada@0"), ("bob@2", "bob@0"), ("majority", "ada@0"),
    ]  # fmt: skip


def test_scores_are_those_of_a_plain_count(facts, folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        rows = ledger.query(
            "SELECT member, task, count(*) AS n, avg(score) AS score, sum(NOT readable) AS bad, "
            "avg(correct) AS whole FROM evaluations GROUP BY member, task"
        )
    assert len(rows) == len(facts.measured.scores) == 24
    for row in rows:
        one = facts.measured.score(row["member"], row["task"])
        assert (one.n, one.unreadable + one.failed) == (row["n"], row["bad"])
        assert (one.score, one.whole) == (pytest.approx(row["score"]), pytest.approx(row["whole"]))
        assert sum(one.reasons.values()) == row["bad"]


def test_against_is_read_from_the_ledger(folder, tmp_path):
    with fixture_eval.start(tmp_path / "e", fixture_eval.config(), against="b") as ledger:
        ledger.record_evaluation([line(name, "skills", "1", 1) for name in ("a", "b", "c")])
        found = gather(ledger).measured
    assert list(found.comparisons) == [("a", "b"), ("c", "b")]


def test_every_renderer_says_the_same(facts):
    best = facts.measured.best
    text = printed(summary(facts))
    assert max(map(len, text.splitlines())) <= 80
    page, document = Page(html.render(facts)), markdown.render(facts)
    for shown in (" ".join(text.split()), page.text, document):
        assert "Best by dev: majority" in shown
        assert f"{100 * best.test:.1f} %" in shown
        assert "ada@2 minus ada@0" in shown
        assert "Not measured: majority on truth. Means are of the tasks that all have." in shown
        assert "normad: recall of each label" in shown
        assert "code, 5 samples an item" in shown
        assert "Counted as wrong:" in shown
    assert "phalanx export" in text
    assert "Scores" in printed(status(facts))
    assert "Compared" not in printed(status(facts))


def test_the_status_of_an_evaluation_needs_no_tables(facts, folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        assert printed(status(gather(ledger, tables=False))) == printed(status(facts))


def test_single_answers_are_on_the_page(facts):
    """Three of each kind, with question, gold answer and what was said, folded."""
    kinds = [one.kind for one in facts.measured.examples]
    assert kinds == [k for k in ("gained", "lost", "wrong", "unreadable") for _ in range(3)]
    assert len({one.task for one in facts.measured.examples if one.kind == "wrong"}) == 3
    for one in facts.measured.examples:
        score = {said[0]: said for said in one.said}
        assert one.question == f"{HOSTILE} {one.item}?"
        assert one.subject in score
        assert len(score) == (2 if one.kind in ("gained", "lost") else 1)
    page = Page(html.render(facts)).text
    assert f"{HOSTILE} {facts.measured.examples[0].item}?" in page
    assert "Not readable" in page
    assert "Not readable" in markdown.render(facts)
    assert "Not readable" not in printed(summary(facts))


def test_hostile_domains_stay_text(facts):
    assert HOSTILE not in html.render(facts)
    assert HOSTILE not in markdown.render(facts)
    assert HOSTILE in Page(html.render(facts)).text


def test_narrow_and_plain_terminals(facts):
    assert max(map(len, printed(summary(facts), width=60).splitlines())) <= 60
    odd = replace(facts.measured.scores[0], subject="ação@2")
    strange = replace(facts.measured, scores=(odd, *facts.measured.scores))
    text = printed(summary(replace(facts, measured=strange)), encoding="ascii")
    assert "a??o@2" in text
    assert "\x1b" not in text


def test_an_evaluation_without_rows_yet(tmp_path):
    with fixture_eval.start(tmp_path / "e", fixture_eval.config()) as ledger:
        facts = gather(ledger)
    assert facts.measured.subjects == ()
    assert "Not finished" in printed(summary(facts))
    assert "Scores" not in html.render(facts)


def test_gathering_twice_gives_the_same(facts, folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        assert asdict(gather(ledger)) == asdict(facts)


def test_long_evaluations_keep_task_tables_for_the_page(tmp_path):
    names = [f"m{n}" for n in range(9)]
    tasks = [f"t{n}" for n in range(6)]
    rows = [row for name in names for t in tasks for row in marks(name, t, "10")]
    with fixture_eval.start(tmp_path / "e", fixture_eval.config(map(task, tasks))) as ledger:
        ledger.record_evaluation(rows)
        facts = gather(ledger)
    text, page = printed(summary(facts)), html.render(facts)
    assert "unreadable" not in text.partition("Compared")[0]
    assert page.count('<th scope="col">unreadable</th>') == 6


def test_a_heading_has_something_below_it(tmp_path):
    """Domains too many for a terminal are on the page alone, and so is their heading."""
    rows = [
        line(name, "sums", f"{n:03}", float(n % 3 == 0), domain=f"d{n % 12}")
        for name in ("base", "new")
        for n in range(60)
    ]
    measure(tmp_path, rows, [task("sums")])
    with Ledger(run_ledger_path(tmp_path / "eval")) as ledger:
        found = gather(ledger)
    assert "By domain" in markdown.render(found)
    shown = printed(summary(found))
    assert "Compared" in shown
    assert "By domain" not in shown
