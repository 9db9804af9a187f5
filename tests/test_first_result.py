"""The experiment behind docs/results.md: its arithmetic by hand, and its chain on tiny models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from bench import first_result, first_table
from bench.first_result import ARMS, COLLECTIVE, ONE_JUDGE, Place
from bench.first_table import Run, difference
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from phalanx.config import load
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Instruction, PreferencePair
from tests.tiny import make_tiny

ROOT = Path(__file__).resolve().parent.parent

ITEMS = {**{f"a{n}": "addition" for n in range(6)}, **{f"k{n}": "kinds" for n in range(2)}}
DEV = {"d": "addition", "e": "kinds"}


def run_of(**members: tuple[str, str, str, str]) -> Run:
    """Members by name: dev and test marks before, dev and test marks after ("1" is right)."""
    scores = {}
    for name, marks in members.items():
        for number, (dev, test) in enumerate((marks[:2], marks[2:])):
            scores[number, name, "dev"] = dict(zip(DEV, map(float, dev), strict=True))
            scores[number, name, "test"] = dict(zip(ITEMS, map(float, test), strict=True))
    answers = {
        (number, name): {
            item: "yes" if score else f"no, says {name}" for item, score in row.items()
        }
        for (number, name, split), row in scores.items()
        if split == "test"
    }
    return Run(tuple(members), 1, {**ITEMS, **DEV}, scores, answers, {})


RUN = run_of(ada=("10", "11111100", "11", "11100011"), bob=("00", "00000011", "01", "11111111"))


def test_the_best_member_is_chosen_on_dev_and_reported_on_test():
    """After alignment bob is better on test items, which must not choose him."""
    assert (RUN.best(0), RUN.best(1)) == ("ada", "ada")
    assert RUN.macro(RUN.of_best(0)) == 0.5
    assert RUN.macro(RUN.of_best(1)) == 0.75
    assert RUN.macro(RUN.of_pool(0)) == 0.5
    assert RUN.macro(RUN.of_pool(1)) == 0.875


def test_a_vote_goes_to_the_answer_of_most_and_is_shared_by_equals():
    assert RUN.of_vote(0) == dict.fromkeys(ITEMS, 0.5)
    three = run_of(
        ada=("10", "11111100", "11", "11111100"),
        bob=("10", "11100000", "11", "00000000"),
        cora=("10", "00011110", "11", "00000000"),
    )
    assert list(three.of_vote(0).values()) == [1] * 6 + [1 / 3, 0]
    silent = replace(three, answers=defaultdict(dict))
    assert set(silent.of_vote(1).values()) == {0.0}


def test_arms_of_other_lengths_are_not_compared():
    assert first_table.lacking({"a": RUN, "b": RUN}) == []
    assert first_table.lacking({"a": RUN, "b": None}) == ["b"]
    assert first_table.lacking({"a": replace(RUN, last=2), "b": RUN}) == ["b"]
    assert first_table.lacking({"a": None}) == ["a"]


def test_a_difference_is_that_of_the_domains_means():
    found = difference([(RUN, RUN.of_best(0), RUN.of_best(1))])
    assert found.value == pytest.approx(0.25)
    assert found.seeds is None
    assert difference([(RUN, RUN.of_best(0), RUN.of_best(1))], "kinds").value == 1
    assert difference([(RUN, RUN.of_best(0), RUN.of_best(1))], "addition").value == -0.5


marks = st.lists(st.sampled_from([0.0, 1.0]), min_size=8, max_size=8)


@given(st.lists(st.tuples(marks, marks), min_size=2, max_size=5))
def test_over_seeds_it_is_a_t_test_of_the_seeds_means(rows):
    triples = [
        (RUN, dict(zip(ITEMS, before, strict=True)), dict(zip(ITEMS, after, strict=True)))
        for before, after in rows
    ]
    found = difference(triples)
    means = [RUN.macro(after) - RUN.macro(before) for _, before, after in triples]
    assert found.by_seed == pytest.approx(means)
    assert found.value == pytest.approx(sum(means) / len(means))
    if max(means) - min(means) > 1e-9:
        expected = stats.ttest_1samp(means, 0)
        assert found.pvalues["seeds"] == pytest.approx(float(expected.pvalue))
        assert found.seeds == pytest.approx(tuple(expected.confidence_interval(0.95)), abs=1e-9)
    swapped = difference([(run, after, before) for run, before, after in triples])
    assert swapped.value == pytest.approx(-found.value)
    assert swapped.pvalues == pytest.approx(found.pvalues)


def test_a_pair_is_right_by_the_answer_to_its_instruction():
    pair = PreferencePair("p", Instruction("i", "What is 2 + 3?"), "5.", "6")
    assert first_table.kind(pair, {"i": "5", "j": "6"}) == ("right", "wrong")
    assert first_table.kind(pair, {"i": "6"}) == ("wrong", "right")


def test_every_arm_is_a_sound_configuration():
    for settings in ARMS.values():
        config = load(first_result.CONFIG, settings)
        assert config.seed == 1


def test_other_settings_or_items_are_refused(tmp_path):
    place = Place(tmp_path / "out", first_result.CONFIG, ())
    first_result.write_items(place)
    first_result.write_items(place)
    first_result.write_items(replace(place, overrides=("iterations=2",)))  # it goes on
    with pytest.raises(RuntimeError, match="other settings"):
        first_result.write_items(replace(place, overrides=("train.beta=0.2",)))
    place.items.write_text("other", encoding="utf-8")
    with pytest.raises(RuntimeError, match="other items"):
        first_result.write_items(place)


def test_the_command_in_the_configuration_is_one():
    (line,) = (
        line for line in first_result.CONFIG.read_text("utf-8").splitlines() if "#   python" in line
    )
    words = line.removeprefix("#   python ").split()[:2]
    done = subprocess.run(
        [sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_chain_on_tiny_models(tmp_path, capsys):
    """One seed, three arms: made, finished, skipped the second time, and counted right."""
    base = make_tiny(tmp_path / "base", seed=1)
    tiny = (
        f"pool.base={base}", "pool.recruit.examples_per_domain=2",
        "match.duels=6", "answer.max_new_tokens=4", "pairs.truncated=allow",
        "evaluate.max_new_tokens=2", "resources.workers=1",
    )  # fmt: skip
    config = tmp_path / "small.yaml"
    config.write_text(
        first_result.CONFIG.read_text(encoding="utf-8").replace("limit: 40", "limit: 6"),
        encoding="utf-8",
    )
    place = Place(tmp_path / "out", config, tiny)
    arms = (COLLECTIVE, "plain-sft", ONE_JUDGE)
    first_result.write_items(place)
    first_result.run_all(place, [7], arms, 2)
    assert capsys.readouterr().out.count("done in") == 4
    first_result.run_all(place, [7], arms, 2)
    assert capsys.readouterr().out == ""
    taught = load(config).pool.recruit.specialists
    text = first_table.write_table(place.out, [7, 8], arms, taught)
    assert "Not finished: seed 8 lacks collective, plain-sft, one-judge." in text
    results = json.loads((place.out / "results.json").read_text(encoding="utf-8"))
    assert results["items"]["dev"] + results["items"]["test"] == 18
    counts = results["counts"]
    assert {arm: counts[arm]["responses"] for arm in arms} == dict.fromkeys(arms, 12)
    assert counts[COLLECTIVE]["judgments"] == 2 * counts[ONE_JUDGE]["judgments"] > 0
    assert counts["plain-sft"]["examples"] == counts[COLLECTIVE]["examples"] > 0
    assert counts["plain-sft"]["steps"] == counts[COLLECTIVE]["steps"] > 0
    with Ledger(run_ledger_path(place.run(7, ONE_JUDGE))) as ledger:
        judges = {row["judge"] for row in ledger.query("SELECT DISTINCT judge FROM judgments")}
        assert judges == {"judge"}
        adapters = {member.name: member.adapter for member in ledger.members(0)}
        best = first_table.initial_best(place.run(7, COLLECTIVE))
        assert adapters["judge"] == adapters[best]
