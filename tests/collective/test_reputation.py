"""The formulas against values computed by hand, and the faults of the released code."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.reputation import (
    fade,
    fit_bradley_terry,
    initial_standing,
    sparta_gap,
    sparta_k,
    update_all,
    update_elo,
    update_sparta,
)
from phalanx.config.schema import (
    BradleyTerryReputation,
    EloReputation,
    FrozenReputation,
    SpartaReputation,
)
from phalanx.types import Duel, Instruction, Outcome, Standing

SPARTA = SpartaReputation()


def duel(number: int, left: str, right: str) -> Duel:
    return Duel(f"d{number}", Instruction("i", "?"), left, right)


def decided(number: int, left: float, right: float) -> Outcome:
    winner = "left" if left > right else "right"
    return Outcome(f"d{number}", "decided", winner, left, right, num_judges=2)


def test_k_decays_per_duel_and_stops_at_the_minimum():
    assert sparta_k(1, SPARTA) == pytest.approx(10 * 0.9**0.1)
    assert sparta_k(10, SPARTA) == pytest.approx(9)
    assert sparta_k(65, SPARTA) == pytest.approx(10 * 0.9**6.5)
    assert sparta_k(66, SPARTA) == 5
    assert sparta_k(1000, SPARTA) == 5


def test_first_duel_between_equals_by_hand():
    """R = 100 for both: the gap factor is epsilon = 0.01, sigma = 0.5, lambda = 20."""
    left, right = update_sparta(Standing(), Standing(), 3.0, SPARTA, num_duels=1)
    change = 10 * 0.9**0.1 / 20 * 3.0 * math.tanh(0.5) * 0.01
    assert left.value == pytest.approx(100 + change, abs=1e-12)
    assert right.value == pytest.approx(100 - change, abs=1e-12)
    assert left.deviation == 0.5
    assert left.changes == (pytest.approx(change),)


def test_a_gap_by_hand():
    """z = 10 / sqrt(.5^2 + .5^2) is far out: the factor is 1, so the leader gains in full."""
    strong, weak = Standing(110.0), Standing(100.0)
    assert sparta_gap(strong, weak) == pytest.approx(1.0)
    left, right = update_sparta(strong, weak, 2.0, SPARTA, num_duels=100)
    assert left.value == pytest.approx(110 + 5 / 20 * 2 * math.tanh(0.5))
    assert right.value == pytest.approx(100 - 5 / 20 * 2 * math.tanh(0.5))


def test_moderate_gap_equals_the_difference_of_the_normal_distribution():
    scipy_stats = pytest.importorskip("scipy.stats")
    one, other = Standing(100.3, 0.4), Standing(100.0, 0.2)
    z = 0.3 / math.hypot(0.4, 0.2)
    expected = abs(scipy_stats.norm.cdf(z) - scipy_stats.norm.cdf(-z))
    assert sparta_gap(one, other) == pytest.approx(expected)
    assert sparta_gap(one, other) == sparta_gap(other, one)


def test_both_members_move_from_the_same_old_values():
    """The released code updates the second member against the first one's new value."""
    one, other = Standing(100.2, 0.5), Standing(100.0, 0.5)
    forward = update_sparta(one, other, 4.0, SPARTA, num_duels=3)
    backward = update_sparta(other, one, -4.0, SPARTA, num_duels=3)
    assert forward == (backward[1], backward[0])
    assert forward[0].value - one.value == pytest.approx(other.value - forward[1].value)


def test_deviation_is_the_population_spread_of_the_last_actual_changes():
    standing = Standing(100.0, 0.5, changes=(0.5, -0.1))
    moved, _ = update_sparta(standing, Standing(90.0), 2.0, SPARTA, num_duels=1)
    changes = (0.5, -0.1, moved.value - 100)
    mean = sum(changes) / 3
    by_hand = math.sqrt(sum((change - mean) ** 2 for change in changes) / 3)
    assert moved.deviation == pytest.approx(max(0.1, by_hand))


def test_window_and_floor():
    standing = Standing(10.0, 0.5, changes=tuple([0.0] * 10))
    moved, _ = update_sparta(standing, Standing(200.0), -9.0, SPARTA, num_duels=1)
    assert moved.value == 10.0
    assert moved.changes == tuple([0.0] * 10)
    assert moved.deviation == 0.1


def test_state_is_carried_over_iterations():
    """K and the window restart in every process of the released code; ours do not."""
    standings = {"ada": Standing(), "bob": Standing(101.0)}
    duels = [duel(n, "ada", "bob") for n in range(6)]
    outcomes = {f"d{n}": decided(n, 6 + n, 5) for n in range(6)}
    whole, _ = update_all(standings, duels, outcomes, SPARTA)
    first, _ = update_all(standings, duels[:3], outcomes, SPARTA)
    second, _ = update_all(first, duels[3:], outcomes, SPARTA, num_duels_before=3)
    assert second == whole


def test_the_callers_standings_are_not_changed():
    standings = {"ada": Standing(), "bob": Standing()}
    update_all(standings, [duel(0, "ada", "bob")], {"d0": decided(0, 9, 1)}, SPARTA)
    assert standings == {"ada": Standing(), "bob": Standing()}


def test_duels_without_an_outcome_change_nothing_and_do_not_age_k():
    standings = {"ada": Standing(), "bob": Standing()}
    duels = [duel(0, "ada", "bob"), duel(1, "ada", "bob")]
    outcomes = {"d0": Outcome("d0", "no_quorum"), "d1": decided(1, 9, 1)}
    both, changes = update_all(standings, duels, outcomes, SPARTA)
    alone, _ = update_all(standings, duels[1:], outcomes, SPARTA)
    assert both == alone
    assert {change.duel_id for change in changes} == {"d1"}


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), min_size=2, max_size=8))
def test_independent_duels_may_come_in_any_order_under_elo(scores):
    """No member in two duels: with a rule that has no clock the order cannot matter."""
    duels = [duel(n, f"l{n}", f"r{n}") for n in range(len(scores))]
    outcomes = {
        f"d{n}": decided(n, *pair) if pair[0] != pair[1] else Outcome(f"d{n}", "tie", num_judges=2)
        for n, pair in enumerate((float(a), float(b)) for a, b in scores)
    }
    standings = {name: Standing() for d in duels for name in d.contestants}
    settings = EloReputation()
    forward, _ = update_all(standings, duels, outcomes, settings)
    backward, _ = update_all(standings, duels[::-1], outcomes, settings)
    assert forward == backward


def test_elo_by_hand_and_upsets_pay_more():
    settings = EloReputation(k=4, spread=40)
    left, right = update_elo(Standing(100.0), Standing(100.0), 1.0, settings)
    assert (left.value, right.value) == (102.0, 98.0)
    favourite, _ = update_elo(Standing(140.0), Standing(100.0), 1.0, settings)
    assert favourite.value - 140 == pytest.approx(4 * (1 - 10 / 11))
    _, upset = update_elo(Standing(140.0), Standing(100.0), 0.0, settings)
    assert upset.value - 100 == pytest.approx(4 * 10 / 11)
    level, _ = update_elo(Standing(100.0), Standing(100.0), 0.5, settings)
    assert level.value == 100


def test_bradley_terry_of_two_by_hand():
    """Three wins to one: the log-strengths differ by log 3, up to the regularisation."""
    settings = BradleyTerryReputation(regularise=1e-6, spread=20)
    results = [("a", "b", 1.0)] * 3 + [("a", "b", 0.0)]
    fitted = fit_bradley_terry(
        {"a": Standing(), "b": Standing(), "c": Standing()}, results, settings
    )
    assert fitted["a"].value - fitted["b"].value == pytest.approx(20 * math.log(3), rel=1e-3)
    assert fitted["c"] == Standing()


def test_a_tie_is_half_a_win_each_way():
    settings = BradleyTerryReputation()
    names = {"a": Standing(), "b": Standing()}
    fitted = fit_bradley_terry(names, [("a", "b", 0.5)] * 4, settings)
    assert fitted["a"].value == pytest.approx(fitted["b"].value)


def test_frozen_never_moves():
    standings = {"ada": Standing(120.0), "bob": Standing()}
    after, changes = update_all(
        standings, [duel(0, "ada", "bob")], {"d0": decided(0, 1, 9)}, FrozenReputation()
    )
    assert after == standings
    assert changes == []


@given(st.floats(-9, 9), st.floats(11, 300), st.floats(11, 300), st.integers(1, 200))
def test_swapping_the_sides_swaps_the_update(difference, one, other, count):
    forward = update_sparta(Standing(one), Standing(other), difference, SPARTA, num_duels=count)
    backward = update_sparta(Standing(other), Standing(one), -difference, SPARTA, num_duels=count)
    assert forward == (backward[1], backward[0])


def test_fade_starts_with_the_third_iteration():
    reputations = {"a": 90.0, "b": 95.0, "c": 100.0, "d": 105.0}
    assert fade("static", {}, reputations, 0) == fade("static", {}, reputations, 1) == {}
    first = fade("static", {}, reputations, 2)
    assert first == {"a": 0.0}
    # a has recovered: static keeps it faded and adds the lowest of the rest, dynamic forgets it.
    later = {"a": 200.0, "b": 95.0, "c": 100.0, "d": 105.0}
    assert fade("static", first, later, 3) == {"a": 0.0, "b": pytest.approx(0.1)}
    assert fade("dynamic", first, later, 3) == {"b": 0.0, "c": pytest.approx(0.1)}
    assert fade("dynamic", {"a": 0.3}, later, 8) == {"a": 0.3}
    assert fade("none", {}, later, 5) == {}


def test_fade_scales_contestants_in_the_update_only():
    standings = {"ada": Standing(120.0), "bob": Standing()}
    outcomes = {"d0": decided(0, 8, 4)}
    plain, _ = update_all(standings, [duel(0, "ada", "bob")], outcomes, SPARTA)
    faded, _ = update_all(standings, [duel(0, "ada", "bob")], outcomes, SPARTA, faded={"ada": 0.0})
    assert plain["ada"].value > 120
    assert faded["ada"].value < 120
    assert outcomes["d0"].winner == "left"


def test_initial_standing():
    assert initial_standing(SPARTA) == Standing(100, 0.5)
    assert initial_standing(SPARTA, 130.0).value == 130
    assert initial_standing(EloReputation(initial=50)).value == 50
