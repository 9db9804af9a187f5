"""A panel whose numbers are counted by hand; agreement against the krippendorff package."""

from __future__ import annotations

import json
import math

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.benchmarks.judgebench import group_of
from phalanx.benchmarks.panel_readings import (
    MAJORITY,
    Reading,
    Side,
    TestedPair,
    judgments_of_pairs,
    readings,
    rules,
    together,
)
from phalanx.benchmarks.panel_test import by_prompt, dev_half, judge_line, panel_test, shifts
from phalanx.benchmarks.rewardbench import SECTIONS
from phalanx.collective.comparing import RANKER
from phalanx.statistics import minimum_detectable, wilson
from phalanx.types import Failure, Judgment, Response


def pair(number: int, label: str = "A", **more) -> TestedPair:
    sides = (Side(f"d{number}", "left"), Side(f"d{number}", "right"))
    given = {"prompt": f"q{number}", "group": "g", "lengths": (10, 5), **more}
    return TestedPair(id=f"p{number}", label=label, sides=sides, **given)


def said(*signs: int | None) -> list[Reading]:
    return [Reading(sign) for sign in signs]


# Eight pairs; the truth is A B A B A B A B.
PAIRS = [pair(n, "AB"[n % 2], group="even" if n % 2 == 0 else "odd") for n in range(8)]
ALONE = {
    "good": said(1, -1, 1, -1, 1, -1, -1, 0),  # wrong once, tied once: 6 of 8
    "always_a": said(1, 1, 1, 1, 1, 1, 1, 1),  # 4 of 8
    "gappy": said(None, -1, None, 1, 1, 0, -1, -1),  # right on 1, 4 and 7: 3 of 8
}


def test_ties_and_missing_verdicts_are_not_right_and_stay_in_the_count():
    line = judge_line("gappy", PAIRS, ALONE["gappy"])
    assert (line.right.count, line.right.n) == (3, 8)
    assert (line.ties, line.unread) == (1, 2)
    assert {name: (s.count, s.n) for name, s in line.by_group.items()} == {
        "even": (1, 4),
        "odd": (2, 4),
    }
    assert line.flipped is line.first is line.brier is line.own is line.family is None


def test_the_longer_response_against_the_truth_on_the_same_pairs():
    # A is always the longer one; A is better in half of the pairs.
    line = judge_line("good", PAIRS, ALONE["good"])
    assert line.longer.longer_share == pytest.approx((3 + 0.5) / 8)
    assert line.truly_longer == pytest.approx(0.5)
    gappy = judge_line("gappy", PAIRS, ALONE["gappy"])  # reads pairs 1, 3, 4, 5, 6, 7
    assert gappy.longer.longer_share == pytest.approx((2 + 0.5) / 6)
    assert gappy.truly_longer == pytest.approx(2 / 6)
    even = [pair(n, lengths=(7, 7)) for n in range(3)]
    assert judge_line("x", even, said(1, 1, 1)).longer is None


def test_alpha_is_that_of_the_krippendorff_package():
    table = np.array(
        [[np.nan if one.sign is None else one.sign for one in mine] for mine in ALONE.values()]
    )
    expected = krippendorff.alpha(reliability_data=table, level_of_measurement="nominal")
    found = panel_test(PAIRS, ALONE, {})
    assert found.alpha == pytest.approx(expected)


def test_judges_that_err_together_are_worth_one():
    twins = {"one": ALONE["good"], "two": ALONE["good"], "three": ALONE["good"]}
    worth = panel_test(PAIRS, twins, {}).worth
    assert worth.effective == pytest.approx(1.0)
    assert worth.participation == pytest.approx(1.0)


def test_what_cannot_be_computed_is_said():
    unread = {"one": said(*[None] * 8), "two": said(*[1] * 8)}
    found = panel_test(PAIRS, unread, {})
    assert found.alpha is None
    assert found.worth is None
    assert [why.split(":")[0] for why in found.why] == ["agreement", "effective judges"]
    with pytest.raises(ValueError, match="needs pairs and judges, got 0 and 1"):
        panel_test([], {"one": []}, {})
    alone = panel_test(PAIRS, {"one": ALONE["good"]}, {})
    assert alone.together == alone.versus == ()
    assert alone.alpha is None


def test_the_best_judge_is_chosen_on_one_half_and_compared_on_the_other():
    pairs = [pair(n, "A") for n in range(40)]
    chosen = dev_half(pairs)
    dev = [one.id in chosen for one in pairs]
    assert sum(dev) == 20
    # Best on dev, wrong on test; the other one the opposite.
    alone = {
        "dev_only": said(*(1 if mine else -1 for mine in dev)),
        "test_only": said(*(-1 if mine else 1 for mine in dev)),
    }
    panel = {"mean": said(*[1] * 40), "median": alone["dev_only"]}
    found = panel_test(pairs, alone, panel)
    num_test = 40 - sum(dev)
    assert found.best == "dev_only"
    assert (found.best_on_dev.count, found.best_on_dev.n) == (sum(dev), sum(dev))
    mean, median = found.versus
    assert (mean.gained, mean.lost) == (num_test, 0)
    assert (mean.after.count, mean.before.count) == (num_test, 0)
    assert mean.pvalue == pytest.approx(2 * 0.5**num_test)
    assert mean.adjusted == pytest.approx(2 * mean.pvalue)  # Holm over two rules
    assert (median.gained, median.lost, median.pvalue, median.adjusted) == (0, 0, 1.0, 1.0)


def test_halves_are_equal_in_size_and_alike_in_groups():
    pairs = [pair(n, group="abc"[n % 3]) for n in range(31)]
    chosen = dev_half(pairs)
    assert len(chosen) == 16
    for group, total in (("a", 11), ("b", 10), ("c", 10)):
        inside = sum(one.group == group and one.id in chosen for one in pairs)
        assert abs(2 * inside - total) <= 1
    assert dev_half(pairs[::-1]) == chosen


def test_preferring_ones_own_against_the_truth():
    mine = {"writers": ("ada@2", "bob"), "families": ("llama", "qwen")}
    pairs = [
        pair(0, "A", **mine),  # own and better, chosen
        pair(1, "B", **mine),  # own and worse, chosen all the same
        pair(2, "B", **mine),  # own and worse, not chosen
        pair(3, "B", **mine),  # own and worse, a tie
        pair(4, "B", **mine),  # unread
        pair(5, "A", writers=("bob", "cora"), families=("qwen", "llama")),  # a relative's, worse
        pair(6, "A", writers=("bob", "bob"), families=("qwen", "qwen")),
    ]
    line = judge_line("ada", pairs, said(1, 1, -1, 0, None, -1, 1), {"ada": "llama"})
    assert line.own.n == 4
    assert line.own.favoured == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert line.own.truly == pytest.approx(1 / 4)
    assert line.own.pvalue == 1.0  # one pair given, none taken
    # Only the pair with a relative's response: the judge's own are the other measure.
    assert (line.family.n, line.family.favoured, line.family.truly) == (1, 1.0, 0.0)
    assert judge_line("ada", pairs, said(*[1] * 7), {}).family is None


def test_half_a_verdict_counts_by_the_published_rule_alone():
    pairs = [pair(n, "AB"[n % 2], group="mmlu-pro") for n in range(4)]
    mine = [
        Reading(0, ("first", "tie"), True),  # right, and a tie
        Reading(None, ("second", None), None),  # right, and unread
        Reading(0, ("first", "first"), True),
        Reading(-1, ("second", "first"), False),
    ]
    line = judge_line("ada", pairs, mine, published=True)
    assert (line.right.count, line.ties, line.unread) == (1, 2, 1)
    assert (line.published.overall.count, line.published.num_unread) == (3, 1)
    assert judge_line("ada", pairs, mine).published is None
    assert judge_line("ada", pairs, said(1, 1, 1, 1), published=True).published is None


def test_judges_and_the_panel_are_scored_by_one_rule():
    # Both judges are right in one order and see a tie in the other; so is the panel.
    replies = {"a": Response("a", text="[[A]]"), "c": Response("c", text="[[C]]")}
    pairs = [pair(n, "A", group="mmlu-pro") for n in range(40)]
    asked = [
        judgment(n, 0.5, 0.5, judge=name, flipped=True, requests={"first": "a", "second": "c"})
        for n in range(40)
        for name in ("ada", "bob")
    ]
    mine = judgments_of_pairs(pairs, asked)
    alone = readings(pairs, mine, replies)
    panel = together(pairs, mine, alone, quorum=0.5, reputations={})
    found = panel_test(pairs, alone, panel, published=True)
    assert {line.right.count for line in (*found.alone, *found.together)} == {0}
    assert {line.published.overall.count for line in found.alone} == {40}
    assert {(one.lost, one.pvalue) for one in found.versus} == {(0, 1.0)}


@pytest.mark.parametrize("judge", ["arena_hard_o1-mini", "reward_model_skywork-8b"])
def test_published_verdicts_as_replies_to_a_judge(data_dir, judge):
    """JudgeBench's own verdicts and numbers, through everything that reads a judge here."""
    folder = data_dir / "judgebench_verdicts"
    want = json.loads((folder / "expected.json").read_text())[judge]
    rows = [json.loads(line) for line in (folder / f"{judge}.jsonl").open()]
    said_as = {"A>B": "[[A]]", "B>A": "[[B]]", "A=B": "[[C]]", None: "I cannot say."}
    replies = {word: Response(word, text=text) for word, text in said_as.items() if word}
    replies["gap"] = Response("gap", text=said_as[None])
    pairs = [
        pair(n, row["label"][0], group=group_of(row["source"])) for n, row in enumerate(rows)
    ]  # fmt: skip
    asked = [
        judgment(n, None, None, requests={"first": row["order_ab"] or "gap",
                                          "second": row["order_ba"] or "gap"})
        for n, row in enumerate(rows)
    ]  # fmt: skip
    (mine,) = readings(pairs, judgments_of_pairs(pairs, asked), replies).values()
    found = judge_line(judge, pairs, mine, published=True).published
    shares = {**found.by_group, "overall": found.overall}
    assert {name: share.n for name, share in shares.items()} == want["n"]
    got = {name: round(100 * share.share, 6) for name, share in shares.items()}
    assert got == want["accuracy"]
    assert round(100 * found.consistent.share, 6) == want["consistent"]
    assert found.num_unread == want["null_pairs"]


def test_pairs_of_a_prompt_are_one_draw():
    many = [pair(n, prompt=f"q{n // 16}") for n in range(32)]
    chosen = dev_half(many)
    assert {one.prompt for one in many if one.id in chosen}.isdisjoint(
        one.prompt for one in many if one.id not in chosen
    )
    all_right = said(*[1] * 32)
    line = judge_line("ada", many, all_right)
    assert line.interval == wilson(2, 2)
    assert line.longer.interval == wilson(2, 2)
    (shift,) = shifts(many, {"ada": said(*[-1] * 32)}, {"ada": all_right})
    assert (shift.gained, shift.lost) == (32, 0)
    assert shift.pvalue == 0.5  # two flips of two signs
    assert shift.detectable is None
    own = [pair(n, "B", prompt=f"q{n // 16}", writers=("ada", "bob")) for n in range(32)]
    partial = judge_line("ada", own, all_right).own
    assert (partial.pvalue, partial.interval) == (0.5, wilson(2, 2))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1))
def test_prompts_have_the_mean_of_the_pairs(rows):
    pairs = [pair(n, prompt=f"q{place}") for n, (place, *_) in enumerate(rows)]
    before, after = [one for _, one, _ in rows], [one for *_, one in rows]
    found = by_prompt(pairs, before, after)
    for scores, marks in zip(found, (before, after), strict=True):
        assert len(scores) == len({one.prompt for one in pairs})
        assert sum(scores) / len(scores) == pytest.approx(sum(marks) / len(marks))
    apart = [pair(n) for n in range(len(rows))]
    assert by_prompt(apart, before, after) == (before, after)


def test_what_could_be_found_is_at_the_level_of_holms_first_step():
    before = {f"judge {n}": said(*[1] * 60 + [-1] * 40) for n in range(4)}
    after = {name: said(*[1] * 70 + [-1] * 30) for name in before}
    pairs = [pair(n) for n in range(100)]
    found = shifts(pairs, before, after)
    assert {one.detectable for one in found} == {
        minimum_detectable(100, 0.1, confidence=1 - 0.05 / 4)
    }
    (all_differ,) = shifts(pairs, {"ada": said(*[1] * 100)}, {"ada": said(*[-1] * 100)})
    assert 0 < all_differ.detectable < 1


def judgment(number: int, left: float | None, right_: float | None, **more) -> Judgment:
    given = {"judge": "ada", "protocol": "pairwise", **more}
    return Judgment(f"d{number}", score_left=left, score_right=right_, **given)


def test_orders_are_read_again_from_what_was_replied():
    replies = {
        "r1": Response("r1", text="[[A]]", finish_reason="stop"),
        "r2": Response("r2", text="[[A]]", finish_reason="stop"),
        "r3": Response("r3", error=Failure("engine", "broken")),
    }
    asked = [
        judgment(0, 0.5, 0.5, flipped=True, requests={"first": "r1", "second": "r2"}),
        judgment(1, None, None, requests={"first": "r1", "second": "r3"}),
    ]
    pairs = [pair(0), pair(1), pair(2)]
    (found,) = readings(pairs, judgments_of_pairs(pairs, asked), replies).values()
    assert found[0] == Reading(0, ("first", "first"), True)
    assert found[1] == Reading(None, ("first", None), None)
    assert found[2] == Reading(None)  # no judgment at all
    line = judge_line("ada", pairs, found)
    assert (line.flipped.count, line.flipped.n, line.unread) == (1, 1, 2)
    assert (line.first.first_share, line.first.pairs, line.first.left_out) == (1.0, 1, 1)


def test_a_rankers_reward_that_is_no_number_is_no_verdict():
    rewards = {"r1": 0.5, "r2": math.nan, "r3": None, "r4": 0.0}
    replies = {key: Response(key, reward=value) for key, value in rewards.items()}
    asked = [
        judgment(
            n, None, None, protocol="reward", flags=(RANKER,), requests={"first": a, "second": b}
        )
        for n, (a, b) in enumerate([("r1", "r2"), ("r3", "r4")])
    ]
    pairs = [pair(0), pair(1)]
    (found,) = readings(pairs, judgments_of_pairs(pairs, asked), replies).values()
    assert [one.orders for one in found] == [("first", None), (None, "tie")]


def test_probabilities_by_protocol():
    dice = {"1": 0.5, "2": 0.5}
    replies = {
        "l": Response("l", probabilities=dice, option_mass=1.0),
        "r": Response("r", probabilities={"1": 1.0, "2": 0.0}, option_mass=1.0),
    }
    stated = judgment(0, 1.5, 1.0, protocol="expected", requests={"left": "l", "right": "r"})
    reward = judgment(1, 2.0, 0.0, protocol="reward", judge="rm")
    spread = [judgment(n, float(n), 0.0, protocol="rubric", judge="rub") for n in (3, 4)]
    pairs = [pair(n) for n in range(5)]
    found = readings(pairs, judgments_of_pairs(pairs, [stated, reward, *spread]), replies)
    assert found["ada"][0].probability == pytest.approx(0.5 + 0.5 * 0.5)
    assert found["rm"][1].probability == pytest.approx(1 / (1 + np.exp(-2)))
    from scipy.stats import norm

    rms = np.sqrt((9 + 16) / 2)
    assert found["rub"][3].probability == pytest.approx(norm.cdf(3 / rms))
    line = judge_line("ada", pairs, found["ada"])
    assert line.num_stated == 1
    assert line.brier == pytest.approx(0.25**2)
    assert line.ece == pytest.approx(0.25)


def test_every_rule_on_a_panel_counted_by_hand():
    scores = {  # of the left and the right response, by two mild judges and one severe one
        "ada": [(3, 1), (1, 2), (2, 2)],
        "bob": [(3, 2), (2, 3), (None, 1)],
        "cora": [(1, 9), (9, 1), (1, 2)],
    }
    asked = [
        judgment(n, left, right_, judge=name, protocol="rubric")
        for name, rows in scores.items()
        for n, (left, right_) in enumerate(rows)
    ]
    pairs = [pair(n) for n in range(3)]
    mine = judgments_of_pairs(pairs, asked)
    alone = readings(pairs, mine, {})
    reputations = {"ada": 100.0, "bob": 100.0, "cora": 1.0}
    found = together(pairs, mine, alone, quorum=0.5, reputations=reputations)
    signs = {name: [one.sign for one in row] for name, row in found.items()}
    assert set(signs) == {*rules(True), MAJORITY}
    assert signs["mean"] == [-1, 1, -1]  # the severe judge outvotes the others
    assert signs["median"] == [1, -1, -1]  # differences 2, 1, -8; -1, -1, 8; 0, -1
    assert signs[MAJORITY] == [1, -1, -1]
    assert signs["reputation"] == [1, -1, -1]  # 2+1-0.08; -1-1+.08; 0-.01
    without = together(pairs, mine, alone, quorum=1.0, reputations={})
    assert set(without) == {*rules(False), MAJORITY}
    assert {row[2].sign for row in without.values()} == {None}  # bob is missing there


def test_scores_of_single_responses_make_pairs():
    # Three responses, scored in two duels; the pair is of responses from different duels.
    one = TestedPair("p", "q", "g", "A", (1, 1), (Side("d0", "right"), Side("d1", "left")))
    asked = [judgment(0, 1.0, 5.0, protocol="rubric"), judgment(1, 3.0, None, protocol="rubric")]
    (found,) = judgments_of_pairs([one], asked)
    assert (found.duel_id, found.score_left, found.score_right) == ("p", 5.0, 3.0)
    turned = TestedPair("t", "q", "g", "A", (1, 1), (Side("d0", "right"), Side("d0", "left")))
    (found,) = judgments_of_pairs([turned], asked)
    assert (found.score_left, found.score_right) == (5.0, 1.0)


def test_probabilities_of_responses_from_two_duels():
    one = TestedPair("p", "q", "g", "A", (1, 1), (Side("d0", "right"), Side("d1", "left")))
    replies = {
        "r0": Response("r0", probabilities={"1": 0.5, "2": 0.5}),
        "l1": Response("l1", probabilities={"1": 1.0, "2": 0.0}),
    }
    asked = [
        judgment(0, 3.0, 1.5, protocol="expected", requests={"left": "l0", "right": "r0"}),
        judgment(1, 1.0, 3.0, protocol="expected", requests={"left": "l1", "right": "r1"}),
    ]
    mine = judgments_of_pairs([one], asked)
    (found,) = readings([one], mine, replies).values()
    assert found[0].probability == pytest.approx(0.5 + 0.5 * 0.5)
    (gap,) = readings([one], mine, {"r0": replies["r0"]}).values()
    assert (gap[0].sign, gap[0].probability) == (1, None)


def test_what_changed_between_two_times():
    before = {"ada": said(1, 1, -1, -1), "gone": said(1, 1, 1, 1)}
    after = {"ada": said(1, -1, 1, 1)}
    pairs = [pair(n) for n in range(4)]
    (shift,) = shifts(pairs, before, after)
    assert (shift.before.count, shift.after.count, shift.gained, shift.lost) == (2, 3, 2, 1)
    assert shift.pvalue == shift.adjusted == 1.0


SIGNS = st.sampled_from([1, 0, -1, None])


@given(st.lists(st.tuples(SIGNS, SIGNS, SIGNS), min_size=2, max_size=12), st.data())
def test_turning_every_pair_round_changes_nothing(rows, data):
    """Which response is called A means nothing to any number of the table."""
    labels = data.draw(st.lists(st.sampled_from("AB"), min_size=len(rows), max_size=len(rows)))
    turned = {"A": "B", "B": "A"}
    pairs = [pair(n, label) for n, label in enumerate(labels)]
    mirrored = [pair(n, turned[label], lengths=(5, 10)) for n, label in enumerate(labels)]

    def table(these, sign):
        alone = {
            f"judge {at}": said(*(None if row[at] is None else sign * row[at] for row in rows))
            for at in range(3)
        }
        return panel_test(these, alone, {"mean": alone["judge 0"]})

    assert table(pairs, 1) == table(mirrored, -1)


def test_rewardbench_sections_have_the_published_weights():
    weights = SECTIONS["Chat Hard"]
    pairs = [pair(n, "A", group=name) for n, name in enumerate([*weights, *weights])]
    # Of each subset's two pairs one is right, of the last subset both.
    signs = [1] * len(weights) + [-1] * (len(weights) - 1) + [1]
    found = judge_line("ada", pairs, said(*signs)).sections
    last = list(weights.values())[-1]
    total = sum(weights.values())
    assert found["Chat Hard"] == pytest.approx((0.5 * (total - last) + last) / total)
    assert found["Chat"] is found["overall"] is None
    assert judge_line("ada", PAIRS, ALONE["good"]).sections == {}
