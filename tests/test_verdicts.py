"""``phalanx judge``: pairs of a file before the pool's judges, or before the mixture."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.config.reading import read_text
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.verdicts import Agreement, judge_file, read_cases
from phalanx.workshop import Workshop
from tests.scripts import command, read_rows, write_pool, write_rows

# Judges that prefer the text with "good" in it; cora always likes what is shown as A.
RULES = r"""
sampling:
  - {when: riddle, reply: I cannot say.}
  - {when: This breaks, purpose: judge, fail: {kind: refused, message: not today}}
  - {when: This breaks, purpose: verdict, fail: {kind: refused, message: not today}}
  - {when: ., member: cora, purpose: judge, reply: "[[A]]"}
  - {when: 'response A \w+>>>\ngood', purpose: judge, reply: "[[A]]"}
  - {when: 'response B \w+>>>\ngood', purpose: judge, reply: "[[B]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
  - {when: ., purpose: criteria, reply: "1, 2, 3"}
  - {when: ., purpose: assess, reply: Both have their merits.}
  - {when: 'response A \w+>>>\ngood', purpose: verdict, reply: "[[A]]"}
  - {when: 'response B \w+>>>\ngood', purpose: verdict, reply: "[[B]]"}
  - {when: ., purpose: verdict, reply: "[[C]]"}
"""
MORE = """
judge: {protocol: pairwise}
aggregate: {rule: mean}
mixture: {proposers: [ada, bob], aggregator: cora}
resources: {batch_size: 4}
"""
ROWS = [
    {"prompt": "Why?", "chosen": "good reasons", "rejected": "none"},
    {"prompt": "How?", "chosen": "somehow", "rejected": "good means"},
    {"prompt": "Who?", "chosen": "the same", "rejected": "the same "},
    {"prompt": "When?", "chosen": "now", "rejected": " "},
    {"prompt": "Where?", "chosen": "good place", "rejected": "here"},
]


def phalanx_judge(*words: object):
    return command("judge", *words)


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "cora"], RULES, MORE)


@pytest.fixture
def file(tmp_path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", ROWS)


def test_every_row_has_a_verdict_and_the_file_is_compared(config, file, tmp_path):
    out = tmp_path / "judged"
    done = phalanx_judge(config, file, "--out", out)
    assert done.returncode == 0, done.stderr
    rows = read_rows(out / "verdicts.jsonl")
    assert [(row["line"], row["status"], row["winner"]) for row in rows] == [
        (1, "decided", "chosen"),
        (2, "decided", "rejected"),
        (3, "tie", None),
        (4, "unanswered", None),
        (5, "decided", "chosen"),
    ]
    assert [j["judge"] for j in rows[0]["judges"]] == ["ada", "bob", "cora"]
    assert rows[0]["judges"][2]["flipped"]
    assert rows[2]["judges"] == rows[3]["judges"] == []
    assert rows[0]["scores"] == {"chosen": pytest.approx(2.5 / 3), "rejected": pytest.approx(0.5 / 3)}  # fmt: skip  # noqa: E501
    assert "cora: 3 judgments, 0 unreadable, 3 changed with the order" in done.stdout
    assert "together: agrees in 2 of 3 decided rows, 66.7% (95% interval" in done.stdout
    to = tmp_path / "judgments.jsonl"
    exported = command("export", out, "judgments", "--out", to)
    assert exported.returncode == 0
    judgments = read_rows(to)
    assert len(judgments) == 9
    assert {row["left"] for row in judgments} == {"file#chosen"}


def test_the_mixture_judges_as_one(config, file, tmp_path):
    out = tmp_path / "judged"
    done = phalanx_judge(config, file, "--protocol", "moa", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = read_rows(out / "verdicts.jsonl")
    assert [row["winner"] for row in rows] == ["chosen", "rejected", None, None, "chosen"]
    assert [j["judge"] for j in rows[0]["judges"]] == ["mixture"]
    with Ledger(run_ledger_path(out)) as ledger:
        asked = {
            row["purpose"]: row["n"]
            for row in ledger.query("SELECT purpose, count(*) AS n FROM responses GROUP BY 1")
        }
        assert ledger.state(1)["metrics"]["num_decided"] == 3
    # Three rows need judges; two orders, two proposers, one verdict an order.
    assert asked == {"criteria": 3, "assess": 12, "verdict": 6}


def test_what_the_mixture_did_without_is_said_and_recorded(tmp_path):
    gaps = r"""
  - {when: ., member: bob, purpose: assess, fail: {kind: refused, message: not today}}
  - {when: ., purpose: criteria, reply: no numbers}
"""
    config = write_pool(
        tmp_path, ["ada", "bob", "cora"], RULES.replace("sampling:", "sampling:" + gaps), MORE
    )
    file, out = write_rows(tmp_path / "pairs.jsonl", ROWS), tmp_path / "judged"
    done = phalanx_judge(config, file, "--protocol", "moa", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "evaluations left out: 6 of bob" in done.stdout
    assert "criteria that could not be read: of 3 instructions" in done.stdout
    with Ledger(run_ledger_path(out)) as ledger:
        metrics = ledger.state(1)["metrics"]
    assert metrics["evaluations.left_out.bob"] == 6
    assert metrics["criteria.unreadable"] == 3
    assert metrics["num_decided"] == 3


def test_why_a_command_ended_early_is_recorded(config, tmp_path):
    rows = [{"prompt": "A riddle", "response_a": "good", "response_b": "bad"}]
    with pytest.raises(JudgmentError) as raised:
        phalanx.judge(config, rows, out=tmp_path / "judged")
    with Ledger(run_ledger_path(tmp_path / "judged")) as ledger:
        (event,) = ledger.query("SELECT text FROM events WHERE kind = 'stopped'")
    assert event["text"] == str(raised.value)


def test_unreadable_verdicts_are_counted_and_too_many_are_refused(config, tmp_path):
    rows = [{"prompt": "A riddle", "response_a": "good", "response_b": "bad"}]
    with pytest.raises(JudgmentError, match="could not be read"):
        phalanx.judge(config, rows)
    made = phalanx.judge(config, rows, {"judge.max_unreadable": 1.0})
    assert made.statuses == {"no_quorum": 1}
    assert made.rows[0]["winner"] is None
    assert made.judges[0].unreadable == 1
    assert made.agreement is None


def test_the_advice_fits_the_judge_and_what_happened(config):
    rows = [{"prompt": "A riddle", "response_a": "good", "response_b": "bad"}]
    with pytest.raises(JudgmentError, match=r"judge\.protocol: expected"):
        phalanx.judge(config, rows)
    broken = [{"prompt": "This breaks", "response_a": "good", "response_b": "bad"}]
    for protocol in ("pairwise", "moa"):
        with pytest.raises(JudgmentError, match=r"requests failed.*not today") as raised:
            phalanx.judge(config, broken, {"judge.protocol": protocol})
        assert "could not be read" not in str(raised.value)
    with pytest.raises(JudgmentError, match=r"reward\.verdict: options"):
        phalanx.judge(config, rows, {"judge.protocol": "moa"})


def test_per_duel_and_judges_by_role(config):
    made = phalanx.judge(config, ROWS, {"judge.per_duel": 1})
    assert sum(line.judgments for line in made.judges) == 3
    assert made.agreement.total == 5


def test_an_empty_system_turn_and_an_answer_alone_are_fine(config):
    empty = {"role": "system", "content": " "}
    made = phalanx.judge(
        config, [{"prompt": [empty, USER], "left": [SAID], "right": [empty, USER, SAID]}]
    )
    assert made.statuses == {"tie": 1}


def test_sides_may_have_other_names_and_be_conversations(config, tmp_path):
    chat = [{"role": "user", "content": "Why?"}]
    answers = [[*chat, {"role": "assistant", "content": text}] for text in ("no", "good one")]
    made = phalanx.judge(config, [{"prompt": chat, "left": answers[0], "right": answers[1]}])
    assert made.rows[0]["winner"] == "right"
    assert made.rows[0]["instruction"] == "Why?"


def test_conversations_may_be_spelt_like_sharegpt(config):
    asked = {"from": "human", "value": "Why?"}
    sides = [[asked, {"from": "gpt", "value": text}] for text in ("no", "good one")]
    made = phalanx.judge(config, [{"prompt": [asked], "left": sides[0], "right": sides[1]}])
    assert made.rows[0]["winner"] == "right"
    assert made.rows[0]["instruction"] == "Why?"


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Why?"}
SAID = {"role": "assistant", "content": "good"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "Why?", "chosen": "a"}, "expected the columns"),
        ({"chosen": "a", "rejected": "b"}, "no column holds the instruction"),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "prompt is empty"),
        ({"prompt": "Why?", "chosen": 1, "rejected": "b"}, "chosen is no text"),
        ({"prompt": "Why?", "chosen": [{"role": "user", "content": "x"}], "rejected": "b"},
         "does not end with the assistant"),
        ({"prompt": [{"role": "user", "content": "x"}] * 2, "chosen": "a", "rejected": "b"},
         "several turns"),
        ({"prompt": [{"text": "x"}], "chosen": "a", "rejected": "b"},
         "prompt: turn 1 has 'text'"),
        ({"prompt": [SYSTEM, USER], "chosen": "a", "rejected": "b"}, "prompt has a system turn"),
        ({"prompt": "Why?", "chosen": [SYSTEM, USER, SAID], "rejected": "b"}, "has a system turn"),
        ({"prompt": "Why?", "chosen": [USER, SAID, USER, SAID], "rejected": "b"},
         "chosen has 3 turns before its answer"),
        ({"prompt": "Who?", "chosen": "a", "rejected": [USER, SAID]}, "judges see the instruction"),
        ({"prompt": "x", "chosen": "a", "rejected": "b", "left": "c", "right": "d"},
         "chosen and rejected; left and right"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_judged(config, tmp_path, row, reason):
    file = write_rows(tmp_path / "pairs.jsonl", [row])
    with pytest.raises(ConfigError, match=reason):
        read_cases(str(file), phalanx.load_config(config, purpose="judge"))


def test_columns_are_those_of_the_file(config, tmp_path):
    other = {"question": "Who?", "chosen": "a", "rejected": "b"}
    short = {"prompt": "Who?", "chosen": "a"}
    file = write_rows(tmp_path / "pairs.jsonl", [ROWS[0], other, short])
    with pytest.raises(ConfigError) as raised:
        read_cases(str(file), phalanx.load_config(config, purpose="judge"))
    assert "pairs.jsonl:2: field 'prompt' missing; a file's columns are" in str(raised.value)
    assert "pairs.jsonl:3: field 'rejected' missing" in str(raised.value)


def test_bad_rows_may_be_skipped_and_are_listed(config, tmp_path):
    file = write_rows(tmp_path / "pairs.jsonl", [ROWS[0], {**ROWS[1], "chosen": None}])
    made = phalanx.judge(config, file, {"instructions.bad_rows": "skip"})
    assert made.statuses == {"decided": 1, "bad row": 1}
    assert made.rows[1] == {
        "line": 2, "status": "bad row", "winner": None, "reason": "chosen is no text",
    }  # fmt: skip


def test_a_repeat_asks_failed_rows_again_and_the_record_is_the_file(config, file, tmp_path):
    """The script stands for a judge that could not be reached, and later can."""
    loaded = phalanx.load_config(config, ["judge.quorum=0.9"], purpose="judge")
    cases, out = read_cases(str(file), loaded), tmp_path / "judged"
    rule = "  - {when: Where, purpose: judge, fail: {kind: timeout, message: not now}}\n"
    script = read_text(RULES.replace("sampling:\n", f"sampling:\n{rule}"), "script").data
    member = loaded.pool.members[0].model
    with Workshop(loaded) as shop:
        shop.use("scripted", ScriptedEngine({member: script}))
        failed = judge_file(loaded, cases, out, workshop=shop)
    assert failed.rows[4]["status"] == "no_quorum"
    made = judge_file(loaded, cases, out)
    assert made.rows[4]["winner"] == "chosen"
    with Ledger(run_ledger_path(out)) as ledger:
        outcomes = ledger.query(
            "SELECT o.status FROM outcomes o JOIN duels d ON d.id = o.duel ORDER BY d.position"
        )
        assert [row["status"] for row in outcomes] == [row["status"] for row in made.rows]
        assert ledger.count("judgments", "reason != ''") == 0
        assert ledger.state(1)["metrics"]["num_unreadable"] == 0


def test_a_changed_file_behind_the_configuration_needs_another_folder(config, file, tmp_path):
    out = tmp_path / "judged"
    assert phalanx_judge(config, file, "--out", out).returncode == 0
    script = tmp_path / "script.yaml"
    script.write_text(RULES.replace("good", "bad"), encoding="utf-8")
    refused = phalanx_judge(config, file, "--out", out)
    assert refused.returncode == 1
    assert "a file that its configuration names has changed" in refused.stderr
    script.write_text(RULES, encoding="utf-8")
    assert phalanx_judge(config, file, "--out", out).returncode == 0


def test_a_ranker_compares_both_responses_at_once(tmp_path):
    """A small ranker from files: it scores none alone, and so is asked about pairs, both ways."""
    pytest.importorskip("torch")
    from tests.engines.test_reward import make_ranker

    config = tmp_path / "config.yaml"
    make_ranker(tmp_path / "pam")
    config.write_text(
        "pool:\n  members:\n    - {name: pam, engine: reward, model: pam, roles: [judge]}\n"
        "judge: {protocol: reward}\naggregate: {rule: mean}\n"
        "resources: {device: cpu}\n",
        encoding="utf-8",
    )
    made = phalanx.judge(config, ROWS, out=tmp_path / "judged")
    assert made.statuses == {"decided": 3, "tie": 1, "unanswered": 1}
    for row in (made.rows[0], made.rows[1], made.rows[4]):
        (said,) = row["judges"]
        assert said["scores"]["chosen"] == -said["scores"]["rejected"] != 0
        assert "ranker" in said["flags"]
    with Ledger(run_ledger_path(tmp_path / "judged")) as ledger:
        assert ledger.count("responses", "status = 'done'") == ledger.count("responses") == 6


KILLER = """
import os, signal, sys, time
from phalanx.api import load_config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.verdicts import judge_file, read_cases
from phalanx.workshop import Workshop

class Killing(ScriptedEngine):
    left = int(sys.argv[4])
    def respond(self, requests):
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        time.sleep(0.06)
        return super().respond(requests)

config = load_config(sys.argv[1], ["judge.protocol=" + sys.argv[5]], purpose="judge")
shop = Workshop(config)
shop.use("scripted", Killing(batch_size=4))
judge_file(config, read_cases(sys.argv[2], config), sys.argv[3], workshop=shop)
"""


@pytest.mark.parametrize(("protocol", "batches"), [("pairwise", 2), ("moa", 1), ("moa", 3)])
def test_killed_and_taken_up_again(config, file, tmp_path, protocol, batches):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = (config, file, "--protocol", protocol, "--out")
    assert phalanx_judge(*words, whole).returncode == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, *map(str, (config, file, cut, batches, protocol))],
        timeout=60, env={**os.environ},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    done = phalanx_judge(*words, cut)
    assert done.returncode == 0, done.stderr
    with Ledger(run_ledger_path(whole)) as one, Ledger(run_ledger_path(cut)) as other:
        assert one.contents() == other.contents()
    again = phalanx_judge(*words, cut)
    assert again.returncode == 0, again.stderr
    assert read_rows(cut / "verdicts.jsonl") == read_rows(whole / "verdicts.jsonl")


def test_agreement_with_no_decided_row():
    assert str(Agreement(0, 0, 4)) == "no row of 4 was decided"
    assert Agreement(3, 4, 9).interval.low < 0.75 < Agreement(3, 4, 9).interval.high


def test_errors_before_anybody_is_asked(config, file, tmp_path):
    wrong = phalanx_judge(config, file, "--protocol", "duel")
    assert wrong.returncode == 2
    assert "protocol" in wrong.stderr
    folder = phalanx_judge(config, file, "--out", tmp_path / "x", "--to", tmp_path)
    assert folder.returncode == 2
    assert "is a folder" in folder.stderr
