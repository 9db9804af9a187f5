"""Votes over final answers: what counts as one answer, and whose sum is largest."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.voting import as_first_written, shared_vote, tally, winning_answer

ANSWERS = st.dictionaries(st.integers(0, 9), st.sampled_from(["", "1/2", "0.5", "3", "3.0", "4"]))


def same(one: str, other: str) -> bool:
    return Fraction(one) == Fraction(other)


@given(ANSWERS)
def test_each_answer_is_written_as_the_first_that_is_the_same(answers):
    found = as_first_written(answers, same)
    assert list(found) == list(answers)
    given_answers = [answer for answer in answers.values() if answer]
    for voter, answer in answers.items():
        first = next((one for one in given_answers if answer and same(one, answer)), "")
        assert found[voter] == first


@given(ANSWERS)
def test_sums_are_those_of_the_votes(answers):
    weights = {voter: voter + 0.5 for voter in answers}
    sums = tally(answers, weights)
    assert sum(sums.values()) == sum(weights[v] for v, answer in answers.items() if answer)
    assert "" not in sums


@given(ANSWERS)
def test_the_winner_has_the_largest_sum(answers):
    weights = dict.fromkeys(answers, 1.0)
    won = winning_answer(answers, weights, same)
    sums = tally(as_first_written(answers, same), weights)
    assert won == "" if not sums else sums[won] == max(sums.values())


def test_nobody_without_an_answer_needs_a_weight():
    assert winning_answer({"ada": "", "bob": "4"}, {"bob": 1}) == "4"
    assert winning_answer({"ada": ""}, {}) == ""
    assert tally({"ada": ""}, {}) == {}


def test_equal_sums_go_to_the_heaviest_voter_then_to_the_first():
    answers = {"ada": "1", "bob": "2", "cora": "1"}
    assert winning_answer(answers, {"ada": 1, "bob": 2, "cora": 1}) == "2"
    assert winning_answer({"ada": "1", "bob": "2"}, {"ada": 1, "bob": 1}) == "1"


@given(
    st.dictionaries(st.integers(0, 6), st.sampled_from(["", "1/2", "0.5", "3", "4"]), min_size=1)
)
def test_equally_frequent_answers_share_whoever_is_named_first(answers):
    right = {"1/2": 1, "0.5": 1, "3": 0, "4": 0, "": 0}
    rows = {str(voter): {"i": (answer, right[answer])} for voter, answer in answers.items()}
    found = shared_vote(rows, lambda _: same)["i"]
    assert shared_vote(dict(reversed(rows.items())), lambda _: same)["i"] == found
    counts = Counter({"0.5": "1/2"}.get(answer, answer) for answer in answers.values() if answer)
    most = [answer for answer, count in counts.items() if count == max(counts.values())]
    assert found == (sum(right[answer] for answer in most) / len(most) if most else 0.0)
