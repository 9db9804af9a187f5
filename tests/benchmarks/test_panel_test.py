"""A panel whose numbers are counted by hand; agreement against the krippendorff package."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.benchmarks.panel_readings import (
    MAJORITY,
    Reading,
    Side,
    TestedPair,
    judgments_of_pairs,
    readings,
    right,
    rules,
    together,
)
from phalanx.benchmarks.panel_test import dev_half, judge_line, panel_test, shifts
from phalanx.benchmarks.rewardbench import SECTIONS
from phalanx.types import Failure, Judgment, Response


def pair(number: int, label: str = "A", **more) -> TestedPair:
    sides = (Side(f"d{number}", "left"), Side(f"d{number}", "right"))
    given = {"group": "g", "lengths": (10, 5), **more}
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
    line = judge_line("gappy", PAIRS, ALONE["gappy"], "own")
    assert (line.right.count, line.right.n) == (3, 8)
    assert (line.ties, line.unread) == (1, 2)
    assert {name: (s.count, s.n) for name, s in line.by_group.items()} == {
        "even": (1, 4),
        "odd": (2, 4),
    }
    assert line.flipped is line.first is line.brier is line.own is line.family is None


def test_the_longer_response_against_the_truth_on_the_same_pairs():
    # A is always the longer one; A is better in half of the pairs.
    line = judge_line("good", PAIRS, ALONE["good"], "own")
    assert line.longer.longer_share == pytest.approx((3 + 0.5) / 8)
    assert line.truly_longer == pytest.approx(0.5)
    gappy = judge_line("gappy", PAIRS, ALONE["gappy"], "own")  # reads pairs 1, 3, 4, 5, 6, 7
    assert gappy.longer.longer_share == pytest.approx((2 + 0.5) / 6)
    assert gappy.truly_longer == pytest.approx(2 / 6)
    even = [pair(n, lengths=(7, 7)) for n in range(3)]
    assert judge_line("x", even, said(1, 1, 1), "own").longer is None


def test_alpha_is_that_of_the_krippendorff_package():
    table = np.array(
        [[np.nan if one.sign is None else one.sign for one in mine] for mine in ALONE.values()]
    )
    expected = krippendorff.alpha(reliability_data=table, level_of_measurement="nominal")
    found = panel_test(PAIRS, ALONE, {}, "own")
    assert found.alpha == pytest.approx(expected)


def test_judges_that_err_together_are_worth_one():
    twins = {"one": ALONE["good"], "two": ALONE["good"], "three": ALONE["good"]}
    worth = panel_test(PAIRS, twins, {}, "own").worth
    assert worth.effective == pytest.approx(1.0)
    assert worth.participation == pytest.approx(1.0)


def test_what_cannot_be_computed_is_said():
    unread = {"one": said(*[None] * 8), "two": said(*[1] * 8)}
    found = panel_test(PAIRS, unread, {}, "own")
    assert found.alpha is None
    assert found.worth is None
    assert [why.split(":")[0] for why in found.why] == ["agreement", "effective judges"]
    with pytest.raises(ValueError, match="needs pairs and judges, got 0 and 1"):
        panel_test([], {"one": []}, {}, "own")
    alone = panel_test(PAIRS, {"one": ALONE["good"]}, {}, "own")
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
    found = panel_test(pairs, alone, panel, "own")
    num_test = 40 - sum(dev)
    assert found.best == "dev_only"
    assert (found.best_on_dev.count, found.best_on_dev.n) == (sum(dev), sum(dev))
    mean, median = found.versus
    assert (mean.gained, mean.lost) == (num_test, 0)
    assert (mean.right.count, mean.best.count) == (num_test, 0)
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
    line = judge_line("ada", pairs, said(1, 1, -1, 0, None, -1, 1), "own", {"ada": "llama"})
    assert line.own.n == 4
    assert line.own.favoured == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert line.own.truly == pytest.approx(1 / 4)
    assert line.own.pvalue == 1.0  # one pair given, none taken
    # Only the pair with a relative's response: the judge's own are the other measure.
    assert (line.family.n, line.family.favoured, line.family.truly) == (1, 1.0, 0.0)
    assert judge_line("ada", pairs, said(*[1] * 7), "own", {}).family is None


def test_both_orders_by_judgebench_and_by_a_win_that_needs_both():
    one = pair(0, "A")
    right_and_tie = Reading(0, ("first", "tie"), True)
    half = Reading(None, ("first", None), None)
    contradiction = Reading(0, ("first", "first"), True)
    both = Reading(1, ("first", "second"), False)
    counted = [right(one, r, "judgebench") for r in (right_and_tie, half, contradiction, both)]
    assert counted == [True, True, False, True]
    assert [right(one, r, "own") for r in (right_and_tie, half, contradiction, both)] == [
        False, False, False, True,
    ]  # fmt: skip


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
    line = judge_line("ada", pairs, found, "own")
    assert (line.flipped.count, line.flipped.n, line.unread) == (1, 1, 2)
    assert (line.first.first_share, line.first.pairs, line.first.left_out) == (1.0, 1, 1)


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
    line = judge_line("ada", pairs, found["ada"], "own")
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
    one = TestedPair("p", "g", "A", (1, 1), (Side("d0", "right"), Side("d1", "left")))
    asked = [judgment(0, 1.0, 5.0, protocol="rubric"), judgment(1, 3.0, None, protocol="rubric")]
    (found,) = judgments_of_pairs([one], asked)
    assert (found.duel_id, found.score_left, found.score_right) == ("p", 5.0, 3.0)
    turned = TestedPair("t", "g", "A", (1, 1), (Side("d0", "right"), Side("d0", "left")))
    (found,) = judgments_of_pairs([turned], asked)
    assert (found.score_left, found.score_right) == (5.0, 1.0)


def test_what_changed_between_two_times():
    before = {"ada": said(1, 1, -1, -1), "gone": said(1, 1, 1, 1)}
    after = {"ada": said(1, -1, 1, 1)}
    pairs = [pair(n) for n in range(4)]
    (shift,) = shifts(pairs, before, after, "own")
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
        return panel_test(these, alone, {"mean": alone["judge 0"]}, "own")

    assert table(pairs, 1) == table(mirrored, -1)


def test_rewardbench_sections_have_the_published_weights():
    weights = SECTIONS["Chat Hard"]
    pairs = [pair(n, "A", group=name) for n, name in enumerate([*weights, *weights])]
    # Of each subset's two pairs one is right, of the last subset both.
    signs = [1] * len(weights) + [-1] * (len(weights) - 1) + [1]
    found = judge_line("ada", pairs, said(*signs), "own").sections
    last = list(weights.values())[-1]
    total = sum(weights.values())
    assert found["Chat Hard"] == pytest.approx((0.5 * (total - last) + last) / total)
    assert found["Chat"] is found["overall"] is None
    assert judge_line("ada", PAIRS, ALONE["good"], "own").sections == {}
