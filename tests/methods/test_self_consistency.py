"""Self-consistency: the most frequent final answer of one member's samples."""

from __future__ import annotations

from collections import Counter
from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.voting import first_of_majority
from phalanx.errors import ConfigError
from phalanx.tasks.comparing import reader_of
from phalanx.types import Sampling
from tests.methods.answering import as_text, ids, question, reach, real_run
from tests.methods.rivals import golden

SCRIPT = {
    "sampling": [
        {"when": "apples", "reply": ["So 7.", "That is 7", "It is 8.", "Who knows?"]},
        {"when": "broken", "fail": {"kind": "engine", "message": "broken"}},
        {"when": "silent", "reply": ["<think>7</think>", "None."]},
        {"when": "pears", "reply": "<think>3 or 4</think>There are 4."},
    ]
}
QUESTIONS = [question(f"How many {what}?") for what in ("apples", "broken", "silent", "pears")]
SETTINGS = {"self_consistency": {"samples": 5}}


def test_golden():
    asked, found = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS)
    golden("self_consistency", as_text(asked, found))


def test_the_best_member_answers_every_question_in_one_ask():
    asked, found = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS, best="cora")
    assert asked.phases == ["evaluate answer"]
    assert {request.member.name for request in asked.requests} == {"cora"}
    assert len(set(ids(asked))) == 4 * 5
    assert {one.writer for one in found if one.response} == {"cora"}


def test_a_member_that_is_named_goes_before_the_best():
    settings = {"self_consistency": {"samples": 2, "member": "bob"}}
    asked, _ = reach("self_consistency", settings, SCRIPT, QUESTIONS, best="")
    assert {request.member.name for request in asked.requests} == {"bob"}


def test_the_answer_is_the_first_sample_that_gives_the_most_frequent_one():
    asked, (one, *_) = reach("self_consistency", {"self_consistency": {"samples": 40}}, SCRIPT,
                             QUESTIONS[:1])  # fmt: skip
    said = [line.rpartition(" -> ")[2] for line in asked.lines]
    sevens = [text for text in said if "7" in text]
    assert len(sevens) > len([text for text in said if "8" in text])
    assert one.response.text == sevens[0]


def test_nothing_readable_and_nothing_at_all_are_reasons():
    _, found = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS)
    _, broken, silent, pears = found
    assert broken.reason == "failed: none of 5 answers is usable (engine)"
    assert broken.counts == {"answers": 5, "failed": 5}
    assert silent.reason == "no vote: none of 5 answers has a final answer that can be read"
    assert pears.response.text.endswith("There are 4.")


def test_free_answers_are_refused_before_anybody_is_asked():
    with pytest.raises(ConfigError, match="nothing to vote on"):
        reach("self_consistency", SETTINGS, SCRIPT, [*QUESTIONS, question("Say it", "")])


def test_without_a_best_member_one_has_to_be_named():
    with pytest.raises(ConfigError, match=r"self_consistency\.member names nobody"):
        reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS, best="")


def test_answers_are_no_longer_than_members_answers_may_be():
    short = Sampling(max_new_tokens=9)
    asked, _ = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS, want=short)
    assert {request.want.max_new_tokens for request in asked.requests} == {9}
    assert {request.want.temperature for request in asked.requests} == {0.7}


def test_asked_again_it_is_the_same():
    first, found = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS)
    again, same = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS)
    assert ids(first) == ids(again)
    assert found == same
    other, _ = reach("self_consistency", SETTINGS, SCRIPT, QUESTIONS, place=("evaluate", 8))
    assert not set(ids(first)) & set(ids(other))


def test_one_sample_is_the_member_itself():
    _, found = reach("self_consistency", {"self_consistency": {"samples": 1}}, SCRIPT,
                     [QUESTIONS[3]])  # fmt: skip
    assert found[0].response.text.endswith("There are 4.")


@given(st.lists(st.sampled_from(["1", "2", "3", "none"]), max_size=12))
def test_the_first_of_the_most_frequent_wins(texts):
    read, same = reader_of("number")
    at = first_of_majority(texts, read, same)
    counts = Counter(text for text in texts if text != "none")
    if not counts:
        assert at is None
        return
    most = [text for text in counts if counts[text] == max(counts.values())]
    assert at == min(texts.index(text) for text in most)


@given(st.lists(st.sampled_from(["1", "2", "1.0", "x"]), min_size=1, max_size=9), st.randoms())
def test_a_clear_majority_wins_whatever_the_order(texts, random):
    read = {"1": "1", "1.0": "1", "2": "2", "x": ""}.__getitem__
    counts = Counter(read(text) for text in texts if read(text))
    top = counts.most_common(2)
    shuffled = list(texts)
    random.shuffle(shuffled)
    at = first_of_majority(shuffled, read, eq)
    if len(top) == 1 or (top and top[0][1] > top[1][1]):
        assert read(shuffled[at]) == top[0][0]


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    settings = {"member": "ada", "samples": 3, "sample": {"max_new_tokens": 4}}
    rows, facts = real_run(tmp_path, "self_consistency", self_consistency=settings)
    assert set(rows) == {"ada", "bob", "cora", "self_consistency"}
    assert '"answers":3' in facts["together:0:self_consistency"]
    assert facts["finished"]
