"""Equal budgets: the largest size that fits, and that plan and ledger count alike."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from phalanx.comparing.budget import (
    KEYS,
    QUANTITIES,
    Budget,
    Use,
    _largest,
    _without_effect,
    planned,
    spent,
)
from phalanx.comparing.work import _far_off
from phalanx.config import load
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from tests.comparing.files import comparison


def test_every_method_says_what_makes_it_larger():
    assert set(METHODS) <= set(KEYS)


@pytest.mark.parametrize("given_", [{}, {"responses": 3, "steps": 2}, {"responses": 0}])
def test_a_budget_is_of_one_quantity(given_):
    with pytest.raises(ValidationError):
        Budget.model_validate(given_)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=200),
    st.integers(1, 600),
)
def test_the_largest_size_that_fits_is_found(rises, amount):
    """Against a search through all sizes; use may start high, stand still, and jump."""
    use = list(accumulate(rises))
    asked = []

    def of(size: int) -> float:
        asked.append(size)
        return use[size - 1]

    fits = [size for size in range(1, len(use) + 1) if use[size - 1] <= amount]
    assert _largest(of, amount, len(use)) == max(fits, default=0)
    assert all(1 <= size <= len(use) for size in asked)
    assert len(asked) <= 16


def test_a_size_in_proportion_takes_few_plans():
    asked = []

    def of(size: int) -> float:
        asked.append(size)
        return 7.0 * size

    assert _largest(of, 7_000_000, 1 << 20) == 1_000_000
    assert len(asked) <= 4


@pytest.mark.parametrize(
    ("method", "settings", "size"),
    [
        ("sparta", {}, {"match.duels": 24}),  # two responses a duel
        ("rejection_sampling", {"rejection_sampling.samples": 4}, {"instructions": 4}),
        ("sppo", {"sppo.samples": 4}, {"instructions": 4}),  # each of three members
    ],
)
def test_the_budget_chooses_the_size(method, settings, size):
    (_, way) = comparison({method: settings}, budget={"responses": 48}).ways
    ((key, value),) = size.items()
    section, _, name = (key if "." in key else f"{method}.{key}").partition(".")
    assert getattr(getattr(way.config, section), name) == value
    assert planned(way.config).responses == 48
    assert "48 responses planned" in way.note


@pytest.mark.parametrize("method", ["sparta", "sppo", "best_of_n"])
@pytest.mark.parametrize("quantity", ["responses", "judgments", "tokens"])
def test_one_size_more_would_be_beyond_the_budget(method, quantity):
    """Of everything that scripted members use."""
    from phalanx.comparing.budget import _resized

    amount = {"responses": 101, "judgments": 101, "tokens": 20_011}[quantity]
    samples = {"sppo.samples": 4} if method == "sppo" else {}
    (_, way) = comparison({method: samples}, budget={quantity: amount}).ways
    (key,) = KEYS[method]
    section, _, name = key.partition(".")
    size = getattr(getattr(way.config, section), name)
    assert 1 < getattr(planned(way.config), quantity) <= amount
    assert getattr(planned(_resized(way.config, (key,), size + 1)), quantity) > amount


def test_what_cannot_come_within_the_budget_says_so():
    (_, way) = comparison({"sppo": {"sppo.samples": 4}}, budget={"responses": 5}).ways
    assert way.config.sppo.instructions == 1
    assert "12 responses planned, more than the budget of 5 (240%)" in way.note


def test_what_has_not_enough_instructions_says_so():
    made = comparison({"sparta": {}, "sppo": {"sppo.samples": 4}}, budget={"responses": 1000})
    way = made.ways[-1]
    assert way.config.sppo.instructions == 12
    assert "144 responses planned, 14% of the budget; it cannot use more (there are 12" in way.note
    assert list(_far_off(made)) == [
        "Warning: by their plans these are not near the budget: sppo (14%). They are not on equal "
        "terms with the others; choose another budget, or leave them out."
    ]


def test_a_debate_does_not_go_on_for_ever():
    (_, way) = comparison({"debate": {}}, budget={"responses": 20_000}).ways
    assert way.config.debate.rounds == 4
    assert "it cannot use more (4 rounds are the most)" in way.note


def test_a_budget_without_effect_leaves_the_size_and_says_so():
    methods = {"sparta": {}, "self_consistency": {}, "council": {}}
    made = comparison(methods, budget={"judgments": 100})
    ways = {way.name: way for way in made.ways}
    assert "uses no judgments, whatever its size: left at self_consistency.samples = " in (
        ways["self_consistency"].note
    )
    assert ways["self_consistency"].config.self_consistency == made.base.self_consistency
    assert ways["council"].note.endswith(
        "nothing says how much it does, so the budget has no effect"
    )
    assert "self_consistency (0%)" in " ".join(_far_off(made))


@pytest.mark.parametrize(
    ("use", "most", "key", "none", "asked"),
    [
        (lambda size: 0, 1024, "self_consistency.samples", True, {1, 2}),
        (lambda size: 3, 1024, "self_consistency.samples", True, {1, 2}),
        (lambda size: size // 64, 10**6, "spin.instructions", True, {1, 2}),
        (lambda size: 1 + size // 64, 10**6, "spin.instructions", False, {1, 2, 4096}),
        (lambda size: size, 1, "spin.instructions", True, {1}),
        (lambda size: size, 10**6, "spin.instructions", False, {1, 2}),
    ],
)
def test_few_sizes_say_whether_a_budget_has_an_effect(use, most, key, none, asked):
    """Use that is nothing at first stays so in every method; steps stand still within a batch."""
    seen = []

    def of(size: int) -> float:
        seen.append(size)
        return use(size)

    assert _without_effect(of, (key,), most) is none
    assert set(seen) == asked


def test_a_budget_beyond_all_sizes_is_filled():
    (_, way) = comparison({"sparta": {}}, budget={"responses": 10**12}).ways
    assert way.config.match.duels == 5 * 10**11
    assert "cannot" not in way.note


def test_a_budget_that_nobody_uses_is_refused():
    with pytest.raises(ConfigError, match=r"budget\.steps: no method here uses any; nobody is"):
        comparison({"sparta": {}, "debate": {}}, budget={"steps": 20})
    assert len(comparison({"frozen": {}}, budget={"steps": 20}).ways) == 1


def test_several_keys_grow_together():
    from phalanx.comparing.budget import _resized
    from phalanx.config.schema import Config

    config = Config.model_validate(
        {"moaa": {"sft_instructions": 100, "dpo_instructions": 25}, "method": "moaa"}
    )
    larger = _resized(config, KEYS["moaa"], 8)
    assert (larger.moaa.sft_instructions, larger.moaa.dpo_instructions) == (8, 2)


@pytest.mark.parametrize("method", ["sparta", "rejection_sampling", "sppo"])
def test_the_ledger_counts_what_the_plan_says(tmp_path, method):
    """Where nothing fails and every judge is asked; judgments of identical responses are less."""
    (_, way) = comparison({method: {}}, budget={"responses": 30}).ways
    config = way.config.model_copy(update={"seed": 1})
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        used = spent(ledger)
        phases = "phase NOT LIKE 'evaluate%'"
        assert used.responses + used.judgments == ledger.count("responses", phases)
        assert used.judgments == ledger.count("responses", f"{phases} AND purpose = 'judge'")
    assert used.responses == planned(config).responses <= 30
    assert 0 < used.judgments <= planned(config).judgments
    assert used.tokens > 0
    assert used.steps == used.shared == 0


def test_measuring_is_outside(tmp_path):
    (way,) = comparison({"frozen": {}}, budget={"responses": 30}).ways
    assert planned(way.config) == Use()
    assert way.note == "uses 0 responses"


def test_shares_of_a_budget():
    budget = Budget(responses=50)
    assert Use(responses=50).share(budget) == 1
    assert not Use(responses=46).off_budget(budget)
    assert Use(responses=40).off_budget(budget)
    assert Use(responses=60).off_budget(budget)
    assert tuple(Budget.model_fields) == QUANTITIES


def test_steps_are_of_all_members_and_all_iterations():
    config = load("configs/examples/demo-quick.yaml")
    # 24 duels, 60 % kept: 14 pairs a learner, 4 steps of 4; 4 learners, 2 iterations.
    assert planned(config).steps == 4 * 4 * 2
    assert planned(config).responses == 24 * 2 * 2
