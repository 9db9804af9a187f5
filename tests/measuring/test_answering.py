"""``phalanx eval`` of the methods that answer together: rows, who is asked, growth, refusals."""

from __future__ import annotations

import json

import pytest

from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.wanted import wanted
from phalanx.measuring.work import measure_subjects
from phalanx.workshop import Workshop
from tests.measuring.recount import recorded
from tests.measuring.test_work import GSM8K, MEDQA, MORE, RULES, TRUTH, phalanx_eval
from tests.scripts import command, write_pool, write_rows

VOTES = r"""
sampling:
  - {when: '\n1\.\n<<<answer \w+>>>\nThat makes', purpose: vote, reply: "[[1]]"}
  - {when: '\n2\.\n<<<answer \w+>>>\nThat makes', purpose: vote, reply: "[[2]]"}
  - {when: ., purpose: vote, reply: "I cannot say."}
  - {when: plums, member: ada, purpose: answer, reply: ['\boxed{5}', '\boxed{6}', '\boxed{4}']}
  - {when: 'Answers of the others', purpose: debate, reply: 'We say \boxed{7}.'}
"""
SECTIONS = """
self_consistency: {member: cora, samples: 3}
best_of_n: {member: ada, samples: 3}
"""


@pytest.fixture
def config(tmp_path):
    for name, rows in (("gsm8k", GSM8K), ("medqa", MEDQA), ("truthfulqa", TRUTH)):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    rules = VOTES + RULES.removeprefix("\nsampling:\n")
    return write_pool(tmp_path, ["ada", "bob", "cora"], rules, MORE + SECTIONS)


def stored(folder, sql="SELECT * FROM evaluations"):
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.query(sql)


def test_every_method_answers_every_item_and_what_happened_is_counted(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--task", "gsm8k,medqa", "--data", tmp_path, "--out", out, "--members"]
    done = phalanx_eval(*words, "ada,self_consistency,debate,council,best_of_n")
    assert done.returncode == 0, done.stderr
    names = {"ada", "self_consistency", "debate", "council", "best_of_n"}
    rows = {(row["member"], row["task"], row["item"]): row for row in stored(out)}
    assert {name for name, *_ in rows} == names
    assert len(rows) == 6 * 5
    apples = next(item for name, task, item in rows if rows["ada", task, item]["answer"] == "7")
    assert all(rows[name, "gsm8k", apples]["correct"] for name in names)
    with Ledger(run_ledger_path(out)) as ledger:
        counts = {
            name: json.loads(ledger.get(f"together:0:{name}:gsm8k") or "{}")
            for name in names - {"ada"}
        }
        purposes = {row["purpose"] for row in ledger.query("SELECT purpose FROM responses")}
    assert purposes == {"evaluate", "answer", "debate", "vote", "judge"}
    assert counts["self_consistency"] == {
        "asked": 4, "unanswered": 1, "answers": 12, "failed": 0,
    }  # fmt: skip
    assert counts["debate"]["failed"] == 1  # bob, on the broken one
    council = counts["council"]
    assert council["votes"] + council["unreadable"] + council["inconsistent"] > 0
    missing = [
        row
        for (name, task, _), row in rows.items()
        if (name, task) == ("council", "gsm8k") and not row["response"]
    ]
    assert council["unanswered"] == len(missing) > 0
    assert all(row["reason"].startswith("no vote") for row in missing)
    assert not any(row["correct"] or row["readable"] for row in missing)


def test_asked_again_nothing_is_asked_and_a_further_method_adds_its_own(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--task", "gsm8k", "--data", tmp_path, "--out", out, "--members"]
    assert phalanx_eval(*words, "ada,council").returncode == 0
    answered = "SELECT * FROM responses WHERE status = 'done' ORDER BY id"
    before = stored(out, answered)
    assert phalanx_eval(*words, "ada,council").returncode == 0
    assert stored(out, answered) == before
    assert phalanx_eval(*words, "debate").returncode == 0
    assert {name for name, _ in recorded(out)} == {"ada", "council", "debate"}


def test_a_further_voter_makes_another_council(config, tmp_path):
    out, script = tmp_path / "out", tmp_path / "script.yaml"
    words = [config, "--task", "gsm8k", "--data", tmp_path, "--out", out, "--members"]
    seated = ["council.members=[ada,bob,cora]", "debate.debaters=[ada,bob,cora]"]
    assert phalanx_eval(*words, "council,debate", *seated).returncode == 0
    before = recorded(out)
    text = config.read_text(encoding="utf-8")
    dan = f"    - {{name: dan, engine: scripted, model: 'script:{script}', roles: [judge]}}\n"
    config.write_text(text.replace("judge: {", f"{dan}judge: {{", 1), encoding="utf-8")
    other = phalanx_eval(*words, "council", *seated)
    assert other.returncode == 1
    assert "has measured another council: whom it asks were ada@" in other.stderr
    assert "dan" in other.stderr
    assert phalanx_eval(*words, "debate", *seated).returncode == 0  # dan has no part in it
    assert recorded(out) == before


class Stops(ScriptedEngine):
    """Stops after so many batches, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        super().__init__(batch_size=2)
        self.left = after

    def respond(self, requests):
        if not self.left:
            raise Interrupted("stopped")
        self.left -= 1
        return super().respond(requests)


def test_a_stopped_evaluation_goes_on_to_the_same_records(config, tmp_path):
    def measure(out, after):
        wish = wanted(
            str(config), ["resources.batch_size=2"], tasks=["gsm8k"], data=tmp_path,
            members=["self_consistency", "debate", "council", "best_of_n"],
        )  # fmt: skip
        shop = Workshop(wish.config, out)
        shop.use("scripted", Stops(after))
        measure_subjects(wish, out, workshop=shop)

    measure(tmp_path / "whole", 10**6)
    for _ in range(40):
        try:
            measure(tmp_path / "stopped", 7)
            break
        except Interrupted:
            pass
    contents = []
    for name in ("whole", "stopped"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            contents.append(ledger.contents())
    assert contents[0] == contents[1]


def test_what_they_cannot_answer_they_are_left_out_of(config, tmp_path):
    script = tmp_path / "script.yaml"
    rules = script.read_text(encoding="utf-8")
    rules += "likelihood:\n  - {when: ., logprob_per_token: [-1.5, -0.5]}\n"
    script.write_text(rules, encoding="utf-8")
    out = tmp_path / "out"
    words = [config, "--task", "truthfulqa_mc2,medqa", "--data", tmp_path, "--out", out]
    done = phalanx_eval(*words, "--members", "ada,self_consistency,council")
    assert done.returncode == 0, done.stderr
    assert {name for name, task in recorded(out) if task == "truthfulqa_mc2"} == {"ada"}
    assert {name for name, task in recorded(out) if task == "medqa"} == {
        "ada",
        "self_consistency",
        "council",
    }
    assert "self_consistency is not measured on truthfulqa_mc2: its answers are nothing" in (
        done.stdout
    )


def test_they_play_contests_but_for_the_one_that_only_votes(config, tmp_path):
    rows = [{"instruction": f"Say {word} about apples"} for word in ("much", "little")]
    rows.append({"instruction": "Say what pears are"})
    write_rows(tmp_path / "open.jsonl", rows)
    script = tmp_path / "script.yaml"
    text = config.read_text(encoding="utf-8")
    judge = f"    - {{name: judy, engine: scripted, model: 'script:{script}', roles: [judge]}}\n"
    config.write_text(text.replace("judge: {", f"{judge}judge: {{", 1), encoding="utf-8")
    out = tmp_path / "out"
    words = [config, "evaluate.judges=[judy]", "--data", tmp_path, "--out", out]
    members = "bob,debate,council,best_of_n"
    done = phalanx_eval(*words, "--task", "open", "--members", members)
    assert done.returncode == 0, done.stderr
    games = stored(out, "SELECT * FROM games")
    assert {(row["member"], row["judge"]) for row in games} == {
        ("debate", "judy"),
        ("council", "judy"),
        ("best_of_n", "judy"),
    }
    with Ledger(run_ledger_path(out)) as ledger:
        counts = {
            name: json.loads(ledger.get(f"together:0:{name}:open") or "{}")
            for name in ("debate", "council", "best_of_n")
        }
    assert all(found["asked"] == 3 for found in counts.values())
    assert counts["council"]["unanswered"] == 1  # on pears
    reasons = [row["reason"] for row in games if row["member"] == "council"]
    assert any(one.startswith("no answer: no vote: of 1 voters") for one in reasons)
    alone = phalanx_eval(*words, "--task", "open", "--members", "self_consistency,bob,ada")
    assert "self_consistency is not measured on open: a vote writes no answer" in alone.stdout


def test_of_a_run_the_best_at_its_start_answers(config, tmp_path):
    run = tmp_path / "run"
    text = config.read_text(encoding="utf-8").replace(SECTIONS, "")
    rows = tmp_path / "gsm8k.jsonl"
    more = f"method: frozen\nevaluate: {{dev_share: 0.5, tasks: [{{name: gsm8k, kind: gsm8k, source: '{rows}'}}]}}\n"  # noqa: E501
    config.write_text(text.replace("evaluate: {dev_share: 0.5}", more), encoding="utf-8")
    done = command("run", config, "--out", run, "--quiet")
    assert done.returncode == 0, done.stderr
    dev = {}
    for row in stored(run):
        if row["split"] == "dev":
            dev[row["member"]] = dev.get(row["member"], 0) + row["score"]
    best = max(("ada", "bob", "cora"), key=lambda name: dev[name])
    out = tmp_path / "out"
    done = phalanx_eval(run, "--task", "gsm8k", "--out", out, "--members", "self_consistency@0")
    assert done.returncode == 0, done.stderr
    asked = stored(out, "SELECT DISTINCT member FROM responses")
    assert [row["member"] for row in asked] == [best]


@pytest.mark.parametrize(
    ("settings", "members", "message"),
    [
        (["self_consistency.member=''"], "self_consistency", "is best is not known without a run"),
        (["best_of_n.member=eve"], "best_of_n", "there is no member 'eve'"),
        (["best_of_n.judge=ada"], "best_of_n", "nobody judges an answer of their own"),
        (["debate.debaters=[ada]"], "debate", "a debate needs two debaters"),
        (["council.voters=[eve]"], "council", "there is no member 'eve'"),
        (["council.members=[ada,bob]", "council.voters=[ada]"], "council", "nobody votes for an"),
    ],
)
def test_what_cannot_work_is_refused_before_anybody_is_asked(
    config, tmp_path, settings, members, message
):
    with pytest.raises(ConfigError, match=message):
        wanted(str(config), settings, tasks=["gsm8k"], members=[members], data=tmp_path)


@pytest.mark.parametrize("members", ["council", "debate", "mixture", "ada"])
def test_samples_that_would_all_be_the_same_are_refused(config, tmp_path, members):
    task = f"name: sums, kind: gsm8k, source: '{tmp_path / 'gsm8k.jsonl'}'"
    greedy = [
        f"evaluate.tasks=[{{{task}, samples: 2, temperature: 0.9}}]",
        "debate.sample.temperature=0",
        "mixture={aggregator: ada}",
    ]
    if members in ("mixture", "ada"):  # they write as the task says
        assert wanted(str(config), greedy, tasks=["sums"], members=[members]).subjects
        return
    with pytest.raises(ConfigError, match=f"--members {members}: .*so they are all the same"):
        wanted(str(config), greedy, tasks=["sums"], members=[members])
