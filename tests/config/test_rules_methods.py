"""Rules that hold for every method beside the two papers'."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.config import Config
from phalanx.config.rules import faults, notes
from phalanx.config.uses import longest_learned, sections_learned, wanted_of

TASK = {"name": "skills", "source": "builtin:skills", "limit": 2}


def config(method: str, **changes: Any) -> Config:
    members = [{"name": name} for name in ("ada", "bob", "cora")]
    data = {
        "method": method,
        "pool": {"base": "builtin:smollm2-135m", "members": members},
        "instructions": {"source": "builtin:skills"},
        "mixture": {"aggregator": "ada"},
        "evaluate": {"tasks": [TASK]},
    }
    return Config.model_validate(data | changes)


def about(texts: list[str], key: str) -> list[str]:
    return [text for text in texts if text.startswith(f"{key}:")]


@pytest.mark.parametrize("method", ["sppo", "rejection_sampling", "consensus_grpo", "multiagent"])
def test_a_method_that_trains_wants_a_learner(method: str) -> None:
    members = [{"name": name, "roles": ["contest", "judge"]} for name in ("ada", "bob", "cora")]
    nobody = config(method, pool={"base": "builtin:smollm2-135m", "members": members})
    assert any("nobody has the role learn" in text for text in faults(nobody))
    scripted = [{"name": name, "engine": "scripted"} for name in ("ada", "bob", "cora")]
    (note,) = about(notes(config(method, pool={"members": scripted})), "pool.members")
    assert "no learner has weights here" in note
    quiet = config(method, pool={"members": scripted}, train={"method": "none"})
    assert not about(notes(quiet), "pool.members")


@pytest.mark.parametrize("method", ["debate", "council", "self_consistency", "frozen", "mixture"])
def test_a_method_that_only_answers_wants_tasks_and_no_instructions(method: str) -> None:
    nothing = config(method, evaluate={}, instructions={})
    assert len(about(faults(nothing), "evaluate.tasks")) == 1
    assert not about(faults(nothing), "instructions.source")
    assert about(notes(config(method)), "instructions.source")  # it has no use


@pytest.mark.parametrize(
    ("method", "section", "value", "noted"),
    [
        ("sppo", "match", {"duels": 3}, True),
        ("sppo", "aggregate", {"rule": "median"}, True),
        ("sppo", "reward", {"ranking": "knockout"}, True),
        ("sppo", "train", {"scope": "own"}, True),
        ("sppo", "judge", {"protocol": "pairwise", "quorum": 1.0}, False),
        ("sppo", "judge", {"per_duel": 1}, True),
        ("rejection_sampling", "aggregate", {"rule": "median"}, True),
        ("rejection_sampling", "reward", {"ranking": "knockout"}, True),
        ("single_multi", "aggregate", {"rule": "median"}, True),
        ("self_rewarding", "judge", {"protocol": "pairwise"}, True),
        ("meta_rewarding", "judge", {"temperature": 0.2}, True),
        ("meta_rewarding", "judge", {"quorum": 1.0, "max_unreadable": 1.0}, False),
        ("self_rewarding", "train", {"scope": "own"}, True),
        ("preference_file", "train", {"scope": "own"}, True),
        ("preference_file", "instructions", {"source": "builtin:skills"}, True),
        ("preference_file", "instructions", {"contamination": "report"}, False),
        ("sparta", "train", {"scope": "own"}, False),
        ("spin", "aggregate", {"rule": "median"}, True),
        ("spin", "reputation", {"rule": "elo"}, True),
        ("spin", "without", ["reputation"], True),
        ("spin", "sppo", {"samples": 3}, True),
        ("spin", "spin", {"history": False}, False),
        ("consensus_grpo", "grpo", {"kl": 0.1}, False),
        ("consensus_grpo", "pairs", {"keep": 0.5}, True),
        ("sparta", "spin", {"history": False}, True),
        ("sparta", "grpo", {"kl": 0.1}, True),
        ("debate", "train", {"beta": 0.3}, True),
        ("rejection_sampling", "sft", {"epochs": 3}, False),
        ("spin", "sft", {"epochs": 3}, True),
        ("rejection_sampling", "train", {"beta": 0.3}, True),
        ("rejection_sampling", "train", {"method": "none"}, False),
    ],
)
def test_a_section_without_use_is_noted(method: str, section: str, value: Any, noted: bool) -> None:
    given = config(method, **{section: value})
    found = [text for text in notes(given) if text.startswith(section) and "has no use" in text]
    assert bool(found) == noted, notes(given)


def test_a_response_that_training_does_not_hold_is_noted() -> None:
    short = config("rejection_sampling", sft={"max_length": 100})
    (note,) = about(notes(short), "sft.max_length")
    assert "rejection_sampling.sample.max_new_tokens" in note
    assert not about(notes(config("rejection_sampling")), "sft.max_length")
    short = config("consensus_grpo", grpo={"max_length": 100, "max_prompt_length": 100})
    assert about(notes(short), "grpo.max_length")
    assert about(faults(short), "grpo.max_prompt_length")


@pytest.mark.parametrize(
    ("method", "section", "words"),
    [
        ("sppo", {"sample": {"temperature": 0}}, "sample.temperature: is 0 (greedy), so the 5 sam"),
        ("self_rewarding", {"sample": {"temperature": 0}}, "sample.temperature: is 0 (greedy)"),
        ("meta_rewarding", {"sample": {"temperature": 0}}, "sample.temperature: is 0 (greedy)"),
        ("self_rewarding", {"judge": {"temperature": 0}}, "judge.temperature: is 0 (greedy), so t"),
        ("meta_rewarding", {"judge": {"temperature": 0}}, "judge.temperature: is 0 (greedy), so t"),
    ],
)
def test_texts_that_would_all_be_the_same_are_refused(
    method: str, section: dict, words: str
) -> None:
    assert faults(config(method)) == []
    (fault,) = faults(config(method, **{method: section}))
    assert fault.startswith(f"{method}.{words}")


def test_a_judge_that_is_asked_once_may_be_greedy() -> None:
    once = {"judge": {"temperature": 0}, "judgments": 1}
    assert faults(config("self_rewarding", self_rewarding=once)) == []


@pytest.mark.parametrize(
    ("method", "most", "words"),
    [
        ("spin", 1.0, "count as 1,"),
        ("sppo", 0.8, "5 samples, itself among them, differ by at most 0.8,"),
        ("self_rewarding", 5.0, "scores are from 0 to 5,"),
        ("meta_rewarding", 5.0, "scores are from 0 to 5,"),
    ],
)
def test_a_margin_that_no_pair_can_have_is_refused(method: str, most: float, words: str) -> None:
    assert faults(config(method, pairs={"margin": most})) == []
    (fault,) = faults(config(method, pairs={"margin": most + 0.1}))
    assert fault.startswith("pairs.margin: is ")
    assert words in fault


def test_full_weights_are_looked_at_where_somebody_learns_by_them() -> None:
    full = {"weights": "full"}
    ray = {"executor": "ray"}
    assert about(faults(config("consensus_grpo", grpo=full, resources=ray)), "grpo.weights")
    assert not about(faults(config("consensus_grpo", sft=full, resources=ray)), "sft.weights")
    initial = config("spin", train={"weights": "full", "reference": "initial"})
    assert about(faults(initial), "train.reference")


@pytest.mark.parametrize(
    ("method", "changes", "sections", "wanted", "longest"),
    [
        ("sparta", {}, ("train",), ("match.duels", 1000), "answer"),
        ("sparta", {"train": {"method": "sft"}}, ("sft",), ("match.duels", 1000), "answer"),
        ("moaa", {}, ("sft", "train"), ("moaa.sft_instructions", None), ""),
        ("spin", {}, ("train",), ("spin.instructions", 1000), "spin.sample"),
        ("multiagent", {}, ("sft",), ("multiagent.instructions", 500), "debate.sample"),
        ("consensus_grpo", {}, ("grpo",), ("consensus_grpo.instructions", 700), "consensus_grpo"),
        ("self_rewarding", {"self_rewarding": {"judge_seed": "seed.jsonl"}}, ("train", "sft"),
         ("self_rewarding.instructions", 1000), "self_rewarding.sample"),
        ("preference_file", {}, ("train",), ("preference_file.pairs", 1000), ""),
        ("spin", {"train": {"method": "none"}}, (), ("spin.instructions", 1000), "spin.sample"),
        ("debate", {}, (), None, ""),
        ("frozen", {}, (), None, ""),
    ],
)  # fmt: skip
def test_what_a_method_takes_of_its_configuration(
    method: str, changes: dict, sections: tuple, wanted: tuple | None, longest: str
) -> None:
    given = config(method, **changes)
    assert sections_learned(given) == sections
    found = wanted_of(given, 1)
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == wanted[0]
        assert wanted[1] in (None, found[1])
    learned = longest_learned(given)
    assert (learned[0] if learned else "").startswith(longest)
    assert bool(learned) == bool(longest)


def test_a_critics_prompt_holds_the_answers_that_it_read() -> None:
    """Its own, those of the two others, and the revision: 4 x 512 tokens."""
    (note,) = about(notes(config("multiagent")), "sft.max_length")
    assert "2048 tokens do not hold a response of debate.sample.max_new_tokens = 512" in note
    assert "with 3 of that length in it" in note
    short = {"debate": {"sample": {"max_new_tokens": 400}}}
    assert not about(notes(config("multiagent", **short)), "sft.max_length")


@pytest.mark.parametrize(
    ("collective", "key"),
    [
        ("debate", "debate.sample"),
        ("council", "council.sample"),
        ("best_of_n", "best_of_n.sample"),
        ("mixture", "mixture.aggregate"),
    ],
)
def test_what_a_collective_writes_is_held_too(collective: str, key: str) -> None:
    given = {"single_multi": {"collective": collective}, "sft": {"max_length": 256}}
    (note,) = about(notes(config("single_multi", **given)), "sft.max_length")
    assert f"a response of {key}.max_new_tokens = " in note
