"""Sparta as a whole, on the scripted engine: who is asked what, and what follows from it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.collective.reputation import initial_standing
from phalanx.config import load
from phalanx.engines.scripted import ScriptedEngine
from phalanx.methods.sparta import run
from phalanx.types import Instruction, Iteration, Member

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SCRIPT = {
    "sampling": [
        {"when": '"score"', "member": "dan", "reply": "I cannot say."},
        {"when": '"score"[\\s\\S]*Seven|Seven[\\s\\S]*"score"', "reply": '{"score": 9}'},
        {"when": '"score"', "reply": '{"score": 4}'},
        {"when": "prime", "member": "ada", "reply": "Seven."},
        {"when": "prime", "reply": "Nine."},
        {"when": ".", "reply": "I do not know."},
    ],
    "likelihood": [{"when": ".", "logprob_per_token": -1.0}],
}
NAMES = ("ada", "bob", "cora", "dan")


class Asked:
    """An ``ask`` that answers from the script and writes down what was asked."""

    def __init__(self, script=SCRIPT) -> None:
        self.engine = ScriptedEngine({"script:s": script})
        self.lines: list[str] = []
        self.phases: list[str] = []

    def __call__(self, phase, requests):
        replies = self.engine.respond(requests)
        self.phases.append(phase)
        for request, reply in zip(requests, replies, strict=True):
            text = reply.text if reply.error is None else f"[{reply.error.kind}]"
            last = request.messages[-1].content.replace("\n", " / ")
            roles = "+".join(message.role for message in request.messages)
            self.lines.append(f"{phase} | {request.member.key} | {roles} | {last} -> {text}")
        return replies


def iteration(count=4, members=NAMES, **changes):
    config = load(ROOT / "configs/smoke/rubric.yaml")
    pool = tuple(Member(name, "script:s", engine="scripted") for name in members)
    start = Iteration(
        number=1,
        seed=7,
        members=pool,
        instructions=tuple(Instruction(f"i{n}", f"Name a prime, not {n}.") for n in range(count)),
        standings={name: initial_standing(config.reputation) for name in members},
        reliability={},
    )
    return config, replace(start, **changes)


def transcript(asked: Asked, result) -> str:
    lines = [*asked.lines, ""]
    for duel, outcome, pair in zip(result.duels, result.outcomes, result.pairs, strict=True):
        lines.append(
            f"duel {duel.left} {duel.right} ({duel.matched}): {outcome.status} {outcome.winner} "
            f"{outcome.score_left} {outcome.score_right} judges={outcome.num_judges} "
            f"missing={outcome.num_missing} | pair {pair.chosen!r} > {pair.rejected!r} "
            f"drop={pair.drop!r}"
        )
    lines += [f"reputation {name} {s.value:.9f}" for name, s in result.standings.items()]
    lines += [f"metric {name} {value}" for name, value in result.metrics.items()]
    return "\n".join(lines) + "\n"


def test_golden_transcript():
    """Set PHALANX_UPDATE_GOLDEN=1 to write it anew, and read the difference before you commit."""
    config, start = iteration()
    asked = Asked()
    found = transcript(asked, run(start, asked, config))
    path = GOLDEN / "sparta_iteration.txt"
    if os.environ.get("PHALANX_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_answers_first_then_one_judging_phase():
    config, start = iteration()
    asked = Asked()
    run(start, asked, config)
    assert asked.phases == ["answer", "judge"]


def test_no_member_judges_its_own_duel_and_everybody_else_does():
    config, start = iteration(count=12)
    result = run(start, Asked(), config)
    duels = {duel.id: duel for duel in result.duels}
    judged: dict[str, set[str]] = {}
    for judgment in result.judgments:
        assert judgment.judge not in duels[judgment.duel_id].contestants
        judged.setdefault(judgment.duel_id, set()).add(judgment.judge)
    for duel_id, judges in judged.items():
        assert judges == set(NAMES) - set(duels[duel_id].contestants)


def test_matches_and_weights_use_the_reputations_at_the_start():
    """Outcomes must not depend on the order in which an iteration's duels are updated."""
    standings = {name: initial_standing(load("preset:sparta-paper").reputation) for name in NAMES}
    standings["bob"] = replace(standings["bob"], value=500.0)
    config, start = iteration(count=12, standings=standings)
    once = run(start, Asked(), config)
    for outcome, duel in zip(once.outcomes, once.duels, strict=True):
        mine = [j for j in once.judgments if j.duel_id == duel.id and j.readable]
        if outcome.status == "decided":
            total = sum(standings[j.judge].value for j in mine)
            expected = sum(standings[j.judge].value * j.score_left for j in mine) / total
            assert outcome.score_left == pytest.approx(expected)


def test_without_reputation_weighs_every_judge_alike():
    standings = {name: initial_standing(load("preset:sparta-paper").reputation) for name in NAMES}
    standings["bob"] = replace(standings["bob"], value=500.0)
    config, start = iteration(count=12, standings=standings)
    config = config.model_copy(update={"without": ["reputation"]})
    result = run(start, Asked(), config)
    for outcome, duel in zip(result.outcomes, result.duels, strict=True):
        mine = [j for j in result.judgments if j.duel_id == duel.id and j.readable]
        if outcome.status == "decided":
            assert outcome.score_left == pytest.approx(sum(j.score_left for j in mine) / len(mine))


def test_without_match_making_everybody_is_drawn_at_random():
    config, start = iteration(count=12)
    config = config.model_copy(update={"without": ["match-making"]})
    assert {duel.matched for duel in run(start, Asked(), config).duels} == {"random"}


def test_identical_responses_are_a_tie_that_no_judge_is_asked_about():
    script = {"sampling": [{"when": '"score"', "reply": '{"score": 5}'},
                           {"when": ".", "reply": "Seven."}]}  # fmt: skip
    config, start = iteration()
    result = run(start, Asked(script), config)
    assert {outcome.status for outcome in result.outcomes} == {"tie"}
    assert result.judgments == ()
    assert {pair.drop for pair in result.pairs} == {"identical"}


def test_an_empty_response_is_never_chosen():
    script = {"sampling": [{"when": '"score"', "reply": '{"score": 5}'},
                           {"when": ".", "member": "ada", "reply": "  "},
                           {"when": ".", "reply": "Seven."}]}  # fmt: skip
    config, start = iteration(count=12)
    result = run(start, Asked(script), config)
    mine = [p for d, p in zip(result.duels, result.pairs, strict=True) if "ada" in d.contestants]
    assert mine
    assert {pair.drop for pair in mine} == {"empty"}


def test_pure_judges_never_contest_and_frozen_members_do():
    config, start = iteration(count=12)
    roles = {"ada": ("judge",), "bob": ("contest", "judge"), "cora": ("contest",)}
    members = tuple(replace(m, roles=roles.get(m.name, m.roles)) for m in start.members)
    result = run(replace(start, members=members), Asked(), config)
    assert all("ada" not in duel.contestants for duel in result.duels)
    assert "cora" not in {judgment.judge for judgment in result.judgments}
    assert any("bob" in duel.contestants for duel in result.duels)


def test_per_duel_asks_so_many_judges_and_the_same_ones_again():
    config, start = iteration(count=12)
    config = config.model_copy(update={"judge": config.judge.model_copy(update={"per_duel": 1})})
    one, two = (run(start, Asked(), config) for _ in range(2))
    judged = len({judgment.duel_id for judgment in one.judgments})
    assert len(one.judgments) == judged > 0
    assert one == two
