"""``phalanx synthesise``: invented instructions, filtered, until there are enough."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.collective.screening import Limits
from phalanx.errors import ConfigError, MissingPackage, PhalanxError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.sources import read_instructions
from tests.scripts import command, read_rows, write_pool, write_rows

TOPICS = [
    "How do tides follow the moon?", "Explain recursion to a child.", "Name three kinds of bread.",
    "Write a limerick about a lighthouse keeper.", "What is the boiling point of ethanol?",
    "Summarise the plot of Hamlet in two lines.", "Translate 'good evening' into Finnish.",
    "Which planets have rings, and why?", "Give me a recipe that needs only lentils and rice.",
    "Prove that the square root of two is irrational.", "Here is a list:", "Hm?",
    "How do  TIDES follow the moon", "Name three kinds of breads.", "x<|im_end|>",
]  # fmt: skip
JUDGES = """
sampling:
  - {when: limerick, member: rita, purpose: rate, reply: "Silly. [[poor]]"}
  - {when: Finnish, purpose: rate, reply: "no idea"}
  - {when: ., purpose: rate, reply: "[[excellent]]"}
  - {when: recursion, purpose: answer, reply: " "}
  - {when: ethanol, purpose: answer, reply: Half an answer which, finish: length}
  - {when: recipe|rings, purpose: answer, reply: A short answer.}
  - {when: ., purpose: answer, reply: A long and winding answer.}
reward:
  - {when: short, reward: -2.0}
  - {when: ., reward: 1.5}
"""


def quoted(topic: str) -> str:
    return '"' + topic.replace('"', '\\"') + '"'


@pytest.fixture
def config(tmp_path) -> Path:
    turns = "".join(f"      - {quoted(topic)}\n" for topic in TOPICS)
    rules = f"user_turn:\n  - when: ''\n    reply:\n{turns}{JUDGES}"
    return write_pool(tmp_path, ["ada", "rita"], rules, "resources: {batch_size: 4}")


def phalanx_synthesise(*words: object):
    return command("synthesise", *words)


def test_what_is_kept_loads_as_instructions_and_the_sums_add_up(config, tmp_path):
    out, to = tmp_path / "made", tmp_path / "instructions.jsonl"
    done = phalanx_synthesise(
        config, "--member", "ada", "--count", 8, "--out", out, "--to", to, "--domain", "odd",
        "--min-chars", 5,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = read_instructions(str(to))
    assert len(read.instructions) == 8
    assert {one.domain for one in read.instructions} == {"odd"}
    assert {one.text for one in read.instructions} <= {*TOPICS}
    made = phalanx.synthesise(config, "ada", 8, domain="odd", limits=Limits(min_chars=5))
    assert list(made.rows) == read_rows(to)
    assert len(made.rows) + sum(made.dropped.values()) == made.tried
    assert f"8 kept of {made.tried} tried" in done.stdout


def test_each_filter_drops_by_its_name(config):
    made = phalanx.synthesise(config, "ada", 30, max_tries=400, limits=Limits(min_chars=5))
    # There are ten instructions to be found and no more: all tries are used.
    assert made.tried == 400
    assert len(made.rows) == 10
    assert set(made.dropped) == {
        "duplicate", "near_duplicate", "ends_with_colon", "too_short", "markers",
    }  # fmt: skip
    assert sum(made.dropped.values()) == 390


def test_a_rating_and_a_reward_are_asked_where_wanted(config):
    made = phalanx.synthesise(
        config, "ada", 30, max_tries=300, rater="rita", rewarder="rita", min_reward=0.0
    )
    texts = [row["instruction"] for row in made.rows]
    assert all(row["rating"] == "excellent" and row["reward"] == 1.5 for row in made.rows)
    assert not [text for text in texts if "limerick" in text or "recursion" in text]
    assert made.dropped["rated poor"] == 1
    assert made.dropped["unrated"] == 1
    assert made.dropped["unanswered"] == 1
    assert made.dropped["truncated_answer"] == 1
    assert made.dropped["low_reward"] == 2
    assert len(made.rows) + sum(made.dropped.values()) == 300


def test_what_is_more_than_wanted_is_counted(config):
    made = phalanx.synthesise(config, "ada", 2)
    assert len(made.rows) == 2
    assert len(made.rows) + sum(made.dropped.values()) == made.tried


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--count", 3, "--count 2, and is now asked for 3"),
        ("--min-chars", 5, "--min-chars 12, and is now asked for 5"),
        ("--domain-system", "Bread.", "--domain-system '', and is now asked for 'Bread.'"),
    ],
)
def test_another_flag_needs_another_folder_and_is_named(config, tmp_path, flag, value, said):
    words = ["--member", "ada", "--out", tmp_path / "made"]
    assert phalanx_synthesise(config, *words, "--count", 2).returncode == 0
    before = read_rows(tmp_path / "made" / "instructions.jsonl")
    other = phalanx_synthesise(config, *words, "--count", 2, flag, value)
    assert other.returncode == 1
    assert said in " ".join(other.stderr.split())
    assert read_rows(tmp_path / "made" / "instructions.jsonl") == before


def test_a_system_prompt_steers(config, tmp_path):
    out = tmp_path / "made"
    phalanx.synthesise(config, "ada", 2, system="You answer questions about bread.", out=out)
    with Ledger(run_ledger_path(out)) as ledger:
        rows = ledger.query("SELECT full_messages(messages) AS m, full_text(want) AS w "
                            "FROM responses")  # fmt: skip
    assert {row["m"] for row in rows} == {
        '[{"content":"You answer questions about bread.","role":"system"}]'
    }
    assert all('"kind":"user_turn"' in row["w"] for row in rows)


def test_a_system_prompt_that_is_no_proper_text_is_cleaned(config):
    made = phalanx.synthesise(config, "ada", 1, system="Bread \udce9.", domain="\udce9")
    assert made.rows[0]["domain"] == "\ufffd"


def test_nothing_kept_is_an_error(tmp_path):
    config = write_pool(tmp_path, ["ada"], "user_turn:\n  - {when: '', reply: 'So:'}\n")
    with pytest.raises(PhalanxError, match=r"0 kept of 6 tried; dropped: 6 ends_with_colon"):
        phalanx.synthesise(config, "ada", 3, max_tries=6)


@pytest.mark.parametrize(
    ("wish", "fault"),
    [
        ({"member": "adda"}, "did you mean ada"),
        ({"member": "ada", "rater": "zoe"}, "--rater: there is no member 'zoe'"),
        ({"member": "ada", "rewarder": "rita"}, "go together"),
        ({"member": "ada", "min_reward": 1.0}, "go together"),
        ({"member": "ada", "count": 0}, "at least 1 each"),
        ({"member": "ada", "max_tries": 0}, "--max-tries 0; at least 1 each"),
    ],
)
def test_members_that_cannot_do_their_part(config, wish, fault):
    with pytest.raises(ConfigError, match=fault):
        phalanx.synthesise(config, **{"count": 3, **wish})


def test_an_endpoint_cannot_invent_a_turn(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "endpoints: [{name: e, url: 'http://127.0.0.1:1/v1'}]\n"
        "pool:\n  members:\n"
        "    - {name: ada, engine: openai, model: m}\n"
        "    - {name: bob, engine: scripted}\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match="chat template"):
        phalanx.synthesise(path, "ada", 3)


def test_a_missing_package_is_named_before_anybody_is_asked(config, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "datasketch":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackage, match=r"phalanx\[synthesise\]"):
        phalanx.synthesise(config, "ada", 3, out=tmp_path / "made")
    assert not (tmp_path / "made").exists()


KILLER = """
import os, signal, sys, time
import phalanx
from phalanx.engines.scripted import ScriptedEngine
from phalanx.workshop import Workshop

class Killing(ScriptedEngine):
    left = int(sys.argv[3])
    def respond(self, requests):
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        time.sleep(0.06)
        return super().respond(requests)

config = phalanx.load_config(sys.argv[1], purpose="synthesise")
shop = Workshop(config)
shop.use("scripted", Killing(batch_size=4))
phalanx.synthesise(config, "ada", 8, rater="rita", out=sys.argv[2], workshop=shop)
"""


@pytest.mark.parametrize("batches", [1, 4, 6])
def test_killed_and_taken_up_again(config, tmp_path, batches):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = (config, "--member", "ada", "--rater", "rita", "--count", 8, "--out")
    assert phalanx_synthesise(*words, whole).returncode == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, *map(str, (config, cut, batches))],
        timeout=60, env={**os.environ},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    done = phalanx_synthesise(*words, cut)
    assert done.returncode == 0, done.stderr
    assert read_rows(cut / "instructions.jsonl") == read_rows(whole / "instructions.jsonl")
    with Ledger(run_ledger_path(whole)) as one, Ledger(run_ledger_path(cut)) as other:
        assert one.contents() == other.contents()


def test_the_ids_are_those_that_a_run_would_give(config, tmp_path):
    made = phalanx.synthesise(config, "ada", 4, rater="rita")
    bare = [{"instruction": row["instruction"]} for row in made.rows]
    read = read_instructions(str(write_rows(tmp_path / "i.jsonl", bare)))
    assert [one.id for one in read.instructions] == [row["id"] for row in made.rows]
