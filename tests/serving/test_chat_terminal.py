"""`phalanx chat` in a real terminal: pasting, Ctrl-C, Ctrl-D, widths; and killed in mid-answer."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.labels import labels_of
from tests.scripts import command, read_rows, write_pool
from tests.serving.conftest import tiny_config
from tests.serving.test_chat_duels import contents, finished, home  # noqa: F401
from tests.serving.typing import typing

RULES = """
sampling:
  - {when: escape, reply: "red \\e[2J \\e]0;owned\\a alert"}
  - {when: ., member: ada, reply: [Ada one., Ada two., Ada three.]}
  - {when: ., reply: [Bob one., Bob two., Bob three.]}
"""
CHAT = ("-m", "phalanx.cli", "chat")


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob"], RULES)


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> Path:
    """A tiny model that goes on and on."""
    folder = tmp_path_factory.mktemp("endless")
    answer = "max_new_tokens: 50000, temperature: 0"
    return tiny_config(folder, context=100_000, members="{name: ada}, {name: bob}", answer=answer)


def test_typed_pasted_continued_and_kept(config, tmp_path):
    file = tmp_path / "chats.jsonl"
    with typing(*CHAT, config, "--save", file) as chat:
        assert "Talking to ada; there are ada, bob." in chat.read("> ")
        assert re.search(r"ada: Ada \w+\.\r\n\d+ tokens, \d", chat.type("Hello?\r", " s\r\n"))
        chat.read("> ")
        chat.type("one\rtwo\rthree\r", " s\r\n")  # a paste that the terminal does not mark
        chat.read("> ")
        chat.type("\x1b[200~four\rfive\x1b[201~\r", " s\r\n")  # one that it marks
        chat.read("> ")
        chat.type("six\\\rseven\r", " s\r\n")
        chat.read("> ")
        chat.type("/with bob\r/retry\r", "Talking to bob")  # a command is its own line
        chat.read("bob: Bob")
        chat.read("> ")
        assert chat.end() == 0
        assert "\x1b[3" not in chat.seen, "NO_COLOR is set"
    (row,) = read_rows(file)
    said = [turn["content"] for turn in row["messages"] if turn["role"] == "user"]
    assert said == ["Hello?", "one\ntwo\nthree", "four\nfive", "six\nseven"]
    assert row["answered_by"] == ["ada", "ada", "ada", "bob"]


def test_ctrl_c_at_the_prompt_ends_nothing_and_models_command_nothing(config):
    with typing(*CHAT, config, TERM="dumb") as chat:
        chat.read("> ")
        chat.interrupt("Ctrl-D or /quit ends the chat")
        shown = chat.type("escape\r", " s\r\n")
        assert "red �[2J �]0;owned� alert" in shown
        assert "\x1b" not in chat.seen
        assert chat.end("/quit\r") == 0


def test_a_duel_stands_side_by_side_or_one_after_another(config):
    for columns, beside, term in ((100, True, "xterm"), (60, False, "dumb")):
        with typing(*CHAT, config, "--duel", columns=columns, TERM=term) as chat:
            assert "verdicts are not recorded" in chat.read("> ")
            shown = chat.type("Hello?\r", "(and why)? ")
            assert bool(re.search(r"\bA +B\b", shown)) == beside
            assert bool(re.search(r"Ada \w+\. +Bob|Bob \w+\. +Ada", shown)) == beside
            assert not re.search(r"\b(ada|bob)\b", shown), "names are to be hidden"
            assert "is no verdict" in chat.type("hm\r", "(and why)? ")
            chat.type("a it is short\r", "A was")
            assert {"ada", "bob"} <= set(re.findall(r"\w+", chat.read("> ")))
            chat.type("And now?\r", "(and why)? ")
            chat.interrupt("not decided")
            chat.read("> ")
            chat.type("/retry\r", "(and why)? ")
            assert chat.end() == 0  # Ctrl-D instead of a verdict


def test_ctrl_c_stops_an_answer_and_not_the_chat(endless, tmp_path):
    file = tmp_path / "chats.jsonl"
    with typing(*CHAT, endless, "--save", file) as chat:
        chat.read("> ")
        chat.type("the cat\r", "ada: ")
        written = chat.read_more(400)
        assert len(written) >= 400, "it is shown while it is written"
        began = time.monotonic()
        chat.interrupt("stopped; this turn is not remembered")
        assert time.monotonic() - began < 10
        chat.read("> ")
        chat.type("/duel ada bob\r", "answer blind")
        chat.read("> ")
        chat.type("the dog\r", "Both are writing.")
        time.sleep(0.5)
        chat.interrupt("stopped; this turn is not remembered")
        chat.read("> ")
        assert chat.end() == 0
    assert file.read_text() == ""


def test_killed_in_the_middle_of_an_answer_the_ledger_is_whole(finished, home):  # noqa: F811
    run = home / "run"
    before = contents(run)
    words = ("--duel", "--record", "--as", "eve")
    with typing("-c", SLOW, "chat", run, *words) as chat:
        chat.read("> ")
        chat.type("Say 1.\r", "(and why)? ")
        chat.type("a\r", "recorded")
        chat.read("> ")
        chat.type("slowly\r", "Both are writing.")
        time.sleep(0.3)
        chat.process.send_signal(signal.SIGKILL)
        assert chat.process.wait(10) == -signal.SIGKILL
    assert contents(run) == before
    with Ledger(run_ledger_path(run)) as ledger:
        assert len(labels_of(ledger, "eve")) == 1
    assert command("status", run).returncode == 0
    done = command("run", finished / "config.yaml", "iterations=1", "--out", run, "-q")
    assert done.returncode == 0, done.stderr
    assert contents(run) == before


SLOW = """
import sys, time
from phalanx.cli import main
from phalanx.engines.scripted import ScriptedEngine

respond = ScriptedEngine.respond

def slowly(self, requests):
    if any("slowly" in request.messages[-1].content for request in requests):
        time.sleep(60)
    return respond(self, requests)

ScriptedEngine.respond = slowly
sys.argv[0] = "phalanx"
main()
"""
