"""Debate as a method: the majority of the last round, a summariser, or the council."""

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
        {"when": "apples", "member": "cora", "reply": "It is 8."},
        {"when": "apples", "reply": "So 7."},
        {"when": "Say", "member": "ada", "reply": "A poem."},
        {"when": "Say", "member": "bob", "reply": "A song."},
        {"when": "Say", "member": "cora", "fail": {"kind": "engine", "message": "broken"}},
        {"when": "Say", "reply": "A tale."},
        {"when": "broken", "fail": {"kind": "engine", "message": "broken"}},
        {"when": "Answers of the others.*A song", "member": "ada", "reply": "A longer poem."},
        {"when": "Answers of the others.*A ", "reply": "A song."},
        {"when": r"Answers of the others.*7.*7", "reply": "We agree: 7."},
        {"when": "Answers of the others", "reply": "I think 6."},
        {"when": "even", "purpose": "answer", "member": "ada", "reply": "2"},
        {"when": "even", "purpose": "answer", "member": "bob", "reply": "4"},
        {"when": "even", "purpose": "answer", "reply": "None."},
    ]
}
QUESTIONS = [question("How many apples?"), question("How many broken?"), question("Say it.", "")]
TWO = {"debate": {"rounds": 2}}


def test_golden():
    asked, found = reach("debate", TWO, SCRIPT, QUESTIONS)
    golden("debate", as_text(asked, found))


def test_the_majority_of_the_last_round_counts_and_its_first_debater_says_it():
    asked, (one,) = reach("debate", TWO, SCRIPT, QUESTIONS[:1])
    assert asked.phases == ["evaluate debate 1", "evaluate debate 2"]
    assert (one.response.text, one.writer) == ("We agree: 7.", "ada")
    assert one.counts == {"answers": 8, "failed": 0}


def test_of_equally_frequent_answers_the_first_debater_wins():
    _, (one,) = reach("debate", {"debate": {"rounds": 1}}, SCRIPT, [question("An even number?")])
    assert (one.response.text, one.writer) == ("2", "ada")


def test_debaters_and_their_seats_are_those_that_are_named():
    settings = {"debate": {"rounds": 2, "debaters": ["dan", "dan", "bob"]}}
    asked, (one,) = reach("debate", settings, SCRIPT, QUESTIONS[:1])
    assert [request.member.name for request in asked.requests] == ["dan", "dan", "bob"] * 2
    assert one.writer == "dan"


def test_a_summariser_reads_the_last_round_and_writes_as_wanted():
    script = {"sampling": [{"when": ".", "purpose": "summarise", "reply": "In all: 7."},
                           *SCRIPT["sampling"]]}  # fmt: skip
    settings = {"debate": {"rounds": 2, "summariser": "dan", "debaters": ["ada", "bob", "cora"]}}
    want = Sampling(0.0, 1.0, 0, 9)
    asked, (one, broken, free) = reach("debate", settings, script, QUESTIONS, want=want)
    assert asked.phases[-1] == "evaluate summarise"
    last = [request for request in asked.requests if request.purpose == "summarise"]
    assert [request.member.name for request in last] == ["dan", "dan"]
    assert {request.want for request in last} == {want}
    assert (one.response.text, one.writer, free.writer) == ("In all: 7.", "dan", "dan")
    assert broken.reason.startswith("failed: nobody in round 1")
    assert {r.want.max_new_tokens for r in asked.requests if r.purpose == "answer"} == {512}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"reply": "  "}, "empty: the summariser wrote nothing"),
        ({"reply": "<think>hm"}, "empty: the summariser wrote nothing but reasoning"),
        ({"fail": {"kind": "refused", "message": "no"}}, "failed: refused: no"),
    ],
)
def test_a_summariser_that_says_nothing_is_a_reason(rule, reason):
    script = {"sampling": [{"when": ".", "purpose": "summarise", **rule}, *SCRIPT["sampling"]]}
    settings = {"debate": {"summariser": "dan"}}
    _, (one,) = reach("debate", settings, script, QUESTIONS[:1])
    assert (one.reason, one.writer) == (reason, "dan")


def test_of_free_answers_the_debaters_vote_for_one_and_none_for_its_own():
    asked, (one,) = reach("debate", TWO, SCRIPT, QUESTIONS[2:])
    assert asked.phases[-1] == "evaluate vote"
    assert one.response.text == "A song."
    # cora failed in the first round; bob and dan wrote the same, and read ada's alone: no choice.
    voters = [request.member.name for request in asked.requests if request.purpose == "vote"]
    assert voters == ["cora", "cora"]
    assert one.counts["votes"] == 1


def test_nobody_left_is_a_reason():
    _, (one,) = reach("debate", TWO, SCRIPT, QUESTIONS[1:2])
    assert one.reason == "failed: nobody in round 1 of the debate has a usable answer"
    assert one.counts == {"answers": 4, "failed": 4}


def test_an_answer_that_cannot_be_read_is_no_vote():
    script = {"sampling": [{"when": ".", "reply": "Hard to say."}]}
    _, (one,) = reach("debate", TWO, script, QUESTIONS[:1])
    assert one.reason == "no vote: none of 4 answers has a final answer that can be read"


def test_one_debater_alone_is_asked_once():
    members = [member("ada"), member("judy", roles=("judge",))]
    asked, (one,) = reach("debate", TWO, SCRIPT, QUESTIONS[:1], members=members)
    assert len(asked.requests) == 1
    assert one.response.text == "So 7."


def test_a_name_that_is_nobodys_is_refused():
    with pytest.raises(ConfigError, match="eve"):
        reach("debate", {"debate": {"debaters": ["eve"]}}, SCRIPT, QUESTIONS)


def test_asked_again_it_is_the_same():
    first, found = reach("debate", TWO, SCRIPT, QUESTIONS)
    again, same = reach("debate", TWO, SCRIPT, QUESTIONS)
    assert ids(first) == ids(again)
    assert found == same
    assert len(set(ids(first))) == len(ids(first))


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    settings = {"rounds": 2, "sample": {"max_new_tokens": 4}}
    rows, facts = real_run(tmp_path, "debate", ("ada", "bob"), debate=settings)
    assert set(rows) == {"ada", "bob", "debate"}
    assert '"asked":1' in facts["together:0:debate"]
