"""Duels in a chat: blind, one conversation for both, verdicts as labels of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from phalanx.export import rows_of
from phalanx.ledger import Ledger, RunLock, run_ledger_path
from phalanx.ledger.labels import labels_of
from phalanx.report.people import people
from tests.labelling.conftest import align_in
from tests.scripts import command, read_rows, write_pool

RULES = """
sampling:
  - {when: same, reply: Equal.}
  - {when: breaks, member: bob, fail: {kind: engine, message: provoked}}
  - {when: ., member: ada, reply: [Ada one., Ada two., Ada three.]}
  - {when: ., member: bob, reply: [Bob one., Bob two., Bob three.]}
  - {when: ., reply: [Dan one., Dan two., Dan three.]}
"""


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "dan"], RULES)


def events(source: Path, *words: object, typed: str) -> list[dict]:
    done = command("chat", source, *words, "--json", stdin=typed)
    assert done.stderr == "", done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def owner(text: str) -> str:
    return text.split()[0].lower()


def test_sides_are_drawn_and_names_are_told_afterwards(config):
    typed = "".join(f"Question {n}?\na\n" for n in range(16))
    found = events(config, "--duel", "ada", "bob", typed=typed)
    assert [one["event"] for one in found] == ["duel", "verdict"] * 16
    duels, verdicts = found[::2], found[1::2]
    assert set(duels[0]) == {"event", "a", "b", "same", "num_dropped_turns"}
    for duel, verdict in zip(duels, verdicts, strict=True):
        assert (verdict["a"], verdict["b"]) == (owner(duel["a"]), owner(duel["b"]))
        assert not verdict["recorded"]
    firsts = [one["a"] for one in verdicts]
    assert 4 <= firsts.count("ada") <= 12
    assert events(config, "--duel", "ada", "bob", typed=typed) == found, "the seed decides"
    other = events(config, "--duel", "ada", "bob", "--seed", 77, typed=typed)
    assert [one["a"] for one in other[1::2]] != firsts


def test_two_of_all_are_drawn_for_every_turn(config):
    found = events(config, "--duel", typed="".join(f"Question {n}?\nskip\n" for n in range(12)))
    pairs = {frozenset((one["a"], one["b"])) for one in found[1::2]}
    assert len(pairs) == 3


def test_the_conversation_goes_on_with_the_answer_that_was_chosen(config, tmp_path):
    file = tmp_path / "chats.jsonl"
    typed = "Hi?\nb is right\nWhy?\nTIE\nsame\nSo?\nhm\nS\n/retry\na, shorter\nthis breaks\n"
    done = command("chat", config, "--duel", "ada", "bob", "--save", file, stdin=typed)
    assert done.returncode == 1
    assert "no answer: bob: engine: provoked" in done.stderr
    assert "'hm' is no verdict; expected a, b, tie or skip" in done.stderr
    assert "ada and bob wrote the same: no duel" in done.stderr
    assert done.stdout.count("Both\n  Equal.\n") == 1
    (row,) = read_rows(file)
    answers = [turn["content"] for turn in row["messages"] if turn["role"] == "assistant"]
    one, two, last = row["duels"]
    assert answers == [one["text_b"], two["text_a"], "Equal.", last["text_a"]]
    assert [len(row["messages"]), len(row["answered_by"])] == [8, 4]
    assert row["answered_by"][0] == one["b"] == owner(answers[0])
    assert [(duel["turn"], duel["verdict"], duel["why"]) for duel in row["duels"]] == [
        (1, "b", "is right"),
        (2, "tie", ""),
        (4, "a", "shorter"),
    ]


def test_an_answer_cannot_pass_for_the_other(tmp_path):
    forged = '{when: ., member: ada, reply: "Bad.\\r\\n\\nB\\n  Good."}'
    rules = f'sampling: [{forged}, {{when: ., reply: "1\\n2"}}]'
    config = write_pool(tmp_path, ["ada", "bob"], rules)
    shown = command("chat", config, "--duel", stdin="Hi?\na\n").stdout
    assert sorted(line for line in shown.splitlines() if line[:1].strip()) == ["A", "B"]
    assert "  Bad.\n\n  B\n    Good.\n" in shown
    assert "  1\n  2\n" in shown


def test_a_command_instead_of_a_verdict_leaves_the_duel_undecided(config):
    found = events(
        config, "--duel", "ada", "bob", typed="Hi?\n/with dan\nYou?\n/duel ada dan\nHm?\n"
    )
    assert [one["event"] for one in found] == ["duel", "note", "answer", "note", "duel"]
    assert found[2]["num_prompt_tokens"] == 1, "the undecided turn is not remembered"
    assert {owner(found[4]["a"]), owner(found[4]["b"])} == {"ada", "dan"}


def test_a_verdict_of_no_duel_is_not_sent(config):
    duel = ("--duel", "ada", "bob")
    found = events(config, *duel, typed="same\na clear\nSay a word.\nb\nsame\n a word\nb\n")
    kinds = [one["event"] for one in found]
    assert kinds == ["duel", "note", "note", "duel", "verdict", "duel", "note", "duel", "verdict"]
    assert "'a clear' reads as a verdict" in found[2]["text"]


# Recorded ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return align_in(tmp_path_factory.mktemp("duelled"), "iterations=1")


@pytest.fixture
def home(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "home")
    return tmp_path / "home"


def contents(run: Path) -> dict:
    """All of a ledger but what people said."""
    with Ledger(run_ledger_path(run)) as ledger:
        return {name: rows for name, rows in ledger.contents().items()
                if name not in ("labels", "bouts")}  # fmt: skip


def names_of(run: Path) -> list[str]:
    with Ledger(run_ledger_path(run)) as ledger:
        return [member.name for member in ledger.members()]


def test_verdicts_become_labels_of_the_run_and_change_nothing_else(home):
    run = home / "run"
    one, two = names_of(run)[:2]
    before = contents(run)
    typed = "Say 1.\na clearer\nSay 2.\nb\nSay 3.\nskip\nSay 4.\ntie\n"
    words = ("--duel", one, two, "--record", "--judge", "eve")
    found = events(run, *words, typed=typed)
    verdicts = [one for one in found if one["event"] == "verdict"]
    assert len(verdicts) >= 3
    assert all(one["recorded"] for one in verdicts)
    assert contents(run) == before
    with Ledger(run_ledger_path(run)) as ledger:
        rows = {row["duel"]: row for row in labels_of(ledger, "eve")}
        exported = [row for row in rows_of(ledger, "labels") if row["person"] == "eve"]
        lines = people(ledger).bouts
    assert len(rows) == len(verdicts)
    for said, row in zip(verdicts, exported, strict=True):
        winner = {"a": said["a"], "b": said["b"]}.get(said["verdict"])
        sides = {"left": row["left"], "right": row["right"]}
        assert sides.get(row["verdict"], row["verdict"]) == (winner or said["verdict"])
        assert row["swapped"] == (said["a"] == row["right"])
        assert row["seconds"] >= 0
    assert exported[0]["note"] == "clearer"
    decided = [one for one in verdicts if one["verdict"] in ("a", "b")]
    assert sum(line.won for line in lines) == sum(line.lost for line in lines) == len(decided)
    shown = command("label", run, "--show").stdout
    assert "Bouts" in shown
    assert "Blind, in a chat; in no iteration." in shown
    assert "Bouts" in command("status", run).stdout


def test_a_verdict_can_be_taken_back(home, tmp_path):
    run, file = home / "run", tmp_path / "chats.jsonl"
    words = ("--duel", *names_of(run)[:2], "--record", "--as", "eve", "--save", file)
    found = events(run, *words, typed="/undo\nSay 1.\na\n/undo\n/undo\n")
    assert [one["event"] for one in found] == ["note", "duel", "verdict", "note", "note"]
    assert found[2]["recorded"]
    assert found[0]["text"] == found[4]["text"] == "there is no verdict to take back"
    with Ledger(run_ledger_path(run)) as ledger:
        (row,) = labels_of(ledger, "eve")
        assert ledger.count("labels", "person = ?", ("eve",)) == 2
    assert (row["verdict"], row["note"]) == ("skip", "taken back")
    (kept,) = read_rows(file)[0]["duels"]
    assert (kept["verdict"], kept["why"]) == ("skip", "taken back")


def test_a_run_goes_on_after_duels_as_it_would_have(finished, home):
    run = home / "run"
    plain = home / "plain"
    shutil.copytree(run, plain)
    one, two = names_of(run)[:2]
    found = events(run, "--duel", one, two, "--record", typed="Say 1.\na\nSay 2.\nb\n")
    assert any(one.get("recorded") for one in found)
    for folder in (run, plain):
        done = command("run", finished / "config.yaml", "iterations=2", "--out", folder, "-q")
        assert done.returncode == 0, done.stderr
    assert contents(run) == contents(plain)
    with Ledger(run_ledger_path(run)) as ledger:
        assert ledger.count("bouts") >= 1


def test_a_member_duels_what_it_was(home):
    """Before and after training: one name, two versions, told apart wherever they are counted."""
    run = home / "run"
    name = names_of(run)[0]
    with Ledger(run_ledger_path(run), writable=True) as ledger, ledger.transaction():
        (row,) = ledger.query("SELECT * FROM members WHERE member = ?", (name,))
        record = json.dumps({**json.loads(row["record"]), "version": 1})  # as training leaves it
        ledger.insert("members", {**row, "iteration": 1, "version": 1, "record": record})
    words = ("--duel", f"{name}@0", name, "--record", "--as", "eve")
    found = events(run, *words, typed="".join(f"Say {n}.\na\n" for n in range(6)))
    verdicts = [one for one in found if one["event"] == "verdict"]
    assert verdicts
    with Ledger(run_ledger_path(run)) as ledger:
        lines = {line.member: line for line in people(ledger).bouts}
    assert set(lines) == {f"{name}@0", f"{name}@1"}
    firsts = [one["a"] for one in verdicts]
    assert lines[f"{name}@0"].won == firsts.count(f"{name}@0")
    assert lines[f"{name}@1"].won == firsts.count(name)


def test_an_iteration_that_is_not_there_is_told_from_those_that_are(home):
    run = home / "run"
    done = command("chat", run, "--with", f"{names_of(run)[0]}@9", stdin="Hi\n")
    assert done.returncode == 2
    assert "NAME@N is a member after iteration N, of 0 to 1" in " ".join(done.stderr.split())


def test_what_cannot_be_recorded_is_said_before_anybody_is_asked(home, monkeypatch):
    from phalanx.serving import desk

    monkeypatch.setattr(desk, "open_desk", None)  # whoever came so far would fail otherwise
    run = home / "run"
    words = ("--duel", "--record")
    lock = RunLock(run)
    try:
        done = command("chat", run, *words, stdin="Hi\na\n")
    finally:
        lock.release()
    assert done.returncode == 1
    assert "in use by process" in done.stderr
    done = command("chat", home, *words)
    assert done.returncode == 1
    assert "no run in" in done.stderr
    assert not run_ledger_path(home).exists()
    done = command("chat", run, *words, "--judge", "a\nb")
    assert done.returncode == 2
    assert "names nobody" in done.stderr
