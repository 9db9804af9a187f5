"""The rules of guards on numbers whose answer is known."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.alarms import (
    Course,
    Fired,
    as_json,
    ever_too_far,
    flips,
    from_json,
    hacking,
    in_words,
    length_drift,
    not_finite,
    too_far,
)
from phalanx.collective.gaps import above
from phalanx.config import load
from phalanx.errors import GuardError, JudgmentError, LossError, TrainingError, UnreadableError


def test_flips_fire_above_the_limit_and_never_on_few_judgments():
    assert flips(6, 20, 0.3) is None
    fired = flips(7, 20, 0.3)
    assert (fired.rule, fired.value, fired.setting) == ("max_flips", 0.35, "guard.max_flips=0.35")
    assert "7 of 20 readable judgments" in fired.says
    assert flips(19, 19, 0.3) is None
    assert flips(1, 20, 0.0) is not None


@given(st.integers(20, 4000), st.integers(1, 99))
def test_a_share_that_is_the_limit_passes(readable, percent):
    """0.29 * 100 is 28.999999999999996; a share is compared, and what is advised passes."""
    flipped = readable * percent // 100
    assert flips(flipped, readable, flipped / readable) is None
    fired = flips(readable, readable, percent / 100)
    assert flips(flipped, readable, percent / 100) is None
    assert flips(readable, readable, float(fired.setting.split("=")[1])) is None


def test_a_fall_that_is_the_limit_passes():
    """0.8 - 0.7 is 0.10000000000000009."""
    at = Course("ada", 0, (0.0, 1.0), (16 / 20, 14 / 20), 20)
    assert hacking([at], 0.1) is None
    assert hacking([at], 0.09).setting == "guard.hacking=0.1"


def test_lengths_are_compared_with_the_first_iteration_that_has_enough():
    lengths = {
        "ada": {1: (9, 1.0), 2: (10, 40.0), 3: (12, 50.0)},
        "bob": {1: (10, 40.0), 3: (10, 10.0)},
        "cora": {1: (10, 40.0), 3: (10, 79.0)},
        "dan": {3: (10, 900.0)},
    }
    fired = length_drift(lengths, 3, 1.5)
    assert fired.value == 4.0
    assert fired.says == (
        "the responses of bob became shorter, 40 tokens in iteration 1 and 10 now, and those of 1 "
        "more, by less"
    )
    assert fired.setting == "guard.length_drift=4"
    assert length_drift(lengths, 3, 4.0) is None
    assert length_drift({"ada": lengths["ada"]}, 3, 1.5) is None
    assert length_drift({"eve": {1: (10, 0.0), 2: (10, 5.0)}}, 2, 1.5) is None


def test_hacking_needs_both_and_enough_items():
    def course(reputation: float, dev: float, items: int = 20, member: str = "ada") -> Course:
        return Course(member, 1, (1000.0, 1000.0 + reputation), (0.5, 0.5 + dev), items)

    assert hacking([course(50, 0.1), course(-50, -0.4), course(0, -0.4)], 0.05) is None
    assert hacking([course(50, -0.4, items=19)], 0.05) is None
    fired = hacking([course(9, -0.1), course(50, -0.25, member="bob")], 0.05)
    assert (fired.value, fired.setting) == (0.25, "guard.hacking=0.25")
    assert "of bob rose from 1000 to 1050 while its score on 20 dev items fell" in fired.says
    assert fired.says.endswith("; so did 1 more")


def steps(*distances: float, name: str = "kl/chosen") -> list[dict[str, float]]:
    return [{"step": float(at), name: value} for at, value in enumerate(distances, 1)]


def test_the_distance_is_the_mean_of_the_last_eight_steps():
    assert too_far("ada", steps(*[9.0] * 7), 0.5) is None
    assert too_far("ada", steps(*[9.0] * 5, *[0.1] * 8), 0.5) is None
    fired = too_far("ada", steps(*[0.0] * 20, *[-0.6] * 8), 0.5)
    assert (fired.where, round(fired.value, 9), fired.setting) == ("ada", 0.6, "guard.max_kl=1.2")
    assert "in step 28" in fired.says
    assert too_far("ada", steps(*[9.0] * 9, name="kl"), 0.5) is not None
    assert too_far("ada", steps(*[9.0] * 9, name="loss"), 0.5) is None
    once = steps(*[0.0] * 8, *[1.0] * 8, *[0.0] * 8)
    assert too_far("ada", once, 0.9) is None
    assert "in step 16" in ever_too_far("ada", once, 0.9).says
    assert ever_too_far("ada", once, 1.0) is None


@given(st.floats(0, 1e9, allow_nan=False))
def test_the_proposed_limit_lets_the_value_pass(value):
    limit = float(above(value))
    assert value <= limit <= 1.1 * value + 1e-300
    assert value > 1 or limit <= 1


def test_what_fired_comes_back_from_the_ledger():
    fired = [
        (Fired("hacking", "evaluation", 0.3, 0.1, "says ü", "do", "guard.hacking=0.3", 2), "stop"),
        (not_finite("ada", "broken"), "skip"),
    ]
    back = from_json(as_json(fired))
    assert back[0] == fired[0]
    assert math.isnan(back[1][0].value)
    assert "nan" not in back[1][0].sentence
    assert "NaN" not in as_json(fired)
    assert from_json(None) == []


@pytest.mark.parametrize("kind", [GuardError, UnreadableError])
def test_what_guards_raise_travels_between_processes(kind):
    fired = Fired("max_kl", "ada", 0.7, 0.5, "says", "do", "guard.max_kl=1.4", 3)
    back = pickle.loads(pickle.dumps(kind("stopped", fired, True)))
    assert (type(back), str(back), back.fired) == (kind, "stopped", fired)
    assert (back.paused, back.exit_code, kind("stopped", fired).exit_code) == (True, 6, 5)
    assert isinstance(back, JudgmentError) is (kind is UnreadableError)
    loss = pickle.loads(pickle.dumps(LossError("broken", "ada")))
    assert (str(loss), loss.member, loss.exit_code) == ("broken", "ada", 5)
    assert isinstance(loss, TrainingError)


def test_the_guards_in_words():
    config = load(
        "preset:sparta-small",
        {
            "pool.members": [{"name": n, "engine": "scripted"} for n in "abc"],
            "instructions.source": "builtin:skills",
            "budget.seconds": 3600.0,
            "guard": {"max_unreadable": 0.2, "max_kl": 0.5, "action": {"max_kl": "pause"}},
        },
    )
    assert in_words(config) == (
        "max_unreadable 0.2 (stop), max_kl 0.5 (pause), finite_loss (stop), budget.seconds 3600 "
        "(stop)"
    )
