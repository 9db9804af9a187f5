"""Faulty scripts are told of when they are read, and what no rule provides for when it is asked."""

from __future__ import annotations

import pytest

from phalanx.engines.scripted import ScriptedEngine, load_script
from phalanx.errors import ConfigError, EngineError
from phalanx.types import Member, Message, Options, Request

FAULTY = [
    ("sampling", "fail: {message: down}", "fail"),
    ("sampling", "fail: boom", "fail"),
    ("sampling", "fail: {kind: bomb, message: down}", "fail.kind"),
    ("sampling", "fail: {kind: engine, message: 5}", "fail.message"),
    ("sampling", "fail: {kind: engine, message: down, transient: 1}", "fail.transient"),
    ("sampling", "fail: {kind: engine, message: down, times: often}", "fail.times"),
    ("sampling", "fail: {kind: engine, message: down, tries: 2}", "unknown keys"),
    ("sampling", "reply: 5", "reply"),
    ("sampling", "reply: []", "reply"),
    ("sampling", "reply: [a, 5]", "reply"),
    ("sampling", "{reply: a, finish: never}", "finish"),
    ("sampling", "{reply: a, member: [ada]}", "member"),
    ("user_turn", "reply: {a: b}", "reply"),
    ("options", "member: ada", "weights"),
    ("options", "weights: {}", "weights"),
    ("options", "weights: {7: 3}", "in quotes"),
    ("options", "weights: {'7': -1, '8': 2}", "weights"),
    ("options", "weights: {'7': many}", "weights"),
    ("options", "fail: {kind: engine, message: down, times: 2}", "weights"),
    ("likelihood", "reply: a", "logprob_per_token"),
    ("likelihood", "logprob_per_token: []", "logprob_per_token"),
    ("likelihood", "logprob_per_token: .nan", "logprob_per_token"),
    ("reward", "reward: good", "reward"),
    ("reward", "reward: [1, true]", "reward"),
]


@pytest.mark.parametrize(("kind", "rule", "named"), FAULTY)
def test_a_faulty_rule_is_told_of_with_its_place(kind, rule, named, tmp_path):
    path = tmp_path / "script.yaml"
    inner = rule.removeprefix("{").removesuffix("}") if rule.startswith("{") else rule
    path.write_text(f"{kind}:\n  - {{when: ., {inner}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{kind}\[0\]: .*{named}"):
        load_script(f"script:{path}")


def test_all_faults_are_told_of_together(tmp_path):
    path = tmp_path / "script.yaml"
    text = "sampling: [{when: ., reply: 5}, {when: ., reply: []}]\noptions: [{when: .}]\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_script(f"script:{path}")
    assert len(raised.value.faults) == 3


def test_what_is_documented_is_no_fault(tmp_path):
    path = tmp_path / "script.yaml"
    path.write_text(
        """
sampling:
  - {when: a, reply: [b, c], finish: length, member: ada, purpose: answer}
  - {when: b, fail: {kind: engine, message: provoked, transient: true, times: 2}, reply: d}
  - {when: ., fail: {kind: refused, message: no}}
options:
  - {when: a, fail: {kind: engine, message: down}}
  - {when: ., weights: {"7": 3, "8": 0.5, "9": 0}}
likelihood: [{when: ., logprob_per_token: -1}]
user_turn: [{when: "", reply: Hello.}]
reward: [{when: ., reward: [1, -0.5]}]
""",
        encoding="utf-8",
    )
    assert len(load_script(f"script:{path}")["sampling"]) == 3
    assert load_script("script:default")


def test_options_without_weights_are_told_of_with_who_was_asked_what_and_why():
    member = Member("ada", "script:mine", engine="scripted")
    want = Options("", ("yes", "no"))
    engine = ScriptedEngine({"script:mine": {"options": [{"when": ".", "weights": {"7": 1}}]}})
    request = Request("r", member, (Message("user", "Does it fit?"),), want, "fit")
    with pytest.raises(EngineError) as raised:
        engine.respond([request])
    for part in ("ada", "script:mine", "yes, no", "'fit'", "Does it fit?", "'7'"):
        assert part in str(raised.value)
