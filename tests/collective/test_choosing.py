"""One voice each: every judge names its best, and nobody judges an answer of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.collective.choosing import by_voices, candidate
from phalanx.collective.ranking import Candidate
from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.types import Failure, Instruction, Member, Response, Reward
from tests.collective.test_mixture import Asked

QUESTION = Instruction("i1", "Name a fruit.")
PLACE = (7, "best")
JUDGES = [Member(name, "b", engine="scripted") for name in ("bob", "cora", "dan")]
CONFIG = Config.model_validate({"judge": {"protocol": "reward"}})


def answers(*texts, name="ada"):
    return [Candidate(f"{name}#{at}", text) for at, text in enumerate(texts, start=1)]


def asked_for(rewards):
    """An ``ask`` by (judge, text) -> reward; a Failure where that is one."""
    asked = Asked()

    def reply(request):
        assert isinstance(request.want, Reward)
        value = rewards[request.member.name].get(request.want.response)
        if value is None:
            return Response(request.id, error=Failure("engine", "broken"))
        return Response(request.id, reward=value)

    asked._reply = reply
    return asked


def held(rewards, candidates=None, judges=("bob", "cora", "dan"), **changes):
    asked = asked_for(rewards)
    candidates = answers("A", "B", "C") if candidates is None else candidates
    config = CONFIG.model_copy(update=changes)
    (found,), _ = by_voices([(QUESTION, candidates)], judges, JUDGES, asked, config, place=PLACE)
    return asked, found


LIKES_A, LIKES_B = {"A": 3.0, "B": 1.0, "C": 0.0}, {"A": 1.0, "B": 9.0, "C": 0.0}


def test_every_judge_has_one_voice_however_strongly_it_feels():
    _, found = held({"bob": LIKES_A, "cora": LIKES_A, "dan": {"A": -99.0, "B": 99.0, "C": 0.0}})
    assert (found.at, found.counts) == (0, {"voices": 3, "silent": 0, "drawn": 0})


def test_who_likes_several_equally_well_shares_its_voice():
    level = {"A": 2.0, "B": 2.0, "C": 0.0}
    _, found = held({"bob": level, "cora": LIKES_B, "dan": level})
    assert (found.at, found.reason) == (1, "")


def test_of_equals_one_is_drawn_the_same_every_time():
    rewards = {"bob": LIKES_A, "cora": LIKES_B}
    found = [held(rewards, judges=("bob", "cora"))[1] for _ in range(3)]
    assert found[0].reason == "drawn"
    assert found[0].at in (0, 1)
    assert found == found[:1] * 3


def test_a_judge_that_says_nothing_readable_is_silent_and_counted():
    _, found = held({"bob": {}, "cora": LIKES_B, "dan": LIKES_B})
    assert (found.at, found.num_voices, found.num_silent) == (1, 2, 1)
    _, found = held({"bob": {}, "cora": LIKES_B, "dan": {}})  # judge.quorum is a half
    assert (found.at, found.reason, found.num_silent) == (None, "no verdict", 2)
    _, found = held({"bob": {}, "cora": {}, "dan": {}})
    assert (found.at, found.reason, found.num_silent) == (None, "no verdict", 3)


def test_a_judge_has_no_voice_where_one_of_its_scores_is_missing():
    """It would have chosen A of A and C, and may like B best."""
    partly = {"A": 3.0, "C": 0.0}
    _, found = held({"bob": partly, "cora": LIKES_B, "dan": LIKES_B})
    assert (found.at, found.num_voices, found.num_silent) == (1, 2, 1)
    _, found = held({"bob": partly}, judges=("bob",))
    assert (found.at, found.reason, found.num_silent) == (None, "no verdict", 1)


def test_nobody_judges_an_answer_of_its_own():
    asked, found = held({"cora": LIKES_B, "dan": LIKES_B}, answers("A", "B", name="bob"))
    assert {request.member.name for requests in asked.requests for request in requests} == {
        "cora",
        "dan",
    }
    assert found.at == 1


def test_one_text_needs_no_judge_and_no_text_is_a_reason():
    asked, found = held(dict.fromkeys(("bob", "cora", "dan"), LIKES_A), answers("A", " A", ""))
    assert (found.at, asked.requests) == (0, [])
    failed = [Candidate("ada#1", "", failed="timeout"), Candidate("ada#2", "")]
    asked, found = held({}, failed)
    assert (found.at, found.reason, asked.requests) == (None, "timeout", [])


def test_an_unknown_judge_is_refused():
    with pytest.raises(ConfigError, match="no member is named eve"):
        held({}, judges=("eve",))


def test_an_answer_is_shown_without_its_reasoning():
    assert candidate("ada#1", Response("r", text="<think>hm</think>\nA")).text == "A"
    failed = candidate("ada#1", Response("r", error=Failure("timeout", "slow")))
    assert (failed.text, failed.failed) == ("", "timeout")


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["A", "B", "C", ""]), min_size=1, max_size=4),
    st.lists(st.sampled_from([None, 0.0, 1.0, 2.0]), min_size=9, max_size=9),
)
def test_voices_and_silent_judges_are_all_that_were_asked(texts, values):
    rewards = {
        judge.name: dict(zip("ABC", values[at * 3 : at * 3 + 3], strict=True))
        for at, judge in enumerate(JUDGES)
    }
    _, found = held(rewards, answers(*texts))
    options = len({text for text in texts if text})
    if options > 1:
        assert found.num_voices + found.num_silent == 3
        assert (found.at is None) == (found.num_voices < 2)
    else:
        assert (found.num_voices, found.num_silent) == (0, 0)
        assert (found.at is None) == (options == 0)
    if found.at is not None:
        assert texts[found.at]
