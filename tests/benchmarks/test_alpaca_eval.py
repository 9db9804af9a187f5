"""The win rates: published numbers where the folder has them, made-up rows elsewhere."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from phalanx.benchmarks.alpaca_eval import (
    Comparison,
    Gamed,
    Weights,
    bootstrap_length_controlled,
    compare_length_controlled,
    controlled_rate,
    length_controlled,
    raw_win_rate,
    share_from_logprobs,
)
from phalanx.benchmarks.alpaca_files import read_comparisons, read_difficulty, read_gamed
from phalanx.benchmarks.records import Question
from phalanx.errors import ConfigError

PUBLISHED = (
    "alpaca-7b", "gpt-3.5-turbo-1106_concise", "FuseChat-Llama-3.1-8B-Instruct", "claude-2.1",
    "NullModel", "vicuna-7b-v1.5",
)  # fmt: skip


def made_up(n=400, *, length=-1.5, model=0.4, longer=0.0, seed=0):
    """Comparisons whose shares follow the model exactly, and the difficulties."""
    rng = np.random.default_rng(seed)
    difficulties = {i: float(d) for i, d in enumerate(rng.normal(size=n))}
    base = rng.integers(500, 3000, n)
    own = np.maximum(1, base + (rng.normal(size=n) * 500 + longer).astype(int))
    spread = np.std(base - own, ddof=1)
    rows = []
    for i in range(n):
        logit = length * math.tanh((base[i] - own[i]) / spread) + 0.7 * difficulties[i] + model
        rows.append(Comparison(i, 1 / (1 + math.exp(-logit)), int(base[i]), int(own[i])))
    return rows, difficulties


@pytest.fixture(scope="module")
def published(data_dir):
    folder = data_dir / "alpacaeval_lc"
    return (
        json.loads((folder / "expected.json").read_text()),
        read_difficulty(str(folder / "instruction_difficulty.csv")),
        read_gamed(str(folder / "gamed_surrogate.csv")),
        folder,
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models(published, name):
    expected, difficulty, gamed, folder = published
    rows, num_missing = read_comparisons(str(folder / f"{name}.csv"))
    raw = raw_win_rate(rows)
    want = expected[name]
    assert num_missing == 0
    assert (raw.num_wins, raw.num_losses, raw.num_draws, raw.n) == (
        want["n_wins"], want["n_wins_base"], want["n_draws"], want["n_total"],
    )  # fmt: skip
    assert 100 * raw.win_rate == pytest.approx(want["win_rate"], abs=1e-6)
    assert 100 * raw.standard_error == pytest.approx(want["standard_error"], abs=1e-6)
    assert 100 * raw.discrete_win_rate == pytest.approx(want["discrete_win_rate"], abs=1e-9)
    rate = 100 * length_controlled(rows, difficulty, gamed).win_rate
    assert rate == pytest.approx(want["length_controlled_winrate"], abs=0.35)
    assert rate == pytest.approx(want["alpaca_eval_0.6.6_v1_with_surrogate"], abs=0.02)
    without = 100 * length_controlled(rows, difficulty).win_rate
    assert without == pytest.approx(want["alpaca_eval_0.6.6_noreg"], abs=0.02)


def test_published_weights(published):
    _, difficulty, _, folder = published
    stored = json.loads((folder / "published_weights.json").read_text())
    close = sum(
        abs(
            100 * controlled_rate(Weights(*weights), list(difficulty.values()))
            - stored["length_controlled_winrate"][name]
        )
        < 1e-6
        for name, weights in stored["weights"].items()
    )
    assert (close, len(stored["weights"])) == (183, 193)


def test_the_standard_error_is_about_twice_the_published(published):
    expected, difficulty, gamed, folder = published
    rows, _ = read_comparisons(str(folder / "FuseChat-Llama-3.1-8B-Instruct.csv"))
    found = bootstrap_length_controlled(rows, difficulty, gamed, seed=1, draws=25)
    assert 0.01 < found.standard_error < 0.02
    published = expected["FuseChat-Llama-3.1-8B-Instruct"]["lc_standard_error"]
    assert 100 * found.standard_error > 1.8 * published
    assert found.interval.low < found.value < found.interval.high


def test_recovers_the_weights_that_made_the_rows():
    rows, difficulties = made_up(4000)
    found = length_controlled(rows, difficulties)
    assert found.weights == pytest.approx((-1.5, 0.7, 0.4), abs=0.01)
    assert found.n == 4000


def test_length_is_taken_out():
    """Two models of one skill, the one longer: only the raw rate calls it better."""
    plain, difficulties = made_up(1500)
    longer, _ = made_up(1500, longer=800.0)
    raw = [raw_win_rate(rows).win_rate for rows in (plain, longer)]
    controlled = [length_controlled(rows, difficulties).win_rate for rows in (plain, longer)]
    assert raw[1] - raw[0] > 0.1
    assert controlled[1] == pytest.approx(controlled[0], abs=0.01)


def test_the_gamed_rows_pin_the_length_term():
    """Rows that say nothing of lengths take the term from the gamed ones."""
    rows, difficulties = made_up(300, length=0.0)
    gamed = [
        Gamed(i, 1 / (1 + math.exp(2 * math.tanh(s))), s, 0.0)
        for i in range(300)
        for s in (-2.0, 0.7)
    ]
    alone = length_controlled(rows, difficulties).weights.length
    pinned = length_controlled(rows, difficulties, gamed).weights.length
    assert abs(alone) < 0.05
    assert pinned < -0.2


def test_a_gamed_row_weighs_a_tenth_and_has_no_model_term():
    """At the fit the slopes of the objective, written out here, are those of the penalty."""
    rows, difficulties = made_up(200)
    gamed = [Gamed(i, 0.9, s, difficulties[i]) for i in range(200) for s in (-1.0, 0.5)]
    found = length_controlled(rows, difficulties, gamed)
    spread = statistics.stdev(row.len_baseline - row.len_model for row in rows)
    parts = [
        (1.0, (math.tanh((r.len_baseline - r.len_model) / spread), difficulties[r.index], 1), r)
        for r in rows
    ] + [(0.1, (math.tanh(g.length_difference), g.difficulty, 0), g) for g in gamed]
    slopes = np.zeros(3)
    for weight, features, row in parts:
        chance = 1 / (1 + math.exp(-np.dot(features, found.weights)))
        slopes += found.penalty * weight * (chance - row.share) * np.asarray(features)
    assert slopes == pytest.approx(-np.sign(found.weights), abs=1e-4)


def test_order_of_rows_changes_no_fit():
    rows, difficulties = made_up(200)
    one, other = (length_controlled(r, difficulties) for r in (rows, rows[::-1]))
    assert other.weights == pytest.approx(one.weights, abs=0.01)


def test_the_bootstrap_knows_binary_verdicts():
    """On verdicts without length or difficulty the error is near that of a share."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(100, 3000, size=(200, 2))
    rows = [Comparison(i, float(i % 4 > 0), int(a), int(b)) for i, (a, b) in enumerate(lengths)]
    difficulties = {i: float(rng.normal()) for i in range(200)}
    found = bootstrap_length_controlled(rows, difficulties, seed=3, draws=40)
    assert found.value == pytest.approx(0.75, abs=0.02)
    assert found.standard_error == pytest.approx(math.sqrt(0.75 * 0.25 / 200), rel=0.3)
    assert found.interval.low < 0.72 < 0.78 < found.interval.high


def test_a_coin_has_an_error_too():
    """The strongest penalty wins on coin flips and says 0.5 sharp; other draws choose another."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(100, 3000, size=(100, 2))
    rows = [Comparison(i, float(i % 2), int(a), int(b)) for i, (a, b) in enumerate(lengths)]
    difficulties = {i: float(rng.normal()) for i in range(100)}
    found = [
        bootstrap_length_controlled(rows, difficulties, seed=seed, draws=15) for seed in (3, 3, 4)
    ]
    assert found[0].standard_error > 0.01
    assert found[0] == found[1] != found[2]


def test_paired_comparison_is_narrower_than_two_apart():
    before, difficulties = made_up(300)
    rng = np.random.default_rng(0)
    old = [replace(row, share=float(rng.random() < row.share)) for row in before]
    new = [replace(row, share=1.0) if row.index % 4 == 0 else row for row in old]
    found = compare_length_controlled(old, new[::-1], difficulties, seed=1, draws=20)
    apart = [bootstrap_length_controlled(r, difficulties, seed=1, draws=20) for r in (old, new)]
    assert found.value == pytest.approx(apart[1].value - apart[0].value, abs=2e-3)
    assert found.standard_error < math.hypot(*(one.standard_error for one in apart)) / 1.5
    assert found.interval.low > 0


def test_comparison_needs_the_same_instructions():
    rows, difficulties = made_up(30)
    with pytest.raises(ConfigError, match=r"not judged on the same instructions .*\[29\]"):
        compare_length_controlled(rows, rows[:-1], difficulties, seed=1)


def test_raw_win_rate():
    rows = [Comparison(i, share, 10, 10) for i, share in enumerate([1.0, 0.5, 0.2, 0.9])]
    raw = raw_win_rate(rows)
    assert (raw.num_wins, raw.num_losses, raw.num_draws) == (2, 1, 1)
    assert raw.win_rate == pytest.approx(0.65)
    assert raw.discrete_win_rate == 0.625
    assert raw.standard_error == pytest.approx(statistics.stdev([1.0, 0.5, 0.2, 0.9]) / 2)
    assert raw_win_rate(rows[:1]).standard_error is None


def test_shares_from_logprobs():
    assert share_from_logprobs(math.log(0.2), math.log(0.6)) == pytest.approx(0.75)
    assert share_from_logprobs(0.0, -math.inf) == 0
    assert share_from_logprobs(-math.inf, -5.0) == 1
    assert share_from_logprobs(-2000.0, 0.0) == 1
    for pair in ((-math.inf, -math.inf), (math.nan, 0.0), (0.0, math.nan)):
        with pytest.raises(ValueError, match="must be possible"):
            share_from_logprobs(*pair)


def test_faulty_comparisons_are_all_listed():
    rows = [
        Comparison(0, 1.5, 1, 1), Comparison(1, math.nan, 1, 1), Comparison(2, 0.5, -1, 1),
        Comparison(2, 0.5, 1, 1),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        raw_win_rate(rows)
    assert len(caught.value.faults) == 4
    with pytest.raises(ConfigError, match="no comparison"):
        raw_win_rate([])


def test_what_cannot_be_controlled():
    rows, difficulties = made_up(30)
    with pytest.raises(ConfigError, match=r"1 instructions have no difficulty .*\[29\]"):
        length_controlled(rows, {i: difficulties[i] for i in range(29)})
    with pytest.raises(ConfigError, match="too few"):
        length_controlled(rows[:9], difficulties)
    same = [Comparison(r.index, r.share, 100, 90) for r in rows]
    with pytest.raises(ConfigError, match="report the raw win rate"):
        length_controlled(same, difficulties)


def test_annotations_are_found_by_their_instruction(write):
    questions = [Question("0", ("First?",)), Question("1", ("Second?",))]
    path = write([
        {"instruction": "Second?", "output_1": "abc", "output_2": "abcde", "preference": 1.75},
        {"instruction": "First?", "output_1": "a", "output_2": "é", "preference": None},
    ])  # fmt: skip
    assert read_comparisons(path, questions) == ((Comparison(1, 0.75, 3, 5),), 1)


def test_draws_old_and_new(write):
    path = write("index,preference,len_baseline,len_model\n0,0,1,2\n1,1.5,3,4\n2,,5,6\n", "a.csv")
    rows, num_missing = read_comparisons(path)
    assert [row.share for row in rows] == [0.5, 0.5]
    assert num_missing == 1


def test_every_unfit_verdict_is_listed(write):
    path = write([
        {"index": 0, "preference": 0.7, "len_baseline": 1, "len_model": 1},
        {"index": 1, "preference": 2.5, "len_baseline": 1, "len_model": 1},
        {"index": 2, "preference": "nan", "len_baseline": 1, "len_model": 1},
        {"index": 3, "preference": 1.5, "len_baseline": -1, "len_model": 1},
        {"index": 4.5, "preference": 1.5, "len_baseline": 1, "len_model": 1},
        {"instruction": "Never seen?", "preference": 1.5, "output_1": "", "output_2": ""},
        {"index": 5, "preference": 1.5, "len_baseline": 1},
        {"index": 6, "preference": 1.5, "len_baseline": 1, "len_model": 1},
        {"index": 6, "preference": 1.5, "len_baseline": 1, "len_model": 1},
    ])  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        read_comparisons(path)
    found = [fault.split(":")[0] for fault in caught.value.faults]
    assert found == [f"line {n}" for n in (1, 2, 3, 4, 5, 6, 7, 9)]


def test_difficulties_with_and_without_a_named_index(write):
    named = write("index,instruction_difficulty\n0,-1.5\n1,2\n", "named.csv")
    bare = write(",instruction_difficulty\n0,-1.5\n1,2\n", "bare.csv")
    assert read_difficulty(named) == read_difficulty(bare) == {0: -1.5, 1: 2.0}


def test_gamed_rows(write):
    head = "model,index,preference,std_delta_len,instruction_difficulty\n"
    assert read_gamed(write(head + "v,3,0.25,-1,0.5\nc,3,1,2,0.5\n", "g.csv")) == (
        Gamed(3, 0.25, -1.0, 0.5), Gamed(3, 1.0, 2.0, 0.5),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="2 faults"):
        read_gamed(write(head + "v,3,1.25,-1,0.5\nc,3,1,2,0.5\nc,3,1,2,0.5\n", "g.csv"))
