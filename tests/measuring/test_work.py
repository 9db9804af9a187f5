"""``phalanx eval``: asked, scored, recorded; grown, resumed, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import phalanx
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import Interrupted, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.wanted import wanted
from phalanx.measuring.work import measure_subjects
from phalanx.report.measured import sums
from phalanx.types import Member
from phalanx.workshop import Workshop
from tests.measuring.recount import recorded, recount
from tests.scripts import command, read_rows, write_pool, write_rows
from tests.server import TestServer
from tests.tiny import make_adapter, make_tiny

RULES = r"""
sampling:
  - {when: 'response A \w+>>>\n(So it|That makes)', purpose: judge, reply: "[[A]]"}
  - {when: 'response B \w+>>>\n(So it|That makes)', purpose: judge, reply: "[[B]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
  - {when: broken, member: bob, fail: {kind: refused, message: not today}}
  - {when: apples, member: ada, reply: 'So it is \boxed{7}.'}
  - {when: apples, member: bob, reply: 'The answer is 8.'}
  - {when: apples, reply: 'That makes \boxed{7}.'}
  - {when: pears, member: ada, reply: 'Nobody can know.'}
  - {when: pears, reply: '\boxed{1,200}'}
  - {when: plums, member: cora, reply: '\boxed{5}'}
  - {when: plums, reply: '\boxed{6}'}
  - {when: France, member: bob, reply: 'Answer: A'}
  - {when: France, reply: 'Answer: B'}
  - {when: Peru, reply: 'Answer: A'}
  - {when: 'moon.*\(A\) rock', reply: 'Answer: A'}
  - {when: ., reply: 'Answer: B'}
"""
MORE = """
judge: {protocol: pairwise}
aggregate: {rule: mean}
mixture: {proposers: [ada, bob], aggregator: cora}
evaluate: {dev_share: 0.5}
"""
GSM8K = [
    {"question": "How many apples are there?", "answer": "3 + 4 = 7\n#### 7"},
    {"question": "How many pears are there?", "answer": "#### 1,200"},
    {"question": "How many plums are there?", "answer": "#### 5"},
    {"question": "Is the broken one whole?", "answer": "#### 1"},
]
MEDQA = [
    {"prompt": "Capital of France?", "choices": {"A": "Lima", "B": "Paris"}, "answer": "B"},
    {"prompt": "Capital of Peru?", "choices": {"A": "Lima", "B": "Paris"}, "answer": "B"},
]
TRUTH = [
    {
        "prompt": "What is the moon made of?",
        "answer": "A",
        "choices": {"A": "rock", "B": "cheese"},
        "meta": {"mc1": {"choices": ["rock", "cheese"], "labels": [1, 0]},
                 "mc2": {"choices": ["rock", "cheese"], "labels": [1, 0]}},
    },
]  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Path:
    for name, rows in (("gsm8k", GSM8K), ("medqa", MEDQA), ("truthfulqa", TRUTH)):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return write_pool(tmp_path, ["ada", "bob", "cora"], RULES, MORE)


def phalanx_eval(*words: object):
    return command("eval", *words, "--quiet")


def right(folder: Path) -> dict[tuple[str, str], int]:
    return {key: sum(items.values()) for key, items in recorded(folder).items()}


def asked(folder: Path) -> int:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.count("responses")


def test_every_record_agrees_with_an_independent_recount(config, tmp_path):
    out = tmp_path / "out"
    done = phalanx_eval(
        config, "--task", "gsm8k,medqa,truthfulqa", "--data", tmp_path, "--out", out
    )
    assert done.returncode == 0, done.stderr
    tasks = ("gsm8k", "medqa", "truthfulqa")
    mine = recount(out, {task: tmp_path / f"{task}.jsonl" for task in tasks})
    assert mine == recorded(out)
    # Counted by hand from the rules above.
    assert {key: sum(items.values()) for key, items in mine.items()} == {
        ("ada", "gsm8k"): 1, ("bob", "gsm8k"): 1, ("cora", "gsm8k"): 3,
        ("ada", "medqa"): 1, ("bob", "medqa"): 0, ("cora", "medqa"): 1,
        ("ada", "truthfulqa"): 1, ("bob", "truthfulqa"): 1, ("cora", "truthfulqa"): 1,
    }  # fmt: skip
    with Ledger(run_ledger_path(out)) as ledger:
        counted = {
            (one.subject, one.task): one for one in sums(ledger, phalanx.open_run(out).config)
        }
    assert all(counted[key].items == len(items) for key, items in mine.items())
    bob = counted["bob", "gsm8k"]
    assert (bob.done, bob.unreadable, bob.failed) == (3, 0, 1)
    ada = counted["ada", "gsm8k"]
    assert (ada.done, ada.unreadable, ada.failed) == (2, 2, 0)  # "Nobody can know", "Answer: B"
    assert "21 answers:" in done.stdout


def test_collectives_vote_mix_and_choose(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--task", "gsm8k,medqa", "--data", tmp_path, "--out", out]
    done = phalanx_eval(*words, "--members", "ada,bob,cora,majority,mixture,best_of")
    assert done.returncode == 0, done.stderr
    with Ledger(run_ledger_path(out)) as ledger:
        rows = {
            (row["member"], row["task"], row["item"]): row
            for row in ledger.query("SELECT * FROM evaluations")
        }
        purposes = {
            row["purpose"]: row["n"]
            for row in ledger.query("SELECT purpose, count(*) AS n FROM responses GROUP BY 1")
        }
    questions = {item: None for _, _, item in rows}
    assert len(questions) == 6
    for (member, task, item), row in rows.items():
        if member not in ("majority", "best_of"):
            continue
        answers = [rows[name, task, item] for name in ("ada", "bob", "cora")]
        if member == "majority":
            given = [one["answer"] for one in answers if one["readable"]]
            won = max(dict.fromkeys(given), key=given.count, default="")
            assert row["answer"] == won
            assert row["readable"] == bool(won)
            correct = {one["answer"]: one["correct"] for one in answers}
            assert row["correct"] == (correct[won] if won else 0)
        else:
            assert row["response"] in [one["response"] for one in answers]
    # Members answer once: a vote asks nobody, and best_of only asks judges.
    assert purposes["evaluate"] == 18
    assert purposes["propose"] == 12
    assert purposes["aggregate"] == 6
    apples = next(i for m, t, i in rows if t == "gsm8k" and rows["ada", t, i]["answer"] == "7")
    assert rows["best_of", "gsm8k", apples]["correct"] == 1  # judges like what has a 7
    assert rows["mixture", "gsm8k", apples]["correct"] == 1


def test_votes_weigh_by_reputation(config, tmp_path):
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("{name: bob,", "{name: bob, reputation: 250,"), encoding="utf-8")
    out = tmp_path / "out"
    words = [config, "--task", "medqa,gsm8k", "--data", tmp_path, "--out", out]
    assert phalanx_eval(*words, "--members", "majority").returncode == 0
    mine = recorded(out)
    assert mine["majority", "medqa"] == mine["bob", "medqa"]  # 250 against 100 + 100
    assert right(out)["majority", "gsm8k"] == 1  # pears: bob and cora


def test_an_evaluation_grows_and_nothing_is_asked_twice(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--data", tmp_path, "--out", out]
    assert phalanx_eval(*words, "--task", "gsm8k", "--members", "ada").returncode == 0
    assert asked(out) == 4
    done = phalanx_eval(*words, "--task", "medqa,gsm8k", "--members", "ada,majority")
    assert done.returncode == 0, done.stderr
    assert "Measured as well, since a collective chooses among their answers: bob, cora" in (
        done.stdout
    )
    assert asked(out) == 3 * 6
    assert set(right(out)) == {
        (name, task) for name in ("ada", "bob", "cora", "majority") for task in ("gsm8k", "medqa")
    }
    before = right(out)
    assert phalanx_eval(*words, "--task", "medqa", "--members", "ada").returncode == 0
    assert right(out) == before
    with Ledger(run_ledger_path(out)) as ledger:
        kept = phalanx.Config.model_validate_json(ledger.get("config"))
        assert ledger.get("finished")
    assert [task.name for task in kept.evaluate.tasks] == ["gsm8k", "medqa"]


def test_what_changed_is_refused_by_name(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--data", tmp_path, "--out", out, "--members", "ada"]
    assert phalanx_eval(*words, "--task", "gsm8k").returncode == 0
    limited = phalanx_eval(*words, "--task", "gsm8k", "--limit", "2")
    assert limited.returncode == 1
    assert "evaluate.tasks.gsm8k.total was None and is now 2" in limited.stderr
    shorter = phalanx_eval(*words, "evaluate.max_new_tokens=9", "--task", "gsm8k")
    assert "evaluate.max_new_tokens was 256 and is now 9" in shorter.stderr
    script = tmp_path / "script.yaml"
    script.write_text(RULES.replace("Nobody can", "Nobody may"), encoding="utf-8")
    other = phalanx_eval(*words, "--task", "medqa")
    assert "the files of ada@0" in other.stderr
    script.write_text(RULES, encoding="utf-8")
    write_rows(tmp_path / "gsm8k.jsonl", GSM8K[:3])
    rows = phalanx_eval(*words, "--task", "gsm8k")
    assert "the rows of task gsm8k" in rows.stderr
    assert rows.returncode == 1


class _Stops(ScriptedEngine):
    """Asks to stop after so many batches, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def respond(self, requests):
        self.left -= 1
        if self.left < 0:
            raise Interrupted("stopped")
        return super().respond(requests)


def test_a_stopped_evaluation_goes_on_to_the_same_records(config, tmp_path):
    def measure(out: Path, after: int) -> None:
        wish = wanted(
            str(config), ["resources.batch_size=2"], tasks=["gsm8k", "medqa"],
            members=["ada", "majority", "mixture", "best_of"], data=tmp_path,
        )  # fmt: skip
        shop = Workshop(wish.config, out)
        shop.use("scripted", _Stops(after))
        measure_subjects(wish, out, workshop=shop)

    measure(tmp_path / "whole", 10**6)
    stopped = 0
    for _ in range(40):
        try:
            measure(tmp_path / "stopped", 1)
            break
        except Interrupted:
            stopped += 1
    assert stopped > 2  # members, proposers, the aggregator, judges
    contents = []
    for name in ("whole", "stopped"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            contents.append(ledger.contents())
    assert contents[0] == contents[1]


def test_likelihoods_and_contests_leave_collectives_out(config, tmp_path):
    out = tmp_path / "out"
    script = tmp_path / "script.yaml"
    rules = RULES + "likelihood:\n  - {when: ., logprob_per_token: [-1.5, -0.5]}\n"
    script.write_text(rules, encoding="utf-8")
    words = [config, "--task", "truthfulqa_mc1,truthfulqa_mc2", "--data", tmp_path, "--out", out]
    done = phalanx_eval(*words, "--members", "ada,bob,majority,mixture,best_of")
    assert done.returncode == 0, done.stderr
    subjects = {task: {m for m, t in recorded(out) if t == task}
                for task in ("truthfulqa_mc1", "truthfulqa_mc2")}  # fmt: skip
    assert subjects["truthfulqa_mc1"] == {"ada", "bob", "cora", "majority"}
    assert subjects["truthfulqa_mc2"] == {"ada", "bob"}  # cora only votes, and there is no vote
    assert "mixture is not measured on truthfulqa_mc1: it is scored by the likelihood" in (
        done.stdout
    )


def test_samples_count_and_the_vote_takes_the_first(config, tmp_path):
    text = config.read_text(encoding="utf-8").replace(
        "evaluate: {dev_share: 0.5}",
        f"evaluate: {{tasks: [{{name: sums, kind: gsm8k, source: '{tmp_path}/gsm8k.jsonl', "
        "samples: 4, temperature: 0.7}]}",
    )
    config.write_text(text, encoding="utf-8")
    script = tmp_path / "script.yaml"
    script.write_text(
        RULES.replace("reply: 'So it is \\boxed{7}.'", "reply: ['\\boxed{7}', '\\boxed{8}']"),
        encoding="utf-8",
    )
    out = tmp_path / "out"
    done = phalanx_eval(config, "--members", "ada,majority", "--out", out)
    assert done.returncode == 0, done.stderr
    with Ledger(run_ledger_path(out)) as ledger:
        rows = ledger.query("SELECT * FROM evaluations")
    assert {row["score"] for row in rows if row["member"] == "ada"} <= {0, 0.25, 0.5, 0.75, 1}
    assert {row["score"] for row in rows if row["member"] == "majority"} <= {0, 1}
    passes = phalanx.open_run(out).facts().measured.passes
    assert {one.subject for one in passes} == {"ada", "bob", "cora"}  # a vote is one answer
    assert asked(out) == 3 * 4 * 4


def test_a_vote_knows_that_two_expressions_are_one_answer(tmp_path):
    pytest.importorskip("math_verify")
    write_rows(tmp_path / "math.jsonl", [{"problem": "Half?", "answer": r"\frac{1}{2}"}])
    write_rows(tmp_path / "where.jsonl", [{"prompt": "Where?", "answer": "Paris"}])
    replies = {"ada": r"\boxed{7}", "bob": r"\boxed{\frac{1}{2}}", "cora": r"\boxed{0.5}"}
    rules = "".join(f"  - {{when: Half, member: {name}, reply: '{text}'}}\n"
                    for name, text in replies.items())  # fmt: skip
    more = (
        "evaluate:\n  tasks:\n    - {name: math, kind: math, source: math.jsonl}\n"
        "    - {name: where, source: where.jsonl, match: contains}\n"
    )
    rules += "  - {when: ., reply: It is Paris}\n"
    config = write_pool(tmp_path, list(replies), "sampling:\n" + rules, more)
    wish = wanted(str(config), members=["ada", "majority"])
    assert any("majority is not measured on where" in note for note in wish.notes)
    measure_subjects(wish, tmp_path / "out")
    assert right(tmp_path / "out") == {
        ("ada", "math"): 0, ("bob", "math"): 1, ("cora", "math"): 1, ("majority", "math"): 1,
        ("ada", "where"): 1,
    }  # fmt: skip


def test_status_report_and_export_read_the_folder(config, tmp_path):
    out = tmp_path / "out"
    words = [config, "--task", "gsm8k", "--data", tmp_path, "--out", out]
    assert phalanx_eval(*words, "--members", "ada,bob", "--against", "bob").returncode == 0
    assert "Finished" in command("status", out).stdout
    shown = command("report", out, "--out", tmp_path / "page.html")
    assert shown.returncode == 0
    assert "ada minus bob" in shown.stdout
    assert "bob minus ada" not in shown.stdout
    exported = command("export", out, "evaluations", "--out", tmp_path / "rows.jsonl")
    assert exported.returncode == 0, exported.stderr
    rows = read_rows(tmp_path / "rows.jsonl")
    assert len(rows) == 8
    assert {row["member"] for row in rows} == {"ada", "bob"}


def test_from_python_with_models_and_adapters(tmp_path):
    base = make_tiny(tmp_path / "tiny")
    adapter = make_adapter(base, tmp_path / "adapter")
    for name, rows in (("gsm8k", GSM8K), ("truthfulqa", TRUTH)):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"pool:\n  base: {base}\n  members:\n    - {{name: plain}}\n"
        f"    - {{name: tuned, adapter: {adapter}}}\n    - {{name: told, system: be good}}\n"
        "evaluate: {max_new_tokens: 6}\nresources: {device: cpu, threads: 1}\n",
        encoding="utf-8",
    )
    made = phalanx.measure(
        config, ["gsm8k", "truthfulqa_mc1"], ["plain", "tuned", "told", f"bare={base}", "majority"],
        data=tmp_path, out=tmp_path / "out",
    )  # fmt: skip
    measured = made.facts().measured
    assert measured.subjects == ("plain", "tuned", "told", "bare", "majority")
    assert measured.tasks == ("gsm8k", "truthfulqa_mc1")
    rows = made.rows("evaluations")
    texts = {
        (row["member"], row["task"]): row["response_id"] for row in rows if row["member"] != "bare"
    }
    assert len(rows) == 5 * 5
    with Ledger(run_ledger_path(tmp_path / "out")) as ledger:
        sums_of = {
            name: ledger.responses([texts[name, "truthfulqa_mc1"]])[texts[name, "truthfulqa_mc1"]][
                0
            ].logprob_sum
            for name in ("plain", "tuned", "told")
        }
    assert len(set(sums_of.values())) == 3  # adapter and system prompt are in force


def test_a_run_is_measured_at_its_start_and_its_end(config, tmp_path):
    run = tmp_path / "run"
    text = config.read_text(encoding="utf-8").replace("evaluate: {dev_share: 0.5}", "")
    config.write_text(
        text + f"iterations: 2\nmatch: {{duels: 3}}\ntrain: {{method: none}}\n"
        f"instructions: {{source: '{tmp_path}/asked.jsonl'}}\n",
        encoding="utf-8",
    )
    asked_rows = [{"instruction": f"Say {word} for France"} for word in "abcdefgh"]
    write_rows(tmp_path / "asked.jsonl", [*asked_rows, {"instruction": GSM8K[0]["question"]}])
    done = command("run", config, "--out", run, "--quiet")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    done = phalanx_eval(run, "--task", "gsm8k", "--data", tmp_path, "--out", out)
    assert done.returncode == 0, done.stderr
    assert {name for name, _ in recorded(out)} == {
        f"{name}@{number}" for name in ("ada", "bob", "cora") for number in (0, 2)
    }
    assert asked(out) == 3 * 4  # nobody learned, so nobody is asked twice
    assert "1 of 9 instructions overlap evaluation items" in done.stdout
    more = phalanx_eval(run, "--task", "gsm8k", "--data", tmp_path, "--out", out,
                        "--members", "majority@0,majority@2,cora")  # fmt: skip
    assert more.returncode == 0, more.stderr
    assert asked(out) == 3 * 4
    none = phalanx_eval(out, "--task", "gsm8k", "--data", tmp_path)
    assert none.returncode == 1
    assert "is work of 'eval' and no run" in none.stderr


def test_another_run_is_refused_in_the_same_folder(config, tmp_path):
    wish = wanted(str(config), tasks=["gsm8k"], members=["ada"], data=tmp_path)
    measure_subjects(wish, tmp_path / "out")
    from dataclasses import replace

    other = replace(wish, origin=replace(wish.origin, folder=tmp_path, identity="other"))
    with pytest.raises(LedgerError, match="SOURCE"):
        measure_subjects(other, tmp_path / "out")


@pytest.mark.real
def test_the_embedded_model_on_rows_agrees_with_the_recount(tmp_path, data_dir):
    made = phalanx.measure(
        None, ["gsm8k", "medqa", "truthfulqa"], ["builtin:smollm2-135m"],
        ["evaluate.max_new_tokens=48", "resources.threads=1"],
        data=data_dir, limit=3, out=tmp_path / "out",
    )  # fmt: skip
    tasks = ("gsm8k", "medqa", "truthfulqa")
    ours = recorded(made.folder)
    assert recount(made.folder, {task: data_dir / f"{task}.jsonl" for task in tasks}) == ours
    assert {key: len(items) for key, items in ours.items()} == {
        ("smollm2-135m", task): 3 for task in tasks
    }


def test_a_contest_is_played_by_whoever_writes(config, tmp_path):
    rows = [{"instruction": f"Say {word} about apples"} for word in ("much", "little", "more")]
    write_rows(tmp_path / "open.jsonl", rows)
    out = tmp_path / "out"
    words = [config, "evaluate.judges=[cora]", "--data", tmp_path, "--limit", 2, "--out", out]
    done = phalanx_eval(*words, "--task", "open,medqa", "--members", "bob,ada,majority")
    assert done.returncode == 0, done.stderr
    assert "majority is not measured on open: a vote writes no answer" in done.stdout
    with Ledger(run_ledger_path(out)) as ledger:
        games = ledger.query("SELECT * FROM games")
    # The first is the baseline. Judges like the 7 of ada's answer, whatever is shown first.
    assert {(row["member"], row["rival"], row["judge"]) for row in games} == {
        ("ada", "bob", "cora")
    }
    assert {row["value"] for row in games} == {1.0}
    assert len({row["item"] for row in games}) == 2
    assert "8 answers: 8 read, 0 unreadable, 0 failed; 4 verdicts, 0 of them unread" in done.stdout


def test_members_behind_an_endpoint_are_measured_within_the_budget(config, tmp_path):
    script = Member("m", f"script:{tmp_path}/script.yaml", engine="scripted")
    with TestServer(ScriptedEngine(), {"m": script}) as server:
        text = f"""
pool:
  members:
    - {{name: far, engine: openai, model: m}}
    - {{name: near, engine: scripted, model: 'script:{tmp_path}/script.yaml'}}
endpoints: [{{name: lab, url: '{server.url}'}}]
"""
        config.write_text(text, encoding="utf-8")
        words = [config, "--data", tmp_path, "--out", tmp_path / "out"]
        poor = phalanx_eval(*words, "budget.requests=2", "--task", "gsm8k,medqa")
        assert poor.returncode == 3, poor.stderr
        assert "budget" in poor.stderr
        done = phalanx_eval(*words, "budget.requests=20", "--task", "gsm8k,medqa")
        assert done.returncode == 0, done.stderr
        unfit = phalanx_eval(*words, "--task", "truthfulqa_mc1")
    mine = recorded(tmp_path / "out")
    for task, count in (("gsm8k", 4), ("medqa", 2)):
        assert len(mine["far", task]) == count
        assert mine["far", task] == mine["near", task]  # the same rules answer for both
    assert unfit.returncode == 2
    assert "far: an endpoint gives no likelihood of a given text" in unfit.stderr
