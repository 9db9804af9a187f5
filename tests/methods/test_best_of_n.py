"""Best of n: a reward model, a member or a council chooses among one member's answers."""

from __future__ import annotations

import pytest

from phalanx.errors import ConfigError
from phalanx.types import Sampling
from tests.methods.answering import NAMES, as_text, ids, member, question, reach, real_run
from tests.methods.rivals import golden

SCRIPT = {
    "sampling": [
        {"when": r"response A \w+>>>\nA longer", "purpose": "judge", "reply": "[[A]]"},
        {"when": r"response B \w+>>>\nA longer", "purpose": "judge", "reply": "[[B]]"},
        {"when": ".", "purpose": "judge", "reply": "[[C]]"},
        {"when": "Say", "reply": ["A tale.", "A longer tale.", "A poem.", "<think>So</think>Ode."]},
        {"when": "lost", "fail": {"kind": "timeout", "message": "slow"}},
        {"when": "alike", "reply": "The same."},
    ],
    "likelihood": [
        {"when": "Say", "member": "bob", "logprob_per_token": [-3.0, -2.0, -1.0]},
        {"when": ".", "logprob_per_token": [-1.5, -0.5]},
    ],
    "reward": [
        {"when": "longer", "reward": 2.5},
        {"when": ".", "reward": [0.5, 1.0]},
    ],
}  # fmt: skip
QUESTIONS = [question(text, "") for text in ("Say it.", "I am lost.", "All alike?")]
SETTINGS = {"judge": {"protocol": "likelihood"}, "best_of_n": {"samples": 5}}
POOL = [*map(member, NAMES), member("rm", roles=("judge",))]


def reach_n(settings=SETTINGS, questions=QUESTIONS, **more):
    return reach("best_of_n", settings, SCRIPT, questions, **more)


def test_golden():
    asked, found = reach_n()
    golden("best_of_n", as_text(asked, found))


def test_the_best_member_answers_and_all_other_judges_have_a_voice():
    asked, (one, lost, alike) = reach_n(best="cora")
    assert asked.phases[0] == "evaluate answer"
    assert {r.member.name for r in asked.requests if r.purpose == "answer"} == {"cora"}
    assert {r.member.name for r in asked.requests if r.purpose == "judge"} == {"ada", "bob", "dan"}
    assert (one.writer, one.counts["voices"], one.counts["silent"]) == ("cora", 3, 0)
    assert (lost.reason, lost.counts) == (
        "timeout",
        {"answers": 5, "failed": 5, "voices": 0, "silent": 0, "drawn": 0},
    )
    assert alike.response.text == "The same."  # nobody is asked which of the same is best
    assert alike.counts["voices"] == 0


def test_a_reward_model_chooses_by_its_scores():
    settings = {"judge": {"protocol": "reward"}, "best_of_n": {"samples": 8, "judge": "rm"}}
    asked, (one, *_) = reach_n(settings, QUESTIONS[:1], members=POOL)
    assert {r.want.kind for r in asked.requests if r.purpose == "judge"} == {"reward"}
    assert one.response.text == "A longer tale."
    assert one.counts["voices"] == 1


def test_a_member_that_compares_sees_every_pair_in_both_orders():
    settings = {"judge": {"protocol": "pairwise"}, "best_of_n": {"samples": 8, "judge": "bob"}}
    asked, (one, *_) = reach_n(settings, QUESTIONS[:1])
    texts = {line.rpartition("-> ")[2] for line in asked.lines if " | answer | " in line}
    pairs = len(texts) * (len(texts) - 1) // 2
    assert sum(r.purpose == "judge" for r in asked.requests) == 2 * pairs
    assert one.response.text == "A longer tale."


def test_nobody_judges_an_answer_of_its_own():
    named = {**SETTINGS, "best_of_n": {"judge": "ada"}}
    with pytest.raises(ConfigError, match="nobody can choose among the answers of ada"):
        reach_n(named)
    with pytest.raises(ConfigError, match="nobody can choose among the answers of ada"):
        reach_n(members=[member("ada")])


def test_verdicts_that_cannot_be_read_are_a_reason():
    script = {**SCRIPT, "likelihood": [{"when": ".", "fail": {"kind": "engine", "message": "no"}}]}
    _, (one,) = reach("best_of_n", SETTINGS, script, QUESTIONS[:1])
    assert (one.reason, one.counts["silent"]) == ("no verdict", 3)


def test_one_answer_needs_no_choice():
    asked, (one, *_) = reach_n({**SETTINGS, "best_of_n": {"samples": 1}}, QUESTIONS[:1])
    assert len(asked.requests) == 1
    assert one.response is not None


def test_answers_are_no_longer_than_members_answers_may_be():
    asked, _ = reach_n(want=Sampling(max_new_tokens=9))
    answers = [request for request in asked.requests if request.purpose == "answer"]
    assert {request.want.max_new_tokens for request in answers} == {9}


def test_asked_again_it_is_the_same():
    first, found = reach_n()
    again, same = reach_n()
    assert (ids(first), found) == (ids(again), same)


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    settings = {"member": "ada", "samples": 3, "sample": {"max_new_tokens": 4}}
    judge = {"protocol": "likelihood"}
    rows, facts = real_run(tmp_path, "best_of_n", best_of_n=settings, judge=judge)
    assert set(rows) == {"ada", "bob", "cora", "best_of_n"}
    assert '"answers":3' in facts["together:0:best_of_n"]
