"""Win probabilities: from what each kind of judge says, to the mean over a policy's responses."""

from __future__ import annotations

import itertools
import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.collective.ranking import Candidate
from phalanx.collective.win_probabilities import (
    HALF,
    Contested,
    chance_above,
    hear_all,
    judges_for,
    mean_beats,
    over_all,
    ranker_beats,
    sigmoid,
)
from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.types import Instruction, Member
from tests.methods.rivals import Asked

PRIME = Instruction("i1", "Name a prime.")


def members(**engines: str) -> list[Member]:
    return [Member(name, "script:s", engine=engine) for name, engine in engines.items()]


class Engines(Asked):
    """Rewards of a ranker are flagged, as the engine of reward models does."""

    ranker = False

    def __call__(self, phase, requests):
        from dataclasses import replace

        from phalanx.collective.comparing import RANKER

        flags = (RANKER,) if self.ranker else ()
        return [replace(reply, flags=flags) for reply in super().__call__(phase, requests)]


def heard(script, texts, protocol="rubric", judges=("cora",), engine="scripted", ranker=False):
    asked = Engines(script)
    asked.ranker = ranker
    config = Config.model_validate({"judge": {"protocol": protocol}})
    candidates = tuple(Candidate(f"ada#{n}", text) for n, text in enumerate(texts, start=1))
    pool = members(ada="scripted", **dict.fromkeys(judges, engine))
    found = hear_all([Contested(PRIME, candidates, judges)], pool, asked, config, place=(7, 1))
    return found, asked


REWARDS = [
    {"when": "Seven", "reward": 2.0},
    {"when": "Five", "reward": 1.0},
    {"when": ".", "reward": -0.5},
]


def test_a_reward_model_gives_the_sigmoid_of_the_difference():
    found, asked = heard({"reward": REWARDS}, ["Seven", "Five", "Nine"], engine="reward")
    (one,) = found.preferred
    assert one.beats[0][1] == pytest.approx(1 / (1 + math.exp(-1.0)), abs=1e-12)
    assert one.beats[1][0] == pytest.approx(1 - one.beats[0][1], abs=1e-12)
    expected = [
        sum(1 / (1 + math.exp(other - mine)) for other in (2.0, 1.0, -0.5)) / 3
        for mine in (2.0, 1.0, -0.5)
    ]
    assert one.wins == pytest.approx(expected, abs=1e-11)
    # One question whether it is a ranker, and one for each response.
    assert len(asked.requests) == 1 + 3
    assert found.said.metrics["scores.asked"] == 3


def test_a_ranker_is_read_as_the_released_code_reads_it():
    """PairRM's `max_logits`: the mean over all responses, itself included, of l_ij - l_ji."""
    texts, rewards = ["Seven", "Five", "Nine"], [2.0, 1.0, -0.5]
    found, _ = heard({"reward": REWARDS}, texts, engine="reward", ranker=True)
    logits = numpy.subtract.outer(rewards, rewards)  # what the script says of each ordered pair
    strength = (logits - logits.T).mean(axis=-1)
    expected = 1 / (1 + numpy.exp(-numpy.subtract.outer(strength, strength)))
    assert numpy.array(found.preferred[0].beats) == pytest.approx(expected, abs=1e-11)
    assert found.preferred[0].wins == pytest.approx(expected.mean(axis=-1), abs=1e-11)
    assert len(found.said.duels) == 3  # every pair, although reward.ranking may say knockout


def test_a_written_score_says_no_more_than_an_order():
    rules = [
        {"when": "Seven", "reply": '{"score": 9}'},
        {"when": "Five", "reply": '{"score": 9}'},
        {"when": ".", "reply": '{"score": 2}'},
    ]
    found, _ = heard({"sampling": rules}, ["Seven", "Five", "Nine"])
    assert found.preferred[0].beats == ((0.5, 0.5, 1.0), (0.5, 0.5, 1.0), (0.0, 0.0, 0.5))
    assert found.preferred[0].wins == pytest.approx((2 / 3, 2 / 3, 1 / 6))
    assert found.preferred[0].ranked["cora"].scores == (9, 9, 2)


def test_expected_scores_are_compared_as_distributions():
    rules = [
        {"when": "Seven", "weights": {"2": 1, "9": 3}},
        {"when": ".", "weights": {"2": 1, "5": 1}},
    ]
    found, _ = heard({"options": rules}, ["Seven", "Nine"], "expected")
    # 9 is above both; 2 equals 2 and is below 5.
    assert found.preferred[0].beats[0][1] == pytest.approx(3 / 4 + 1 / 4 * 1 / 2 * 1 / 2)


def test_likelihoods_are_compared_token_by_token():
    rules = [{"when": ".", "logprob_per_token": -1.5}]
    found, _ = heard({"likelihood": rules}, ["Seven it is", "Nine"], "likelihood")
    assert found.preferred[0].beats[0][1] == HALF
    assert found.preferred[0].wins == (HALF, HALF)  # compared, and alike: no missing verdict


def test_orders_that_disagree_are_half_a_win():
    rules = [{"when": ".", "reply": "[[A]]"}]
    found, _ = heard({"sampling": rules}, ["Seven", "Nine"], "pairwise")
    assert found.preferred[0].beats[0][1] == HALF
    assert found.said.judgments[0].flipped


def test_what_cannot_be_read_is_missing():
    rules = [{"when": "Nine", "reply": "no idea"}, {"when": ".", "reply": '{"score": 5}'}]
    found, _ = heard({"sampling": rules}, ["Seven", "Five", "Nine"])
    assert found.preferred[0].beats == ((0.5, 0.5, None), (0.5, 0.5, None), (None, None, 0.5))
    assert found.preferred[0].wins == (0.5, 0.5, None)
    assert found.said.metrics["scores.unreadable"] == 1


def test_the_same_text_ties_with_itself_and_meets_no_judge():
    rules = [{"when": "Seven", "reply": '{"score": 9}'}, {"when": ".", "reply": '{"score": 2}'}]
    found, asked = heard({"sampling": rules}, ["Seven", "Nine", " Seven "])
    assert found.preferred[0].wins == pytest.approx((2 / 3, 1 / 6, 2 / 3))
    assert len(asked.requests) == 2
    found, asked = heard({"sampling": rules}, ["Seven", "Seven"])
    assert found.preferred[0].wins == (None, None)
    assert asked.requests == []
    assert found.preferred[0].ranked == {}


def test_failed_and_empty_responses_take_no_part():
    rules = [{"when": "Seven", "reply": '{"score": 9}'}, {"when": ".", "reply": '{"score": 2}'}]
    found, _ = heard({"sampling": rules}, ["Seven", "", "Nine"])
    assert found.preferred[0].wins == (0.75, None, 0.25)


def test_judges_are_averaged_where_enough_of_them_can_be_read():
    rules = [
        {"when": ".", "member": "dan", "reply": "no idea"},
        {"when": "Seven", "member": "cora", "reply": '{"score": 9}'},
        {"when": "Seven", "reply": '{"score": 1}'},
        {"when": ".", "reply": '{"score": 4}'},
    ]
    found, _ = heard({"sampling": rules}, ["Seven", "Nine"], judges=("cora", "dan"))
    assert found.preferred[0].beats[0][1] == 1.0  # one of two is the default quorum
    found, _ = heard({"sampling": rules}, ["Seven", "Nine"], judges=("cora", "dan", "eve"))
    assert found.preferred[0].beats[0][1] == HALF
    found, _ = heard({"sampling": rules}, ["Seven", "Nine"], judges=("cora", "dan", "dan2"))
    assert set(found.preferred[0].ranked) == {"cora", "dan", "dan2"}
    assert mean_beats([((0.5, 1.0), (0.0, 0.5)), ((0.5, None), (None, 0.5))], 0.6)[0][1] is None


def test_nobody_judges_their_own():
    pool = [Member("ada", "b"), Member("bob", "b", roles=("judge",)), Member("cy", "b", roles=())]
    assert judges_for("ada", "", pool) == ("bob",)
    assert judges_for("cy", "", pool) == ("ada", "bob")
    assert judges_for("cy", "ada", pool) == ("ada",)
    with pytest.raises(ConfigError, match="nobody may judge the responses of ada"):
        judges_for("ada", "ada", pool)
    with pytest.raises(ConfigError, match="the judges are: ada"):
        judges_for("ada", "", pool[:1])


def test_who_judges_some_groups_only():
    """Each learner's responses go to the others, in one ask for each judge."""
    rules = [{"when": "Seven", "reply": '{"score": 9}'}, {"when": ".", "reply": '{"score": 2}'}]
    asked = Asked({"sampling": rules})
    pool = members(ada="scripted", bob="scripted")
    groups = [
        Contested(PRIME, (Candidate(f"{name}#1", "Seven"), Candidate(f"{name}#2", "Nine")), other)
        for name, other in (("ada", ("bob",)), ("bob", ("ada",)))
    ]
    found = hear_all(groups, pool, asked, Config(), place=(7, 1))
    assert [set(one.ranked) for one in found.preferred] == [{"bob"}, {"ada"}]
    assert [one.wins for one in found.preferred] == [(0.75, 0.25)] * 2
    assert len(asked.phases) == 2
    assert len({duel.id for duel in found.said.duels}) == 2


def test_an_unknown_judge_is_named():
    with pytest.raises(ConfigError, match="no member is named nemo"):
        hear_all([Contested(PRIME, (), ("nemo",))], [], Asked({}), Config(), place=(1,))


# Properties --------------------------------------------------------------------------------------

PROBABILITIES = st.floats(0, 1)


@st.composite
def matrices(draw, most=5, least=1):
    size = draw(st.integers(least, most))
    beats = [[HALF] * size for _ in range(size)]
    for left, right in itertools.combinations(range(size), 2):
        value = draw(st.none() | PROBABILITIES)
        beats[left][right] = value
        beats[right][left] = None if value is None else 1 - value
    return tuple(map(tuple, beats))


@given(matrices())
def test_complete_matrices_average_to_one_half(beats):
    wins = over_all(beats, [f"text {at}" for at in range(len(beats))], 0.5)
    for win, row in zip(wins, beats, strict=True):
        known, others = len([value for value in row if value is not None]) - 1, len(beats) - 1
        assert (win is None) == (known == 0 or 2 * known < others)
        assert win is None or 0 <= win <= 1
    if all(value is not None for row in beats for value in row) and len(beats) > 1:
        assert sum(wins) / len(wins) == pytest.approx(HALF)


@given(
    st.lists(matrices(3, 3), min_size=1, max_size=4),
    PROBABILITIES,
)
@settings(max_examples=40)
def test_the_mean_of_judges_is_a_matrix_again(each, quorum):
    beats = mean_beats(each, quorum)
    for left, right in itertools.product(range(3), repeat=2):
        value, mirrored = beats[left][right], beats[right][left]
        assert (value is None) == (mirrored is None)
        assert value is None or value + mirrored == pytest.approx(1, abs=1e-9)


def test_one_comparison_of_many_says_too_little():
    beats = [[HALF] + [None] * 4 for _ in range(5)]
    for at, row in enumerate(beats):
        row[0], row[at] = None, HALF
    beats[0][1], beats[1][0] = 1.0, 0.0
    texts = ["Two.", "Three.", "Five.", "Seven.", ""]
    assert over_all(beats, texts, 0.5) == (None,) * 5  # one of three others, the last failed
    assert over_all(beats, texts, 1 / 3) == (0.75, 0.25, None, None, None)


DISTRIBUTIONS = st.dictionaries(
    st.sampled_from([str(n) for n in range(1, 11)]), st.floats(0.01, 1), min_size=1
)


@given(DISTRIBUTIONS, DISTRIBUTIONS)
def test_chances_sum_to_one(left, right):
    chance = chance_above(left, right)
    assert -1e-12 <= chance <= 1 + 1e-12
    assert chance + chance_above(right, left) == pytest.approx(1)
    assert chance_above(left, left) == pytest.approx(HALF)


@given(st.floats(-1e4, 1e4))
def test_the_sigmoid_does_not_overflow(value):
    assert sigmoid(value) + sigmoid(-value) == pytest.approx(1)


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=5))
def test_a_ranker_that_adds_up_keeps_its_order(rewards):
    gaps = {
        (a, b): 2 * (rewards[a] - rewards[b])
        for a, b in itertools.combinations(range(len(rewards)), 2)
    }
    known = ranker_beats(gaps, dict.fromkeys(range(len(rewards)), 1))
    for (left, right), chance in known.items():
        assert (chance > HALF + 1e-9) <= (rewards[left] > rewards[right])
        assert (chance < HALF - 1e-9) <= (rewards[left] < rewards[right])
