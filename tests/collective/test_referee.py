"""Ranking by the mixture, by a judge, by a reward model and by a ranker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.collective.ranking import most_comparisons
from phalanx.collective.referee import Candidate, rank_by
from phalanx.errors import ConfigError
from phalanx.types import Failure, Likelihood, Response, Reward
from tests.collective.hearings import (
    RANKS,
    Asked,
    by_rank,
    instruction,
    members,
    preferring_good,
    script,
    settings,
)

PLACE = (7, 1)
WORDS = ("Nine.", "Seven is good.", "Eight.", "Ten.", "Four.")


def candidates(*texts, name="dan"):
    return [Candidate(f"{name}#{n}", text, f"r{n}") for n, text in enumerate(texts, start=1)]


def rank(by, /, asked, *groups, pool=None, **sections):
    groups = groups or ((instruction(), candidates(*WORDS)),)
    return rank_by(by, groups, pool or members(), asked, settings(**sections), place=PLACE)


# The mixture -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranking", ["round_robin", "knockout"])
def test_the_mixture_finds_best_and_worst(ranking):
    asked = Asked(script(*by_rank()))
    found = rank("moa", asked, reward={"ranking": ranking})
    (result,) = found.ranked
    assert (result.best, result.worst, result.reason) == (1, 4, "")
    if ranking == "round_robin":
        assert result.scores == (3.0, 4.0, 2.0, 1.0, 0.0)
    assert {duel.matched for duel in found.duels} == {"ranking"}
    assert {judgment.judge for judgment in found.judgments} == {"mixture"}
    assert [j.duel_id for j in found.judgments] == [d.id for d in found.duels]
    assert [o.duel_id for o in found.outcomes] == [d.id for d in found.duels]
    assert {outcome.status for outcome in found.outcomes} == {"decided"}


@pytest.mark.parametrize("ranking", ["round_robin", "knockout"])
def test_requests_are_comparisons_times_readers_and_verdict_times_orders(ranking):
    asked = Asked(script(*by_rank()))
    found = rank("moa", asked, reward={"ranking": ranking})
    assert len(found.duels) <= most_comparisons(ranking, 5)
    assert len(asked.requests) == 1 + len(found.duels) * (2 + 1) * 2
    if ranking == "round_robin":
        assert len(found.duels) == 10


def test_criteria_are_chosen_once_an_instruction_however_many_duels_and_students():
    asked = Asked(script(*by_rank()))
    groups = [
        (instruction(number), candidates(*WORDS, name=name))
        for name in ("dan", "eve")
        for number in (1, 2)
    ]
    found = rank("moa", asked, *groups, reward={"ranking": "knockout"})
    assert len(asked.of("criteria")) == 2
    assert found.metrics["criteria.chosen.reasoning"] == 2
    assert found.metrics["criteria.unreadable"] == 0
    assert len({duel.id for duel in found.duels}) == len(found.duels)


def test_criteria_are_chosen_once_in_a_run():
    """Another stage, generation or turn of a builder shares the choice, and not the verdicts."""
    asked = Asked(script(*by_rank()))
    for place in ((7, 1), (7, 2), (7, 2, "best_of", 0)):
        found = rank_by(
            "moa", [(instruction(), candidates(*WORDS))], members(), asked, settings(), place=place
        )
        assert found.metrics["criteria.chosen.reasoning"] == 1
    assert len(asked.of("criteria")) == 1
    assert len(asked.of("verdict")) == 3 * 20
    rank_by("moa", [(instruction(), candidates(*WORDS))], members(), asked, settings(), place=(8,))
    assert len(asked.of("criteria")) == 2


def test_a_knockout_asks_all_groups_in_the_same_rounds():
    asked = Asked(script(*by_rank()))
    groups = [(instruction(number), candidates(*WORDS)) for number in range(6)]
    rank("moa", asked, *groups, reward={"ranking": "knockout"})
    phases = [phase for phase, _ in asked.phases]
    assert phases[:5] == ["criteria", "assess 1", "verdict 1", "assess 2", "verdict 2"]
    assert len(phases) == len(set(phases)) <= 9
    assert dict(asked.phases)["verdict 1"] == 6 * 2 * 2


def test_a_judge_of_places_gives_ties_and_no_pair():
    rule = {"when": ".", "purpose": "verdict", "reply": "[[A]]"}
    for ranking in ("round_robin", "knockout"):
        found = rank("moa", Asked(script(rule)), reward={"ranking": ranking})
        assert found.ranked[0].reason == "tie"
        assert (found.ranked[0].best, found.ranked[0].worst) == (None, None)
        assert all(judgment.flipped for judgment in found.judgments)
        drawn = [any(f.startswith("drawn:") for f in j.flags) for j in found.judgments]
        assert any(drawn) == (ranking == "knockout")


def test_verdicts_that_cannot_be_read_leave_no_score():
    rule = {"when": ".", "purpose": "verdict", "reply": "Hm."}
    found = rank("moa", Asked(script(rule)))
    assert found.ranked[0].reason == "unscored"
    assert found.ranked[0].scores == (None,) * 5
    assert {outcome.status for outcome in found.outcomes} == {"no_quorum"}


# What meets no judge -----------------------------------------------------------------------------


def test_the_same_text_is_judged_once_and_shares_its_score():
    asked = Asked(script(*by_rank()))
    found = rank("moa", asked, (instruction(), candidates("Nine.", "Four.", " Nine.\n", "Ten.")))
    assert len(found.duels) == 3
    assert found.ranked[0].scores == (2.0, 0.0, 2.0, 1.0)
    assert (found.ranked[0].best, found.ranked[0].worst) == (0, 1)


@pytest.mark.parametrize(
    ("texts", "failed", "reason"),
    [
        (("Nine.", "Nine.", " Nine."), "", "identical"),
        (("Nine.", "", " "), "", "empty"),
        (("Nine.", ""), "timeout", "failed"),
        (("Nine.",), "", "single"),
        (("",), "", "empty"),
    ],
)
@pytest.mark.parametrize("judge", ["moa", "cora"])
def test_where_there_is_nothing_to_compare_nobody_compares(texts, failed, reason, judge):
    group = candidates(*texts)
    group[-1] = replace(group[-1], failed=failed)
    asked = Asked(script())
    found = rank(judge, asked, (instruction(), group), judge={"protocol": "pairwise"})
    assert asked.phases == []
    assert found.duels == ()
    assert (found.ranked[0].best, found.ranked[0].reason) == (None, reason)


def test_failed_and_empty_candidates_are_left_out_of_the_ranking():
    group = candidates("", *WORDS[:3], "Ten.")
    group[4] = replace(group[4], failed="timeout")
    found = rank("moa", Asked(script(*by_rank())), (instruction(), group))
    assert found.ranked[0].scores == (None, 1.0, 2.0, 0.0, None)
    assert (found.ranked[0].best, found.ranked[0].worst) == (2, 3)


def test_two_candidates_with_one_name_are_refused():
    group = [Candidate("dan#1", "a"), Candidate("dan#1", "b")]
    with pytest.raises(ValueError, match="share a name"):
        rank("moa", Asked(script()), (instruction(), group))


# One judge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranking", ["round_robin", "knockout"])
def test_a_pairwise_judge_plays_tournaments_too(ranking):
    asked = Asked({"sampling": by_rank("judge")})
    found = rank(
        "cora", asked, judge={"protocol": "pairwise"}, reward={"ranking": ranking}
    )  # fmt: skip
    assert (found.ranked[0].best, found.ranked[0].worst) == (1, 4)
    assert {judgment.judge for judgment in found.judgments} == {"cora"}
    assert len(asked.requests) == 2 * len(found.duels)


def test_a_member_may_rank_its_own_responses():
    asked = Asked({"sampling": by_rank("judge")})
    group = candidates(*WORDS, name="cora")
    found = rank("cora", asked, (instruction(), group), judge={"protocol": "pairwise"})
    assert found.ranked[0].best == 1


def scoring(scores):
    return {
        "sampling": [
            {"when": f"<<<response \\w+>>>\n{word}", "reply": f'{{"score": {score}}}'}
            for word, score in scores.items()
        ] + [{"when": ".", "reply": "I cannot say."}]
    }  # fmt: skip


def test_a_rubric_judge_scores_each_response_once():
    asked = Asked(scoring({"Seven": 9, "Nine": 6, "Eight": 5, "Ten": 4, "Four": 2}))
    found = rank("cora", asked, judge={"protocol": "rubric"})
    assert len(asked.requests) == 5
    assert found.ranked[0].scores == (6.0, 9.0, 5.0, 4.0, 2.0)
    assert (found.ranked[0].best, found.ranked[0].worst) == (1, 4)
    ((duel,), (judgment,), (outcome,)) = found.duels, found.judgments, found.outcomes
    assert duel.contestants == ("dan#2", "dan#5")
    assert (judgment.score_left, judgment.score_right) == (9.0, 2.0)
    assert outcome.winner == "left"
    assert judgment.raw == {
        slot: asked.replies[request].said for slot, request in judgment.requests.items()
    }


def test_prompts_about_the_responses_of_a_group_differ_in_the_response_alone():
    asked = Asked(scoring({"Seven": 9}))
    rank("cora", asked, judge={"protocol": "rubric"})
    bare = {
        request.messages[-1].content.replace(word, "")
        for request, word in zip(asked.requests, WORDS, strict=True)
    }
    assert len(bare) == 1
    assert len({request.seed for request in asked.requests}) == 1


def test_a_score_that_cannot_be_read_is_missing_and_the_others_are_ranked():
    found = rank("cora", Asked(scoring({"Nine": 6, "Ten": 4})), judge={"protocol": "rubric"})
    assert found.ranked[0].scores == (6.0, None, None, 4.0, None)
    assert (found.ranked[0].best, found.ranked[0].worst) == (0, 3)
    # Best and worst have scores, so the one judgment is whole; the gaps are counted all the same.
    assert all(judgment.readable for judgment in found.judgments)
    assert found.metrics == {"scores.asked": 5, "scores.unreadable": 3}


def test_one_score_alone_ranks_nothing():
    found = rank("cora", Asked(scoring({"Nine": 6})), judge={"protocol": "rubric"})
    assert found.ranked[0].reason == "unscored"
    assert found.outcomes[0].status == "no_quorum"


def test_equal_scores_are_a_tie():
    asked = Asked(scoring(dict.fromkeys(RANKS, 6)))
    found = rank("cora", asked, judge={"protocol": "rubric"})
    assert found.ranked[0].reason == "tie"
    assert found.outcomes[0].status == "tie"


def test_a_single_candidate_is_scored():
    asked = Asked(scoring({"Nine": 6}))
    found = rank("cora", asked, (instruction(), candidates("Nine.")), judge={"protocol": "rubric"})
    assert found.ranked[0].scores == (6.0,)
    assert found.duels == ()


def test_likelihood_ranks_too():
    """Scores are nats per token of each response alone."""
    chances = {"Ten": -3.0, "Nine": -1.5, "Four": -0.5, "Seven": -0.9, "Eight": -2.0}

    def likelihood(phase, requests):
        assert phase == "judge"
        asked.extend(requests)
        return [
            Response(
                request.id,
                logprob_sum=chances[request.want.completion.split()[0].strip(".")] * 4,
                num_scored_tokens=4,
            )
            for request in requests
        ]

    asked = []
    found = rank("cora", likelihood, judge={"protocol": "likelihood"})
    assert [request.want for request in asked] == [Likelihood(word) for word in WORDS]
    assert found.ranked[0].scores == (-1.5, -0.9, -2.0, -3.0, -0.5)
    assert (found.ranked[0].best, found.ranked[0].worst, found.ranked[0].reason) == (4, 3, "")


def test_a_reward_model_scores_whatever_the_protocol():
    rules = [{"when": word, "reward": rank / 2} for word, rank in RANKS.items()]
    asked = Asked({"reward": rules})
    found = rank(
        "cora", asked, pool=members(cora="reward"), judge={"protocol": "pairwise"}
    )  # fmt: skip
    assert found.ranked[0].scores == (2.0, 2.5, 1.5, 1.0, 0.5)
    # Each response, and first one pair, to learn that it is no ranker.
    assert [request.want.rival is None for request in asked.requests] == [False] + 5 * [True]
    assert {judgment.protocol for judgment in found.judgments} == {"reward"}


class Ranker:
    """An ``ask`` of a reward model that scores pairs alone, with a liking for the first place."""

    def __init__(self, bias=0.0):
        self.bias, self.asked = bias, []

    def __call__(self, phase, requests):
        self.asked += requests
        return [self._one(request) for request in requests]

    def _one(self, request):
        assert isinstance(request.want, Reward)
        if request.want.rival is None:
            error = Failure("engine", "this is a ranker: give a rival")
            return Response(request.id, error=error, flags=("ranker",))
        mine, rival = (
            RANKS[text.split()[0].strip(".")]
            for text in (request.want.response, request.want.rival)
        )
        return Response(request.id, reward=mine - rival + self.bias, flags=("ranker",))


def test_a_ranker_compares_pairs_in_both_orders():
    ranker = Ranker(bias=0.5)
    found = rank("cora", ranker, pool=members(cora="reward"))
    assert (found.ranked[0].best, found.ranked[0].worst) == (1, 4)
    assert len(found.duels) == 10
    # That it is a ranker shows in its first answer, which is one of the duels'; none is refused.
    assert all(request.want.rival is not None for request in ranker.asked)
    assert len(ranker.asked) == 1 + 2 * 10
    assert len({request.id for request in ranker.asked}) == 2 * 10
    assert {request.want.response for request in ranker.asked} == set(WORDS)
    judgment = found.judgments[0]  # Nine (4) against Seven (5): the bias cancels out
    assert judgment.score_left - judgment.score_right == pytest.approx(-1.0)
    assert "ranker" in judgment.flags
    assert not judgment.flipped


def test_where_no_texts_differ_a_reward_model_is_asked_about_no_pair():
    asked = Asked({"reward": [{"when": ".", "reward": 1.5}]})
    group = (instruction(), candidates("Nine.", "Nine."))
    found = rank("cora", asked, group, pool=members(cora="reward"))
    assert [request.want for request in asked.requests] == [Reward("Nine.")]
    assert found.ranked[0].scores == (1.5, 1.5)
    assert found.ranked[0].reason == "identical"


def test_a_ranker_that_looks_at_the_place_is_flipped_and_its_mean_decides():
    found = rank("cora", Ranker(bias=9.0), pool=members(cora="reward"))
    assert all(judgment.flipped for judgment in found.judgments)
    assert (found.ranked[0].best, found.ranked[0].worst) == (1, 4)


def test_a_ranker_whose_scores_are_no_numbers_decides_nothing():
    found = rank("cora", Ranker(bias=float("nan")), pool=members(cora="reward"))
    assert {judgment.reason for judgment in found.judgments} == {
        "first: the reward is nan; second: the reward is nan"
    }
    assert not any(judgment.readable for judgment in found.judgments)
    assert found.ranked[0].best is None


@pytest.mark.parametrize("protocol", ["reward", "moa"])
def test_a_protocol_that_the_member_cannot_follow_is_refused(protocol):
    pool = members(cora="hf")
    with pytest.raises(ConfigError, match="cannot rank responses"):
        rank("cora", Asked(script()), pool=pool, judge={"protocol": protocol})


def test_an_unknown_judge_is_refused():
    with pytest.raises(ConfigError, match="ranking: no member is named zoe"):
        rank("zoe", Asked(script()))


def test_preferring_good_is_a_judge_of_texts():
    """The script of other tests, checked once: of two good ones, which are level, the first."""
    found = rank(
        "moa", Asked(script(*preferring_good())),
        (instruction(), candidates("good a", "bad", "good b")),
    )  # fmt: skip
    assert found.ranked[0].scores == (1.5, 0.0, 1.5)
    assert (found.ranked[0].best, found.ranked[0].worst) == (0, 1)
