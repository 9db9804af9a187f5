"""Missing is missing; every rule against hand-computed values and invariances."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.aggregation import (
    aggregate,
    estimate_reliability,
    one_coin_reliability,
    outcome,
    spreads,
)
from phalanx.config.schema import AggregateSettings
from phalanx.types import Duel, Instruction, Judgment

DUEL = Duel("d", Instruction("i", "?"), "ada", "bob")
REPUTATIONS = {"j1": 100.0, "j2": 300.0, "j3": 50.0, "j4": 100.0}


def judgment(judge: str, left: float | None, right: float | None, duel: str = "d") -> Judgment:
    return Judgment(duel, judge, "rubric", left, right)


def judged(judgments, *, asked=None, quorum=0.5, rule="mean", standardise=False, reliability=None):
    return outcome(
        DUEL,
        judgments,
        num_asked=len(judgments) if asked is None else asked,
        settings=AggregateSettings(rule=rule, standardise=standardise),
        quorum=quorum,
        reputations=REPUTATIONS,
        reliability=reliability,
        spread=spreads(judgments),
    )


def swap(item: Judgment) -> Judgment:
    return judgment(item.judge, item.score_right, item.score_left)


def test_outside_cases(cases_dir):
    lines = (cases_dir / "aggregation.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        scores = [math.nan if score == "nan" else score for score in case["scores"]]
        result = aggregate(scores, case["weights"])
        assert result.num_missing == case["missing"] if "missing" in case else True, case
        expected = None if case["expected"] == "invalid" else case["expected"]
        assert result.value == (expected if expected is None else pytest.approx(expected)), case


@pytest.mark.parametrize(
    ("scores", "weights", "value", "missing"),
    [
        ([8, 6], [1, 1], 7, 0),
        ([8, 6], [3, 1], 7.5, 0),
        ([8, None], [1, 5], 8, 1),
        ([8, math.nan], [1, 5], 8, 1),
        ([None, None], [1, 1], None, 2),
        ([], [], None, 0),
    ],
)
def test_aggregate_leaves_out_what_is_missing(scores, weights, value, missing):
    result = aggregate(scores, weights)
    assert (result.value, result.num_missing) == (value, missing)


@pytest.mark.parametrize(
    ("scores", "weights", "message"),
    [
        ([1], [1, 2], "1 scores but 2 weights"),
        ([1], [-1], "at least 0"),
        ([1], [math.nan], "finite"),
        ([1, 2], [0, 0], "are 0"),
    ],
)
def test_aggregate_refuses_weights_that_mean_nothing(scores, weights, message):
    with pytest.raises(ValueError, match=message):
        aggregate(scores, weights)


def test_an_unreadable_judgment_counts_as_nothing_not_as_a_tie():
    """The released code books 5/5 with the judge's full weight."""
    readable = [judgment("j1", 8, 2), judgment("j3", 6, 5)]
    with_broken = [*readable, judgment("j2", None, None)]
    plain, broken = judged(readable), judged(with_broken)
    assert (broken.score_left, broken.score_right) == (plain.score_left, plain.score_right)
    assert (broken.num_judges, broken.num_missing) == (2, 1)


def test_half_a_judgment_is_no_judgment():
    result = judged([judgment("j1", 8, None), judgment("j3", 4, 6)])
    assert (result.score_left, result.score_right, result.num_missing) == (4, 6, 1)


def test_quorum():
    one_of_four = [judgment("j1", 8, 2)]
    assert judged(one_of_four, asked=4).status == "no_quorum"
    assert "1 of 4" in judged(one_of_four, asked=4).reason
    assert judged([*one_of_four, judgment("j3", 7, 2)], asked=4).status == "decided"
    assert judged([], asked=0).status == "no_quorum"


def test_reputation_weights_are_the_papers():
    result = judged([judgment("j1", 4, 8), judgment("j2", 9, 3)], rule="reputation")
    assert result.score_left == pytest.approx((100 * 4 + 300 * 9) / 400)
    assert result.score_right == pytest.approx((100 * 8 + 300 * 3) / 400)
    assert result.winner == "left"
    assert result.agreement == pytest.approx(0.75)


def test_an_exact_tie_stays_one_after_weighting():
    """Judges who all say tie must not become a coin flip in the last bits of a weighted mean."""
    level = [judgment("j1", 7.1, 7.1), judgment("j2", 3.3, 3.3), judgment("j3", 8.7, 8.7)]
    for rule in ("mean", "reputation", "median"):
        assert judged(level, rule=rule).status == "tie"


def test_median_of_differences():
    found = judged(
        [judgment("j1", 8, 2), judgment("j2", 5, 6), judgment("j3", 7, 5)], rule="median"
    )
    assert found.score_left - found.score_right == pytest.approx(2)


def test_standardising_stops_a_loud_judge():
    loud = [judgment("j1", 10, 1), judgment("j2", 5, 5.5), judgment("j3", 5, 5.4)]
    assert judged(loud).winner == "left"
    assert judged(loud, standardise=True).winner == "right"


def test_spreads_by_hand():
    found = spreads([judgment("j1", 8, 5), judgment("j1", 1, 5), judgment("j2", 3, 3)])
    assert found == {"j1": pytest.approx(math.sqrt((9 + 16) / 2)), "j2": 1.0}


SCORES = st.one_of(st.none(), st.integers(1, 10).map(float))
PANELS = st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=4)
RULES = st.sampled_from(["mean", "reputation", "median"])


@given(PANELS, RULES, st.booleans())
def test_swapping_the_sides_swaps_the_outcome(panel, rule, standardise):
    mine = [judgment(f"j{n + 1}", left, right) for n, (left, right) in enumerate(panel)]
    one = judged(mine, rule=rule, standardise=standardise)
    other = judged([swap(item) for item in mine], rule=rule, standardise=standardise)
    assert one.status == other.status
    if one.score_left is not None:
        assert one.score_left == pytest.approx(other.score_right)
        assert one.margin == pytest.approx(other.margin)
    if one.winner:
        assert {one.winner, other.winner} == {"left", "right"}


@given(PANELS, RULES)
def test_dropping_an_unreadable_judgment_changes_nothing_but_the_count(panel, rule):
    mine = [judgment(f"j{n + 1}", left, right) for n, (left, right) in enumerate(panel)]
    readable = [item for item in mine if item.readable]
    all_, kept = judged(mine, rule=rule, quorum=0.0), judged(readable, rule=rule, quorum=0.0)
    assert (all_.status, all_.winner, all_.score_left) == (
        kept.status,
        kept.winner,
        kept.score_left,
    )


def simulated_votes(seed: int, accuracies: list[float], duels: int, missing: float = 0.0):
    rng = np.random.default_rng(seed)
    truth_D = rng.choice([-1, 1], size=duels)
    right_DJ = rng.random((duels, len(accuracies))) < np.array(accuracies)
    votes_DJ = np.where(right_DJ, truth_D[:, None], -truth_D[:, None])
    votes_DJ[rng.random(votes_DJ.shape) < missing] = 0
    return truth_D, votes_DJ


def test_one_coin_finds_who_is_reliable_and_beats_the_majority():
    accuracies = [0.95, 0.9, 0.55, 0.5, 0.52]
    truth_D, votes_DJ = simulated_votes(3, accuracies, 400, missing=0.1)
    reliability_J, prob_left_D = one_coin_reliability(votes_DJ)
    assert np.allclose(reliability_J, accuracies, atol=0.08)
    em = np.mean(np.where(prob_left_D > 0.5, 1, -1) == truth_D)
    majority = np.mean(np.sign(votes_DJ.sum(axis=1)) == truth_D)
    assert em > majority + 0.05


def test_one_coin_agrees_with_crowd_kit():
    crowdkit = pytest.importorskip("crowdkit.aggregation")
    pandas = pytest.importorskip("pandas")
    _, votes_DJ = simulated_votes(5, [0.9, 0.8, 0.7, 0.6], 300)
    rows = [
        {"task": duel, "worker": judge, "label": int(votes_DJ[duel, judge])}
        for duel in range(300)
        for judge in range(4)
    ]
    theirs = crowdkit.OneCoinDawidSkene(n_iter=200, tol=1e-9).fit(pandas.DataFrame(rows))
    skills = theirs.skills_.reindex(range(4)).to_numpy()
    ours, _ = one_coin_reliability(votes_DJ, prior=(1e-6, 1e-6))
    assert np.allclose(ours, skills, atol=0.01)


def test_reliability_of_a_judge_without_votes_is_the_prior_and_never_certain():
    found = estimate_reliability([DUEL], [judgment("j1", 8, 2)], ["j1", "j2"])
    assert found["j2"] == pytest.approx(0.7)
    assert 0 < found["j1"] < 1


def test_judges_known_to_be_no_better_than_a_coin_decide_nothing():
    mine = [judgment("j1", 8, 2), judgment("j2", 2, 8)]
    assert judged(mine, rule="one_coin", reliability={"j1": 0.4, "j2": 0.5}).status == "no_quorum"
    one = judged(mine, rule="one_coin", reliability={"j1": 0.9, "j2": 0.6})
    assert one.winner == "left"


VOTES = st.integers(1, 8).flatmap(
    lambda judges: st.lists(
        st.lists(st.sampled_from([-1, 0, 1]), min_size=judges, max_size=judges),
        min_size=1,
        max_size=25,
    )
)


@given(VOTES, st.data())
def test_known_duels_are_truth_and_where_all_are_known_reliability_is_counted(rows, data):
    votes_DJ = np.array(rows, dtype=float)
    known_D = np.array(data.draw(st.lists(
        st.sampled_from([-1, 1]), min_size=len(rows), max_size=len(rows))))  # fmt: skip
    reliability_J, prob_left_D = one_coin_reliability(votes_DJ, known_D=known_D)
    assert prob_left_D.tolist() == (known_D > 0).tolist()
    right_J = (votes_DJ * known_D[:, None] > 0).sum(axis=0)
    given_J = (votes_DJ != 0).sum(axis=0)
    assert reliability_J == pytest.approx((right_J + 1.4) / (given_J + 2))


@given(VOTES)
def test_without_a_known_duel_nothing_changes(rows):
    votes_DJ = np.array(rows, dtype=float)
    plain = one_coin_reliability(votes_DJ)
    anchored = one_coin_reliability(votes_DJ, known_D=np.zeros(len(rows)))
    for ours, theirs in zip(anchored, plain, strict=True):
        assert ours.tolist() == theirs.tolist()


@given(VOTES, st.data())
def test_left_and_right_mean_nothing_to_known_duels(rows, data):
    """Swapping the sides of every duel, known ones too, swaps what is left and changes no judge."""
    votes_DJ = np.array(rows, dtype=float)
    known_D = np.array(data.draw(st.lists(
        st.sampled_from([-1, 0, 1]), min_size=len(rows), max_size=len(rows))))  # fmt: skip
    reliability_J, prob_left_D = one_coin_reliability(votes_DJ, known_D=known_D)
    turned_J, turned_D = one_coin_reliability(-votes_DJ, known_D=-known_D)
    assert turned_J == pytest.approx(reliability_J, abs=1e-6)
    assert turned_D == pytest.approx(1 - prob_left_D, abs=1e-6)


def test_anchors_see_through_judges_who_err_together():
    """Three of five judges say the same wrong thing; twenty duels that people decided tell."""
    rng = np.random.default_rng(5)
    truth_D = rng.choice([-1, 1], 200)
    together_D = np.where(rng.random(200) < 0.35, truth_D, -truth_D)
    right = [np.where(rng.random(200) < 0.85, truth_D, -truth_D) for _ in range(2)]
    signs = dict(zip("abcde", [together_D] * 3 + right, strict=True))
    duels = [Duel(f"d{n}", DUEL.instruction, "x", "y") for n in range(200)]
    every = [
        judgment(judge, float(sign > 0), float(sign < 0), f"d{n}")
        for judge, sign_D in signs.items()
        for n, sign in enumerate(sign_D)
    ]
    earlier = [one for one in every if int(one.duel_id[1:]) < 20]
    now = [one for one in every if int(one.duel_id[1:]) >= 20]
    anchors = [(one, "left" if truth_D[int(one.duel_id[1:])] > 0 else "right") for one in earlier]
    misled = estimate_reliability(duels[20:], now, list("abcde"))
    assert min(misled[name] for name in "abc") > max(misled[name] for name in "de")
    seen = estimate_reliability(duels[20:], now, list("abcdef"), [*anchors, (
        judgment("gone", 1, 0, "d3"), "left")])  # fmt: skip
    assert seen.keys() == set("abcdef")
    assert max(seen[name] for name in "abc") < 0.5 < min(seen[name] for name in "de")
