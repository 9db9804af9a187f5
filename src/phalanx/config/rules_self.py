"""Rules of the methods in which a member judges its own responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from phalanx.config.faults import Fault
from phalanx.config.rules_single import OF_A_LEARNER
from phalanx.config.rules_training import can_differ, holds, margin_is_reached
from phalanx.config.schema import Config
from phalanx.config.schema_rivals import MetaRewardingSettings, SelfRewardingSettings

HIGHEST = 5
"""The best score of the rubric, whose worst one is 0."""


def _own_judge(
    config: Config, method: str, settings: SelfRewardingSettings | MetaRewardingSettings
) -> Iterator[Fault]:
    """Responses that can differ, judgments that can, and scores that can be as far apart."""
    own, count = settings.sample, settings.samples
    yield from can_differ((method, "sample"), own, count, OF_A_LEARNER, "raise it")
    many = settings.judgments
    advice = "raise it, or set judgments to 1"
    what = "judgments of a response"
    yield from can_differ((method, "judge"), settings.judge, many, what, advice)
    yield from margin_is_reached(config, HIGHEST, "scores are from 0 to")


def check_self_rewarding(config: Config) -> Iterator[Fault]:
    """The rubric and the demonstrations of judging are files; the latter need an iteration."""
    settings = config.self_rewarding
    yield from _own_judge(config, "self_rewarding", settings)
    template, seed = settings.template, settings.judge_seed
    if template is not None and not FilePath(template).expanduser().is_file():
        yield Fault(("self_rewarding", "template"), f"there is no file {template!r}")
    if not seed:
        return
    from phalanx.config.rules import table_problem  # which imports these rules

    path = ("self_rewarding", "judge_seed")
    if problem := table_problem(seed, hub=False):
        yield Fault(path, problem)
    if config.train.method == "none":
        yield Fault(path, "is to be learned, and train.method is none; leave one of them out")
    elif config.iterations == 1:
        text = "takes the first iteration, and there is no other: no pairs are made; raise it"
        yield Fault(("iterations",), text, "note")


def check_meta_rewarding(config: Config) -> Iterator[Fault]:
    """Learning to judge needs two judgments, which are learned like responses."""
    settings = config.meta_rewarding
    yield from _own_judge(config, "meta_rewarding", settings)
    path = ("meta_rewarding", "length_control")
    if not settings.length_control:
        yield Fault(path, "is empty; expected rho of each iteration, such as [0.0, 0.32]")
    for rho in settings.length_control:
        if not 0 <= rho <= 1:
            yield Fault(path, f"{rho:g} is not a share; expected numbers from 0 to 1")
    if settings.judge_iterations == 0:
        return
    if settings.judgments < 2:
        yield Fault(
            ("meta_rewarding", "judgments"),
            f"is {settings.judgments}, and judging is learned from two judgments of one response; "
            "raise it, or set meta_rewarding.judge_iterations to 0",
        )
    if config.train.method != "none":
        longest = settings.judge.max_new_tokens
        key = "meta_rewarding.judge.max_new_tokens"
        yield from holds(config.pair_section, config.pair_training, key, longest)
