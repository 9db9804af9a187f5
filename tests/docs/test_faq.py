"""Every message that the page of questions quotes is provoked, and is what is printed."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.cli import app
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import PhalanxError
from phalanx.types import Member
from tests.docs.pages import ROOT
from tests.server import TestServer

PAGE = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
QUOTED = dict(
    re.findall(r"^### ([^\n]+)\n\n```message\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
)
MINE = """pool:
  members:
    - {name: ada, engine: scripted}
    - {name: bob, engine: scripted}
    - {name: cora, engine: scripted}
instructions: {source: prompts.jsonl}
match: {duels: 4}
train: {method: none}
judge: {protocol: rubric, max_unreadable: 1.0}
pairs: {truncated: allow, keep: 1.0}
iterations: 1
"""
ADA = "{name: ada, engine: scripted}"
RUN = ["run", "mine.yaml", "--out", "runs/mine", "-q"]
FLIPS = ["match.duels=24", "judge.protocol=pairwise", "guard.max_flips=0.4"]


def write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def changed(old: str, new: str) -> Callable[[], None]:
    assert old in MINE
    return lambda: write("mine.yaml", MINE.replace(old, new))


def ran(*more: str) -> None:
    app([*RUN, *more], standalone_mode=False)


def scripted(rules: str) -> None:
    """All three members answer by these rules."""
    write("rules.yaml", f"sampling:\n{rules}")
    write(
        "mine.yaml",
        MINE.replace("engine: scripted}", 'engine: scripted, model: "script:rules.yaml"}'),
    )


def mute() -> None:
    scripted(
        "  - {when: ., purpose: judge, reply: I would rather not say.}\n"
        "  - {when: ., reply: [One., Two., Three.]}\n"
    )


def unreadable() -> None:
    mute()
    with pytest.raises(PhalanxError):
        ran("judge.max_unreadable=0.1")


def tied() -> None:
    scripted(
        "  - {when: ., purpose: judge, reply: '{\"score\": 5}'}\n"
        "  - {when: ., reply: [One., Two., Three., Four., Five.]}\n"
    )
    ran()


def biased() -> None:
    """Judges that like whatever stands first, and enough duels that a guard takes note."""
    scripted(
        "  - {when: ., purpose: judge, reply: 'The first. [[A]]'}\n"
        "  - {when: ., reply: [One., Two., Three., Four., Five., Six.]}\n"
    )
    rows = [json.dumps({"instruction": f"Name thing {n}."}) + "\n" for n in range(24)]
    write("prompts.jsonl", "".join(rows))


def behind(url: str, model: str = "m") -> str:
    lab = f"endpoints: [{{name: lab, url: '{url}', key: LAB_KEY, patience: 0.2}}]\n"
    return lab + MINE.replace(ADA, f"{{name: ada, engine: openai, model: {model}}}")


def nothing() -> None:
    pass


# title -> the command, and what is done before it
PROVOKED: dict[str, tuple[list[str], Callable[[], None]]] = {
    "A key is not known": (
        ["check", "mine.yaml"],
        lambda: write("mine.yaml", MINE.replace("duels:", "duel:").replace("method:", "methd:")),
    ),
    "A value has the wrong type": (["check", "mine.yaml", "iterations=zero"], nothing),
    "A key is given twice": (
        ["check", "mine.yaml"],
        changed("iterations: 1\n", "iterations: 1\niterations: 2\n"),
    ),
    "There is no such preset": (["check", "preset:spartan"], nothing),
    "Two members are too few": (
        ["check", "mine.yaml"],
        changed("    - {name: cora, engine: scripted}\n", ""),
    ),
    "The prompts are not found": (
        ["check", "mine.yaml", "instructions.source=nowhere.jsonl"],
        nothing,
    ),
    "The prompts have another column": (
        ["check", "mine.yaml", "instructions.source=other.jsonl"],
        lambda: write("other.jsonl", '{"text": "Name a prime."}\n'),
    ),
    "A row of the prompts is broken": (
        ["check", "mine.yaml", "instructions.source=broken.jsonl"],
        lambda: write("broken.jsonl", '{"instruction": "Name a prime."}\n{"instruction": \n'),
    ),
    "An adapter is not found": (
        ["check", "mine.yaml"],
        changed(ADA, "{name: ada, model: 'builtin:smollm2-135m', adapter: adapters/ada}"),
    ),
    "The key of an endpoint is not set": (
        ["check", "mine.yaml"],
        lambda: write("mine.yaml", behind("http://127.0.0.1:9/v1")),
    ),
    "There is no such device": (["check", "mine.yaml", "--machine", "1xfoo"], nothing),
    "The file exists": (["init", "mine.yaml"], nothing),
    "The run belongs to another configuration": ([*RUN, "judge.protocol=pairwise"], ran),
    "Judgments cannot be read": ([*RUN, "judge.max_unreadable=0.1"], mute),
    "A guard stops the run": ([*RUN, *FLIPS], biased),
    "A guard pauses the run": ([*RUN, *FLIPS, "guard.action.max_flips=pause"], biased),
    "The time is used up": ([*RUN, "budget.seconds=0.000001"], nothing),
    "A scripted member has no rule": (
        RUN,
        lambda: scripted("  - {when: a question that nobody asks, reply: Yes.}\n"),
    ),
    "There is no run": (["status", "runs/nothing"], nothing),
    "Every pair was dropped": (["export", "runs/mine", "preferences", "--out", "p.jsonl"], tied),
    "Nothing to export yet": (
        ["export", "runs/mine", "preferences", "--out", "p.jsonl"],
        unreadable,
    ),
    "There is no such task": (["eval", "runs/mine", "--task", "gsm9k", "--out", "runs/e"], ran),
    "Pairs to judge have other columns": (
        ["judge", "mine.yaml", "pairs.jsonl", "--out", "runs/v"],
        lambda: write("pairs.jsonl", '{"instruction": "x", "a": "y"}\n'),
    ),
    "The archive is none": (["unpack", "prompts.jsonl"], nothing),
}
SERVED = {
    "The endpoint refuses the key": ("m", "wrong", []),
    "The endpoint does not know the model": ("n", "right", []),
    "The budget is used up": ("m", "right", ["budget.requests=3"]),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_KEY", raising=False)
    write("mine.yaml", MINE)
    rows = [json.dumps({"instruction": f"Name thing {n}."}) + "\n" for n in range(12)]
    write("prompts.jsonl", "".join(rows))


def is_printed(title: str, words: list[str]) -> None:
    """What the command prints after ``phalanx:`` is what the page quotes, whole."""
    with pytest.raises(PhalanxError) as caught:
        app(words, standalone_mode=False)
    pattern = ".*".join(re.escape(part) for part in QUOTED[title].split("…"))
    assert re.fullmatch(pattern, str(caught.value), re.DOTALL), str(caught.value)


@pytest.mark.parametrize("title", PROVOKED)
def test_the_message_is_what_is_printed(title):
    words, before = PROVOKED[title]
    before()
    is_printed(title, words)


@pytest.mark.parametrize("title", SERVED)
def test_messages_about_a_server(title, monkeypatch):
    model, key, more = SERVED[title]
    monkeypatch.setenv("LAB_KEY", key)
    models = {"m": Member("m", "script:default", engine="scripted")}
    with TestServer(ScriptedEngine(), models, key="right") as server:
        write("mine.yaml", behind(server.url, model))
        is_printed(title, [*RUN, *more])


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setenv("LAB_KEY", "any")
    write("mine.yaml", behind("http://127.0.0.1:9/v1"))
    is_printed("The endpoint does not answer", RUN)


def test_a_run_in_use():
    ran()
    with open("runs/mine/lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_printed("The run is in use", RUN)


def test_no_quoted_message_is_untried():
    others = {"The endpoint does not answer", "The run is in use"}
    assert set(QUOTED) == set(PROVOKED) | set(SERVED) | others
