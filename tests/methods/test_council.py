"""The council as a method: who answers, who votes, and whose answer it is."""

from __future__ import annotations

import pytest

from phalanx.errors import ConfigError
from phalanx.types import Sampling
from tests.methods.answering import as_text, ids, member, question, reach, real_run
from tests.methods.rivals import golden

SCRIPT = {
    "sampling": [
        {"when": r"\n1\.\n<<<answer \w+>>>\nA song", "purpose": "vote", "reply": "[[1]]"},
        {"when": r"\n2\.\n<<<answer \w+>>>\nA song", "purpose": "vote", "reply": "[[2]]"},
        {"when": r"\n3\.\n<<<answer \w+>>>\nA song", "purpose": "vote", "reply": "[[3]]"},
        {"when": "Say", "purpose": "vote", "reply": "[[1]]"},
        {"when": ".", "purpose": "vote", "reply": "They are all good."},
        {"when": "Say", "member": "ada", "reply": "A poem."},
        {"when": "Say", "member": "bob", "reply": "A song."},
        {"when": "Say", "member": "cora", "fail": {"kind": "engine", "message": "broken"}},
        {"when": "Say", "reply": "<think>A tale</think>A tale."},
        {"when": "lost", "fail": {"kind": "timeout", "message": "slow"}},
        {"when": "alike", "reply": "The same."},
        {"when": ".", "reply": ["One.", "Two.", "Three."]},
    ]
}
QUESTIONS = [question(text, "") for text in ("Say it.", "I am lost.", "All alike?")]
SETTINGS = {"council": {"sample": {"temperature": 0.7}}}


def test_golden():
    asked, found = reach("council", SETTINGS, SCRIPT, QUESTIONS)
    golden("council", as_text(asked, found))


def test_all_answer_in_one_ask_and_all_vote_in_another():
    asked, (one, lost, alike) = reach("council", {}, SCRIPT, QUESTIONS)
    assert asked.phases == ["evaluate answer", "evaluate vote"]
    assert (one.response.text, one.writer) == ("A song.", "bob")
    # bob sees a poem and a tale, and names the first of each order.
    assert one.counts == {
        "answers": 4, "failed": 1, "votes": 3, "inconsistent": 1, "unreadable": 0, "drawn": 0,
    }  # fmt: skip
    assert lost.reason == "failed: no answer to vote on (timeout)"
    assert (alike.response.text, alike.writer, alike.counts["votes"]) == ("The same.", "ada", 0)


def test_votes_that_cannot_be_read_are_a_reason_and_counted():
    script = {"sampling": [{"when": ".", "purpose": "vote", "reply": "All good."},
                           {"when": ".", "member": "ada", "reply": "One."},
                           {"when": ".", "member": "bob", "reply": "Two."},
                           {"when": ".", "reply": "Three."}]}  # fmt: skip
    _, (one,) = reach("council", {}, script, [question("What?", "")])
    assert one.reason.startswith("no vote: of 4 voters 4 could not be read")
    assert (one.counts["unreadable"], one.counts["votes"]) == (4, 0)


def test_members_and_voters_are_those_that_are_named():
    settings = {"council": {"members": ["ada", "bob"], "voters": ["dan"]}}
    asked, (one, *_) = reach("council", settings, SCRIPT, QUESTIONS[:1])
    assert [r.member.name for r in asked.requests if r.purpose == "answer"] == ["ada", "bob"]
    assert {r.member.name for r in asked.requests if r.purpose == "vote"} == {"dan"}
    assert one.writer == "bob"


def test_by_default_contestants_answer_and_judges_vote_but_no_reward_models():
    members = [
        member("ada", roles=("contest",)),
        member("bob", roles=("contest",)),
        member("judy", roles=("judge",)),
    ]
    asked, _ = reach("council", {}, SCRIPT, QUESTIONS[:1], members=members)
    assert [r.member.name for r in asked.requests if r.purpose == "answer"] == ["ada", "bob"]
    assert {r.member.name for r in asked.requests if r.purpose == "vote"} == {"judy"}


def test_answers_that_can_be_compared_are_voted_on_just_the_same():
    _, (one, *_) = reach("council", {}, SCRIPT, [question("Say it.", "exact")])
    assert one.writer == "bob"


def test_answers_are_no_longer_than_members_answers_may_be_and_votes_by_their_own_settings():
    want = Sampling(0.0, 1.0, 0, 9)
    asked, _ = reach("council", {}, SCRIPT, QUESTIONS, want=want)
    longest = {request.purpose: request.want.max_new_tokens for request in asked.requests}
    assert longest == {"answer": 9, "vote": 512}


def test_a_name_that_is_nobodys_is_refused():
    for key in ("members", "voters"):
        with pytest.raises(ConfigError, match=f"council.{key}: no member is named eve"):
            reach("council", {"council": {key: ["eve"]}}, SCRIPT, QUESTIONS)


def test_asked_again_it_is_the_same():
    first, found = reach("council", SETTINGS, SCRIPT, QUESTIONS)
    again, same = reach("council", SETTINGS, SCRIPT, QUESTIONS)
    assert (ids(first), found) == (ids(again), same)


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    settings = {"members": ["ada", "bob"], "voters": ["ada", "cora"],
                "sample": {"max_new_tokens": 4}, "votes": {"max_new_tokens": 4}}  # fmt: skip
    rows, facts = real_run(tmp_path, "council", council=settings)
    assert set(rows) == {"ada", "bob", "cora", "council"}
    assert '"answers":2' in facts["together:0:council"]
