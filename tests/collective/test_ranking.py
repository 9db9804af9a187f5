"""Tournaments of responses: what is best, what is worst, and what it costs to know."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.ranking import (
    Candidate,
    Knockout,
    RoundRobin,
    most_comparisons,
    tournament,
)
from tests.collective.simulated_judges import KINDS, Judge, play, simulate

NOBODY = random.Random(0)


def told(verdicts, count):
    games = RoundRobin(count)
    assert set(verdicts) <= set(games.pairs())
    games.tell({pair: verdicts.get(pair) for pair in games.pairs()})
    return games.placing()


orders = st.integers(2, 9).flatmap(lambda n: st.permutations(range(n)))


@given(orders, st.integers(0, 1000))
def test_with_a_perfect_judge_both_find_the_true_best_and_worst(order, seed):
    judge = Judge([float(value) for value in order], 0.0, NOBODY)
    for kind in KINDS:
        placing, comparisons = play(kind, judge, len(order), random.Random(seed))
        assert (placing.best, placing.worst) == (order.index(max(order)), order.index(min(order)))
        assert placing.reason == ""
        assert comparisons <= most_comparisons(kind, len(order))


@given(orders)
def test_scores_of_a_round_robin_are_wins_and_half_ties(order):
    judge = Judge([float(value) for value in order], 0.0, NOBODY)
    placing, _ = play("round_robin", judge, len(order), NOBODY)
    assert placing.scores == tuple(float(value) for value in order)


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.sampled_from(["left", "right", "tie", None]),
                min_size=n * (n - 1) // 2,
                max_size=n * (n - 1) // 2,
            ),
        )
    ),
    st.integers(0, 50),
)
def test_whatever_the_verdicts_a_pair_is_two_and_its_best_is_never_scored_below(case, seed):
    count, verdicts = case
    known = dict(zip(combinations(range(count), 2), verdicts, strict=True))
    turned = {"left": "right", "right": "left", "tie": "tie", None: None}
    for kind in KINDS:
        games = tournament(kind, count, random.Random(seed))
        rounds = 0
        while pairs := games.pairs():
            rounds += 1
            assert rounds <= count + 2
            assert len(set(map(frozenset, pairs))) == len(pairs)
            games.tell({p: known[p] if p in known else turned[known[p[::-1]]] for p in pairs})
        placing = games.placing()
        assert (placing.best is None) == (placing.worst is None) == bool(placing.reason)
        assert placing.best is None or placing.best != placing.worst
        if kind == "round_robin" and placing.best is not None:
            scores = [score for score in placing.scores if score is not None]
            assert placing.scores[placing.best] == max(scores)
            assert placing.scores[placing.worst] == min(scores)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", range(2, 7))
def test_only_ties_give_no_pair(kind, count):
    games = tournament(kind, count, random.Random(count))
    while pairs := games.pairs():
        games.tell(dict.fromkeys(pairs, "tie"))
    assert (games.placing().best, games.placing().reason) == (None, "tie")


@pytest.mark.parametrize("kind", KINDS)
def test_no_verdict_at_all_is_unscored_and_not_a_tie(kind):
    games = tournament(kind, 4, random.Random(1))
    while pairs := games.pairs():
        games.tell(dict.fromkeys(pairs))
    assert games.placing().reason == "unscored"
    assert games.placing().scores == (None,) * 4


def test_ties_at_the_top_are_broken_by_their_own_meeting():
    # 0 and 1 have two points each; 0 beat 1. 2 and 3 have one each; 3 beat 2.
    placing = told(
        {(0, 1): "left", (0, 2): "right", (0, 3): "left", (1, 2): "left", (1, 3): "left",
         (2, 3): "right"}, 4,
    )  # fmt: skip
    assert placing.scores == (2.0, 2.0, 1.0, 1.0)
    assert (placing.best, placing.worst) == (0, 2)


def test_of_a_circle_at_the_top_the_first_is_taken():
    placing = told(
        {(0, 1): "left", (1, 2): "left", (0, 2): "right", (0, 3): "left", (1, 3): "left",
         (2, 3): "left"}, 4,
    )  # fmt: skip
    assert (placing.best, placing.worst, placing.reason) == (0, 3, "")


def test_where_all_are_level_nothing_is_decided():
    placing = told({(0, 1): "left", (1, 2): "left", (0, 2): "right"}, 3)
    assert (placing.best, placing.worst, placing.reason) == (None, None, "tie")


def test_a_pair_without_a_verdict_counts_for_neither():
    """2 won its one meeting that was read: not a lesser one than 0 with a win and a loss."""
    placing = told({(0, 1): "left", (0, 2): "right", (1, 2): None}, 3)
    assert placing.scores == (1.0, 0.0, 2.0)
    assert (placing.best, placing.worst) == (2, 1)


def test_one_that_no_verdict_was_read_of_is_unscored_and_the_others_are_ranked():
    placing = told({(0, 1): "right", (0, 2): None, (1, 2): None}, 3)
    assert placing.scores == (0.0, 2.0, None)
    assert (placing.best, placing.worst) == (1, 0)


def test_numbers_of_comparisons():
    for count in range(2, 12):
        assert most_comparisons("round_robin", count) == count * (count - 1) // 2
        least = math.ceil(3 * count / 2) - 2
        assert most_comparisons("knockout", count) - least in (0, 1)
        seen = set()
        for seed in range(200):
            judge = Judge([random.Random(seed + i).random() for i in range(count)], 0.0, NOBODY)
            seen.add(play("knockout", judge, count, random.Random(seed))[1])
        assert max(seen) == most_comparisons("knockout", count)
        assert min(seen) >= least
    assert most_comparisons("knockout", 1) == most_comparisons("round_robin", 0) == 0


def test_a_knockout_whose_last_meeting_contradicts_it_is_a_tie():
    games = Knockout(4, random.Random(0))
    first = games.pairs()
    games.tell(dict.fromkeys(first, "left"))
    games.tell(dict.fromkeys(games.pairs(), "left"))
    (last,) = games.pairs()
    games.tell({last: "right"})
    assert games.placing().reason == "tie"


def test_who_goes_on_after_a_tie_is_drawn_and_told():
    games = Knockout(4, random.Random(0))
    pairs = games.pairs()
    games.tell({pairs[0]: "tie", pairs[1]: "left"})
    assert set(games.drawn) == {pairs[0]}
    assert games.drawn[pairs[0]] in pairs[0]
    drawn = set()
    for seed in range(40):
        games = Knockout(2, random.Random(seed))
        (pair,) = games.pairs()
        games.tell({pair: "tie"})
        drawn.add(games.drawn[pair])
    assert drawn == {0, 1}


def test_the_same_draw_gives_the_same_tournament():
    def whole(seed):
        games, seen = Knockout(7, random.Random(seed)), []
        while pairs := games.pairs():
            seen.append(tuple(pairs))
            games.tell(dict.fromkeys(pairs, "tie"))
        return seen

    assert whole(3) == whole(3)
    assert len({tuple(whole(seed)) for seed in range(10)}) > 1


def test_simulated_judges():
    """The table in the docs, on fewer instructions: what must hold whatever the noise."""
    exact, differ = simulate(0.0, trials=300)
    assert differ == 0
    assert all(tally.kept == tally.extreme == 1 for tally in exact.values())
    noisy, differ = simulate(1.0, trials=2000)
    assert 0 < differ < 1
    for tally in noisy.values():
        assert 0.5 < tally.ordered < 1
        assert tally.kept < 1
    assert noisy["knockout"].comparisons < 7.01 < noisy["round_robin"].comparisons == 10
    noisier, _ = simulate(2.0, trials=2000)
    for kind in KINDS:
        assert noisier[kind].gap < noisy[kind].gap < exact[kind].gap


def test_a_candidate_is_usable_when_it_has_a_text():
    assert Candidate("ada#1", "Seven.").usable
    assert not Candidate("ada#1", " \n").usable
    assert not Candidate("ada#1", "Seven.", failed="timeout").usable
