"""What a run takes from its configuration, by its method: instructions, and which sections.

Methods themselves are in a higher layer; ``tests/test_every_method.py`` holds what is said here
against what they do.
"""

from __future__ import annotations

from phalanx.config.mixing import (
    TOGETHER,
    collective_writes,
    critics_of,
    debaters_of,
    panel_chooses,
)
from phalanx.config.schema import Config, InstructionSettings, JudgeSettings
from phalanx.config.staging import stage_of

PAPERS = ("sparta", "moaa")
"""The two papers' methods, with rules about sections without use and reports of their own."""
ANSWERING = (*TOGETHER, "mixture")
"""Methods that answer together and train nobody; ``frozen`` does not even that."""

ALL_RUNS = frozenset(
    {"seed", "method", "iterations", "output", "pool", "endpoints", "budget", "vllm",
     "evaluate", "resources", "search", "share", "guard", "track", "instructions"}
)  # fmt: skip
"""Settings that say something in every run (``search`` and ``share`` are for other
commands; of ``instructions`` see :func:`ignored`)."""

_COLLECTIVES = frozenset({"mixture", "debate", "council", "best_of_n"})

USES: dict[str, frozenset[str]] = {
    "sparta": frozenset(
        {"instructions", "without", "match", "answer", "judge", "aggregate", "reputation",
         "pairs", "train", "sft"}
    ),
    "moaa": frozenset(
        {"instructions", "mixture", "moaa", "reward", "judge", "pairs", "train", "sft"}
    ),
    "self_rewarding": frozenset({"instructions", "judge", "pairs", "train", "sft"}),
    "meta_rewarding": frozenset({"instructions", "judge", "pairs", "train", "sft"}),
    "spin": frozenset({"instructions", "pairs", "train", "sft"}),
    "sppo": frozenset({"instructions", "judge", "pairs", "train", "sft"}),
    "preference_file": frozenset({"pairs", "train", "sft"}),
    "rejection_sampling": frozenset({"instructions", "judge", "train", "sft"}),
    "multiagent": frozenset({"instructions", "debate", "train", "sft"}),
    "consensus_grpo": frozenset({"instructions", "train", "grpo"}),
    "single_multi": frozenset({"instructions", "judge", "reward", "train", "sft"}) | _COLLECTIVES,
    "self_consistency": frozenset(),
    "debate": frozenset({"council"}),
    "mixture": frozenset(),
    "council": frozenset(),
    "best_of_n": frozenset({"judge"}),
    "frozen": frozenset(),
}  # fmt: skip
"""Sections that a method may read, beside :data:`ALL_RUNS` and the one of its own name."""


def uses(config: Config, section: str) -> bool:
    """Whether a run by this configuration may read a section of it."""
    if section in ALL_RUNS or section == config.method or section in USES[config.method]:
        return True
    if section in ("mixture", "reward") and config.method == "best_of_n" and panel_chooses(config):
        return True
    return section == "mixture" and config.evaluate.mixture


_OF_OWN_JUDGES = ("quorum", "max_unreadable")
"""What those read of ``judge`` who judge themselves; how they do is in the method's section."""


def ignored(config: Config) -> dict[str, tuple[str, ...]]:
    """Keys without use, by their section, of sections that the method reads; not of the papers'.

    >>> ignored(Config(method="rejection_sampling"))
    {'judge': ('per_duel',)}
    """
    sections, found = USES[config.method], dict[str, tuple[str, ...]]()
    if "instructions" not in sections:  # what recruits and a file of pairs are searched for
        keys = InstructionSettings.model_fields
        found["instructions"] = tuple(key for key in keys if key != "contamination")
    if config.method in ("self_rewarding", "meta_rewarding"):
        keys = JudgeSettings.model_fields
        found["judge"] = tuple(key for key in keys if key not in _OF_OWN_JUDGES)
    elif "judge" in sections:
        found["judge"] = ("per_duel",)
    if learns_pairs(config):
        found["train"] = ("scope",)
    if config.method == "preference_file":  # its pairs have no margins
        found["pairs"] = ("margin", "weight_by_margin")
    return found


def source_of(config: Config) -> tuple[str, str]:
    """(section, its source): where what a run is about comes from; "" where none is set."""
    if config.method == "preference_file":
        return "preference_file", config.preference_file.source
    return "instructions", config.instructions.source


def trains(config: Config) -> bool:
    """Whether the method changes weights, unless ``train.method`` is none."""
    return "train" in USES[config.method]


def wanted_of(config: Config, number: int) -> tuple[str, int] | None:
    """(setting, how many fresh instructions, or pairs of a file, iteration ``number`` asks for).

    None for methods that only answer or measure.

    >>> wanted_of(Config(method="sppo"), 1)
    ('sppo.instructions', 1000)
    """
    if config.method == "sparta":
        return "match.duels", config.match.duels
    if config.method == "moaa":
        kind = stage_of(config, number).kind
        return f"moaa.{kind}_instructions", getattr(config.moaa, f"{kind}_instructions")
    if not trains(config):
        return None
    key = "pairs" if config.method == "preference_file" else "instructions"
    return f"{config.method}.{key}", getattr(getattr(config, config.method), key)


def sections_learned(config: Config) -> tuple[str, ...]:
    """The sections by whose settings members learn, beside recruits; () where nobody does."""
    if config.train.method == "none" or not trains(config):
        return ()
    if config.method == "moaa":
        named = {"sft": "sft", "dpo": "train"}
        return tuple(dict.fromkeys(named[stage] for stage in config.moaa.stages))
    if config.method == "consensus_grpo":
        return ("grpo",)
    if config.method in ("rejection_sampling", "multiagent", "single_multi"):
        return ("sft",)
    seeded = config.method == "self_rewarding" and config.self_rewarding.judge_seed
    return tuple(dict.fromkeys([config.pair_section, *(["sft"] if seeded else [])]))


def learns_pairs(config: Config) -> bool:
    """Whether members learn from preference pairs in some iteration."""
    if config.method == "moaa":
        return "dpo" in config.moaa.stages
    return "pairs" in USES[config.method]


def longest_learned(config: Config) -> tuple[str, int] | None:
    """(setting, its value): the most tokens of a response that members learn from, where one
    setting says it."""
    if config.method == "sparta":
        return "answer.max_new_tokens", config.answer.max_new_tokens
    if config.method == "single_multi":
        key, writes = collective_writes(config)
        return f"{key}.max_new_tokens", writes.max_new_tokens
    name = "debate" if config.method == "multiagent" else config.method
    sample = getattr(getattr(config, name, None), "sample", None)
    if sample is None or not trains(config):
        return None
    return f"{name}.sample.max_new_tokens", sample.max_new_tokens


def answers_in_prompt(config: Config) -> int:
    """How many answers, each as long as :func:`longest_learned`, stand in the longest prompt that
    members learn from: a critic's has its own last one, and those of all other debaters."""
    revises = config.method == "multiagent" and critics_of(config)
    return len(debaters_of(config)) if revises else 0
