"""Judgments that are judged: who meets whom, what the place weighs, and what is best and worst."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.meta_judging import (
    Comparison,
    best_and_worst_judgment,
    compare_judgments,
    contest_of,
    judgment_pairs,
    meta_metrics,
    place_weights,
)
from phalanx.collective.samples import Samples
from phalanx.collective.self_judging import Judged, OwnJudgments
from phalanx.config.base import AnswerSettings
from phalanx.config.schema import PairSettings
from phalanx.types import Instruction, Member, Response
from tests.methods.rivals import Asked

PLACE = (7, 1)
ADA = Member("ada", "script:s", engine="scripted")
ITEM = Instruction("i1", "Name a prime.")
VERDICTS = st.sampled_from(["A", "B", "tie", None])


def said(*scores: float | None, texts: tuple[str, ...] = ()) -> OwnJudgments:
    texts = texts or tuple(f"Review {at}.\nScore: {score}" for at, score in enumerate(scores))
    replies = [Response(f"j{at}", text=text, finish_reason="stop") for at, text in enumerate(texts)]
    return OwnJudgments("Rate it.", tuple(replies), scores, ("",) * len(scores))


def judged(*groups: OwnJudgments) -> Judged:
    replies = tuple(
        Response(f"r{at}", text=f"Answer {at}.", finish_reason="stop") for at in range(len(groups))
    )
    return Judged(Samples(ADA, ITEM, replies), dict(enumerate(groups)), tuple(range(len(groups))))


def orders(verdict, count=3):
    """All comparisons of so many judgments, with the verdict of ``verdict(first, second)``."""
    return [Comparison(*order, verdict(*order)) for order in permutations(range(count), 2)]


# Which judgments meet -----------------------------------------------------------------------------


def test_the_response_on_which_scores_vary_most_is_taken():
    contest = contest_of(judged(said(3.0, 3.0, 4.0), said(0.0, 5.0, 5.0), said(1.0, 1.0, 1.0)))
    assert contest.at == 1
    assert contest.entrants == (0, 1, 2)


def test_what_cannot_be_read_or_was_said_before_does_not_enter():
    texts = ("Good.\nScore: 5", "Hm.", "Good.\nScore: 5", "Bad.\nScore: 1")
    contest = contest_of(judged(said(5.0, None, 5.0, 1.0, texts=texts), said(2.0, 2.0, 2.0, 2.0)))
    assert contest.entrants == (0, 3)


@pytest.mark.parametrize("scores", [(3.0, 3.0), (None, None), (4.0, None)])
def test_there_is_no_contest_where_all_scores_agree(scores):
    assert contest_of(judged(said(*scores), said(*scores))) is None
    assert contest_of(Judged(judged(said(1.0)).samples, {}, (None,))) is None


def test_every_two_are_compared_in_both_orders_under_the_same_marks():
    asked = Asked({"sampling": [{"when": ".", "purpose": "meta_judge", "reply": "[[A]]"}]})
    contests = [contest_of(judged(said(1.0, 4.0, 3.0)))]
    found = compare_judgments(contests, AnswerSettings(), asked, place=PLACE)
    assert asked.phases == ["meta-judge"]
    assert [(one.first, one.second) for one in found[0]] == list(permutations(range(3), 2))
    assert len({r.id for r in asked.requests}) == len({r.seed for r in asked.requests}) == 6
    there, back = (
        next(r.messages[-1].content for r, c in zip(asked.requests, found[0], strict=True)
             if (c.first, c.second) == order)
        for order in ((0, 1), (1, 0))
    )  # fmt: skip
    one, two = "Review 0.\nScore: 1.0", "Review 1.\nScore: 4.0"
    swapped = there.replace(one, "\0").replace(two, one).replace("\0", two)
    assert swapped == back
    assert "\nRate it.\n<<<end " in there
    assert asked.requests[0].shortenable[0] == "Answer 0."


# What the place weighs ----------------------------------------------------------------------------


def test_a_judge_that_does_not_mind_the_place_has_equal_weights():
    assert place_weights(orders(lambda a, b: "A" if a < b else "B")) == (1.0, 1.0)
    assert place_weights([]) == (1.0, 1.0)
    assert place_weights([Comparison(0, 1, None)]) == (1.0, 1.0)


def test_each_place_weighs_the_share_of_the_other():
    """Three of four wins for the first place: 2 * 1/4 and 2 * 3/4, the inverse shares' ratio."""
    said = [Comparison(0, 1, verdict) for verdict in ("A", "A", "A", "B", None)]
    first, second = place_weights(said)
    assert (first, second) == (0.5, 1.5)
    assert first / second == pytest.approx((1 / 0.75) / (1 / 0.25))


def test_a_judge_that_always_names_one_place_says_nothing():
    for verdict in ("A", "B"):
        said = orders(lambda a, b, verdict=verdict: verdict)
        assert best_and_worst_judgment(said, place_weights(said)) is None


@given(st.lists(VERDICTS, max_size=30))
def test_weights_are_shares_and_turn_with_the_places(verdicts):
    turned = {"A": "B", "B": "A"}
    first, second = place_weights([Comparison(0, 1, v) for v in verdicts])
    back = place_weights([Comparison(0, 1, turned.get(v, v)) for v in verdicts])
    assert first + second == pytest.approx(2)
    assert min(first, second) >= 0
    assert back == pytest.approx((second, first))


# Best and worst -----------------------------------------------------------------------------------


def test_a_judge_that_follows_a_rank_finds_its_ends():
    said = orders(lambda a, b: "A" if a > b else "B", 5)
    best, worst, margin = best_and_worst_judgment(said, place_weights(said))
    assert (best, worst) == (4, 0)
    assert margin > 0


def test_equal_strengths_and_no_verdicts_are_no_pair():
    assert best_and_worst_judgment(orders(lambda a, b: "tie"), (1.0, 1.0)) is None
    assert best_and_worst_judgment(orders(lambda a, b: None), (1.0, 1.0)) is None
    circle = orders(lambda a, b: "A" if (b - a) % 3 == 1 else "B")
    assert best_and_worst_judgment(circle, (1.0, 1.0)) is None


def test_weights_take_the_place_off():
    """The place decides most verdicts, and the rank the rest; ends are found all the same."""
    rng = random.Random(0)
    said = [
        Comparison(a, b, "A" if rng.random() < 0.6 else ("A" if a > b else "B"))
        for _ in range(20)
        for a, b in permutations(range(4), 2)
    ]
    weights = place_weights(said)
    assert weights[0] < 0.5 < 1.5 < weights[1]
    assert best_and_worst_judgment(said, weights)[:2] == (3, 0)


@given(st.lists(VERDICTS, min_size=12, max_size=12), st.permutations(range(4)))
def test_names_do_not_matter(verdicts, renamed):
    said = [Comparison(*order, v) for order, v in zip(permutations(range(4), 2), verdicts)]  # noqa: B905
    other = [Comparison(renamed[c.first], renamed[c.second], c.verdict) for c in said]
    one = best_and_worst_judgment(said, place_weights(said))
    two = best_and_worst_judgment(other, place_weights(other))
    assert (one is None) == (two is None)
    if one is not None:
        assert one[2] == pytest.approx(two[2], abs=1e-6)


def test_ten_judgments_or_more_keep_their_positions():
    said = orders(lambda a, b: "A" if a > b else "B", 12)
    assert best_and_worst_judgment(said, (1.0, 1.0))[:2] == (11, 0)


# Pairs --------------------------------------------------------------------------------------------


def test_the_best_judgment_over_the_worst_under_the_judges_prompt():
    contests = [contest_of(judged(said(1.0, 4.0, 3.0)))]
    compared = [orders(lambda a, b: "A" if a < b else "B")]
    pair, *more = judgment_pairs(contests, compared, PairSettings(margin=3.0), place=PLACE)
    assert not more
    assert (pair.chosen, pair.rejected) == ("Review 0.\nScore: 1.0", "Review 2.\nScore: 3.0")
    assert pair.instruction.text == "Rate it."
    assert pair.chosen_member == pair.rejected_member == "ada"
    assert pair.drop == ""  # pairs.margin is of scores
    assert pair.margin > 0


@pytest.mark.parametrize(("verdict", "why"), [("tie", "tie"), (None, "unscored")])
def test_without_a_best_one_the_pair_is_dropped_with_a_reason(verdict, why):
    contests = [contest_of(judged(said(1.0, 4.0)))]
    compared = [orders(lambda a, b: verdict, 2)]
    (pair,) = judgment_pairs(contests, compared, PairSettings(), place=PLACE)
    assert pair.drop == why


def test_reasoning_is_no_part_of_what_is_learned():
    texts = ("<think>Hm.</think>Poor.\nScore: 1", "Fine.\nScore: 4")
    contests = [contest_of(judged(said(1.0, 4.0, texts=texts)))]
    compared = [orders(lambda a, b: "A" if a < b else "B", 2)]
    (pair,) = judgment_pairs(contests, compared, PairSettings(), place=PLACE)
    assert (pair.chosen, pair.rejected) == ("Poor.\nScore: 1", "Fine.\nScore: 4")


def test_what_was_said_of_a_shortened_prompt_is_not_learned():
    cut = said(1.0, 4.0)
    cut = replace(cut, replies=(cut.replies[0], replace(cut.replies[1], num_shortened_tokens=9)))
    compared = [orders(lambda a, b: "A" if a < b else "B", 2)]
    (pair,) = judgment_pairs([contest_of(judged(cut))], compared, PairSettings(), place=PLACE)
    assert pair.drop == "shortened"


def test_how_verdicts_lean_is_counted():
    contests = [contest_of(judged(said(1.0, 4.0, 4.0)))]
    compared = [
        [
            Comparison(0, 1, "B"),  # the higher score
            Comparison(1, 0, "A"),  # the higher score
            Comparison(0, 2, "A"),  # the lower one
            Comparison(1, 2, "A"),  # equal scores
            Comparison(2, 1, "tie"),
            Comparison(2, 0, None),
        ]
    ]
    found = meta_metrics(contests, compared, [])
    assert found["meta.asked"] == 6
    assert found["meta.unreadable"] == 1
    assert found["meta.follows_score"] == pytest.approx(2 / 3)
    assert found["meta.first_place"] == pytest.approx(3 / 4)
