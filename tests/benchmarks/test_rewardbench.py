"""RewardBench's weights and PPE's best of K."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from phalanx.benchmarks.ppe import (
    best_of_k,
    best_of_k_curve,
    conflict_accuracy,
    pairwise_accuracy,
)
from phalanx.benchmarks.records import ManyResponses, Pair
from phalanx.benchmarks.rewardbench import (
    SECTIONS,
    SUBSETS,
    Scored,
    overall_score,
    rewardbench,
    section_scores,
)
from phalanx.errors import ConfigError


def scored(shares: dict[str, tuple[int, int]]) -> list[Scored]:
    """(right, all) pairs of each subset."""
    return [
        Scored(f"{name}/{i}", name, float(i < right), 0.5)
        for name, (right, n) in shares.items()
        for i in range(n)
    ]


def test_published_sizes():
    totals = {name: sum(weights.values()) for name, weights in SECTIONS.items()}
    assert totals == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1968}
    assert len(SUBSETS) == len(set(SUBSETS)) == 23
    # 984 stands for 447 pairs, and equals the six code subsets together.
    assert sum(totals.values()) - 984 + 447 == 2985
    assert totals["Reasoning"] == 2 * 984


def test_mathematics_and_code_count_alike():
    shares = dict.fromkeys(SUBSETS, 0.0) | {"math-prm": 1.0}
    assert section_scores(shares)["Reasoning"] == 0.5


def test_by_hand():
    shares = dict.fromkeys(SUBSETS, (1, 2))
    shares["mt-bench-hard"] = (4, 4)
    found = rewardbench(scored(shares), seed=0)
    assert found.sections["Chat"] == pytest.approx(0.5)
    assert found.sections["Chat Hard"] == pytest.approx(0.5 + 0.5 * 37 / 456)
    assert found.overall == pytest.approx(0.5 + 0.5 * 37 / 456 / 4)
    assert found.by_subset["mt-bench-hard"].count == 4
    assert found.missing == ()


def test_a_tie_is_wrong():
    assert not Scored("i", "math-prm", 1.0, 1.0).right
    assert Scored("i", "math-prm", 1.0, 0.9).right


def test_what_is_missing_gives_no_number():
    shares = {name: (1, 2) for name in SUBSETS if name != "hep-go"}
    found = rewardbench(scored(shares), seed=0)
    assert found.missing == ("hep-go",)
    assert found.sections["Reasoning"] is None
    assert found.sections["Safety"] == 0.5
    assert (found.overall, found.interval, found.standard_error) == (None, None, None)
    assert overall_score({"Chat": 1.0}) is None


def test_the_error_is_that_of_weighted_shares():
    shares = dict.fromkeys(SUBSETS, (7, 20))
    found = rewardbench(scored(shares), seed=1, draws=4000)
    variance = sum(
        (weight / sum(weights.values()) / 4) ** 2 * 0.35 * 0.65 / 20
        for weights in SECTIONS.values()
        for weight in weights.values()
    )
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=0.05)
    assert found.interval is not None
    assert found.interval.low < 0.35 < found.interval.high


def test_faulty_scores_are_all_listed():
    rows = [
        Scored("a", "hep-go", math.nan, 0.0), Scored("b", "hep-perl", 1.0, 0.0),
        Scored("c", "hep-go", 1.0, 0.0), Scored("c", "hep-go", 1.0, 0.0),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        rewardbench(rows, seed=0)
    assert len(caught.value.faults) == 3
    with pytest.raises(ConfigError, match="no scored pair"):
        rewardbench([], seed=0)


def many(right: list[bool], conflicts=()) -> ManyResponses:
    return ManyResponses("r", "Why?", tuple("abcdefgh"[: len(right)]), tuple(right), "m", conflicts)


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("seed", range(4))
def test_best_of_k_is_the_mean_over_all_draws(k, seed):
    rng = random.Random(seed)
    right = [rng.random() < 0.5 for _ in range(6)]
    scores = [float(rng.randrange(4)) for _ in range(6)]  # with ties
    draws = []
    for drawn in itertools.combinations(range(6), k):
        best = [i for i in drawn if scores[i] == max(scores[j] for j in drawn)]
        draws.append(sum(right[i] for i in best) / len(best))
    assert best_of_k(many(right), scores, k) == pytest.approx(np.mean(draws))


def test_best_of_k_ends():
    right = [True, False, False, True]
    assert best_of_k(many(right), [4, 3, 2, 1], 1) == 0.5
    assert best_of_k(many(right), [4, 3, 2, 1], 4) == 1
    assert best_of_k(many(right), [0, 0, 0, 0], 3) == 0.5
    curve = best_of_k_curve([many(right), many([False] * 4)], [[4, 3, 2, 1]] * 2, [1, 4])
    assert curve == {1: 0.25, 4: 0.5}
    for k in (0, 5):
        with pytest.raises(ValueError, match="between 1 and the 4 responses"):
            best_of_k(many(right), [4, 3, 2, 1], k)


def test_conflicts():
    row = many([True, False, True], conflicts=((0, 1), (1, 2)))
    found = conflict_accuracy([row], [[2.0, 1.0, 1.0]])
    assert (found.count, found.n) == (1, 2)
    with pytest.raises(ConfigError, match="no row names pairs"):
        conflict_accuracy([many([True, False])], [[1.0, 0.0]])
    with pytest.raises(ConfigError, match="2 responses, 3 scores"):
        conflict_accuracy([many([True, False])], [[1.0, 0.0, 0.0]])
    with pytest.raises(ConfigError, match="finite"):
        conflict_accuracy([many([True, False])], [[1.0, math.inf]])


def test_preferences_leave_ties_out():
    pairs = [
        Pair(str(i), "Why?", "a", "b", label) for i, label in enumerate(["A", "B", "tie", "A"])
    ]
    found = pairwise_accuracy(pairs, [(1, 0), (1, 0), (0, 1), (1, 1)])
    assert (found.count, found.n) == (1, 3)
    with pytest.raises(ConfigError, match="none of 1 pairs has a better side"):
        pairwise_accuracy(pairs[2:3], [(0, 1)])
    with pytest.raises(ValueError, match="4 pairs, 1"):
        pairwise_accuracy(pairs, [(0, 1)])
