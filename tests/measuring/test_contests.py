"""Contests end to end with scripted members: what is asked, what is recorded, what is counted."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import phalanx
from phalanx import pool
from phalanx.asking import asking
from phalanx.benchmarks.alpaca_eval import Comparison, length_controlled, raw_win_rate
from phalanx.benchmarks.questions import read_outputs
from phalanx.config.schema import TaskSettings
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.contests import contest, prepare
from phalanx.measuring.subjects import Subject
from phalanx.report.facts import gather
from phalanx.report.games import contests
from phalanx.report.games_views import contest_sections
from phalanx.report.html import write_html
from phalanx.report.terminal import summary
from phalanx.workshop import Workshop
from tests.scripts import command, read_rows, write_pool, write_rows

# ada writes good answers, bob bad ones, nil none, lost fails; cora and dora judge by "good".
ANSWERS = r"""
sampling:
  - {when: 'BREAKS', purpose: evaluate, member: lost, fail: {kind: refused, message: not today}}
  - {when: ., purpose: evaluate, member: ada, reply: a good answer}
  - {when: ., purpose: evaluate, member: eve, reply: "<think>hm</think>a good answer"}
  - {when: ., purpose: evaluate, member: nil, reply: " "}
  - {when: ., purpose: evaluate, reply: a long and rather bad answer}
"""
ARENA = r"""
  - {when: 'End with exactly one.*assistant', purpose: judge, member: x, reply: x}
  - {when: 'Go on from where', purpose: judge, reply: "so: [[A=B]]"}
  - {when: 'QUIET', purpose: judge, reply: I would rather not.}
  - {when: 'answer A \w+>>>\na good', purpose: judge, member: cora, reply: "mine: ... [[A>>B]]"}
  - {when: 'answer A \w+>>>\na good', purpose: judge, member: dora, reply: "[[A>B]] or [[B>A]]"}
  - {when: 'answer B \w+>>>\na good', purpose: judge, reply: "[[B>A]]"}
  - {when: ., purpose: judge, reply: "[[A=B]]"}
"""
OPTIONS = r"""
options:
  - {when: 'answer A \w+>>>\na good', weights: {A: 3, B: 1}}
  - {when: 'answer B \w+>>>\na good', weights: {A: 1, B: 3}}
  - {when: ., weights: {A: 1, B: 1}}
"""
GRADES = r"""
  - {when: 'Reference answer', purpose: judge, reply: "checked: [[2]]"}
  - {when: 'Second', purpose: judge, reply: "[[7]] or so, [[8]]"}
  - {when: ., purpose: judge, reply: "fine [[9]]"}
"""
NAMES = ["ada", "bob", "nil", "lost", "eve", "cora", "dora"]
PROMPTS = ["How?", "Why?", "QUIET please", "What BREAKS?"]


@pytest.fixture
def questions(tmp_path) -> str:
    rows = [{"id": f"q{n}", "instruction": text, "domain": f"d{n % 2}"}
            for n, text in enumerate(PROMPTS)]  # fmt: skip
    return str(write_rows(tmp_path / "open.jsonl", rows))


@pytest.fixture
def arena(tmp_path) -> str:
    rows = [{"question_id": f"q{n}", "cluster": f"c{n % 2}", "turns": [{"content": text}]}
            for n, text in enumerate(PROMPTS)]  # fmt: skip
    return str(write_rows(tmp_path / "arena.jsonl", rows))


class Table:
    """A configuration with its members, and contests played in one folder."""

    def __init__(self, folder: Path, rules: str, more: str = "") -> None:
        path = write_pool(folder, NAMES, rules, more)
        self.config = phalanx.load_config(path, purpose="eval")
        self.members = {one.name: one for one in pool.members_from(self.config)}
        self.folder = folder / "out"
        self.engine = ScriptedEngine(keep_calls=True)

    def subjects(self, *names: str) -> list[Subject]:
        return [Subject(name, (self.members[name.partition("@")[0]],)) for name in names]

    def play(self, task: TaskSettings, names: str, judges: str = "cora") -> list[dict[str, Any]]:
        shop = Workshop(self.config, self.folder)
        shop.use("scripted", self.engine)
        everybody = list(self.members.values())
        with asking(self.config, self.folder, kind="eval", inputs="x", members=everybody,
                    workshop=shop) as place:  # fmt: skip
            judging = [self.members[name] for name in judges.split()]
            contest(prepare(task, self.subjects(*names.split()), judging, self.config), place)
            return place.ledger.query("SELECT * FROM games WHERE task = ?", (task.name,))

    def standing(self):
        with Ledger(run_ledger_path(self.folder)) as ledger:
            return list(contests(ledger, self.config.seed))


def lines(contest_) -> dict[tuple[str, str], Any]:
    return {(line.member, line.judge): line for line in contest_.lines}


def measures(line) -> dict[str, Any]:
    return {measure.name: measure for measure in line.measures}


# Arena-Hard ---------------------------------------------------------------------------------------


def test_arena_hard_plays_both_orders_and_asks_once_more(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    rows = table.play(task, "bob ada")
    by = {(row["item"], row["game"]): row for row in rows}
    assert len(rows) == len(by) == 8
    assert {row["rival"] for row in rows} == {"bob"}
    assert by["q0", "first"]["label"] == "A>>B"
    assert by["q0", "second"]["label"] == "B>A"
    assert [by["q2", game]["label"] for game in ("first", "second")] == ["A=B", "A=B"]
    again = [call for call in table.engine.calls if "Go on from" in call.messages[-1].content]
    assert len(again) == 2
    assert [m.role for m in again[0].messages] == ["user", "assistant", "user"]
    assert by["q0", "first"]["length"] == len("a good answer")
    assert by["q0", "first"]["domain"] == "c0"
    (found,) = table.standing()
    assert found.baseline == "bob"
    line = lines(found)["ada", "cora"]
    # Three prompts with one clear win, one win each; one prompt with two ties.
    assert measures(line)["win rate, weight 3"].value == pytest.approx((3 * 4 + 1) / (3 * 4 + 2))
    assert measures(line)["win rate, weight 1"].value == pytest.approx((3 * 2 + 1) / 8)
    assert (line.readable, line.unanswered, line.alike, line.unreadable) == (8, 0, 0, {})
    assert line.first == (3, 6)
    assert line.swapped == (0, 4)
    assert line.domains == {"c0": (0.75, 2), "c1": (1.0, 2)}


def test_a_council_is_counted_side_by_side_and_unread_verdicts_are_missing(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    table.play(task, "bob ada", judges="cora dora")
    (found,) = table.standing()
    of = lines(found)
    assert list(of) == [("ada", ""), ("ada", "cora"), ("ada", "dora")]
    dora = of["ada", "dora"]
    assert dora.unreadable == {"several verdicts": 3}
    assert dora.games == dora.readable + 3 == 8
    # dora is read in one order of three prompts, cora in both.
    assert measures(of["ada", ""])["win rate, weight 1"].value == pytest.approx(
        (6 + 1 + 3 + 1) / 13
    )


def test_who_has_no_answer_clearly_loses_and_equal_answers_are_a_tie(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="ada")
    rows = table.play(task, "ada nil lost eve")
    of = {name: [row for row in rows if row["member"] == name] for name in ("nil", "lost", "eve")}
    assert {(row["value"], row["reason"]) for row in of["nil"]} == {(0.0, "no answer: empty")}
    assert {row["label"] for row in of["nil"]} == {"A>>B", "B>>A"}
    failed = [row for row in of["lost"] if row["item"] == "q3"]
    assert {row["reason"] for row in failed} == {"no answer: failed"}
    # Reasoning is taken off before anything is compared or counted.
    assert {(row["value"], row["label"], row["length"]) for row in of["eve"]} == {(0.5, "A=B", 13)}
    assert not any(row["request"] for row in [*of["nil"], *failed, *of["eve"]])
    found = lines(table.standing()[0])
    assert found["nil", "cora"].unanswered == 8
    assert found["eve", "cora"].alike == 8
    assert measures(found["nil", "cora"])["win rate, weight 3"].value == 0


def test_a_baseline_without_an_answer_makes_no_verdict(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="nil")
    table.play(task, "nil ada")
    line = table.standing()[0].lines[0]
    assert line.unreadable == {"no answer of the baseline": 8}
    assert line.measures == ()


def test_the_second_version_asks_once_and_takes_the_last_label(tmp_path):
    rows = [{"uid": "u1", "category": "hard", "prompt": "QUIET please"},
            {"uid": "u2", "category": "hard", "prompt": "Why?"}]  # fmt: skip
    table = Table(tmp_path, ANSWERS + ARENA)
    source = str(write_rows(tmp_path / "v2.jsonl", rows))
    task = TaskSettings(name="arena", kind="arena_hard", source=source, baseline="bob")
    table.play(task, "bob ada", judges="dora")
    (found,) = table.standing()
    assert found.version == "v2.0"
    assert found.lines[0].unreadable == {"no verdict": 2}
    assert found.lines[0].readable == 2  # [[B>A]] is the last of two labels


# AlpacaEval ---------------------------------------------------------------------------------------


def test_alpaca_eval_counts_probabilities_in_one_order(tmp_path):
    rows = [{"instruction": f"Task {n}?", "dataset": "koala", "output": "x" * (7 + n * n)}
            for n in range(30)]  # fmt: skip
    source = str(write_rows(tmp_path / "alpaca.jsonl", rows))
    table = Table(tmp_path, ANSWERS + OPTIONS)
    task = TaskSettings(name="alpaca", kind="alpaca_eval", source=source)
    games = table.play(task, "ada bob")
    assert {row["rival"] for row in games} == {"baseline"}
    mine = [row for row in games if row["member"] == "ada"]
    assert [row["value"] for row in mine] == [0.75] * 30
    orders = [row["game"] for row in mine]
    assert set(orders) == {"first", "second"}
    assert orders == [row["game"] for row in games if row["member"] == "bob"]
    (found,) = table.standing()
    assert not found.published
    line = lines(found)["ada", "cora"]
    shares = [Comparison(n, 0.75, 7 + n * n, 13) for n in range(30)]
    assert measures(line)["win rate"].value == raw_win_rate(shares).win_rate == 0.75
    name = "length-controlled, own judge"
    expected = length_controlled(shares, dict.fromkeys(range(30), 0.0))
    assert measures(line)[name].value == pytest.approx(expected.win_rate, abs=1e-9)
    assert measures(lines(found)["bob", "cora"])["win rate"].value == 0.5
    (change,) = found.differences
    assert (change.member, change.against, change.value) == ("bob", "ada", -0.25)


def test_difficulties_and_gamed_rows_of_the_user_are_used(tmp_path):
    rows = [{"instruction": f"Task {n}?", "dataset": "koala", "output": "x" * (7 + n * n)}
            for n in range(30)]  # fmt: skip
    source = str(write_rows(tmp_path / "alpaca.jsonl", rows))
    known = [{"index": n, "instruction_difficulty": n / 10} for n in range(30)]
    hard = write_rows(tmp_path / "hard.jsonl", known)
    table = Table(tmp_path, ANSWERS + OPTIONS)
    task = TaskSettings(name="alpaca", kind="alpaca_eval", source=source, difficulty=str(hard))
    table.play(task, "ada")
    shares = [Comparison(n, 0.75, 7 + n * n, 13) for n in range(30)]
    expected = length_controlled(shares, {n: n / 10 for n in range(30)})
    found = measures(table.standing()[0].lines[0])["length-controlled, own judge"]
    assert found.value == pytest.approx(expected.win_rate, abs=1e-9)
    short = write_rows(tmp_path / "short.jsonl", [{"index": 1, "instruction_difficulty": 1}])
    with pytest.raises(ConfigError, match="29 of 30 questions have no difficulty"):
        table.play(task.model_copy(update={"difficulty": str(short)}), "ada")


def test_too_few_comparisons_have_no_length_control_and_it_is_said(tmp_path):
    rows = [{"instruction": "Task?", "dataset": "koala", "output": "x"}]
    table = Table(tmp_path, ANSWERS + OPTIONS)
    source = str(write_rows(tmp_path / "alpaca.jsonl", rows))
    table.play(TaskSettings(name="alpaca", kind="alpaca_eval", source=source), "ada")
    line = table.standing()[0].lines[0]
    assert list(measures(line)) == ["win rate"]
    assert "too few" in line.notes[0]


# MT-Bench -----------------------------------------------------------------------------------------

MT = [
    {"question_id": 1, "category": "writing", "turns": ["First?", "Second?"]},
    {"question_id": 2, "category": "math", "turns": ["Sum?", "And?"], "reference": ["3", ""]},
]


def test_mt_bench_has_two_turns_with_the_members_own_first_answer(tmp_path):
    table = Table(tmp_path, ANSWERS + GRADES)
    source = str(write_rows(tmp_path / "mt.jsonl", MT))
    rows = table.play(TaskSettings(name="mt", kind="mt_bench", source=source), "eve nil")
    answers = [call for call in table.engine.calls if call.purpose == "evaluate"]
    second = [call for call in answers if call.member.name == "eve" and len(call.messages) == 3]
    assert [call.messages[1].content for call in second] == ["a good answer"] * 2
    assert sorted(call.want.temperature for call in second) == [0.0, 0.7]
    by = {(row["item"], row["game"]): row for row in rows if row["member"] == "eve"}
    assert by["1", "turn 1"]["value"] == 9
    assert by["1", "turn 2"]["value"] is None
    assert "several ratings" in by["1", "turn 2"]["reason"]
    assert by["2", "turn 1"]["value"] == by["2", "turn 2"]["value"] == 2
    nil = {row["game"]: row for row in rows if row["member"] == "nil"}
    assert [nil[game]["value"] for game in ("turn 1", "turn 2")] == [1.0, 1.0]
    assert nil["turn 2"]["reason"] == "no answer: no earlier answer"
    line = lines(table.standing()[0])["eve", "cora"]
    assert measures(line)["rating"].value == pytest.approx(13 / 3)
    assert measures(line)["turn 2"].value == 2
    assert line.unreadable == {"several ratings": 1}
    assert line.domains == {"math": (2.0, 1), "writing": (9.0, 1)}
    prompts = [call.messages[0].content for call in table.engine.calls if call.purpose == "judge"]
    assert sum("Reference answer" in text for text in prompts) == 2


# Open tasks ---------------------------------------------------------------------------------------

PAIRWISE = r"""
  - {when: ., purpose: judge, member: dora, reply: "[[A]]"}
  - {when: 'QUIET', purpose: judge, reply: I would rather not.}
  - {when: 'response A \w+>>>\na good', purpose: judge, reply: "[[A]]"}
  - {when: 'response B \w+>>>\na good', purpose: judge, reply: "[[B]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
reward:
  - {when: good, reward: 2.5}
  - {when: ., reward: 0.5}
"""


def test_open_tasks_are_judged_in_both_orders(tmp_path, questions):
    table = Table(tmp_path, ANSWERS + PAIRWISE, "judge: {protocol: pairwise}")
    task = TaskSettings(name="open", kind="open", source=questions)
    rows = table.play(task, "bob ada", judges="cora dora")
    assert {row["rival"] for row in rows} == {"bob"}
    assert len(rows) == 2 * 2 * len(PROMPTS)
    of = lines(table.standing()[0])
    cora, dora = of["ada", "cora"], of["ada", "dora"]
    assert measures(cora)["win rate"].value == 1
    assert cora.unreadable == {"no verdict": 2}
    assert cora.swapped == (0, 3)
    # dora likes whatever is shown first: every pair of orders is a tie.
    assert measures(dora)["win rate"].value == 0.5
    assert dora.first == (8, 8)
    assert dora.swapped == (4, 4)
    assert measures(of["ada", ""])["win rate"].value == pytest.approx((3 * 0.75 + 0.5) / 4)


def test_rewards_are_compared_and_only_their_differences_are_kept(tmp_path, questions):
    table = Table(tmp_path, ANSWERS + PAIRWISE, "judge: {protocol: reward}")
    task = TaskSettings(name="open", kind="open", source=questions)
    rows = table.play(task, "bob ada eve")
    ada = [row for row in rows if row["member"] == "ada"]
    assert {(row["game"], row["value"], row["label"]) for row in ada} == {("scores", 1.0, "2.0")}
    line = lines(table.standing()[0])["ada", "cora"]
    assert "difference in SD" not in measures(line)  # no spread, so no unit
    assert (line.length, line.rival_length) == (13, 28)


# Refusals -----------------------------------------------------------------------------------------


def test_nobody_judges_an_answer_of_their_own_or_against_it(tmp_path, questions):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="open", kind="open", source=questions, baseline="bob")
    judges = [table.members[name] for name in ("ada", "bob", "cora")]
    made = prepare(task, table.subjects("bob", "ada@2", "eve"), judges, table.config)
    assert {name: [j.name for j in found] for name, found in made.judges.items()} == {
        "ada@2": ["cora"],
        "eve": ["ada", "cora"],
    }
    with pytest.raises(ConfigError, match="nobody may judge ada@2") as refused:
        prepare(task, table.subjects("bob", "ada@2"), judges[:2], table.config)
    assert "name others in evaluate.judges" in str(refused.value)
    with pytest.raises(ConfigError, match="nobody is left to meet the baseline bob"):
        prepare(task, table.subjects("bob"), judges[2:], table.config)


def test_every_fault_is_in_one_message_and_nobody_was_asked(tmp_path, questions):
    table = Table(tmp_path, ANSWERS + ARENA)
    by_mixture = table.config.judge.model_copy(update={"protocol": "moa"})
    table.config = table.config.model_copy(update={"judge": by_mixture})
    task = TaskSettings(name="t", kind="open", source=questions, baseline="boz", temperature=1,
                        difficulty="x", bad_rows="skip")  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        prepare(task, table.subjects("ada"), [table.members["cora"]], table.config)
    text = str(refused.value)
    for part in ("bad_rows is skip", "baseline 'boz' is neither", "difficulty and",
                 "judge.protocol is 'moa'"):  # fmt: skip
        assert part in text
    with pytest.raises(ConfigError, match="nobody judges; name judges"):
        prepare(task, table.subjects("ada"), [], table.config)
    assert not table.engine.calls


def test_the_baseline_may_be_a_file_and_must_have_every_question(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    answers = [
        {"question_id": f"q{n}", "model_id": "gpt-0",
         "choices": [{"index": 0, "turns": [{"content": "a bad one"}]}]}
        for n in range(len(PROMPTS))
    ]  # fmt: skip
    file = write_rows(tmp_path / "gpt.jsonl", answers)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline=str(file))
    rows = table.play(task, "ada")
    assert {(row["rival"], row["rival_length"]) for row in rows} == {("gpt-0", 9)}
    write_rows(file, answers[:3])
    with pytest.raises(ConfigError, match=r"no output for 1 of 4 questions \(the first: q3\)"):
        table.play(task, "ada")


@pytest.mark.parametrize("said", [{"generator": "ada"}, {}])
def test_a_baseline_file_with_the_name_of_a_player_is_refused(tmp_path, questions, said):
    table = Table(tmp_path, ANSWERS + ARENA)
    answers = [{"id": f"q{n}", "output": "so", **said} for n in range(len(PROMPTS))]
    file = write_rows(tmp_path / "ada.jsonl", answers)
    task = TaskSettings(name="t", kind="open", source=questions, baseline=str(file))
    with pytest.raises(ConfigError, match="are called ada, and so is one of those"):
        prepare(task, table.subjects("ada"), [table.members["cora"]], table.config)
    made = prepare(task, table.subjects("ada@2"), [table.members["cora"]], table.config)
    assert made.baseline is not None
    assert made.baseline.name == "ada"


# What is shown, and going on ----------------------------------------------------------------------


def test_the_same_call_goes_on_without_asking_again(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    first = table.play(task, "bob ada")
    asked = len(table.engine.calls)
    assert table.play(task, "bob ada") == first
    assert len(table.engine.calls) == asked


def test_further_subjects_are_added_and_meet_the_same_baseline(tmp_path, arena):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    table.play(task, "bob ada")
    table.play(task, "bob eve")
    (found,) = table.standing()
    assert [line.member for line in found.lines] == ["ada", "eve"]
    with pytest.raises(LedgerError, match="was played against bob here, and is now to be against"):
        table.play(task.model_copy(update={"baseline": "ada"}), "ada eve")


def test_terminal_and_page_show_every_contest(tmp_path, arena, questions):
    table = Table(tmp_path, ANSWERS + ARENA)
    arena_task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    table.play(arena_task, "bob ada", judges="cora dora")
    with Ledger(run_ledger_path(table.folder)) as ledger:
        facts = gather(ledger)
    (section,) = contest_sections(facts.contests)
    assert section.title == "Arena-Hard v0.1: arena against bob"
    results, reading, *_ = section.tables
    assert results.rows[0][:4] == ("ada", "all judges", "4", "win rate, weight 3")
    assert reading.rows[2][2:4] == ("8", "3")
    assert "Unread of dora: 3 several verdicts." in reading.note
    shown = io.StringIO()
    Console(width=110, file=shown).print(summary(facts))
    assert "Arena-Hard v0.1: arena against bob" in shown.getvalue()
    page = tmp_path / "page.html"
    write_html(facts, page)
    assert "Arena-Hard v0.1: arena against bob" in page.read_text("utf-8")


def test_the_command_plays_contests_and_shows_them(tmp_path, arena):
    more = (
        "evaluate:\n  judges: [cora]\n  tasks:\n"
        f"    - {{name: arena, kind: arena_hard, source: {arena}, baseline: bob}}\n"
    )
    config, out = write_pool(tmp_path, NAMES, ANSWERS + ARENA, more), tmp_path / "out"
    done = command("eval", config, "--members", "bob,ada", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Arena-Hard v0.1: arena against bob" in done.stdout
    with Ledger(run_ledger_path(out)) as ledger:
        (found,) = contests(ledger, 3)
    assert measures(found.lines[0])["win rate, weight 1"].value == pytest.approx(7 / 8)
    again = command("eval", config, "--members", "bob,ada,eve", "--out", out)
    assert again.returncode == 0, again.stderr
    alone = command("eval", config, "--members", "bob", "--out", tmp_path / "other")
    assert alone.returncode == 2
    assert "nobody is left to meet the baseline bob" in alone.stderr


# Exports ------------------------------------------------------------------------------------------


def test_answers_are_written_as_the_published_tools_read_them(tmp_path, arena, questions):
    table = Table(tmp_path, ANSWERS + ARENA)
    task = TaskSettings(name="arena", kind="arena_hard", source=arena, baseline="bob")
    table.play(task, "bob eve nil")
    run, out = phalanx.open_run(table.folder), tmp_path / "answers"
    assert run.export("arena-hard", out) == 3 * len(PROMPTS)
    assert sorted(path.name for path in out.iterdir()) == ["bob.jsonl", "eve.jsonl", "nil.jsonl"]
    rows = read_rows(out / "eve.jsonl")
    assert [row["question_id"] for row in rows] == ["q0", "q1", "q2", "q3"]
    assert rows[0]["choices"] == [{"index": 0, "turns": [{"content": "a good answer"}]}]
    assert rows[0]["model_id"] == "eve"
    # What was written here can be read as a baseline here.
    found = read_outputs(str(out / "bob.jsonl"))
    assert found.generator == "bob"
    assert found.by_id["q3"] == "a long and rather bad answer"
    with pytest.raises(ConfigError, match="answers of 3 models"):
        run.export("arena-hard", tmp_path / "one.jsonl")
    with pytest.raises(LedgerError, match="no task of kind alpaca_eval or open"):
        run.export("alpaca-eval", out)
    with pytest.raises(ConfigError, match="has one form"):
        run.export("arena-hard", out, iteration=1)


def test_alpaca_eval_reads_one_list_a_model(tmp_path):
    rows = [{"instruction": "Task?", "dataset": "koala", "output": "x"}]
    table = Table(tmp_path, ANSWERS + OPTIONS)
    source = str(write_rows(tmp_path / "alpaca.jsonl", rows))
    table.play(TaskSettings(name="alpaca", kind="alpaca_eval", source=source), "ada")
    out = tmp_path / "ada.json"
    assert phalanx.open_run(table.folder).export("alpaca-eval", out) == 1
    assert json.loads(out.read_text("utf-8")) == [
        {"instruction": "Task?", "output": "a good answer", "generator": "ada", "dataset": "koala"}
    ]
    assert read_outputs(str(out)).by_text == {"Task?": "a good answer"}
