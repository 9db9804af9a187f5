"""Every duel ends as one pair, kept or dropped by name; the sums add up."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.preference import (
    chosen_alone,
    keep_widest,
    make_pair,
    make_pairs,
    weigh_by_margin,
)
from phalanx.config.schema import PairSettings
from phalanx.types import Duel, Instruction, Outcome, Response

DUEL = Duel("d", Instruction("i", "Name a prime."), "m1", "m2")


def response(text: str, finish: str = "stop") -> Response:
    return Response("r", text=text, finish_reason=finish)


def outcome(left: float | None, right: float | None) -> Outcome:
    if left is None or right is None:
        return Outcome("d", "no_quorum")
    if left == right:
        return Outcome("d", "tie", score_left=left, score_right=right)
    return Outcome("d", "decided", "left" if left > right else "right", left, right)


def pair(left, right, scores=(9, 2), finish=("stop", "stop"), **settings):
    return make_pair(
        DUEL,
        outcome(*scores),
        response(left, finish[0]),
        response(right, finish[1]),
        PairSettings(**settings),
    )


def test_outside_cases(cases_dir):
    lines = (cases_dir / "pair_building.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        if "limits" in case:
            continue  # lengths are in tokens: the training side measures and drops them
        one, two = case["responses"]
        made = make_pair(
            DUEL,
            outcome(one["score"], two["score"]),
            response(one["text"], one["finish_reason"]),
            response(two["text"], two["finish_reason"]),
            PairSettings(),
        )
        if "pair" in case["expected"]:
            assert [made.chosen_member, made.rejected_member] == case["expected"]["pair"], case
            assert not made.drop
        else:
            assert made.drop == case["expected"]["drop"], case


def test_the_winner_is_chosen():
    assert pair("Seven.", "Nine.").chosen == "Seven."
    assert pair("Seven.", "Nine.", scores=(2, 9)).chosen == "Nine."
    assert pair("Seven.", "Nine.", scores=(2, 9)).chosen_member == "m2"
    assert pair("Seven.", "Nine.").margin == 7


@pytest.mark.parametrize(
    ("left", "right", "scores", "reason"),
    [
        ("Seven.", " Seven.\n", (8, 6), "identical"),
        ("Seven.", "Eleven.", (7, 7), "tie"),
        ("", "Eleven.", (9, 3), "empty"),
        ("Seven.", "   ", (9, 3), "empty"),
        ("Seven.", "Eleven.", (None, 3), "unscored"),
    ],
)
def test_no_pair_from(left, right, scores, reason):
    assert pair(left, right, scores).drop == reason


def test_a_truncated_response_may_lose_but_never_win():
    won, lost = ("length", "stop"), ("stop", "length")
    assert pair("a", "b", finish=won).drop == "truncated"
    assert pair("a", "b", finish=lost).drop == ""
    assert pair("a", "b", finish=lost).rejected_truncated
    assert pair("a", "b", finish=lost, truncated="drop").drop == "truncated"
    assert pair("a", "b", finish=won, truncated="allow").drop == ""


def test_margin_and_length_rules():
    assert pair("a", "b", scores=(6, 5.5), margin=1.0).drop == "margin"
    assert pair("a" * 50, "b" * 10, max_length_ratio=3).drop == "length"
    assert pair("a" * 30, "b" * 10, max_length_ratio=3).drop == ""


def many(margins: list[float]):
    duels = [Duel(f"d{n}", Instruction(f"i{n}", "?"), "m1", "m2") for n in range(len(margins))]
    outcomes = {
        d.id: Outcome(d.id, "decided", "left", margin, 0.0)
        if margin
        else Outcome(d.id, "tie", score_left=0.0, score_right=0.0)
        for d, margin in zip(duels, margins, strict=True)
    }
    responses = {(d.id, name): response(f"{name} {d.id}") for d in duels for name in d.contestants}
    return duels, outcomes, responses


@given(st.lists(st.integers(0, 5).map(float), max_size=30), st.sampled_from([1.0, 0.6, 0.3]))
def test_every_duel_is_accounted_for(margins, share):
    pairs = make_pairs(*many(margins), PairSettings(keep=share))
    assert len(pairs) == len(margins)
    counts = Counter(made.drop for made in pairs)
    decided = sum(margin > 0 for margin in margins)
    assert counts["tie"] == len(margins) - decided
    assert counts[""] + counts["margin_rank"] == decided
    kept = [made.margin for made in pairs if not made.drop]
    cut = [made.margin for made in pairs if made.drop == "margin_rank"]
    assert not kept or not cut or min(kept) >= max(cut)


def test_keeping_does_not_depend_on_the_order_of_equal_margins():
    pairs = make_pairs(*many([1.0, 1.0, 1.0, 1.0]), PairSettings())
    forward = {made.id for made in keep_widest(pairs, 0.5) if not made.drop}
    backward = {made.id for made in keep_widest(pairs[::-1], 0.5) if not made.drop}
    assert forward == backward
    assert len(forward) == 2


def test_weights_follow_the_margin_with_mean_one():
    weighed = weigh_by_margin(make_pairs(*many([1.0, 3.0, 0.0]), PairSettings()))
    assert [made.weight for made in weighed] == [0.5, 1.5, 1.0]


def test_the_chosen_response_alone_is_what_the_pair_would_have_shown():
    made = pair("7", "a long list of", finish=("length", "stop"), truncated="allow")
    shown = chosen_alone(made)
    assert (shown.id, shown.prompt, shown.response) == (made.id, "Name a prime.", "7")
    assert (shown.writer, shown.instruction, shown.truncated) == ("m1", "i", True)
    assert chosen_alone(pair("7", "8", scores=(2, 9))).response == "8"
    assert not chosen_alone(pair("7", "8", scores=(2, 9), finish=("length", "stop"))).truncated
    assert chosen_alone(pair("7", "7")).drop == "identical", "a dropped pair is not learned"
