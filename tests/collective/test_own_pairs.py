"""Pairs of a member's own responses: one record an instruction, whatever the scores are."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.own_pairs import own_metrics, own_pairs
from phalanx.collective.samples import Samples
from phalanx.collective.self_judging import judge_own
from phalanx.config.base import AnswerSettings
from phalanx.config.schema import PairSettings
from phalanx.types import Failure, Instruction, Member, Response

PLACE = (7, 1)
DROPS = {"", "tie", "identical", "empty", "unscored", "truncated", "length"}

REPLIES = st.lists(
    st.tuples(
        st.sampled_from(["Two.", "Three, say.", "Five is one of them.", "", "\n"]),
        st.sampled_from(["stop", "stop", "length"]),
        st.booleans(),  # failed
    ),
    min_size=2,
    max_size=6,
)
SCORES = st.dictionaries(
    st.sampled_from(["Two.", "Three, say.", "Five is one of them."]),
    st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=2, max_size=2),
    min_size=3,
)


def samples(replies, name="ada", item="i1") -> Samples:
    made = [
        Response(f"{name}{at}", error=Failure("engine", "broken"))
        if failed
        else Response(f"{name}{at}", text=text, finish_reason=finish)
        for at, (text, finish, failed) in enumerate(replies)
    ]
    return Samples(Member(name, "script:s"), Instruction(item, "Name a prime."), tuple(made))


def judged_by(groups, scores, whole_only=False):
    """What a member says where it gives every text the scores of the table."""

    def ask(phase, requests):
        said = []
        times: dict[str, int] = {}
        for request in requests:
            (text,) = request.shortenable
            number = times[text] = times.get(text, -1) + 1
            score = scores[text][number % 2]
            word = "I cannot say." if score is None else f"Score: {score}"
            said.append(Response(request.id, text=word, finish_reason="stop"))
        return said

    settings = AnswerSettings()
    return judge_own(groups, 2, settings, ask, place=PLACE, quorum=0.5, whole_only=whole_only)


@given(
    REPLIES,
    SCORES,
    st.sampled_from(["rejected_only", "drop", "allow"]),
    st.one_of(st.none(), st.floats(0, 1)),
)
def test_every_group_is_one_record_that_says_why(replies, scores, rule, rho):
    judged = judged_by([samples(replies)], scores, rule == "drop")
    settings = PairSettings(truncated=rule)
    (found,) = own_pairs(judged, settings, rho, place=PLACE)
    pair = found.pair
    assert pair.drop in DROPS
    assert pair.chosen_member == pair.rejected_member == "ada"
    assert (found.duel is None) == (not judged[0].said) == (found.judgment is None)
    if found.duel is not None:
        assert found.outcome.duel_id == found.judgment.duel_id == found.duel.id
        assert set(found.duel.contestants) <= set(judged[0].samples.names)
    if pair.drop:
        return
    means = {
        text: sum(known) / len(known)
        for text, both in scores.items()
        if (known := [score for score in both if score is not None])
    }
    assert means[pair.chosen] > means[pair.rejected]
    assert math.isclose(pair.margin, means[pair.chosen] - means[pair.rejected])
    assert not pair.chosen_truncated or rule == "allow"
    assert not pair.rejected_truncated or rule != "drop"
    if rho is None:
        usable = {
            text
            for text, finish, failed in replies
            if not failed and text.strip() and (rule == "allow" or finish == "stop")
        }
        assert means[pair.chosen] >= max(means[text] for text in usable if text in means)


@given(st.lists(REPLIES, min_size=1, max_size=4), SCORES)
def test_the_sums_add_up(groups, scores):
    sampled = [
        samples(replies, name, f"i{at}")
        for at, replies in enumerate(groups)
        for name in ("ada", "bob")
    ]
    judged = judged_by(sampled, scores)
    pairs = [one.pair for one in own_pairs(judged, PairSettings(), None, place=PLACE)]
    metrics = own_metrics(judged, pairs)
    dropped = sum(n for key, n in metrics.items() if key.startswith("num_dropped."))
    assert metrics["num_pairs"] + dropped == len(pairs) == 2 * len(groups)
    assert len({pair.id for pair in pairs}) == len(pairs)
    for what in ("asked", "unreadable"):
        total = metrics[f"scores.{what}"]
        assert total == metrics[f"scores.{what}.ada"] + metrics[f"scores.{what}.bob"]
    assert metrics["scores.unreadable"] <= metrics["scores.asked"]


def test_a_share_of_pairs_is_that_of_each_member():
    """All margins are equal: of the pairs of both together, ids would decide whose are kept."""
    both = [("Two.", "stop", False), ("Three, say.", "stop", False)]
    groups = [samples(both, name, f"i{at}") for name in ("ada", "bob") for at in range(8)]
    judged = judged_by(groups, {"Two.": [5, 5], "Three, say.": [1, 1]})
    found = own_pairs(judged, PairSettings(keep=0.25), None, place=PLACE)
    for name in ("ada", "bob"):
        kept = [one for one in found if one.pair.chosen_member == name and not one.pair.drop]
        assert len(kept) == 2
