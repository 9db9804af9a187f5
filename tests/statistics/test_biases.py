from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import length_preference, position_bias, wilson

SLOTS = st.sampled_from(["first", "second", "tie"])


def test_position_bias_by_hand() -> None:
    verdicts = [("first", "second")] * 5 + [("first", "first")] * 4 + [("second", "second")]
    found = position_bias([*verdicts, ("first", None), (None, None)])
    # First slot: 5 + 8 of 20 verdicts. Leaning 4 against 1: 2 * (1 + 5) / 32.
    assert found.first_share == pytest.approx(13 / 20)
    assert found.pvalue == pytest.approx(12 / 32)
    assert found.consistent == 0.5
    assert (found.pairs, found.left_out) == (10, 2)
    # Bonett and Price for (4 - 1) / 10: cells 5/12 and 2/12; the share is half of that plus 1/2.
    one, other = 5 / 12, 2 / 12
    half = 1.959963984540054 * math.sqrt((one + other - (one - other) ** 2) / 12)
    wanted = (0.5 + (one - other - half) / 2, 0.5 + (one - other + half) / 2)
    assert found.interval == pytest.approx(wanted)


def test_a_judge_that_always_says_first_has_no_empty_interval() -> None:
    found = position_bias([("first", "first")] * 20)
    assert found.first_share == 1
    assert 0.8 < found.interval.low < 0.95
    assert found.interval.high == 1
    assert found.consistent == 0
    fair = position_bias([("first", "second"), ("second", "first"), ("tie", "tie")] * 10)
    assert fair.first_share == 0.5
    assert fair.consistent == 1
    assert fair.interval.low < 0.5 < fair.interval.high


@given(st.lists(st.tuples(SLOTS, SLOTS), min_size=1, max_size=40))
@settings(deadline=None, max_examples=50)
def test_position_bias_mirrors(verdicts) -> None:
    swap = {"first": "second", "second": "first", "tie": "tie"}
    found = position_bias(verdicts)
    other = position_bias([(swap[one], swap[two]) for one, two in verdicts])
    assert other.first_share == pytest.approx(1 - found.first_share)
    assert other.interval == pytest.approx((1 - found.interval.high, 1 - found.interval.low))
    assert other.pvalue == found.pvalue
    assert 0 <= found.interval.low <= found.interval.high <= 1


def test_position_bias_covers() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        # 60 % of verdicts follow the response, the others the slot: first 7 times in 10.
        pairs = []
        for better in rng.random(50) < 0.5:
            slot = rng.random(2) < 0.7
            loyal = rng.random(2) < 0.6
            seen = np.where(loyal, [better, not better], slot)
            pairs.append(tuple("first" if won else "second" for won in seen))
        interval = position_bias(pairs).interval
        hits += interval.low <= 0.6 * 0.5 + 0.4 * 0.7 <= interval.high
    assert 0.92 <= hits / 400 <= 0.985


@pytest.mark.parametrize("judge", ["arena_hard_o1-mini", "reward_model_skywork-8b"])
def test_position_bias_of_published_verdicts(data_dir: Path, judge: str) -> None:
    folder = data_dir / "judgebench_verdicts"
    if not folder.is_dir():
        pytest.skip(f"no published verdicts in {folder}")
    wanted = json.loads((folder / "expected.json").read_text("utf-8"))[judge]
    slots = {"A>B": "first", "B>A": "second", "A=B": "tie"}
    lines = (folder / f"{judge}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    found = position_bias([(slots[row["order_ab"]], slots[row["order_ba"]]) for row in rows])
    assert found.pairs == wanted["n"]["overall"]
    assert 100 * found.consistent == pytest.approx(wanted["consistent"], abs=1e-6)


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        ([], "none of 0 pairs"),
        ([("first", None)], "none of 1 pairs"),
        ([("A", "B")], "got \\['A', 'B'\\]"),
    ],
)
def test_position_bias_refuses(verdicts, message) -> None:
    with pytest.raises(ValueError, match=message):
        position_bias(verdicts)


def test_length_preference_by_hand() -> None:
    lengths = [(10, 5), (10, 5), (5, 10), (5, 10), (7, 7)]
    found = length_preference(lengths, [1, 1, 0, 1, 1])
    assert found.longer_share == pytest.approx(3 / 4)
    assert found.interval == wilson(3, 4)
    assert (found.n, found.same) == (4, 1)
    assert length_preference(lengths, [0.5] * 5).longer_share == 0.5


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(0, 1)), min_size=1, max_size=40
    ).filter(lambda rows: any(left != right for left, right, _ in rows))
)
@settings(deadline=None, max_examples=50)
def test_sides_do_not_matter_for_length(rows) -> None:
    found = length_preference([row[:2] for row in rows], [row[2] for row in rows])
    turned = length_preference(
        [(right, left) for left, right, _ in rows], [1 - score for _, _, score in rows]
    )
    assert turned.longer_share == pytest.approx(found.longer_share)
    assert found.n + found.same == len(rows)
    assert found.interval.low - 1e-12 <= found.longer_share <= found.interval.high + 1e-12


@pytest.mark.parametrize(
    ("lengths", "scores", "message"),
    [
        ([(1, 2)], [1.0, 0.0], "1 pairs of lengths, but 2"),
        ([(1, 2)], [1.5], "must lie in \\[0, 1\\]"),
        ([(3, 3)], [1.0], "same length"),
        ([(-1, 3)], [1.0], "0 or more"),
        ([(1, 2, 3)], [1.0], "pairs of numbers"),
    ],
)
def test_length_preference_refuses(lengths, scores, message) -> None:
    with pytest.raises(ValueError, match=message):
        length_preference(lengths, scores)
