"""The rule of both orders: published verdicts exactly, and every combination by hand."""

from __future__ import annotations

import json
import random

import pytest

from phalanx.benchmarks.judgebench import JudgedPair, flip, fold, group_of, is_right, judgebench
from phalanx.errors import ConfigError


@pytest.mark.parametrize("judge", ["arena_hard_o1-mini", "reward_model_skywork-8b"])
def test_published_verdicts(data_dir, judge):
    folder = data_dir / "judgebench_verdicts"
    want = json.loads((folder / "expected.json").read_text())[judge]
    rows = [json.loads(line) for line in (folder / f"{judge}.jsonl").open()]
    found = judgebench(
        JudgedPair(
            r["pair_id"], group_of(r["source"]), r["label"], r["order_ab"], r["order_ba"]
        )
        for r in rows
    )  # fmt: skip
    shares = {**found.by_group, "overall": found.overall}
    assert {name: share.n for name, share in shares.items()} == want["n"]
    got = {name: round(100 * share.share, 6) for name, share in shares.items()}
    assert got == want["accuracy"]
    assert round(100 * found.consistent.share, 6) == want["consistent"]
    assert found.num_unread == want["null_pairs"]


@pytest.mark.parametrize(("straight", "swapped", "right"), [
    ("A>B", "B>A", True), ("A>B", "A=B", True), ("A=B", "B>A", True), ("A>B", None, True),
    (None, "B>A", True), ("A>B", "A>B", False), ("B>A", "B>A", False), ("B>A", "A>B", False),
    ("A=B", "A=B", False), (None, None, False), ("B>A", "A=B", False), ("A=B", None, False),
])  # fmt: skip
def test_the_rule(straight, swapped, right):
    pair = JudgedPair("p", "g", "A>B", straight, swapped)
    assert is_right(pair) is right
    mirrored = JudgedPair("p", "g", "B>A", flip(straight), flip(swapped))
    assert is_right(mirrored) is right


def test_guessing_gets_a_quarter_and_always_first_nothing():
    rng = random.Random(0)
    coin = [
        JudgedPair(str(i), "g", "A>B", *rng.choices(["A>B", "B>A"], k=2)) for i in range(4000)
    ]  # fmt: skip
    assert judgebench(coin).overall.share == pytest.approx(0.25, abs=0.025)
    first = [JudgedPair(str(i), "g", "A>B", "A>B", "A>B") for i in range(10)]
    assert judgebench(first).overall.share == 0


def test_overall_is_over_pairs_and_unread_ones_stay_in():
    pairs = [JudgedPair(str(i), "a", "A>B", "A>B", "B>A") for i in range(3)]
    pairs += [JudgedPair("x", "b", "A>B", None, "A>B")]
    found = judgebench(pairs)
    assert (found.overall.count, found.overall.n) == (3, 4)
    assert found.by_group["b"].share == 0
    assert found.num_unread == 1
    assert found.consistent.count == 3
    assert found.overall.interval.low < 0.75 < found.overall.interval.high


def test_folding():
    labels = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
    assert [fold(label) for label in labels] == ["A>B", "A>B", "A=B", "B>A", "B>A"]
    with pytest.raises(ValueError, match="unknown verdict 'A<B'"):
        fold("A<B")


def test_groups():
    assert group_of("mmlu-pro-computer science") == "mmlu-pro"
    assert group_of("livecodebench") == "livecodebench"
    assert group_of("own") == "own"


def test_every_fault_is_listed():
    pairs = [
        JudgedPair("p", "g", "A=B", "A>B", "B>A"),  # type: ignore[arg-type]
        JudgedPair("q", "g", "A>B", "A>>B", "tie"),  # type: ignore[arg-type]
        JudgedPair("q", "g", "A>B", "A>B", "B>A"),
    ]
    with pytest.raises(ConfigError) as caught:
        judgebench(pairs)
    assert len(caught.value.faults) == 4
    with pytest.raises(ConfigError, match="no judged pair"):
        judgebench([])
