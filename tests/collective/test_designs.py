"""Designs, rungs and fronts: pure, so mostly properties."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.designs import (
    ETA,
    Design,
    Space,
    Trial,
    choose,
    design_from,
    front,
    latest,
    promoted,
    rungs,
    uniform,
)
from phalanx.config.schema import MixtureSettings

NAMES = ("ada", "bob", "cora", "dan", "eve")

spaces = st.builds(
    Space,
    names=st.integers(1, 5).map(lambda count: NAMES[:count]),
    max_proposers=st.integers(1, 4),
    max_layers=st.integers(1, 3),
    max_samples=st.integers(1, 3),
    fewest=st.integers(1, 3),
)


def trial(number: int = 1, score: float | None = 0.5, **given) -> Trial:
    fields = {
        "rung": 0,
        "design": Design((), f"member-{number}"),
        "num_items": 10,
        "num_scored": 10 if score is not None else 0,
        "low": None if score is None else score - 0.1,
        "high": None if score is None else score + 0.1,
        "calls": 10,
        "tokens": 100,
        "money": 0.0,
        "new_calls": 10,
    }
    return Trial(number=number, score=score, **{**fields, **given})


trials = st.lists(
    st.tuples(
        st.sampled_from([None, 0.0, 0.25, 0.5, 1.0]),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(0, 3),
    ),
    max_size=12,
).map(
    lambda rows: [
        trial(at, score, calls=calls, tokens=tokens, money=money)
        for at, (score, calls, tokens, money) in enumerate(rows, start=1)
    ]
)


@given(spaces)
def test_a_space_counts_what_it_lists_and_holds_nothing_else(space):
    designs = list(space.every())
    assert len(designs) == len(set(designs)) == space.size
    assert all(space.holds(design) for design in designs)
    assert not space.holds(Design((("ada",),), "nobody"))
    for design in designs:
        assert all(len(layer) * design.samples >= space.fewest for layer in design.layers)
        assert len(design.layers) + 1 <= space.max_layers


@given(spaces, st.integers(1, 60), st.integers(0, 99))
def test_drawn_designs_are_distinct_and_begin_with_each_member_alone(space, count, seed):
    drawn = space.draw(count, random.Random(seed))
    assert len(drawn) == len(set(drawn)) == min(count, space.size)
    assert set(drawn) <= set(space.every())
    assert drawn[: len(space.names)] == list(space.alone)[:count]
    assert drawn == space.draw(count, random.Random(seed))


def test_a_design_that_is_given_is_drawn_after_the_members_alone():
    space = Space(NAMES, 3, 3, 1)
    mine = Design((("ada", "bob"), ("cora",)), "dan")
    assert space.draw(8, random.Random(0), [mine])[5] == mine


def test_small_mixtures_are_drawn_as_often_as_large_ones():
    space = Space(tuple(f"m{n}" for n in range(12)), 4, 2, 1)
    drawn = space.draw(212, random.Random(3))[12:]
    pairs = sum(len(design.layers[0]) <= 2 for design in drawn)
    assert 70 <= pairs <= 130, "of 200, about half; by number of designs it would be 20"


@given(st.integers(1, 500), st.integers(1, 500))
def test_rungs_shrink_by_a_third_and_end_on_all_items(count, items):
    steps = rungs(count, items)
    assert steps[0][0] == count
    assert steps[-1][0] <= ETA
    assert steps[-1][1] == items
    for (many, few), (fewer, more) in itertools.pairwise(steps):
        assert fewer == math.ceil(many / ETA)
        assert 1 <= few <= more
    assert max(size * number for size, number in steps) <= (count + ETA) * (items + ETA)


def test_the_default_search():
    assert rungs(27, 64) == [(27, 8), (9, 22), (3, 64)]


def test_the_best_go_on_and_so_does_the_best_member_alone():
    mixed = [
        trial(n, 0.9 - n / 100, design=Design((("ada",),), "bob", samples=n)) for n in range(1, 4)
    ]
    alone = [trial(5, 0.2, design=Design((), "ada")), trial(6, 0.3, design=Design((), "bob"))]
    assert promoted([*alone, *mixed], 2) == [mixed[0].design, mixed[1].design, alone[1].design]
    assert promoted([alone[1], mixed[0]], 2) == [mixed[0].design, alone[1].design]


def test_a_tie_goes_to_the_cheaper_and_designs_without_scores_do_not_go_on():
    dear, cheap = trial(1, 0.5, tokens=200), trial(2, 0.5, tokens=100)
    silent = trial(3, None)
    half = trial(4, 1.0, num_scored=5)
    assert promoted([dear, silent, half, cheap], 3) == [cheap.design, dear.design]
    assert choose([silent, half]) is None


@given(trials)
def test_nobody_on_the_front_is_dominated_and_everybody_else_is(found):
    kept = front(found)

    def dominates(one: Trial, other: Trial) -> bool:
        better = [one.score > other.score, *(a < b for a, b in zip(one.cost, other.cost))]  # noqa: B905
        worse = [one.score < other.score, *(a > b for a, b in zip(one.cost, other.cost))]  # noqa: B905
        return any(better) and not any(worse)

    able = [one for one in found if one.complete]
    assert not any(dominates(other, one) for one in kept for other in able)
    for left_out in (one for one in able if one not in kept):
        assert any(dominates(one, left_out) for one in kept)


@given(trials)
def test_the_cheapest_is_within_the_interval_and_no_dearer_than_the_best(found):
    choice = choose(found)
    if choice is None:
        assert not any(one.complete for one in found)
        return
    assert choice.best.score == max(one.score for one in found if one.complete)
    assert choice.cheapest.score >= choice.best.low
    assert choice.cheapest.cost <= choice.best.cost


def test_only_trials_on_the_most_items_can_be_chosen():
    lucky = trial(1, 1.0, num_items=3, num_scored=3)
    solid = trial(2, 0.7, num_items=30, num_scored=30)
    again = trial(3, 0.6, design=lucky.design, num_items=9, num_scored=9)
    assert choose([lucky, solid]).best == solid
    assert latest([lucky, solid, again]) == [solid, again]


@pytest.mark.parametrize(
    "design",
    [
        Design((), "ada"),
        uniform(("ada", "bob"), 3, "cora", 2),
        Design((("ada", "bob"), ("cora",)), "dan"),
    ],
)
def test_settings_make_the_design_whatever_they_held(design):
    from phalanx.config.mixing import proposers_of
    from phalanx.config.schema import Config

    before = MixtureSettings(proposers=["eve"], per_layer=[["eve"]], layers=5, samples=4)
    config = Config(mixture=design.settings(before))
    assert proposers_of(config) == design.layers
    assert config.mixture.aggregator == design.aggregator
    assert config.mixture.samples == design.samples
    assert MixtureSettings.model_validate(design.as_yaml()) == config.mixture
    assert design_from(design.as_json()) == design
