"""The tables of contests, computed from rows of games."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.report.games import Contest, _contest, item_values
from phalanx.report.games_views import contest_sections
from phalanx.report.words import points_span
from phalanx.statistics import minimum_detectable, sign_test, tango

ITEMS = [f"q{n}" for n in range(6)]
JUDGES = ["cora", "dora"]
LABELS = {"A>>B": 1.0, "A>B": 1.0, "A=B": 0.5, "B>A": 0.0, "B>>A": 0.0}
State = str  # "judged", "unread", "silent", "alike", "no rival"


def facts(kind: str) -> dict[str, Any]:
    baseline = "" if kind == "mt_bench" else "bob"
    return {"kind": kind, "version": "v0.1", "baseline": baseline, "judges": JUDGES,
            "subjects": ["ada", "eve"], "published": False, "notes": [], "index": {},
            "difficulty": {}, "gamed": [], "turns": {item: ["?"] for item in ITEMS},
            "groups": {item: f"d{n % 2}" for n, item in enumerate(ITEMS)}}  # fmt: skip


def row(kind: str, member: str, item: str, judge: str, game: str, state: str, draw) -> dict:
    label, value, reason, request = "", None, "", "r"
    if state == "judged" and kind == "arena_hard":
        label = draw(st.sampled_from(list(LABELS)))
        value = LABELS[label] if game == "first" else 1 - LABELS[label]
    elif state == "judged" and kind == "mt_bench":
        value = float(draw(st.integers(1, 10)))
    elif state == "judged":
        value = draw(st.sampled_from([0.0, 0.5, 1.0]))
    elif state == "unread":
        reason = "no verdict"
    elif state == "no rival":
        reason, request = "no answer of the baseline: empty", ""
    elif state == "silent":
        value, reason, request = (1.0 if kind == "mt_bench" else 0.0), "no answer: empty", ""
        label = {"first": "B>>A", "second": "A>>B"}[game] if kind == "arena_hard" else ""
    else:
        value, reason, request = 0.5, "identical", ""
        label = "A=B" if kind == "arena_hard" else ""
    return {"member": member, "rival": "" if kind == "mt_bench" else "bob", "item": item,
            "judge": judge, "game": game, "domain": "d", "label": label, "value": value,
            "reason": reason, "length": draw(st.integers(0, 99)), "response": "a",
            "rival_length": None if kind == "mt_bench" else 5, "request": request}  # fmt: skip


@st.composite
def games(draw) -> tuple[str, list[dict]]:
    kind = draw(st.sampled_from(["arena_hard", "mt_bench", "open"]))
    names = ("turn 1", "turn 2") if kind == "mt_bench" else ("first", "second")
    states = ["judged", "unread", "silent"]
    if kind != "mt_bench":
        states += ["alike", "no rival"]
    rows = []
    for member in ("ada", "eve"):
        for item in ITEMS:
            for judge in JUDGES:
                state = draw(st.sampled_from([*states, "judged", "judged"]))
                each = [draw(st.sampled_from(["judged", "unread"])) if state in ("judged", "unread")
                        else state for _ in names]  # fmt: skip
                rows += [
                    row(kind, member, item, judge, name, one, draw)
                    for name, one in zip(names, each, strict=True)
                ]
    return kind, rows


@settings(max_examples=60, deadline=None)
@given(games())
def test_every_verdict_is_counted_once_and_every_table_can_be_shown(made):
    kind, rows = made
    found = _contest("t", facts(kind), rows, 3, None)
    assert isinstance(found, Contest)
    assert [(line.member, line.judge) for line in found.lines] == [
        (member, judge) for member in ("ada", "eve") for judge in ("", *JUDGES)
    ]
    for line in found.lines:
        parts = line.readable + sum(line.unreadable.values()) + line.unanswered + line.alike
        assert line.games == parts
        won, decided = line.first
        assert 0 <= won <= decided <= line.readable
        for measure in line.measures:
            assert math.isfinite(measure.value)
            if measure.interval and measure.unit == "share":
                assert 0 <= measure.interval.low <= measure.interval.high <= 1
    mine = [line for line in found.lines if line.member == "ada"]
    assert mine[0].games == sum(line.games for line in mine[1:])
    (section,) = contest_sections([found])
    for table in section.tables:
        assert all(len(cells) == len(table.headers) for cells in table.rows)


@settings(max_examples=60, deadline=None)
@given(games())
def test_weight_one_is_the_mean_and_open_orders_that_disagree_are_ties(made):
    kind, rows = made
    found = _contest("t", facts(kind), rows, 3, None)
    mine = [one for one in rows if one["member"] == "ada"]
    values = [one["value"] for one in mine if one["value"] is not None]
    measures = {measure.name: measure for measure in found.lines[0].measures}
    if not values:
        assert not measures
    elif kind == "arena_hard":
        assert measures["win rate, weight 1"].value == pytest.approx(statistics.fmean(values))
    elif kind == "mt_bench":
        assert measures["rating"].value == pytest.approx(statistics.fmean(values))
    else:
        expected: dict[str, list[float]] = {}
        for item in ITEMS:
            for judge in JUDGES:
                pair = [o["value"] for o in mine if (o["item"], o["judge"]) == (item, judge)]
                if None not in pair:
                    share = pair[0] if pair[0] == pair[1] else 0.5
                    expected.setdefault(item, []).append(share)
        means = {item: statistics.fmean(shares) for item, shares in expected.items()}
        assert item_values(mine, "open") == pytest.approx(means)
        if means:
            assert measures["win rate"].value == pytest.approx(statistics.fmean(means.values()))
            won = sum(share > 0.5 for share in means.values())
            lost = sum(share < 0.5 for share in means.values())
            assert measures["win rate"].p == sign_test(won, len(means) - won - lost, lost)


def scored(member: str, item: str, difference: float, judge: str = "cora") -> dict[str, Any]:
    share = 0.5 if difference == 0 else float(difference > 0)
    return {"member": member, "rival": "bob", "item": item, "judge": judge, "game": "scores",
            "domain": "", "label": repr(difference), "value": share, "reason": "", "length": 3,
            "rival_length": 4, "response": "a", "request": "r"}  # fmt: skip


def test_differences_of_scores_are_in_units_of_their_spread():
    differences = [1.0, 2.0, -0.5, 3.0, 0.0, 1.5]
    rows = [scored("ada", item, d) for item, d in zip(ITEMS, differences, strict=True)]
    (line,) = _contest("t", facts("open"), rows, 3, None).lines
    found = {measure.name: measure for measure in line.measures}
    expected = statistics.fmean(differences) / statistics.stdev(differences)
    assert found["difference in SD"].value == pytest.approx(expected)
    assert found["win rate"].value == 4.5 / 6
    assert line.first == (0, 0)
    # Scores of two judges are on two scales: there is no common unit.
    both = rows + [scored("ada", item, 9.0, "dora") for item in ITEMS]
    whole = _contest("t", facts("open"), both, 3, None).lines[0]
    assert [measure.name for measure in whole.measures] == ["win rate"]


def test_members_are_compared_on_the_items_that_both_have():
    rows = [scored("ada", item, 1.0) for item in ITEMS]
    rows += [scored("eve", item, -1.0 if item < "q3" else 1.0) for item in ITEMS[:5]]
    (one,) = _contest("t", facts("open"), rows, 3, None).differences
    assert (one.member, one.against, one.items) == ("eve", "ada", 5)
    assert one.value == pytest.approx(-3 / 5)
    assert one.interval.low <= one.value <= one.interval.high
    (turned,) = _contest("t", facts("open"), rows, 3, "eve").differences
    assert (turned.member, turned.value) == ("ada", pytest.approx(3 / 5))


def test_two_questions_prove_nothing():
    rows = [scored("ada", item, 1.0) for item in ITEMS[:2]]
    rows += [scored("eve", item, -1.0) for item in ITEMS[:2]]
    found = _contest("t", facts("open"), rows, 3, None)
    (one,) = found.differences
    assert (one.value, one.pvalue, one.adjusted) == (-1.0, 0.5, 0.5)
    assert one.interval == tango(0, 2, 2)
    assert one.interval.high > -0.5, "two items leave much open"
    assert (one.direction, one.detectable) == (0, None)
    (section,) = contest_sections([found])
    (table,) = [table for table in section.tables if table.title.startswith("Paired")]
    span = points_span(one.interval)
    assert table.rows == (("eve", "ada", "2", "−100.0", span, ".500", ".500", "unclear", "–"),)


def many(kind: str, **members: list[float]) -> Contest:
    """Contests of as many items as there are values, and of members who come in their order."""
    items = [f"q{n}" for n in range(max(map(len, members.values())))]
    about = facts(kind) | {
        "subjects": list(members), "groups": dict.fromkeys(items, "d"),
        "turns": {item: ["?"] for item in items},
    }  # fmt: skip
    rows = []
    for name, values in members.items():
        for item, value in zip(items, values, strict=True):
            rated = {"game": "turn 1", "value": value, "label": "", "domain": "d"}
            rows.append(scored(name, item, value) | (rated if kind == "mt_bench" else {}))
    return _contest("t", about, rows, 3, None)


def test_holm_over_the_lines_decides():
    # Six of six better: p = 2 / 2^6, not below .05 once there are two lines.
    start, up = [-1.0] * 20, [1.0] * 6 + [-1.0] * 14
    (alone,) = many("open", ada=start, eve=up).differences
    assert (alone.pvalue, alone.direction) == (2 / 64, 1)
    one, two = many("open", ada=start, eve=up, fay=up).differences
    assert one.pvalue == two.pvalue == 2 / 64
    assert (one.adjusted, one.direction) == (4 / 64, 0)
    assert one.detectable == minimum_detectable(20, 6 / 20, confidence=0.975)


def test_differences_of_ratings_are_in_points_of_rating():
    low, high = [1.0 + n % 3 for n in range(30)], [7.0 + n % 2 for n in range(30)]
    (one,) = many("mt_bench", ada=low, eve=high).differences
    apart = [y - x for x, y in zip(low, high, strict=True)]
    assert one.value == pytest.approx(statistics.fmean(apart))
    assert one.interval.low < one.value < one.interval.high
    error = statistics.stdev(apart) / math.sqrt(30)
    assert one.detectable == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)
    assert one.direction == 1


def test_what_does_not_vary_has_no_interval():
    (rating,) = [
        one for one in many("mt_bench", ada=[7.0] * 20).lines[0].measures if one.name == "rating"
    ]
    assert (rating.value, rating.interval, rating.error) == (7.0, None, None)
    tied = [{**scored("ada", item, 0.0), "game": game, "label": "A=B"}
            for item in ITEMS for game in ("first", "second")]  # fmt: skip
    (line,) = _contest("t", facts("arena_hard"), tied, 3, None).lines
    rates = [one for one in line.measures if one.unit == "share"]
    assert [(one.value, one.interval, one.error) for one in rates] == [(0.5, None, None)] * 2
    (share,) = many("open", ada=[0.0] * 20).lines[0].measures  # Wilson's: 20 ties, widest
    assert share.interval.low < 0.35 < 0.65 < share.interval.high
    assert share.error is None
