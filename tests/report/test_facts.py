"""The numbers of a report against the ledger's rows, counted another way."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report import accounting, markdown
from phalanx.report.accounting import short_reason
from phalanx.report.facts import gather
from phalanx.report.scores import best_on_dev, evaluation, vote
from phalanx.report.terminal import status, summary
from phalanx.report.views import paired_tests, selection_note
from phalanx.statistics import mcnemar_exact, minimum_detectable, wilson
from phalanx.tasks import equivalence
from tests.report import fixture_eval, fixture_run
from tests.report.test_renderers import printed


@pytest.fixture(scope="module")
def rows(run_folder):
    """``rows(sql)`` through plain sqlite3, around the code under test."""
    database = sqlite3.connect(run_ledger_path(run_folder))
    database.row_factory = sqlite3.Row
    yield lambda sql, *values: [dict(row) for row in database.execute(sql, values)]
    database.close()


def gathered(folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


def test_the_sums_add_up(facts, rows):
    account = facts.accounting
    assert account.num_duels == 192 == sum(account.outcomes.values())
    assert account.num_duels == account.pairs_kept + sum(account.dropped.values())
    unreadable = account.judgments_asked - account.judgments_readable
    assert unreadable == sum(account.unreadable.values()) > 0
    for phase in account.phases:
        assert phase.asked == phase.answered + sum(phase.failed.values()) + phase.owed
        assert phase.owed == 0
    stored = rows("SELECT count(*) AS n FROM responses")[0]["n"]
    assert sum(phase.asked for phase in account.phases) == stored
    assert sum(judge.asked for judge in facts.judges) == account.judgments_asked
    by_judge = Counter()
    for judge in facts.judges:
        assert judge.asked == judge.readable + sum(judge.unreadable.values())
        by_judge.update(judge.unreadable)
    assert dict(by_judge) == account.unreadable


def test_every_kind_of_trouble_is_in_the_fixture_and_counted(facts):
    account = facts.accounting
    assert {"decided", "tie", "unanswered"} <= set(account.outcomes)
    assert {"tie", "identical", "truncated", "unscored", "empty", "margin_rank"} <= set(
        account.dropped
    )
    assert {"no score", "truncated at the token limit"} <= set(account.unreadable)
    failed = Counter()
    for phase in account.phases:
        failed.update(phase.failed)
    assert {"engine", "timeout", "too_long"} == set(failed)
    assert all(phase.truncated for phase in account.phases)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("left: no score; right: no score", "no score"),
        ("right: too_long: 900 tokens, 512 fit", "too_long"),
        ("second: truncated at the token limit (no verdict)", "truncated at the token limit"),
        ("", "unknown"),
    ],
)
def test_reasons_become_classes(reason, short):
    assert short_reason(reason) == short


def test_reputation_lines_are_chains_of_changes(facts, rows):
    assert [line.member for line in facts.reputations] == list(fixture_run.NAMES)
    assert facts.boundaries == (96, 192)
    for line in facts.reputations:
        changes = rows(
            "SELECT before, after FROM reputations WHERE member = ? ORDER BY iteration, position",
            line.member,
        )
        assert line.points[0] == (0, 100.0)
        assert [value for _, value in line.points[1:]] == [row["after"] for row in changes]
        assert line.points[-1][1] == line.value
        # Identical responses tie without a judge, and move no reputation.
        unseen = rows(
            "SELECT 1 FROM outcomes o JOIN duels d ON d.id = o.duel "
            "WHERE o.status = 'tie' AND o.num_judges = 0 AND ? IN (d.left, d.right)",
            line.member,
        )
        met = line.wins + line.losses + line.ties
        assert met - len(unseen) == line.num_updates == len(changes)
        places = [place for place, _ in line.points]
        assert places == sorted(places)
        assert places[-1] <= 192


@pytest.mark.parametrize("count", [1, 639, 640, 641, 50_000])
def test_a_long_line_keeps_every_nth_point_and_the_last(count):
    line = accounting._Points((0, 0.0))
    for place in range(1, count):
        line.add((place, float(place)))
    places = [place for place, _ in line.all]
    assert places[0] == 0
    assert places[-1] == count - 1
    assert len(places) <= min(count, accounting.MAX_POINTS)
    assert len(places) > min(count, accounting.MAX_POINTS) / 3
    gaps = {after - before for before, after in pairwise(places[:-1])}
    assert len(gaps) <= 1


def test_encounters_match_the_records(facts):
    for line in facts.reputations:
        mine = [e for e in facts.encounters if e.member == line.member]
        assert sum(e.wins for e in mine) == line.wins
        assert sum(e.judged for e in mine) == line.wins + line.losses + line.ties
    met = {(e.member, e.opponent): e.judged for e in facts.encounters}
    assert all(met[b, a] == count for (a, b), count in met.items())


def test_a_judges_line_by_hand(facts, rows):
    name = "ada"
    judge = next(j for j in facts.judges if j.member == name)
    agreed = longer = compared = lengths = 0
    for row in rows(
        "SELECT j.*, o.status, o.winner, l.text AS l, r.text AS r FROM judgments j "
        "JOIN outcomes o ON o.duel = j.duel JOIN duels d ON d.id = j.duel "
        "JOIN responses l ON l.id = d.left_response JOIN responses r ON r.id = d.right_response "
        "WHERE j.judge = ? AND j.score_left IS NOT NULL AND j.score_right IS NOT NULL "
        "AND j.score_left <> j.score_right",
        name,
    ):
        side = "left" if row["score_left"] > row["score_right"] else "right"
        if row["status"] == "decided":
            compared += 1
            agreed += side == row["winner"]
        if len(row["l"]) != len(row["r"]):
            lengths += 1
            longer += side == ("left" if len(row["l"]) > len(row["r"]) else "right")
    assert (judge.num_compared, judge.num_lengths) == (compared, lengths)
    assert judge.agreement == pytest.approx(agreed / compared)
    assert judge.longer == pytest.approx(longer / lengths)


def test_evaluation_uses_the_test_split_only(facts, rows):
    change = facts.evaluation.change("bob", "addition")
    for number, value, interval in (
        (0, change.before, change.before_interval),
        (2, change.after, change.after_interval),
    ):
        got = rows(
            "SELECT sum(correct) AS right, count(*) AS n FROM evaluations WHERE iteration = ? "
            "AND member = 'bob' AND domain = 'addition' AND split = 'test'",
            number,
        )[0]
        assert change.n == got["n"]
        assert value == pytest.approx(got["right"] / got["n"])
        assert interval == wilson(got["right"], got["n"])
    assert change.difference == pytest.approx(change.after - change.before)
    assert change.interval.low <= change.difference <= change.interval.high
    assert facts.evaluation.num_dev + facts.evaluation.num_test == 160
    assert change.pvalue is not None


def test_tests_are_adjusted_over_the_domains_of_a_member(facts, rows):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    measured = facts.evaluation
    for member in fixture_run.NAMES:
        cells = [measured.change(member, domain) for domain in measured.domains]
        for cell in cells:
            both = rows(
                "SELECT b.correct AS before, a.correct AS after FROM evaluations b "
                "JOIN evaluations a USING (member, task, item) WHERE b.iteration = 0 "
                "AND a.iteration = 2 AND b.member = ? AND b.domain = ? AND b.split = 'test'",
                member,
                cell.domain,
            )
            lost = sum(row["before"] > row["after"] for row in both)
            gained = sum(row["after"] > row["before"] for row in both)
            assert cell.pvalue == mcnemar_exact(lost, gained)
            differing = (lost + gained) / cell.n
            expected = minimum_detectable(cell.n, differing, confidence=1 - 0.05 / 4)
            assert cell.detectable == expected
        holm = multitest.multipletests([cell.pvalue for cell in cells], method="holm")[1]
        assert [cell.adjusted for cell in cells] == pytest.approx(holm.tolist())
        assert [cell.proven != 0 for cell in cells] == (holm < 0.05).tolist()
        mean = measured.change(member)
        assert (mean.pvalue, mean.adjusted, mean.proven) == (None, None, 0)
    pool = [measured.change("", domain) for domain in measured.domains]
    assert all(0 < cell.pvalue <= cell.adjusted <= 1 for cell in pool)


def test_the_table_of_tests_counts_what_the_cells_say(facts):
    table = paired_tests(facts.evaluation)
    assert [row[0] for row in table.rows] == ["all members", *fixture_run.NAMES, "collective"]
    for name, better, worse, unclear, *_ in table.rows[1:-1]:
        cells = [facts.evaluation.change(name, d) for d in facts.evaluation.domains]
        signs = Counter(cell.proven for cell in cells)
        assert (better, worse, unclear) == (str(signs[1]), str(signs[-1]), str(signs[0]))
    assert sum(int(row[1]) for row in table.rows) > 0
    assert paired_tests(replace(facts.evaluation, changes=(), collective=())) is None


def test_of_equals_on_dev_the_first_is_best_in_spite_of_rounding(tmp_path):
    """Two of three right over tasks, by sums that are one bit apart."""
    marks = {"ann": {"a": [0], "b": [1], "c": [1, 1, 1]}, "bob": {"a": [1], "b": [1], "c": [0] * 3}}
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_evaluation(
            [
                fixture_eval.line(name, task, f"{split}{n}", mark, split=split, iteration=number)
                for name, tasks in marks.items()
                for task, row in tasks.items()
                for n, mark in enumerate(row)
                for split in ("dev", "test")
                for number in (0, 1)
            ]
        )
        assert best_on_dev(ledger, ["ann", "bob"]) == "ann"
        assert best_on_dev(ledger, ["bob", "ann"]) == "bob"
        found = evaluation(ledger, ["ann", "bob"], seed=0, weights_before={}, weights_after={})
    assert [found.best_initial.member, found.best_aligned.member] == ["ann", "ann"]
    assert found.best_initial.dev < max(choice.dev for choice in found.best_of_member)


def test_a_run_weighs_shares_of_items(tmp_path):
    scores = {0: (0.25, 0.5, 0.5, 0.0, 0.5, 0.25), 1: (0.75, 1.0, 0.75, 0.5, 1.0, 0.5)}
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_evaluation(
            [
                fixture_eval.line("ann", "mass", str(place), score, iteration=number)
                for number, row in scores.items()
                for place, score in enumerate(row)
            ]
        )
        found = evaluation(ledger, ["ann"], seed=0, weights_before={}, weights_after={},
                           unvoted=["mass"])  # fmt: skip
    change = found.change("ann", "mass")
    assert (change.before, change.after) == (pytest.approx(2 / 6), pytest.approx(4.5 / 6))
    assert change.pvalue == 2 / 2**6, "all six went up: one pattern of signs each way"
    assert change.before_interval.low < 2 / 6 < change.before_interval.high < 0.5
    assert change.proven == 1
    assert found.collective == ()


def test_means_weigh_domains_and_members_alike(facts):
    measured = facts.evaluation
    for member in (*fixture_run.NAMES, ""):
        cells = [measured.change(member, domain) for domain in measured.domains]
        mean = measured.change(member)
        assert mean.before == pytest.approx(sum(c.before for c in cells) / len(cells))
        assert mean.after == pytest.approx(sum(c.after for c in cells) / len(cells))
    for domain in measured.domains:
        cells = [measured.change(name, domain) for name in fixture_run.NAMES]
        mean = measured.change("", domain)
        assert mean.before == pytest.approx(sum(c.before for c in cells) / len(cells))
    sizes = {measured.change("", domain).n for domain in measured.domains}
    assert len(sizes) > 1, "equal domains could not tell the two kinds of mean apart"


def macro(rows, member: str, number: int, split: str) -> float:
    got = rows(
        "SELECT domain, avg(correct) AS share FROM evaluations WHERE member = ? AND iteration = ? "
        "AND split = ? GROUP BY domain",
        member,
        number,
        split,
    )
    return sum(row["share"] for row in got) / len(got)


def test_checkpoints_are_chosen_on_dev_and_reported_on_test(facts, rows):
    measured = facts.evaluation
    dev = {
        (name, number): macro(rows, name, number, "dev")
        for name in fixture_run.NAMES
        for number in (0, 1, 2)
    }
    initial, aligned = measured.best_initial, measured.best_aligned
    assert initial.iteration == 0 < aligned.iteration
    assert initial.dev == pytest.approx(max(v for (_, n), v in dev.items() if n == 0))
    assert aligned.dev == pytest.approx(max(v for (_, n), v in dev.items() if n > 0))
    for choice in (initial, aligned, *measured.best_of_member):
        assert choice.dev == pytest.approx(dev[choice.member, choice.iteration])
        assert choice.test == pytest.approx(macro(rows, choice.member, choice.iteration, "test"))
    for choice in measured.best_of_member:
        mine = [dev[choice.member, number] for number in (0, 1, 2)]
        assert choice.iteration == max(range(3), key=lambda n: (round(mine[n], 12), -n))
    change = measured.aligned_over_initial
    assert change.difference == pytest.approx(aligned.test - initial.test)


def test_the_collective_votes_with_reputations():
    right, wrong = ("paris", 1), ("rome", 0)
    one, two, three = ({("t", "i"): answer} for answer in (right, wrong, wrong))
    answers = {"a": one, "b": two, "c": three}
    assert vote(answers, {"a": 1, "b": 1, "c": 1}) == {("t", "i"): 0}
    assert vote(answers, {"a": 3, "b": 1, "c": 1}) == {("t", "i"): 1}
    # Equal sums: the heaviest single voter decides, whatever the order.
    assert vote(answers, {"a": 2, "b": 1, "c": 1}) == {("t", "i"): 1}
    assert vote(dict(reversed(answers.items())), {"a": 2, "b": 1, "c": 1}) == {("t", "i"): 1}
    # No answer is no vote, and nobody's answer is wrong.
    silent = {("t", "i"): ("", 0)}
    assert vote({"a": silent, "b": one}, {"a": 9, "b": 1}) == {("t", "i"): 1}
    assert vote({"a": silent}, {"a": 9}) == {("t", "i"): 0}


def test_expressions_that_are_equal_are_one_answer_of_a_vote(tmp_path):
    pytest.importorskip("math_verify")
    said = {"ann": "7", "bea": r"\frac{1}{2}", "cid": "0.5"}
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_evaluation(
            [
                fixture_eval.line(name, "sums", "i", name != "ann", answer=answer)
                for name, answer in said.items()
            ]
        )
        same = dict.fromkeys(said, 1.0)
        for maths, right in (([], 0.0), (["sums"], 1.0)):
            found = evaluation(ledger, list(said), seed=0, weights_before=same, weights_after=same,
                               maths=maths)  # fmt: skip
            assert found.collective[0].before == right


def test_no_vote_on_tasks_without_an_answer_to_agree_on(tmp_path):
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_evaluation(
            [
                fixture_eval.line(name, task, item, name == "ann", answer=answer)
                for name in ("ann", "bea", "cid")
                for task, item, answer in (("city", "i", name), ("code", "j", ""))
            ]
        )
        weights = {"ann": 3.0, "bea": 1.0, "cid": 1.0}
        found = evaluation(
            ledger, list(weights), seed=0, weights_before=weights, weights_after=weights,
            unvoted=["code", "mass"],
        )  # fmt: skip
    assert [(one.domain, one.n, one.before) for one in found.collective] == [
        ("", 1, 1.0),
        ("city", 1, 1.0),
    ]
    assert {one.domain for one in found.changes} == {"", "city", "code"}
    assert found.unvoted == ("code",), "mass was not measured"


def test_what_the_collective_leaves_out_is_said(facts, tmp_path, monkeypatch):
    monkeypatch.setattr(equivalence, "is_there", lambda: False)
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_evaluation(
            [
                fixture_eval.line(name, task, "i", name == "ann", answer=name, iteration=number)
                for number in (0, 1)
                for name in ("ann", "bea")
                for task in ("city", "code", "sums")
            ]
        )
        same = {"ann": 1.0, "bea": 1.0}
        found = evaluation(
            ledger, list(same), seed=0, weights_before=same, weights_after=same,
            unvoted=["code"], maths=["sums"],
        )  # fmt: skip
    assert (found.unvoted, found.uncompared) == (("code",), ("sums",))
    assert {one.domain for one in found.collective} == {"", "city"}
    shown = replace(facts, evaluation=found)
    for text in (
        selection_note(shown),
        markdown.render(shown),
        " ".join(printed(summary(shown)).split()),
    ):
        assert "no vote on code" in text
        assert "Without the package math-verify there is no vote on sums." in text
        assert "mean is of the other tasks" in text
    assert "no vote" not in selection_note(facts)


def test_the_status_needs_no_tables(facts, run_folder):
    with Ledger(run_ledger_path(run_folder)) as ledger:
        found = gather(ledger, tables=False)
    assert found.examples == () != facts.examples
    assert printed(status(found)) == printed(status(facts))


def test_training_health_is_first_and_last_step(facts, rows):
    training = next(t for t in facts.trainings if (t.iteration, t.member) == (2, "eve"))
    steps = rows(
        "SELECT json_extract(signals, '$.loss') AS loss FROM training_steps "
        "WHERE iteration = 2 AND member = 'eve' ORDER BY step"
    )
    assert training.first("loss") == steps[0]["loss"]
    assert training.last("loss") == steps[-1]["loss"]
    assert training.change("logps/rejected") < 0 < training.change("logps/chosen")
    assert training.last("no such signal") is None


def test_examples_are_what_they_say(facts):
    by_kind = Counter(example.why for example in facts.examples)
    assert by_kind == {"contested": 2, "clear": 2, "dropped": 1}
    assert len({example.duel for example in facts.examples}) == 5
    contested = [e.agreement for e in facts.examples if e.why == "contested"]
    clear = [e.agreement for e in facts.examples if e.why == "clear"]
    assert max(contested) < min(clear)
    dropped = next(e for e in facts.examples if e.why == "dropped")
    assert dropped.dropped not in ("", "margin_rank")
    for example in facts.examples:
        assert example.status != "decided" or example.judgments
        assert not {j.judge for j in example.judgments} & {example.left, example.right}


def test_label_accuracy_and_progress(facts):
    assert set(facts.label_accuracy) == {1, 2}
    assert all(0 <= share <= 1 and count > 0 for share, count in facts.label_accuracy.values())
    assert facts.progress.phase == "finished"
    assert facts.progress.owed == 0


def test_a_run_in_progress_says_what_is_owed(tmp_path):
    settings = fixture_run.config(duels=24)
    with fixture_run.start(tmp_path / "run", settings) as ledger:
        first = gather(ledger).progress
        assert (first.iteration, first.phase) == (0, "evaluate")
        fixture_run.measure(ledger, settings, 0)
        nothing = gather(ledger)
        assert (nothing.progress.iteration, nothing.progress.phase) == (1, "answer")
        assert (nothing.progress.asked, nothing.progress.owed) == (48, 48)
        assert nothing.evaluation.change() is not None
        assert "no iteration has been measured" in nothing.evaluation.note
        fixture_run.play(ledger, settings, 1, learn=False)
        learning = gather(ledger).progress
        assert (learning.iteration, learning.phase, learning.owed) == (1, "train", 6)


def test_a_run_without_tasks_and_with_one_that_stopped(tmp_path):
    settings = fixture_run.config(iterations=1, duels=12, evaluate={}, train={"method": "none"})
    with fixture_run.start(tmp_path / "run", settings) as ledger:
        fixture_run.play(ledger, settings, 1, learn=False)
        ledger.put("stop_reason", "judges stopped agreeing")
        facts = gather(ledger)
    assert facts.evaluation.changes == ()
    assert "no evaluation task" in facts.evaluation.note
    assert facts.trainings == ()
    assert (facts.progress.phase, facts.progress.stop_reason) == (
        "stopped",
        "judges stopped agreeing",
    )


def test_gathering_twice_gives_the_same_and_an_empty_run_gathers(run_folder, facts, tmp_path):
    assert asdict(gathered(run_folder)) == asdict(facts)
    fixture_run.start(tmp_path / "run", fixture_run.config()).close()
    empty = gathered(tmp_path / "run")
    assert empty.accounting.num_duels == 0
    assert empty.examples == ()


def test_facts_come_from_one_moment(run_folder):
    """A read transaction stays open while gathering, and is closed again afterwards."""
    with Ledger(run_ledger_path(run_folder)) as ledger:
        seen = []
        ledger._db.set_trace_callback(seen.append)
        gather(ledger)
        assert (seen[0], seen[-1]) == ("BEGIN", "COMMIT")
        assert seen.count("BEGIN") == 1
