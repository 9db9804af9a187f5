"""The report of a run of the method moaa, against the ledger's rows counted another way."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config import load
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.report import html, markdown, words
from phalanx.report.facts import gather
from phalanx.report.moaa_result import teacher_lines
from phalanx.report.moaa_scores import ratio
from phalanx.report.moaa_views import sections
from phalanx.report.terminal import status, summary
from phalanx.report.words import doing, percent
from phalanx.statistics import Interval, mcnemar_exact
from phalanx.types import Iteration
from tests import search_pool
from tests.report import fixture_moaa
from tests.report.test_renderers import Page, printed

SMOKE = Path(__file__).resolve().parents[2] / "configs" / "smoke" / "moaa.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fixture_moaa.build(tmp_path_factory.mktemp("runs") / "moaa-run")


@pytest.fixture(scope="module")
def facts(folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


@pytest.fixture(scope="module")
def rows(folder):
    """``rows(sql)`` through plain sqlite3, around the code under test."""
    database = sqlite3.connect(run_ledger_path(folder))
    database.row_factory = sqlite3.Row
    yield lambda sql, *values: [dict(row) for row in database.execute(sql, values)]
    database.close()


def test_every_demonstration_and_pair_is_kept_or_dropped(facts, rows):
    stages = facts.moaa.stages
    assert [(s.kind, s.generation, s.recorded) for s in stages] == [
        ("sft", 1, True), ("dpo", 1, True), ("sft", 2, True), ("dpo", 2, True),
    ]  # fmt: skip
    made = [builder for stage in stages for builder in stage.builders]
    pairs = [pair for stage in stages for pair in stage.pairs]
    assert all(one.rows == one.kept + sum(one.dropped.values()) for one in [*made, *pairs])
    account = facts.accounting
    total = rows("SELECT count(*) AS n FROM demonstrations")[0]["n"]
    assert account.num_demonstrations == sum(one.rows for one in made) == total
    assert account.demonstrations_kept == sum(one.kept for one in made)
    total = rows("SELECT count(*) AS n FROM pairs")[0]["n"]
    assert account.num_pairs == sum(one.rows for one in pairs) == total == 2 * 16
    assert {one.name for one in made} == {"mixture", "random", "best_of"}
    assert [one.students for one in stages[0].builders] == [("stu",), ("rnd",), ("bst",)]
    dropped = Counter()
    for one in made:
        dropped.update(one.dropped)
    assert {"failed", "empty", "truncated", "cut"} <= set(dropped)
    for stage in stages:
        for one in stage.rewards:
            decided = rows(
                "SELECT count(*) AS n FROM judgments WHERE iteration = ? AND judge = ? "
                "AND protocol = ? AND score_left != score_right",
                stage.iteration,
                one.judge,
                one.protocol,
            )[0]["n"]
            assert one.decided == decided
            assert sum(one.reasons.values()) == one.asked - one.readable
            assert one.flipped <= one.ties


def test_a_finished_run_owes_nothing_though_phases_share_requests(facts, rows):
    stored = rows("SELECT count(*) AS n FROM responses")[0]["n"]
    phases = facts.accounting.phases
    assert sum(phase.asked for phase in phases) == stored
    assert sum(phase.owed for phase in phases) == 0
    planned = rows("SELECT sum(asked) AS n FROM phases WHERE phase != 'train'")[0]["n"]
    assert planned == stored
    shared = "SELECT count(response) - count(DISTINCT response) AS n FROM demonstrations"
    assert rows(shared)[0]["n"] > 0, "without shared requests this would show nothing"


def test_the_mixture_and_the_reward_are_counted(facts, rows):
    first, second, third, _ = facts.moaa.stages
    assert {one.member for one in first.proposers} == {"ada", "bob", "cora"}
    assert {one.member for one in third.proposers} == {"ada", "bob", "cora", "stu"}, "stu joined"
    assert all(0 < one.left_out < one.asked for one in first.proposers)
    turns = next(one.counts for one in first.turns if one.builder == "mixture")
    assert turns["later"] == turns["fitting"] + turns["rewritten"] + turns["cut"] > 0
    verdicts = second.rewards[0]
    got = rows(
        "SELECT sum(flipped) AS flipped, sum(score_left IS NULL) AS unread, "
        "sum(score_left = score_right) AS ties FROM judgments WHERE iteration = 2"
    )[0]
    assert (verdicts.judge, verdicts.protocol) == ("mixture", "moa")
    assert verdicts.flipped == got["flipped"] > 0
    assert verdicts.asked - verdicts.readable == got["unread"] > 0
    assert verdicts.ties == got["ties"]
    assert sum(second.outcomes.values()) == verdicts.asked
    for one in second.evaluators:
        texts = rows(
            "SELECT text, error_kind FROM responses WHERE iteration = 2 AND purpose = 'assess' "
            "AND member = ?",
            one.member,
        )
        assert one.asked == len(texts)
        assert one.left_out == sum(not (row["text"] or "").strip() for row in texts)
    asked = rows("SELECT count(*) AS n FROM responses WHERE iteration = 2 AND purpose = 'criteria'")
    assert sum(second.criteria.values()) == 3 * asked[0]["n"]
    assert 0 < second.unreadable_criteria < asked[0]["n"]
    assert (second.criteria_chosen_for, second.criteria_reused_for) == (asked[0]["n"], 0)


def test_scores_and_reasoning_are_counted_and_shown(facts, rows):
    first = facts.moaa.stages[0]
    scores = rows(
        "SELECT count(*) AS n, sum(coalesce(text, '') NOT LIKE '%\"score\"%') AS unread "
        "FROM responses WHERE iteration = 1 AND purpose = 'judge'"
    )[0]
    assert (first.scores_asked, first.scores_unreadable) == (scores["n"], scores["unread"])
    thought = rows(
        "SELECT count(*) AS n FROM responses WHERE iteration = 1 AND purpose = 'aggregate' "
        "AND text LIKE '<think>%'"
    )[0]["n"]
    assert first.reasoning_removed == {"mixture": thought}
    assert min(scores["unread"], thought) > 0, "otherwise this shows nothing"
    lines = {section.id: section.lines for section in sections(facts)}
    said = f"1 sft: {scores['n']} scores of single responses asked for, {scores['unread']} unread"
    assert any(line.startswith(said) for line in lines["reward"])
    removed = f"1 sft: answers without the reasoning they came with: {thought} mixture."
    assert removed in lines["mixture"]


def test_criteria_of_an_earlier_stage_are_said_to_be_reused(tmp_path):
    """Three instructions for two generations: the second one compares on the same three."""
    path = tmp_path / "three.jsonl"
    texts = [f'{{"id": "i{n}", "instruction": "Name a prime, not {n}."}}\n' for n in range(3)]
    path.write_text("".join(texts), encoding="utf-8")
    align(load(SMOKE, {"instructions.source": str(path)}), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        facts = gather(ledger)
        asked = ledger.count("responses", "purpose = 'criteria'")
    first, second = facts.moaa.stages[1], facts.moaa.stages[3]
    assert (first.criteria_chosen_for, first.criteria_reused_for) == (asked, 0)
    assert second.criteria_chosen_for == second.criteria_reused_for > 0
    text = markdown.render(facts)
    whole = second.criteria_chosen_for
    assert f"2 dpo: criteria reused for {whole} of {whole} instructions" in text
    assert "| 2 dpo, reused |" in text
    assert "1 dpo: criteria reused" not in text
    assert "| 1 dpo, reused |" not in text


def accuracy(rows, name: str, number: int, split: str) -> float:
    got = rows(
        "SELECT avg(correct) AS share FROM evaluations WHERE member = ? AND iteration = ? "
        "AND split = ? GROUP BY domain",
        name,
        number,
        split,
    )
    return sum(row["share"] for row in got) / len(got)


def test_levels_and_comparisons_by_hand(facts, rows):
    result = facts.moaa.result
    students = [(s.name, s.iteration) for s in result.levels if s.role == "student"]
    assert [place for place in students if place[0] == "stu"] == [("stu", n) for n in range(5)]
    assert [place for place in students if place[0] == "rnd"] == [("rnd", n) for n in (0, 1, 3)]
    assert [s.iteration for s in result.levels if s.role == "mixture"] == [0, 2, 4]
    for level in result.levels:
        assert level.test == pytest.approx(accuracy(rows, level.name, level.iteration, "test"))
        assert level.interval.low <= level.test <= level.interval.high
    dev = {name: accuracy(rows, name, 0, "dev") for name in fixture_moaa.KNOWS}
    assert dev[result.best_teacher] == max(dev.values())
    last = [one for one in result.comparisons if (one.name, one.iteration) == ("stu", 4)]
    assert {
        one.against: (one.other, one.other_iteration) for one in last if one.against != "baseline"
    } == {
        "stage": ("stu", 3),
        "generation": ("stu", 2),
        "teacher": (result.best_teacher, 0),
        "mixture": ("mixture", 0),
    }
    for number, then in ((1, 1), (2, 1), (3, 3), (4, 3)):  # baselines have no stage dpo here
        assert [
            (one.other, one.other_iteration)
            for one in result.comparisons
            if (one.name, one.iteration, one.against) == ("stu", number, "baseline")
        ] == [("rnd", then), ("bst", then)]
    for one in last:
        after, before = (
            {
                (row["task"], row["item"]): row["correct"]
                for row in rows(
                    "SELECT task, item, correct FROM evaluations WHERE member = ? "
                    "AND iteration = ? AND split = 'test'",
                    name,
                    number,
                )
            }
            for name, number in ((one.name, one.iteration), (one.other, one.other_iteration))
        )
        won = sum(after[item] > before[item] for item in before)
        lost = sum(after[item] < before[item] for item in before)
        assert one.pvalue == mcnemar_exact(lost, won)
        assert one.change.difference == pytest.approx(one.change.after - one.change.before)


def test_what_cannot_be_compared_is_said(tmp_path):
    members = [
        *({"name": name, "roles": ["contest", "judge"]} for name in fixture_moaa.KNOWS),
        *({"name": name, "roles": ["contest", "learn"]} for name in ("stu", "rnd")),
        {"name": "bst", "roles": ["learn"]},
    ]
    configured = fixture_moaa.config(
        iterations=1,
        pool={"base": "builtin:smollm2-135m", "members": members},
        train={"method": "none"},
    )
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        fixture_moaa.measure(ledger, configured, 0)
        right = "UPDATE evaluations SET correct = 1, score = 1 WHERE member = 'ada'"
        with ledger.transaction():
            ledger._db.execute(right)
        facts = gather(ledger)
    result = facts.moaa.result
    assert result.unmeasured == ("bst",)
    lines = sections(facts)[0].lines
    assert "Students that were not measured: bst." in lines
    assert "No student has been measured after it had learned." in lines
    ada = result.last("ada")
    assert ada.test == pytest.approx(1)
    assert 0.8 < ada.interval.low < ada.interval.high == 1
    chosen, change = facts.evaluation.best_initial, facts.evaluation.change("ada")
    assert (chosen.member, chosen.test_interval) == ("ada", ada.interval)
    assert change.before_interval == change.after_interval == ada.interval
    assert result.best_teacher == "ada"


def test_a_teacher_that_was_not_measured_is_named(tmp_path):
    members = [
        *({"name": name, "roles": ["contest", "judge"]} for name in ("ada", "bob", "cora")),
        {"name": "dan", "roles": ["judge"]},
        *({"name": name, "roles": ["contest", "learn"]} for name in fixture_moaa.STUDENTS),
    ]
    pool = {"base": "builtin:smollm2-135m", "members": members}
    configured = fixture_moaa.config(iterations=1, pool=pool)
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        fixture_moaa.measure(ledger, configured, 0)
        with ledger.transaction():  # as runs were recorded that measured contestants alone
            ledger._db.execute("DELETE FROM evaluations WHERE member = 'dan'")
        facts = gather(ledger)
    assert facts.moaa.teachers == ("ada", "bob", "cora", "dan")
    assert facts.moaa.result.unmeasured == ("dan",)
    assert any("Teachers that were not measured: dan;" in o for o in sections(facts)[0].lines)


def test_costs_add_up_to_every_response(facts, rows):
    whole = rows(
        "SELECT count(*) AS n, sum(num_prompt_tokens) AS read, sum(num_completion_tokens) AS wrote "
        "FROM responses"
    )[0]
    costs = facts.moaa.costs
    assert sum(cost.requests for cost in costs) == whole["n"]
    assert sum(cost.tokens_in for cost in costs) == whole["read"]
    assert sum(cost.tokens_out for cost in costs) == whole["wrote"]
    assert {"propose", "aggregate", "fit", "rewrite", "train"} <= {
        cost.purpose for cost in costs if (cost.generation, cost.kind) == (1, "sft")
    }
    assert all(cost.money is None for cost in costs)
    answers = {answer.name: answer for answer in facts.moaa.answers}
    assert answers["stu"].requests == 1
    # Three proposers and the aggregator, unless a conversation ended in a layer.
    assert 3 < answers["mixture"].requests <= 4
    mine = next(one for one in facts.moaa.result.ratios if one.student == "stu")
    assert mine.tokens == pytest.approx(answers["stu"].tokens / answers["mixture"].tokens)
    # All have the same base here, so that weighing by parameters changes nothing.
    assert mine.weighted == pytest.approx(mine.tokens)
    levels = {(s.name, s.iteration): s.test for s in facts.moaa.result.levels}
    assert mine.accuracy == pytest.approx(levels["stu", 4] / levels["mixture", 0])


def test_money_where_endpoints_have_prices(tmp_path):
    members = [
        {"name": "ada", "engine": "openai", "model": "big", "roles": ["contest", "judge"]},
        *({"name": name, "roles": ["contest", "judge"]} for name in ("bob", "cora", "dan")),
        *({"name": name, "roles": ["contest", "learn"]} for name in fixture_moaa.STUDENTS),
    ]
    configured = fixture_moaa.config(
        iterations=1,
        pool={"base": "builtin:smollm2-135m", "members": members},
        endpoints=[{"name": "paid", "url": "http://127.0.0.1:9/v1", "price_in": 2.0,
                    "price_out": 6.0}],
    )  # fmt: skip
    with Ledger(run_ledger_path(fixture_moaa.build(tmp_path / "run", configured))) as ledger:
        moaa = gather(ledger).moaa
        tokens = ledger.query(
            "SELECT sum(num_prompt_tokens) AS read, sum(num_completion_tokens) AS wrote "
            "FROM responses WHERE member = 'ada'"
        )[0]
    paid = sum(cost.money for cost in moaa.costs if cost.money is not None)
    assert paid == pytest.approx((2 * tokens["read"] + 6 * tokens["wrote"]) / 1e6)
    answers = {answer.name: answer for answer in moaa.answers}
    assert answers["ada"].weighted is None, "nobody knows how large it is"
    assert answers["stu"].money is None
    assert moaa.result.ratios[0].weighted is None
    assert moaa.result.ratios[0].money is None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
)
def test_a_ratio_lies_in_its_interval_or_is_not_given(pairs, seed):
    part = {("t", str(n)): float(one) for n, (one, _) in enumerate(pairs)}
    whole = {("t", str(n)): float(other) for n, (_, other) in enumerate(pairs)}
    domain = dict.fromkeys(part, "d")
    found = ratio(part, whole, domain, seed=seed)
    total = sum(whole.values())
    if not total:
        assert found is None
    elif found is not None:
        share, interval = found
        assert share == pytest.approx(sum(part.values()) / total)
        assert interval.low <= interval.high
        assert np.isfinite([share, *interval]).all()
        if part == whole:
            assert interval == pytest.approx((1.0, 1.0))


def test_the_sentence_about_the_best_teacher_says_what_the_interval_says(facts):
    moaa = facts.moaa
    one = [c for c in moaa.result.comparisons if (c.name, c.against) == ("stu", "teacher")][-1]
    for low, high, said in (
        (0.01, 0.2, "stu passes its best teacher"),
        (-0.2, -0.01, "stu does not reach its best teacher"),
        (-0.1, 0.1, "cannot be told apart"),
    ):
        changed = replace(one, change=replace(one.change, interval=Interval(low, high)))
        line = teacher_lines(replace(moaa, result=replace(moaa.result, comparisons=(changed,))))[0]
        assert said in line
        assert ("go unnoticed" in line) == (low < 0 < high and one.detectable is not None)
        assert one.other in line


def test_generations_are_compared_in_a_sentence(facts):
    lines = [line for line in sections(facts)[0].lines if "over the one before" in line]
    assert [line.partition(",")[0] for line in lines] == ["stu", "rnd", "bst"]
    for name, (now, then) in {"stu": (4, 2), "rnd": (3, 1)}.items():
        levels = {(s.name, s.iteration): s.test for s in facts.moaa.result.levels}
        line = next(line for line in lines if line.startswith(name))
        assert "generation 2" in line
        assert words.points(levels[name, now] - levels[name, then]) in line


def test_all_three_renderers_say_the_same(facts):
    text = printed(summary(facts))
    page = Page(html.render(facts))
    short = unescape(markdown.render(facts))
    assert max(map(len, text.splitlines())) <= 80
    found = sections(facts)
    assert [section.id for section in found] == ["result", "stages", "mixture", "reward", "cost"]
    plain = "".join(text.split())
    for section in found:
        for view in section.tables:
            for row in view.rows:
                assert all(cell in page.text for cell in row)
                for cell in () if view.detail else row[:-1]:
                    assert "".join(cell.split()) in plain
                assert row[0] in short
        for line in section.lines:
            assert line in page.text
            assert line in short
            assert "".join(line.split()) in plain
    level = facts.moaa.result.last("stu")
    assert percent(level.test) in text
    account = facts.accounting
    for shown in (text, short):
        assert f"{account.num_demonstrations} demonstrations" in shown
    assert "Reputations" not in text + page.text + short
    assert "Who beats whom" not in page.text


def test_hostile_text_and_names_stay_text(facts):
    page_text = html.render(facts)
    page = Page(page_text)
    assert fixture_moaa.HOSTILE in page.text
    assert "<script>" not in page_text
    assert "<img" not in page_text
    stage = facts.moaa.stages[1]
    odd = replace(stage, criteria={"a|b <b>x</b>\nc": 3})
    stages = tuple(odd if one is stage else one for one in facts.moaa.stages)
    changed = replace(facts, moaa=replace(facts.moaa, stages=stages))
    row = next(line for line in markdown.render(changed).splitlines() if "a\\|b" in line)
    assert "&lt;b&gt;" in row
    assert "<b>x" not in html.render(changed)
    printed(summary(changed))


def test_examples_show_who_wrote_what(facts, rows):
    moaa = facts.moaa
    assert moaa.examples
    for example in moaa.examples:
        seen = {member for _, member, _ in example.proposals}
        assert {"ada", "bob", "cora"} <= seen <= {"ada", "bob", "cora", "stu"}, "dan is no proposer"
        assert example.writer == "dan"
    kinds = Counter(example.why for example in facts.examples)
    assert kinds == {"clear": 2, "flipped": 1, "unread": 1}
    assert "mixture" in {example.judgments[0].judge for example in facts.examples}
    for example in facts.examples:
        slots = {slot for judgment in example.judgments for slot in judgment.raw}
        if example.judgments[0].judge == "mixture":
            assert "first.assess.ada" in slots
    names = {name for e in facts.examples for name in (e.left, e.right)}
    assert any("#" in name for name in names)
    assert facts.reputations == ()
    assert facts.encounters == ()


def test_a_stage_under_way_says_what_is_recorded_and_invents_nothing(tmp_path):
    configured = fixture_moaa.config()
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        nothing = gather(ledger).progress
        assert (nothing.iteration, nothing.phase, nothing.known) == (0, "evaluate", False)
        fixture_moaa.measure(ledger, configured, 0)
        waiting = gather(ledger)
        assert (waiting.progress.iteration, waiting.progress.stage) == (1, "1 sft")
        assert (waiting.progress.asked, waiting.progress.known) == (0, False)
        cut_short(ledger, configured, 1, "aggregate", 7)
        facts = gather(ledger)
        now = facts.progress
        assert (now.phase, now.asked - now.owed, now.known) == ("aggregate", 7, True)
        assert now.owed > 0
        text = printed(status(facts))
        done = f"aggregating, 7 of at most {now.asked} requests done"
        assert f"iteration 1 of 4 (1 sft), {done}" in " ".join(text.split())
        assert "Under way: 1 sft" in text
        Page(html.render(facts))
        markdown.render(facts)
        fixture_moaa.play(ledger, configured, 1, learn=False)
        learning = gather(ledger).progress
        assert (learning.phase, learning.asked, learning.owed) == ("train", 3, 3)


def test_a_stage_that_ends_in_a_second_turn_says_what_that_turn_owes(tmp_path):
    """Phases begin again with every turn; the last to begin for the first time is not the one
    under way."""
    configured = fixture_moaa.config()
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        fixture_moaa.measure(ledger, configured, 0)
        cut_short(ledger, configured, 1, "propose 1", 2, turn=2)
        facts = gather(ledger)
        now = facts.progress
        stored = ledger.count("responses", "iteration = 1 AND phase = 'propose 1'")
        assert (now.phase, now.asked - now.owed, now.known) == ("propose 1", stored, True)
        assert now.owed > 0
        (account,) = (p for p in facts.accounting.phases if p.owed)
        assert (account.phase, account.asked, account.owed) == ("propose 1", now.asked, now.owed)
        fixture_moaa.play(ledger, configured, 1, learn=False)
        assert sum(p.owed for p in gather(ledger).accounting.phases) == 0


def cut_short(ledger, configured, number: int, phase: str, count: int, turn: int = 1) -> None:
    """Play a stage, and break off when ``count`` new requests of a phase are recorded, where it
    is asked for the ``turn``-th time."""

    class Killed(Exception):
        pass

    class Dying(fixture_moaa.World):
        def ask(self, iteration):
            usual = super().ask(iteration)
            times = Counter()

            def ask(name, requests):
                times[name] += 1
                if name == phase and times[name] == turn:
                    known = self.ledger.responses([r.id for r in requests])
                    fresh = [r for r in requests if r.id not in known]
                    stored = self.ledger.count(
                        "responses", "iteration = ? AND phase = ?", (iteration, name)
                    )
                    self.ledger.add_seconds(iteration, name, 0.0, stored + len(fresh))
                    batch = [(r, self._reply(r), 1) for r in fresh[:count]]
                    self.ledger.record_responses(iteration, name, batch, 1.0)
                    raise Killed
                return usual(name, requests)

            return ask

    usual = fixture_moaa.World
    fixture_moaa.World = Dying
    try:
        with pytest.raises(Killed):
            fixture_moaa.play(ledger, configured, number)
    finally:
        fixture_moaa.World = usual


def test_only_students_with_a_lesson_are_owed_training(tmp_path):
    configured = fixture_moaa.config(iterations=2, evaluate={})
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        fixture_moaa.play(ledger, configured, 1)
        fixture_moaa.play(ledger, configured, 2, learn=False)
        owed = gather(ledger).progress
        assert (owed.iteration, owed.phase, owed.asked, owed.owed) == (2, "train", 1, 1)
        facts = gather(ledger)
    assert "no evaluation" in facts.moaa.result.note
    for text in (printed(summary(facts)), html.render(facts), markdown.render(facts)):
        assert "No evaluation has been recorded" in text


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("answer", "answering"),
        ("aggregate", "aggregating"),
        ("propose 2", "proposing (propose 2)"),
        ("evaluate propose 1", "proposing (evaluate propose 1)"),
        ("something else", "something else"),
    ],
)
def test_phases_have_words(phase, said):
    assert doing(phase) == said


def test_a_command_that_is_no_run_says_what_is_recorded(tmp_path):
    configured = fixture_moaa.config()
    with fixture_moaa.start(tmp_path / "run", configured) as ledger:
        ledger.put("method", "mix")
        ledger.put("num_iterations", "0")
        facts = gather(ledger)
        assert facts.moaa is None
        assert (facts.progress.phase, facts.progress.known) == ("mix", False)
        text = printed(status(facts))
        assert "run: phalanx mix, 7 members, 0 requests" in text
        assert "Not finished: the command that started it goes on from here" in text
        assert "duel" not in text
        ledger.put("finished", "yes")
        assert printed(status(gather(ledger))).splitlines()[1] == "Finished"


def test_a_search_shows_its_trials_and_no_empty_sections(tmp_path):
    path = search_pool.write_config(tmp_path)
    search_pool.run(path, tmp_path / "search", ["search.trials=9"])
    with Ledger(run_ledger_path(tmp_path / "search")) as ledger:
        facts = gather(ledger)
    assert {phase.phase for phase in facts.accounting.phases} <= {
        "propose 1", "propose 2", "aggregate"
    }  # fmt: skip
    for shown in (printed(status(facts)), printed(summary(facts))):
        assert "phalanx mixture-search, 4 members" in shown
        assert "Pareto front" in shown
        assert "The search is complete" in shown
        assert "trial 3" not in shown
        assert "duel" not in shown
    page, text = html.render(facts), markdown.render(facts)
    for shown in (page, text):
        assert "9 designs: share of right answers" in shown
        assert "ada, bob" in shown
    for word in ("Reputations", "duel", "Training health", "alignment"):
        assert word not in page.partition("<main")[2].partition("The configuration used")[0]


def test_what_becomes_of_flipped_verdicts_is_as_configured(facts):
    assert "it counts as a tie" in words.flipped(facts.config)
    reward = {**facts.config["reward"], "verdict": "options", "contradiction": "mean"}
    mean = replace(facts, config={**facts.config, "reward": reward})
    text = " ".join(printed(summary(mean)).split())
    assert text.count("the mean of both orders decides") == 2
    assert "it counts as a tie" not in text


def test_examples_keep_their_proposals_over_a_new_start(tmp_path):
    """A line that is stored anew has another number in the packed prompts."""
    settings = fixture_moaa.config(iterations=1)
    fixture_moaa.start(tmp_path / "run", settings).close()
    path, method = run_ledger_path(tmp_path / "run"), METHODS["moaa"]
    long = {i.id: f"Think of it as long as you like, and then say this. {i.text}"
            for i in fixture_moaa.instructions()}  # fmt: skip

    class Restarted(fixture_moaa.World):
        def ask(self, iteration):
            def ask(phase, requests):
                if phase.startswith("aggregate"):
                    self.ledger.close()
                    self.ledger = Ledger(path, writable=True)
                return super(Restarted, self).ask(iteration)(phase, requests)

            return ask

    world = Restarted(Ledger(path, writable=True), settings)
    world.answers |= {long[i.id]: replace(i, text=long[i.id]) for i in fixture_moaa.instructions()}
    told = [replace(i, text=long[i.id]) for i in fixture_moaa.instructions() if not i.later]
    result = method.run(
        Iteration(
            number=1,
            seed=settings.seed,
            members=tuple(world.ledger.members(0)),
            instructions=method.draw(settings, told, 1),
            standings={},
            reliability={},
            earlier=(tuple(world.ledger.members(0)),),
        ),
        world.ask(1),
        settings,
    )
    world.ledger.record_iteration(1, result)
    lines = world.ledger.query("SELECT count(*) - count(DISTINCT text) AS twice FROM texts")
    assert lines[0]["twice"] > 0, "otherwise this shows nothing"
    examples = gather(world.ledger).moaa.examples
    world.ledger.close()
    assert examples
    for example in examples:
        assert {member for _, member, _ in example.proposals} == {"ada", "bob", "cora"}


def test_the_newest_differences_come_first_and_none_is_lost(facts):
    result = facts.moaa.result
    tables = {table.title: table for table in sections(facts)[0].tables}
    now = tables["Differences on the same test items, in points"]
    earlier = tables["The same of earlier measurements"]
    assert len(now.rows) + len(earlier.rows) == len(result.comparisons)
    assert not set(now.rows) & set(earlier.rows)
    mine = [row[1:3] for row in now.rows if row[0] == "stu"]
    assert {measured for measured, _ in mine} == {"2 dpo"}
    assert [over for _, over in mine if "student of" in over] == [
        "rnd, student of random, 2 sft",
        "bst, student of best_of, 2 sft",
    ]
    assert (now.detail, earlier.detail) == (False, True)
