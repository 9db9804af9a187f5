"""``phalanx mix`` as a person meets it: an answer, a file, a chat; failures and resumption."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import phalanx
from phalanx.asking import spent
from phalanx.cli import talking
from phalanx.cli.asking import split_words
from phalanx.cli.talking import printable
from phalanx.dispatch import MAX_ATTEMPTS
from phalanx.engines.http_stream import SHOWN_OTHERWISE
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, Interrupted, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.mixing import Chat, open_mixer
from phalanx.progress import Silent
from phalanx.types import Failure, Message, Response
from phalanx.workshop import Workshop
from tests.scripts import command, read_rows, write_pool, write_rows

RULES = """
sampling:
  - {when: breaks, member: bob, fail: {kind: engine, message: provoked}}
  - {when: all fail, purpose: propose, fail: {kind: refused, message: not today}}
  - {when: escape, purpose: aggregate, reply: "red \\e[2J alert"}
  - {when: ., purpose: aggregate, reply: [The first answer., Another answer.]}
  - {when: ., reply: [One., Two., Three.]}
"""
MIXTURE = "mixture: {proposers: [ada, bob], aggregator: dan}\nresources: {batch_size: 2}\n"


def phalanx_mix(*words: object, stdin: str = ""):
    return command("mix", *words, stdin=stdin)


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "dan"], RULES, MIXTURE)


# One answer --------------------------------------------------------------------------------------


def test_the_answer_alone_is_on_standard_output(config):
    done = phalanx_mix(config, "Why is the sky blue?", "mixture.samples=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("The first answer.\n", "Another answer.\n")
    assert "ada, bob → dan (2 samples each)" in done.stderr
    assert "5 calls" in done.stderr
    assert phalanx_mix(config, "Why is the sky blue?", "mixture.samples=2").stdout == done.stdout


def test_a_prompt_on_standard_input_is_the_same_prompt(config):
    shown = phalanx_mix(config, "Why?")
    piped = phalanx_mix(config, "-q", stdin="Why?\n")
    assert piped.stdout == shown.stdout
    assert piped.stderr == ""
    empty = phalanx_mix(config, stdin=" \n")
    assert empty.returncode == 2
    assert "empty" in empty.stderr


def test_a_failed_proposer_is_left_out_and_named(config):
    done = phalanx_mix(config, "This breaks.", "--show-proposals")
    assert done.returncode == 0, done.stderr
    assert "Left out: bob (layer 1): engine: provoked" in done.stderr
    assert "--- ada, layer 1, sample 1" in done.stderr


def test_a_prompt_that_is_no_proper_text_is_cleaned(config):
    """Words of a shell and bytes of a pipe need not be UTF-8."""
    done = phalanx_mix(config, "Why \udce9?", "-q")
    assert done.returncode == 0, done.stderr
    line = [sys.executable, "-m", "phalanx.cli", "mix", str(config), "-q"]
    piped = subprocess.run(
        line, input=b"Why \xe9?", capture_output=True, timeout=60,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.decode() == done.stdout
    assert phalanx.mix(config, ["Why \udce9?"])[0]["instruction"] == "Why \ufffd?"


def test_no_answer_is_an_error_with_the_reason(config):
    done = phalanx_mix(config, "They all fail.")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "too_few_proposals" in done.stderr.splitlines()[-1]


def test_what_is_asked_of_a_configuration(config, tmp_path):
    nobody = phalanx_mix(config, "Why?", "mixture.aggregator=zoe")
    assert nobody.returncode == 2
    assert "zoe" in nobody.stderr
    two = phalanx_mix(config, "Why", "not?")
    assert two.returncode == 2
    assert "one prompt" in two.stderr
    both = phalanx_mix(config, "Why?", "--file", tmp_path / "x.jsonl")
    assert both.returncode == 2
    recruits = tmp_path / "recruits.yaml"
    recruits.write_text(
        "pool: {base: 'builtin:smollm2-135m', recruit: {specialists: {ada: [sorting]}}}\n"
        "mixture: {proposers: [ada], aggregator: ada}\n",
        encoding="utf-8",
    )
    unmade = phalanx_mix(recruits, "Why?")
    assert unmade.returncode == 2
    assert "recruit" in unmade.stderr


@pytest.mark.parametrize(
    ("words", "prompt"),
    [
        (["a=1"], "a=1"),
        (["seed=4"], None),
        (["mixture.propose.temperature=0", "x"], "x"),
        (["What is seed=4?"], "What is seed=4?"),
        (["seed = 4; what is twice that?"], "seed = 4; what is twice that?"),
        (["train.speed=90 km/h. How long for 45 km?"], "train.speed=90 km/h. How long for 45 km?"),
        (["mixture.sampels=2"], None),  # a slip: reported when the configuration is loaded
        (["reputation.initial_deviation=2", "pool.base=x", "x"], "x"),
        ([], None),
    ],
)
def test_a_prompt_is_what_is_no_setting(words, prompt):
    assert split_words(words)[0] == prompt


def test_a_text_cannot_command_the_terminal():
    assert "\x1b" not in printable("a\x1b[31mb\x9b1mc\r")
    assert printable("tab\t, line\n, ä, 中") == "tab\t, line\n, ä, 中"


# A file ------------------------------------------------------------------------------------------


def prompts_of(tmp_path: Path, count: int = 6) -> Path:
    rows = [{"instruction": f"Question {number}?"} for number in range(count)]
    return write_rows(tmp_path / "prompts.jsonl", rows)


def test_every_row_of_a_file_has_an_answer_or_a_reason(config, tmp_path):
    rows = [
        {"instruction": "Why?"},
        {"instruction": "This breaks."},
        {"instruction": "They all fail."},
        {"instruction": " "},
        {"instruction": "Why?"},
    ]
    file = write_rows(tmp_path / "prompts.jsonl", rows)
    out, to = tmp_path / "mix", tmp_path / "deep" / "answers.jsonl"
    done = phalanx_mix(
        config, "--file", file, "--out", out, "--to", to, "instructions.bad_rows=skip"
    )
    assert done.returncode == 0, done.stderr
    found = read_rows(to)
    assert len(found) == len(rows)
    assert [row["line"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["response"] is None for row in found] == [False, False, True, True, False]
    assert all(bool(row["reason"]) == (row["response"] is None) for row in found)
    assert found[0]["response"] == found[4]["response"]  # the repeated row
    assert found[3] == {"line": 4, "response": None, "reason": "bad row: empty instruction"}
    assert {p["member"]: p.get("left_out") for p in found[1]["proposals"]} == {
        "ada": None,
        "bob": "engine: provoked",
    }
    assert "3 answered, 1 without answer, 1 bad row" in done.stdout
    refused = phalanx_mix(config, "--file", file, "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "empty instruction" in refused.stderr


def test_a_conversation_is_answered_at_its_end(config, tmp_path):
    turns = [
        {"role": "user", "content": "Name a prime."},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "And a larger one?"},
    ]
    file = write_rows(tmp_path / "chats.jsonl", [{"messages": turns}])
    out = tmp_path / "mix"
    done = phalanx_mix(config, "--file", file, "--out", out, "instructions.column=messages")
    assert done.returncode == 0, done.stderr
    (row,) = read_rows(out / "answers.jsonl")
    assert row["messages"] == turns
    assert row["response"]
    with Ledger(run_ledger_path(out)) as ledger:
        asked = [row["last"] for row in ledger.query(
            "SELECT json_extract(full_messages(messages), '$[#-1].content') AS last FROM responses")]  # fmt: skip  # noqa: E501
    assert set(asked) == {"And a larger one?"}


KILLER = """
import os, signal, sys, time
from phalanx.api import load_config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.mixing import mix_file, read_prompts
from phalanx.workshop import Workshop

class Killing(ScriptedEngine):
    left = int(sys.argv[4])
    def respond(self, requests):
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        time.sleep(0.06)  # so that each batch is recorded on its own
        return super().respond(requests)

config = load_config(sys.argv[1], purpose="mix")
shop = Workshop(config)
shop.use("scripted", Killing(batch_size=2))
mix_file(config, read_prompts(sys.argv[2], config), sys.argv[3], workshop=shop)
"""


@pytest.mark.parametrize("batches", [1, 4, 7])
def test_killed_and_taken_up_again_nothing_is_asked_twice(config, tmp_path, batches):
    file, whole, cut = prompts_of(tmp_path), tmp_path / "whole", tmp_path / "cut"
    assert phalanx_mix(config, "--file", file, "--out", whole).returncode == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, str(config), str(file), str(cut), str(batches)], timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    with Ledger(run_ledger_path(cut)) as ledger:
        recorded = ledger.count("responses")
    assert recorded == 2 * batches
    done = phalanx_mix(config, "--file", file, "--out", cut)
    assert done.returncode == 0, done.stderr
    assert read_rows(cut / "answers.jsonl") == read_rows(whole / "answers.jsonl")
    with Ledger(run_ledger_path(whole)) as one, Ledger(run_ledger_path(cut)) as other:
        assert one.contents() == other.contents()
        assert other.query("SELECT max(attempts) AS most FROM responses")[0]["most"] == 1


def test_another_file_needs_another_folder(config, tmp_path):
    out = tmp_path / "mix"
    assert phalanx_mix(config, "--file", prompts_of(tmp_path), "--out", out).returncode == 0
    done = phalanx_mix(config, "--file", prompts_of(tmp_path, 3), "--out", out)
    assert done.returncode == 1
    assert "other inputs" in done.stderr


def test_from_python(config):
    rows = phalanx.mix(config, ["Why?", [{"role": "user", "content": "All fail."}], "Why?"],
                       {"mixture.samples": 2})  # fmt: skip
    assert [row["response"] is not None for row in rows] == [True, True, True]
    assert len(rows[0]["proposals"]) == 4
    with pytest.raises(ConfigError, match="prompt 2: turn 1 is of the assistant"):
        phalanx.mix(config, ["Why?", [{"role": "assistant", "content": "Hello."}]])
    with pytest.raises(ConfigError, match="prompt 1: turn 1 is empty"):
        phalanx.mix(config, [" "])
    with pytest.raises(TypeError, match="list of prompts"):
        phalanx.mix(config, "Why?")
    with pytest.raises(TypeError, match="give them to load_config"):
        phalanx.mix(phalanx.load_config(config, purpose="mix"), ["Why?"], ["mixture.samples=2"])
    with pytest.raises(TypeError, match="give them to load_config"):
        phalanx.run(phalanx.load_config(config, purpose="mix"), {"mixture.samples": 2})


# Streaming ---------------------------------------------------------------------------------------


class Broken:
    """A scripted engine whose stream breaks off after some words, in one way or another."""

    def __new__(cls, transient: bool):
        class Engine(ScriptedEngine):
            def stream(self, request, show):
                show("The first ")
                failure = Failure("timeout", "provoked", transient=transient)
                return Response(request.id, error=failure)

        return Engine()


def with_engine(config: Path, engine, tmp_path: Path):
    loaded = phalanx.load_config(config, purpose="mix")
    shop = Workshop(loaded)
    shop.use("scripted", engine)
    return open_mixer(loaded, tmp_path / "mix", inputs="i", workshop=shop)


def test_a_streamed_answer_is_recorded_and_the_same(config, tmp_path):
    pieces: list[str] = []
    loaded = phalanx.load_config(config, purpose="mix")
    turns = (Message("user", "Why?"),)
    with open_mixer(loaded, tmp_path / "a", inputs="i") as mixer:
        streamed = mixer.answer(turns, pieces.append)
        assert "".join(pieces) == streamed.response.text
        assert spent(mixer.place).calls == 3
        again: list[str] = []
        assert mixer.answer(turns, again.append) == streamed
        assert again == []  # from the record: there is nothing to watch
        assert spent(mixer.place).calls == 3
    with open_mixer(loaded, tmp_path / "b", inputs="i") as mixer:
        assert mixer.answer(turns) == streamed


def test_streamed_answers_are_counted_and_the_news_of_their_engine_said(config, tmp_path):
    class Telling(ScriptedEngine):
        def news(self):
            return ["the server asks for a pause"]

    said = Silent()
    heard: list[str] = []
    said.say = heard.append
    with with_engine(config, Telling(), tmp_path) as mixer:
        mixer.place.progress = said
        for text in ("Why?", "How?"):
            mixer.answer((Message("user", text),), lambda piece: None)
        asked = mixer.place.ledger.query("SELECT asked FROM phases WHERE phase = 'aggregate'")
    assert asked == [{"asked": 2}]
    assert heard == ["the server asks for a pause"] * 2


def test_a_stream_that_breaks_is_asked_again(config, tmp_path):
    pieces: list[str] = []
    with with_engine(config, Broken(transient=True), tmp_path) as mixer:
        mixed = mixer.answer((Message("user", "Why?"),), pieces.append)
        assert mixed.response is not None
        assert "".join(pieces) != mixed.response.text
        assert mixer.spent().calls == 4


def test_a_stream_that_fails_for_good_is_no_answer(config, tmp_path):
    with with_engine(config, Broken(transient=False), tmp_path) as mixer:
        mixed = mixer.answer((Message("user", "Why?"),), lambda piece: None)
        assert mixed.response is None
        assert mixed.reason.startswith("failed: timeout")


def answer_to(config: Path, engine, tmp_path: Path, capsys, monkeypatch, terminal: bool):
    loaded = phalanx.load_config(config, purpose="mix")
    shop = Workshop(loaded)
    shop.use("scripted", engine)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr("phalanx.mixing.open_mixer", partial(open_mixer, workshop=shop))
    talking.answer(loaded, tmp_path / "mix", "Why?", False, False)
    return capsys.readouterr()


def test_half_an_answer_is_shown_to_a_terminal_only(config, tmp_path, capsys, monkeypatch):
    given = (config, Broken(transient=True))
    shown = answer_to(*given, tmp_path / "a", capsys, monkeypatch, terminal=True)
    assert shown.out.startswith("The first \n")
    assert "the stream broke off" in shown.err
    piped = answer_to(*given, tmp_path / "b", capsys, monkeypatch, terminal=False)
    assert piped.out == shown.out.removeprefix("The first \n")
    assert "broke off" not in piped.err


def test_reasoning_that_was_shown_is_no_broken_stream(config, tmp_path, capsys, monkeypatch):
    class Reasoning(ScriptedEngine):
        def stream(self, request, show):
            show("Let me see.")
            return Response(request.id, text="Blue.", flags=(SHOWN_OTHERWISE,))

    shown = answer_to(config, Reasoning(), tmp_path, capsys, monkeypatch, terminal=True)
    assert shown.out == "Let me see.\nBlue.\n"
    assert "still reasoning" in shown.err
    assert "broke off" not in shown.err


THINKS = """
sampling:
  - {when: only, purpose: aggregate, reply: <think>Hm.</think>}
  - {when: unmarked, purpose: aggregate, reply: "Let me see.\\n</think>\\nBlue."}
  - {when: ., purpose: aggregate, reply: <think>Let me see.</think> Blue.}
  - {when: ., member: bob, reply: <think>Hm.}
  - {when: ., reply: <think>Sky?</think> Proposed.}
"""


@pytest.fixture
def thinking(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "dan"], THINKS, MIXTURE)


def test_reasoning_is_no_part_of_what_the_mixture_says(thinking, tmp_path):
    assert phalanx_mix(thinking, "Why?").stdout == "Blue.\n"
    only = phalanx_mix(thinking, "Hm, only?")
    assert (only.returncode, only.stdout) == (1, "")
    assert "nothing but reasoning" in only.stderr.splitlines()[-1]
    rows = phalanx.mix(thinking, ["Why?", "Hm, only?"])
    assert [row["response"] for row in rows] == ["Blue.", None]
    assert [one["text"] for one in rows[0]["proposals"]] == ["Proposed.", ""]
    assert rows[0]["proposals"][1]["left_out"] == "nothing but reasoning"
    loaded = phalanx.load_config(thinking, purpose="mix")
    with open_mixer(loaded, tmp_path / "chat", inputs="i") as mixer:
        talk, pieces = Chat(mixer), []
        talk.say("Why?", pieces.append)
        assert "".join(pieces) == "Blue."
        talk.say("unmarked?")
        assert [turn.content for turn in talk.history] == ["Why?", "Blue.", "unmarked?", "Blue."]


def test_reasoning_that_is_marked_at_its_end_alone_is_corrected(
    thinking, tmp_path, capsys, monkeypatch
):
    loaded = phalanx.load_config(thinking, purpose="mix")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    talking.answer(loaded, tmp_path / "mix", "unmarked?", False, False)
    shown = capsys.readouterr()
    assert shown.out == "Let me see.\n</think>\nBlue.\nBlue.\n"
    assert "still reasoning" in shown.err
    assert "broke off" not in shown.err


def test_a_failure_that_was_tried_often_enough_is_not_streamed_again(config, tmp_path):
    heard: list[str] = []
    turns = (Message("user", "Why?"),)
    for start in range(MAX_ATTEMPTS + 2):
        with with_engine(config, Broken(transient=False), tmp_path) as mixer:
            mixed = mixer.answer(turns, heard.append)
            assert mixed.reason.startswith("failed: timeout")
            assert mixer.spent().calls == 2 + min(start + 1, MAX_ATTEMPTS)
    assert len(heard) == MAX_ATTEMPTS


def test_an_answer_that_is_stopped_keeps_its_proposals(config, tmp_path):
    loaded = phalanx.load_config(config, purpose="mix")
    stopped = False

    def show(piece: str) -> None:
        nonlocal stopped
        stopped = True

    with open_mixer(loaded, tmp_path / "mix", inputs="i") as mixer:
        with pytest.raises(Interrupted):
            mixer.answer((Message("user", "Why?"),), show, stop=lambda: stopped)
        assert mixer.spent().calls == 2
        assert mixer.answer((Message("user", "Why?"),)).response is not None
        assert mixer.spent().calls == 3


# A chat ------------------------------------------------------------------------------------------


def test_a_chat_remembers_turns_and_answers(config, tmp_path):
    loaded = phalanx.load_config(config, purpose="mix")
    with open_mixer(loaded, tmp_path / "mix", inputs="i") as mixer:
        talk = Chat(mixer)
        first = talk.say("Why?")
        talk.say("They all fail.")  # no answer: not remembered
        second = talk.say("Really?")
        said = ["Why?", first.response.text, "Really?", second.response.text]
        assert [turn.content for turn in talk.history] == said
        talk.new()
        assert talk.history == ()


def test_ctrl_c_ends_an_answer_and_not_the_chat(config, tmp_path):
    loaded = phalanx.load_config(config, purpose="mix")
    with open_mixer(loaded, tmp_path / "mix", inputs="i") as mixer:
        talk = Chat(mixer)
        with pytest.raises(Interrupted):
            talk.say("Why?", lambda piece: os.kill(os.getpid(), signal.SIGINT))
        assert talk.history == ()
        assert talk.say("Why?").response is not None
        assert mixer.spent().calls == 3  # the proposals were there


@pytest.fixture
def terminal(config):
    """``type(text, until)`` types into a chat and returns what it showed up to ``until``."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "phalanx.cli", "mix", str(config)],
        stdin=child, stdout=child, stderr=child, close_fds=True, env=environment,
        preexec_fn=os.setsid,
    )  # fmt: skip
    os.close(child)

    def type_(text: str, until: str) -> str:
        os.write(parent, text.encode())
        seen, deadline = "", time.monotonic() + 60
        while until not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([parent], [], [], 1)[0]:
                try:
                    seen += os.read(parent, 4096).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    break
        assert until in seen, seen
        return seen

    type_.process = process
    yield type_
    if process.poll() is None:
        process.kill()
    process.wait()
    os.close(parent)


def test_a_chat_in_a_terminal(terminal):
    terminal("", "> ")
    shown = terminal("Why?\n", " s\r\n")
    assert "answer." in shown
    assert "\x1b[2J" not in terminal("escape\n", " s\r\n")
    terminal("/new\n", "A new conversation.")
    terminal("/what\n", "/new and /exit\r\n> ")
    assert interrupted(terminal.process) == 0  # at the prompt: the end


def interrupted(process: subprocess.Popen) -> int:
    """Ctrl-C until it is heard: input() misses one between its prompt and its waiting."""
    for _ in range(10):
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=5)
    raise AssertionError("nothing ended the chat")


def test_a_second_chat_may_go_to_the_same_folder(config, tmp_path, monkeypatch, capsys):
    loaded = phalanx.load_config(config, purpose="mix")
    for text in ("Why?", "How?"):
        said = iter([text, "/exit"])
        monkeypatch.setattr("builtins.input", lambda _, said=said: next(said))
        talking.chat(loaded, tmp_path / "mix", False, True)
        assert "answer." in capsys.readouterr().out


def test_a_chat_ends_with_exit(terminal):
    terminal("", "> ")
    terminal("/exit\n", "/exit")
    assert terminal.process.wait(timeout=30) == 0


def test_other_work_is_refused(config, tmp_path):
    loaded = phalanx.load_config(config, purpose="mix")
    with open_mixer(loaded, tmp_path / "mix", inputs="i") as mixer:
        mixer.answer((Message("user", "Why?"),))
    refused = pytest.raises(LedgerError, match="other inputs")
    with refused, open_mixer(loaded, tmp_path / "mix", inputs="j"):
        pass


def test_a_folder_of_another_version_is_refused_in_words(config, tmp_path):
    loaded = phalanx.load_config(config, purpose="mix")
    with open_mixer(loaded, tmp_path / "mix", inputs="i") as mixer:
        mixer.answer((Message("user", "Why?"),))
        mixer.place.ledger.put("config", '{"no_such_key": 1}')
    refused = pytest.raises(LedgerError, match="made by a version of phalanx")
    with refused, open_mixer(loaded, tmp_path / "mix", inputs="i"):
        pass
