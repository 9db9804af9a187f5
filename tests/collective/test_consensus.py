"""What members agree on, and what a response earns by it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.consensus import advantages, agreed, pseudo_label, self_consistency

ANSWERS = st.lists(st.sampled_from(["", "3", "4", "4.0", "5"]), min_size=1, max_size=6)
POOLS = st.lists(ANSWERS, min_size=1, max_size=4)


def same(one: str, other: str) -> bool:
    return Fraction(one) == Fraction(other)


def pool_of(samples: list[list[str]]) -> dict[str, dict[str, str]]:
    return {f"m{m}": {f"m{m}#{n}": a for n, a in enumerate(s)} for m, s in enumerate(samples)}


@given(POOLS)
def test_the_label_is_the_argmax_of_consistency_times_count(samples):
    """The paper's formula in exact fractions, written down apart from the code."""
    folded = [[str(Fraction(a)) if a else "" for a in answers] for answers in samples]
    sums: Counter[str] = Counter()
    for answers in folded:
        voices = Counter(a for a in answers if a)
        trust = Fraction(max(voices.values(), default=0), len(answers))
        for answer, count in voices.items():
            sums[answer] += trust * count
    found = pseudo_label(pool_of(samples), same)
    voices = Counter(a for answers in folded for a in answers if a)
    if not voices:
        assert found.reason == "no_answer"
    else:
        best = [answer for answer, total in sums.items() if total == max(sums.values())]
        if max(voices[answer] for answer in best) < 2:
            assert (found.answer, found.reason) == ("", "no_majority")
        elif len(best) > 1:
            assert (found.answer, found.reason) == ("", "tie")
        else:
            assert str(Fraction(found.answer)) == best[0]
            assert not found.reason


def test_a_steady_member_outvotes_two_that_guess():
    """Three voices for 7, of members that agree with themselves less, against two for 4."""
    given_answers = {
        "ada": {"a1": "4", "a2": "4"},
        "bob": {"b1": "7", "b2": "8", "b3": "9", "b4": "6"},
        "cora": {"c1": "7", "c2": "1", "c3": "2", "c4": "7"},
    }
    assert pseudo_label(given_answers).answer == "4"  # 2 x 1 against 1/4 + 2 x 1/2
    assert pseudo_label(given_answers, weighing="count").answer == "7"


def test_one_voter_is_no_majority_however_much_it_weighs():
    votes = {"ada": "4", "bob": "5", "cora": "5"}
    assert agreed(votes, {"ada": 3, "bob": 1, "cora": 1}).reason == "no_majority"
    alone = {"ada": {"a1": "4"}, "bob": {"b1": "5", "b2": "5", "b3": "1", "b4": "2", "b5": "3"}}
    assert pseudo_label(alone).reason == "no_majority"  # 1 x 1 against 2 x 2/5


@given(ANSWERS)
def test_agreement_says_an_answer_or_why_there_is_none(answers):
    votes = {f"v{n}": answer for n, answer in enumerate(answers)}
    found = agreed(votes, same=same)
    assert bool(found.answer) != bool(found.reason)
    assert list(found.answers) == list(votes)
    if found.answer:
        supporters = [v for v, a in found.answers.items() if a == found.answer]
        assert len(supporters) >= 2
        assert found.answer in answers


@given(ANSWERS)
def test_self_consistency_is_a_share(answers):
    share = self_consistency(answers, same)
    assert 0 <= share <= 1
    assert (share == 0) == (not any(answers))


def test_self_consistency_of_nothing_is_none():
    assert self_consistency([]) == 0.0


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=0, max_size=9))
def test_advantages_are_those_of_a_group(rewards):
    gains = advantages(rewards)
    assert len(gains) == len(rewards)
    assert math.isclose(sum(gains), 0, abs_tol=1e-9)
    for reward, gain in zip(rewards, gains, strict=True):
        if len(set(rewards)) > 1:
            assert (gain > 0) == (reward == 1.0)
        else:
            assert gain == 0.0


def test_advantages_are_those_of_trl():
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("trl.trainer.utils")
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.25], dtype=torch.float64)
    deviation = utils.nanstd(rewards.view(1, -1), dim=1)
    expected = (rewards - rewards.mean()) / (deviation + 1e-4)
    assert advantages(rewards.tolist()) == pytest.approx(expected.tolist(), rel=1e-6)
