"""Rules that hold for every method beside the two papers': who learns, and what has no use."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.mixing import pool_settings
from phalanx.config.rules_training import holds, prompt_leaves_room
from phalanx.config.schema import Config, TrainSettings
from phalanx.config.uses import (
    ANSWERING,
    PAPERS,
    USES,
    answers_in_prompt,
    ignored,
    learns_pairs,
    longest_learned,
    sections_learned,
    trains,
    uses,
)

_SECTIONS_OF_RIVALS = tuple(name for name in USES if name not in (*PAPERS, "mixture", "frozen"))


def check_methods(config: Config) -> Iterator[Fault]:
    """Faults and notes of a run that follow from what its method uses."""
    yield from _without_use(config)
    if config.method in PAPERS:
        return
    yield from _keys_without_use(config)
    if trains(config):
        yield from _learners(config)
        yield from _training(config)
        yield from _lengths(config)
    else:
        yield from _nothing_learned(config)


def _without_use(config: Config) -> Iterator[Fault]:
    names = list(Config.model_fields)
    if config.method in PAPERS:  # the others are told where the paper's own rules are
        names = [*_SECTIONS_OF_RIVALS, "grpo"]
    usual = Config()
    for name in names:
        if not uses(config, name) and getattr(config, name) != getattr(usual, name):
            text = f"has no use with method: {config.method}; leave it out, or set another method"
            yield Fault((name,), text, "unused")


def _keys_without_use(config: Config) -> Iterator[Fault]:
    usual = Config()
    if config.method == "preference_file" and config.pairs.keep < 1:
        text = (
            "pairs of a file have no margins to choose by, so those that are left out are any; "
            "lower preference_file.pairs instead"
        )
        yield Fault(("pairs", "keep"), text, "note")
    for section, keys in ignored(config).items():
        given, default = getattr(config, section), getattr(usual, section)
        for key in keys:
            if getattr(given, key) != getattr(default, key):
                text = f"has no use with method: {config.method}; leave it out"
                yield Fault((section, key), text, "unused")


def _learners(config: Config) -> Iterator[Fault]:
    members = pool_settings(config)
    able = [m for m in members if "learn" in m.roles and m.engine != "reward"]
    if members and not able:
        text = (
            f"nobody has the role learn, and {config.method} is for learners; give it to a member"
        )
        yield Fault(("pool", "members"), text)
    elif config.train.method != "none" and members and not any(m.engine == "hf" for m in able):
        text = "no learner has weights here, so the data are made and nothing is learned"
        yield Fault(("pool", "members"), text, "note")


def _training(config: Config) -> Iterator[Fault]:
    """Settings of ways of learning that this method has not."""
    sections = sections_learned(config)
    if not learns_pairs(config) and config.train.method != "none":
        given, usual = config.train, TrainSettings()
        unused = [
            key
            for key in TrainSettings.model_fields
            if key != "method" and getattr(given, key) != getattr(usual, key)
        ]
        if unused or config.train.method != usual.method:
            listed = ", ".join(unused) or f"method: {config.train.method}"
            text = f"{config.method} learns by the section {sections[0]}; {listed} has no use"
            yield Fault(("train",), text, "note")
    spared = "sft" in USES[config.method] and "sft" not in sections
    if sections and spared and config.sft != Config().sft:
        text = f"has no use with method: {config.method} unless train.method is sft"
        yield Fault(("sft",), text, "note")


def _lengths(config: Config) -> Iterator[Fault]:
    written = longest_learned(config)
    for section in sections_learned(config):
        settings = getattr(config, section)
        if section != "train":  # looked at for every run
            yield from prompt_leaves_room((section,), settings)
        if written is not None:
            yield from holds(section, settings, *written, answers_in_prompt(config))


def _nothing_learned(config: Config) -> Iterator[Fault]:
    """Who answers together, or does nothing, is measured, and no more."""
    if not config.evaluate.tasks:
        what = "answers together" if config.method in ANSWERING else "only measures"
        text = f"lists none, and {config.method} {what} on tasks; list at least one"
        yield Fault(("evaluate", "tasks"), text)
    if not any("contest" in m.roles for m in pool_settings(config)) and pool_settings(config):
        text = "nobody has the role contest, so nobody is measured; give it to a member"
        yield Fault(("pool", "members"), text)
