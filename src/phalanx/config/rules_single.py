"""Rules of the methods in which each member learns from its own responses, or from a file."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.keys import Path
from phalanx.config.mixing import MOA, pool_settings
from phalanx.config.rules_training import can_differ, margin_is_reached
from phalanx.config.schema import Config, MemberSettings

OF_A_LEARNER = "samples of a learner"


def check_spin(config: Config) -> Iterator[Fault]:
    """References are there or not: that is seen in the file, when it is read."""
    yield from _margins(config, "a reference and a response have no scores")
    if config.train.loss not in ("auto", "sigmoid"):
        text = f"is {config.train.loss}; the paper's loss is sigmoid (auto)"
        yield Fault(("train", "loss"), text, "note")


def check_sppo(config: Config) -> Iterator[Fault]:
    """Responses that can differ, and somebody else who compares them."""
    settings, path = config.sppo, ("sppo", "sample")
    yield from can_differ(path, settings.sample, settings.samples, OF_A_LEARNER, "raise it")
    why = f"probabilities to beat {settings.samples} samples, itself among them, differ by at most"
    yield from margin_is_reached(config, 1 - 1 / settings.samples, why)
    yield from check_judge_of_own(config, settings.judge, ("sppo", "judge"))


def check_preference_file(config: Config) -> Iterator[Fault]:
    """Pairs of a file have no margins; that they have no probabilities is for ``check_loss``."""
    yield from _margins(config, "pairs of a file have no scores")


def check_rejection_sampling(config: Config) -> Iterator[Fault]:
    """Somebody else who chooses, where there is something to choose from."""
    settings = config.rejection_sampling
    if settings.samples == 1:
        text = "is 1: every response is learned, and nobody is asked which are good"
        yield Fault(("rejection_sampling", "samples"), text, "note")
    path, advice = ("rejection_sampling", "sample"), "raise it, or set samples to 1"
    yield from can_differ(path, settings.sample, settings.samples, OF_A_LEARNER, advice)
    yield from check_judge_of_own(config, settings.judge, ("rejection_sampling", "judge"))


def _margins(config: Config, why: str) -> Iterator[Fault]:
    """Settings of pairs that go by scores, where every pair counts the same."""
    yield from margin_is_reached(config, 1, f"{why} and count as")
    pairs = config.pairs
    for key, is_set in (("keep", pairs.keep < 1), ("weight_by_margin", pairs.weight_by_margin)):
        if is_set:
            text = f"goes by scores, and {why}: all count the same"
            yield Fault(("pairs", key), text, "note")


def check_judge_of_own(config: Config, judge: str, path: Path) -> Iterator[Fault]:
    """Who judges the responses of learners: a member that learns nothing, or the judges save the
    learner itself. Nobody judges their own."""
    members = {member.name: member for member in pool_settings(config)}
    if not members:
        return
    learners = [name for name, member in members.items() if "learn" in member.roles]
    if judge:
        yield from _named_judge(judge, members, learners, path)
        judges = [judge] if judge in members else []
    else:
        judges = [name for name, member in members.items() if "judge" in member.roles]
        for name in learners:
            if not [other for other in judges if other != name]:
                text = (
                    f"is empty, and nobody else has the role judge for the responses of {name}; "
                    "add a member with roles: [judge], or name a judge that does not learn"
                )
                yield Fault(path, text)
    protocol = config.judge.protocol
    able = ("reward", "scripted") if protocol == "reward" else ("reward",)
    unable = [name for name in judges if members[name].engine not in able]
    if protocol in ("reward", MOA) and unable:
        text = (
            f"is {protocol}, by which {', '.join(unable)} cannot judge single responses; use "
            "rubric, expected, pairwise or likelihood"
        )
        yield Fault(("judge", "protocol"), text)


def _named_judge(
    judge: str, members: dict[str, MemberSettings], learners: list[str], path: Path
) -> Iterator[Fault]:
    if judge not in members:
        hint = did_you_mean(judge, list(members), "members")
        yield Fault(path, f"no member is named {judge!r}; {hint}")
    elif judge in learners:
        text = (
            f"{judge} has the role learn and would judge its own responses; name a member without "
            "it, or leave this empty, so that the others judge"
        )
        yield Fault(path, text)
