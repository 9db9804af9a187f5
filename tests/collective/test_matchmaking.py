"""Who meets whom: round-robin, nearest with random ties, start-of-iteration reputations."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.matchmaking import match, nearest
from phalanx.config.schema import MatchSettings
from phalanx.types import Instruction

NAMES = ["ada", "bob", "cora", "dan", "eve"]


def instructions(count: int) -> list[Instruction]:
    return [Instruction(f"i{number}", f"Say {number}.") for number in range(count)]


def duels(reputations, count=20, seed=0, **settings):
    return match(
        instructions(count), reputations, MatchSettings(**settings), rng=random.Random(seed)
    )


def test_every_round_names_each_member_once_as_active():
    actives = [duel.left for duel in duels(dict.fromkeys(NAMES, 100.0), count=15)]
    for start in (0, 5, 10):
        assert sorted(actives[start : start + 5]) == NAMES
    assert actives[:5] != actives[5:10] or actives[:5] != actives[10:15]


def test_in_order_is_plain_round_robin():
    actives = [d.left for d in duels(dict.fromkeys(NAMES, 1.0), count=7, active="in_order")]
    assert actives == [*NAMES, "ada", "bob"]


def test_equal_reputations_do_not_favour_the_first_names_of_the_pool():
    """With a stable sort over the pool's order the first k names would always be nearest."""
    met = Counter(
        nearest("eve", dict.fromkeys(NAMES, 100.0), 1, random.Random(seed))[0]
        for seed in range(400)
    )
    assert set(met) == {"ada", "bob", "cora", "dan"}
    assert max(met.values()) < 160


def test_near_opponents_are_the_k_nearest_and_nobody_else():
    reputations = {"ada": 100.0, "bob": 101.0, "cora": 103.0, "dan": 150.0, "eve": 10.0}
    for duel in duels(reputations, count=200, random_probability=0.0, nearest=2):
        if duel.left == "ada":
            assert duel.right in {"bob", "cora"}
        assert duel.matched == "near"


def test_random_probability_one_reaches_everybody():
    reputations = {"ada": 100.0, "bob": 101.0, "cora": 103.0, "dan": 150.0, "eve": 10.0}
    found = duels(reputations, count=400, random_probability=1.0, nearest=1)
    assert {d.right for d in found if d.left == "ada"} == {"bob", "cora", "dan", "eve"}
    assert {d.matched for d in found} == {"random"}


@given(st.integers(2, 8), st.integers(1, 40), st.integers(0, 10_000), st.floats(0, 1))
def test_nobody_meets_itself_and_every_instruction_is_used_once(members, count, seed, alpha):
    reputations = {f"m{number}": 100.0 + number % 3 for number in range(members)}
    found = match(
        instructions(count),
        reputations,
        MatchSettings(random_probability=alpha),
        rng=random.Random(seed),
    )
    assert all(duel.left != duel.right for duel in found)
    assert [duel.instruction.id for duel in found] == [f"i{number}" for number in range(count)]
    assert len({duel.id for duel in found}) == count


def test_same_seed_same_duels():
    reputations = dict.fromkeys(NAMES, 100.0)
    assert duels(reputations, seed=4) == duels(reputations, seed=4)
    assert duels(reputations, seed=4) != duels(reputations, seed=5)


def test_one_contestant_is_refused():
    with pytest.raises(ValueError, match="two contestants, got 1"):
        duels({"ada": 100.0})
