"""``phalanx judge-bench``: a scripted panel whose table is counted by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import phalanx
from phalanx.benchmarks.pair_files import read_pair_file
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.judges import judge_bench
from phalanx.measuring.judges_pairs import own_answers
from phalanx.measuring.judges_source import bench_from
from phalanx.report.facts import gather
from phalanx.types import (
    IterationResult,
    Message,
    Request,
    Response,
    Sampling,
    Standing,
    TrainResult,
)
from tests.scripts import command, read_rows, write_pool, write_rows
from tests.tiny import make_adapter, make_tiny

# ada and bob prefer the text with "good" in it; cora always what is shown as A.
RULES = r"""
sampling:
  - {when: riddle, member: bob, reply: I cannot say.}
  - {when: ., member: cora, purpose: judge, reply: "[[A]]"}
  - {when: 'response A \w+>>>\n\w*good', purpose: judge, reply: "[[A]]"}
  - {when: 'response B \w+>>>\n\w*good', purpose: judge, reply: "[[B]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
likelihood:
  - {when: ., logprob_per_token: -1}
reward:
  - {when: good, reward: 2}
  - {when: ., reward: 1}
"""
PAIRWISE = "judge: {protocol: pairwise}\naggregate: {rule: mean}\n"


def own(number: int, a: str, b: str, label: str, **more) -> dict:
    given = {"id": f"p{number}", "instruction": f"Question {number}?", **more}
    return {**given, "response_a": a, "response_b": b, "label": label}


PAIRS = [
    own(1, "good words", "words", "A", group="x"),
    own(2, "words", "good words", "B", group="x"),
    own(3, "good words", "words", "B", group="y"),
    own(4, "some words", "words", "A", group="y"),
    own(5, "words", "words ", "A"),
    own(6, "words", "", "A"),
    own(7, "one", "two", "tie"),
    {**own(8, "good words", "words", "A", group="y"), "instruction": "A riddle"},
]


def bench(*words: object):
    return command("judge-bench", *words)


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "cora"], RULES, PAIRWISE)


@pytest.fixture
def file(tmp_path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", PAIRS)


def facts(folder: Path):
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


def test_the_table_is_what_is_counted_by_hand(config, file, tmp_path):
    out, to = tmp_path / "out", tmp_path / "rows.jsonl"
    done = bench(config, "--data", file, "--out", out, "--to", to)
    assert done.returncode == 0, done.stderr
    tested = facts(out).tested
    assert tested.left_out == {
        "a tie, by the file": 1, "an empty response": 1, "identical responses": 1,
    }  # fmt: skip
    test = tested.tests[0]
    alone = {line.name: line for line in test.alone}
    assert test.num_pairs == 5
    # ada: right, right, wrong, a tie, right. bob cannot read the last. cora is all ties.
    assert {name: line.right.count for name, line in alone.items()} == {
        "ada": 3, "bob": 2, "cora": 0,
    }  # fmt: skip
    assert (alone["ada"].ties, alone["bob"].unread, alone["cora"].ties) == (1, 1, 5)
    assert (alone["cora"].flipped.count, alone["cora"].first.first_share) == (5, 1.0)
    assert (alone["ada"].flipped.count, alone["ada"].first.first_share) == (0, 0.5)
    assert {group: s.count for group, s in alone["ada"].by_group.items()} == {"x": 2, "y": 1}
    together = {line.name: line.right.count for line in test.together}
    assert together == {
        "mean": 3, "mean std.": 3, "median": 3, "median std.": 3, "one_coin": 3, "one_coin std.": 3,
        "majority": 3,
    }  # fmt: skip
    rows = read_rows(to)
    assert [row["together"]["majority"]["verdict"] for row in rows] == ["A", "B", "A", "tie", "A"]
    assert sum(row["judges"]["bob"]["right"] for row in rows) == 2
    assert rows[0]["judges"]["cora"]["orders"] == ["first", "first"]
    assert re.search(r"ada +60\.0", done.stdout), done.stdout
    assert "1 identical responses" in " ".join(done.stdout.split())
    assert "A coin thrown for each order gets 25 %" in " ".join(done.stdout.split())


def test_the_report_has_the_same_table(config, file, tmp_path):
    out = tmp_path / "out"
    assert bench(config, "--data", file, "--out", out, "-q").returncode == 0
    done = command("report", out)
    assert done.returncode == 0, done.stderr
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Judges under test" in page
    assert "median std." in page
    assert "Right by group" in page


def test_the_same_command_goes_on_and_other_pairs_are_refused(config, file, tmp_path):
    out = tmp_path / "out"
    words = (config, "--data", file, "--out", out, "-q")
    assert bench(*words).returncode == 0
    with Ledger(run_ledger_path(out)) as ledger:
        first = ledger.contents()
    again = bench(*words)
    assert again.returncode == 0, again.stderr
    with Ledger(run_ledger_path(out)) as ledger:
        assert ledger.contents() == first
        assert ledger.count("responses") == 30  # 5 pairs, 3 judges, both orders
    other = bench(*words, "--limit", 3)
    assert other.returncode != 0
    assert "was made with --limit None, and is now asked for 3" in other.stderr


def test_the_same_in_python(config, file, tmp_path):
    made = phalanx.judge_bench(
        config, file, {"judge.protocol": "reward"}, members=["ada"], out=tmp_path / "out"
    )
    (line,) = made.facts().tested.tests[0].alone
    assert (line.name, line.right.count, line.num_stated) == ("ada", 3, 5)


def test_only_the_named_judges_are_asked(config, file, tmp_path):
    done = bench(config, "--data", file, "--members", "ada", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    test = facts(tmp_path / "out").tested.tests[0]
    assert [line.name for line in test.alone] == ["ada"]
    assert test.together == ()
    wrong = bench(config, "--data", file, "--members", "eve", "--out", tmp_path / "o")
    assert wrong.returncode != 0
    assert "no judge is called 'eve'; judges are ada, bob, cora" in wrong.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "--data is missing"),
        (["--data", "nowhere.jsonl"], "there is no file 'nowhere.jsonl'"),
        (["--data", "FILE", "--format", "xml"], "expected auto or one of judgebench"),
        (["--data", "FILE", "--iterations", "0,1"], "--iterations belong to a run"),
        (["--data", "FILE", "--iterations", "a"], "expected whole numbers"),
    ],
)
def test_bad_input_is_refused(config, file, tmp_path, more, message):
    words = [file if word == "FILE" else word for word in more]
    done = bench(config, *words, "--out", tmp_path / "out")
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_with_a_pool_is_enough(file, tmp_path):
    (tmp_path / "script.yaml").write_text(RULES, encoding="utf-8")
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        f"members:\n  - {{name: ada, engine: scripted, model: 'script:{tmp_path}/script.yaml'}}\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    done = bench(pool, "judge.protocol=pairwise", "--data", file, "--out", out)
    assert done.returncode == 0, done.stderr
    assert facts(out).tested.tests[0].alone[0].right.count == 3


def test_judgebench_counts_by_its_own_rule(config, tmp_path):
    rows = [
        {"pair_id": "1", "source": "mmlu-pro-law", "question": "Q?", "response_A": "good a",
         "response_B": "b", "label": "A>B"},
        {"pair_id": "2", "source": "livebench-math", "question": "R?", "response_A": "a",
         "response_B": "b", "label": "A>B"},
    ]  # fmt: skip
    out = tmp_path / "out"
    data = write_rows(tmp_path / "jb.jsonl", rows)
    done = bench(config, "--data", data, "--out", out)
    assert done.returncode == 0, done.stderr
    tested = facts(out).tested
    assert [line.right.count for line in tested.tests[0].alone] == [1, 1, 0]
    assert [line.published.overall.count for line in tested.tests[0].alone] == [1, 1, 0]
    assert list(tested.tests[0].alone[0].by_group) == ["mmlu-pro", "livebench-math"]
    assert "JudgeBench's published rule" in done.stdout


def test_scores_of_single_responses_choose_the_best_of_many(tmp_path):
    config = write_pool(tmp_path, ["ada", "bob"], RULES, "judge: {protocol: reward}\n")
    texts = ["plain", "good", "bad", "good too", "poor"]
    row = {"question_id": "q", "prompt": "Why?", "model_name": "m",
           "scores": [False, True, False, False, False]}  # fmt: skip
    row |= {f"response_{k}": text for k, text in enumerate(texts, start=1)}
    out, data = tmp_path / "out", write_rows(tmp_path / "ppe.jsonl", [row])
    done = bench(config, "--data", data, "--out", out)
    assert done.returncode == 0, done.stderr
    tested = facts(out).tested
    ada, _bob, both = tested.many[0]
    # k=1: one of five is right.
    assert ada.curve[1] == pytest.approx(1 / 5)
    # Two share the best score and one of them is right. Of the 5 subsets of four, three have
    # both (one half each), one has the right one alone (1), one the other alone (0).
    assert ada.curve[4] == pytest.approx((3 * 0.5 + 1) / 5)
    assert both.curve == pytest.approx(ada.curve)
    # The right one beats three wrong ones and ties with "good too".
    assert (tested.tests[0].alone[0].right.count, tested.tests[0].num_pairs) == (3, 4)
    assert tested.tests[0].num_prompts == 1
    with Ledger(run_ledger_path(out)) as ledger:
        assert ledger.count("duels") == 3
    refused = bench(config, "judge.protocol=pairwise", "--data", data, "--out", tmp_path / "o")
    assert "by scores of single ones" in refused.stderr


# Runs --------------------------------------------------------------------------------------------

WORSE = r"""
sampling:
  - {when: 'response A \w+>>>\n\w*good', purpose: judge, reply: "[[B]]"}
  - {when: 'response B \w+>>>\n\w*good', purpose: judge, reply: "[[A]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
"""


@pytest.fixture
def run(tmp_path, config) -> Path:
    """A run of one iteration that made ada prefer what she did not, and gave reputations."""
    folder = tmp_path / "run"
    made = bench_from(config)
    worse = tmp_path / "worse.yaml"
    worse.write_text(WORSE, encoding="utf-8")
    ada, bob, cora = made.members
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        known = {
            "config": made.config.model_dump_json(), "method": "sparta", "seed": "3",
            "num_iterations": "1", "pool_order": json.dumps(["ada", "bob", "cora"]),
        }  # fmt: skip
        ledger.record_start(known, made.members, [])
        standings = {"ada": Standing(200.0), "bob": Standing(1.0), "cora": Standing(1.0)}
        ledger.record_iteration(1, IterationResult(standings=standings))
        new = replace(ada, version=1, base=f"script:{worse}")
        ledger.record_training(1, TrainResult(new, 1, {}, (), {}, 0.0))
        ledger.put("finished", "1")
        _answers(ledger, [ada, bob, cora])
    return folder


ANSWERS = {"ada": "good 4", "bob": "5", "cora": "5"}


def _answers(ledger: Ledger, members) -> None:
    """Two items: ada is right on both and her answers are 'good'; on the second bob is, too."""
    want = Sampling(temperature=0)
    for item in ("i1", "i2"):
        rows = []
        for member in members:
            text = "4" if (member.name, item) == ("bob", "i2") else ANSWERS[member.name]
            key = f"{item}-{member.name}"
            turns = (Message("system", "Be brief."), Message("user", f"What is 2+2, {item}?"))
            request = Request(key, member, turns, want, "evaluate")
            reply = Response(key, text=text, finish_reason="stop")
            ledger.record_responses(1, "evaluate", [(request, reply, 1)], 0.0)
            rows.append(
                {
                    "iteration": 1, "member": member.name, "task": "sums", "item": item,
                    "domain": "", "split": "test", "correct": int("4" in text), "readable": 1,
                    "score": float("4" in text), "answer": text, "reason": "", "response": key,
                }
            )  # fmt: skip
        ledger.record_evaluation(rows)


def test_before_and_after_a_run(run, file, tmp_path):
    out = tmp_path / "out"
    done = bench(run, "--data", file, "--out", out)
    assert done.returncode == 0, done.stderr
    tested = facts(out).tested
    assert list(tested.tests) == [0, 1]
    shifts = {shift.name: shift for shift in tested.shifts}
    ada = shifts["ada"]
    # Before: right on 1, 2, 8; after: on 3 alone.
    assert (ada.before.count, ada.after.count, ada.gained, ada.lost) == (3, 1, 1, 3)
    assert (shifts["bob"].gained, shifts["bob"].lost) == (0, 0)
    # Her reputation carries the panel only after the run.
    assert (shifts["reputation"].before.count, shifts["reputation"].after.count) == (3, 1)
    assert "What happened to the judges" in done.stdout
    with Ledger(run_ledger_path(out)) as ledger:
        # bob and cora did not change and were asked once.
        asked = {
            row["member"]: row["n"]
            for row in ledger.query("SELECT member, count(*) AS n FROM responses GROUP BY 1")
        }
    assert asked == {"ada": 20, "bob": 10, "cora": 10}


def test_one_iteration_of_a_run(run, file, tmp_path):
    out = tmp_path / "out"
    done = bench(run, "--data", file, "--iterations", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    tested = facts(out).tested
    assert (list(tested.tests), tested.shifts) == ([1], ())
    assert tested.tests[1].alone[0].right.count == 1
    wrong = bench(run, "--data", file, "--iterations", "7", "--out", tmp_path / "o")
    assert "has the iterations 0 to 1, got 7" in wrong.stderr


def test_ones_own_answers_are_pairs_with_known_writers(run, tmp_path):
    made = own_answers(run, per_item=5)
    assert made.file.left_out == ()
    assert sorted((pair.id[:7], *sorted(pair.writers)) for pair in made.file.pairs) == [
        ("sums/i1", "ada", "bob"),
        ("sums/i1", "ada", "cora"),
        ("sums/i2", "ada", "cora"),
        ("sums/i2", "bob", "cora"),
    ]
    for pair in made.file.pairs:
        good = pair.response_a if pair.label == "A" else pair.response_b
        assert "4" in good
        assert pair.instruction.startswith("What is 2+2")
    assert len(own_answers(run, per_item=1).file.pairs) == 2
    assert own_answers(run, per_item=1) == own_answers(run, per_item=1)


def test_a_vote_is_no_writer(run):
    alone = own_answers(run, per_item=9)
    with Ledger(run_ledger_path(run), writable=True) as ledger:
        rows = ledger.query("SELECT * FROM evaluations WHERE member = 'ada'")
        named = ("majority", "best_of@2", "mixture")
        ledger.record_evaluation([{**row, "member": name} for name in named for row in rows])
    made = own_answers(run, per_item=9)
    assert made.file.pairs == alone.file.pairs
    assert made.families == alone.families
    assert made.file.left_out == (("answers of a vote, a choice or the mixture", 6),)


def test_answers_that_are_all_right_make_no_pair(run):
    with Ledger(run_ledger_path(run), writable=True) as ledger:
        rows = ledger.query("SELECT * FROM evaluations")
        ledger.record_evaluation([{**row, "iteration": 2, "correct": 1} for row in rows])
    with pytest.raises(ConfigError, match="none that one got right"):
        own_answers(run)


def test_a_judge_that_favours_itself(run, tmp_path):
    out = tmp_path / "out"
    done = bench(
        run, "--data", run, "--per-item", 5, "--iterations", 0, "--members", "ada,bob", "--out", out
    )
    assert done.returncode == 0, done.stderr
    ada, bob = facts(out).tested.tests[0].alone
    # ada prefers "good", which she alone wrote; three pairs have her answer, all of them right.
    assert (ada.own.n, ada.own.favoured, ada.own.truly) == (3, 1.0, 1.0)
    assert (bob.own.n, bob.own.truly) == (2, 0.5)
    assert "Preference for one's own response" in done.stdout


def test_work_of_a_command_is_no_run(config, file, tmp_path):
    out = tmp_path / "out"
    assert bench(config, "--data", file, "--out", out, "-q").returncode == 0
    with pytest.raises(LedgerError, match="is work of 'judge-bench' and no run"):
        bench_from(out)
    with pytest.raises(ConfigError, match="has no evaluation"):
        own_answers(out)


def test_the_mixture_is_one_judge(tmp_path, file):
    rules = RULES.replace(
        "sampling:",
        r"""sampling:
  - {when: ., purpose: criteria, reply: "1, 2, 3"}
  - {when: ., purpose: assess, reply: Both have their merits.}
  - {when: 'response A \w+>>>\n\w*good', purpose: verdict, reply: "[[A]]"}
  - {when: 'response B \w+>>>\n\w*good', purpose: verdict, reply: "[[B]]"}
  - {when: ., purpose: verdict, reply: "[[C]]"}""",
    )
    more = "judge: {protocol: moa}\nmixture: {proposers: [ada, bob], aggregator: cora}\n"
    config = write_pool(tmp_path, ["ada", "bob", "cora"], rules, more)
    made = bench_from(config)
    folder = judge_bench(made, read_pair_file(str(file)), tmp_path / "out")
    test = facts(folder).tested.tests[0]
    (line,) = test.alone
    assert (line.name, line.right.count, line.ties) == ("mixture", 3, 1)
    assert (line.flipped.count, line.flipped.n) == (0, 5)
    with pytest.raises(ConfigError, match="the mixture is the one judge"):
        bench_from(config, members=["ada"])


@pytest.mark.slow
def test_real_weights_and_an_independent_recount(tmp_path):
    """Likelihoods of tiny models, one with an adapter; verdicts recounted from responses."""
    base = make_tiny(tmp_path / "base", seed=1)
    adapter = make_adapter(base, tmp_path / "adapter", seed=2)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"pool:\n  base: {base}\n  members:\n    - {{name: ada}}\n    - {{name: bob, adapter: "
        f"{adapter}}}\njudge: {{protocol: likelihood}}\nresources: {{threads: 1}}\n",
        encoding="utf-8",
    )
    rows = [own(n, f"the cat sat {n}", f"{n} dogs in town", "AB"[n % 2]) for n in range(12)]
    out = tmp_path / "out"
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    done = bench(config, "--data", data, "--out", out, "-q")
    assert done.returncode == 0, done.stderr
    with Ledger(run_ledger_path(out)) as ledger:
        replies = ledger.query(
            "SELECT r.member, r.logprob_sum / r.num_scored_tokens AS mean, full_text(r.want) AS "
            "want, i.text FROM responses r, instructions i "
            "WHERE instr(full_messages(r.messages), i.text) > 0"
        )
    means = {
        (row["member"], row["text"], json.loads(row["want"])["completion"]): row["mean"]
        for row in replies
    }
    assert len(means) == 48

    def is_right(name: str, row: dict) -> bool:
        a, b = (means[name, row["instruction"], row[side]] for side in ("response_a", "response_b"))
        return a > b if row["label"] == "A" else b > a

    expected = {name: sum(is_right(name, row) for row in rows) for name in ("ada", "bob")}
    test = facts(out).tested.tests[0]
    assert {line.name: line.right.count for line in test.alone} == expected
    assert {line.num_stated for line in test.alone} == {12}
    # The adapter changes what the judge says.
    assert any(
        means["ada", row["instruction"], row["response_a"]]
        != means["bob", row["instruction"], row["response_a"]]
        for row in rows
    )
