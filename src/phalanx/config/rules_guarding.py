"""Rules about ``guard``: one that can never fire is a false comfort, and is told."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config
from phalanx.config.uses import ANSWERING, USES, learns_pairs, trains

_BOTH_ORDERS = ("sparta", "moaa", "sppo", "rejection_sampling")
"""Methods whose judges may see a duel in both orders."""
JUDGED_ALONE = ("rubric", "expected", "likelihood", "additive")
"""Protocols that see each response alone: their judgments cannot flip, and count for nothing."""


def check_guards(config: Config) -> Iterator[Fault]:
    """Notes on guards that are set and get no numbers in such a run."""
    guard, judge = config.guard, config.judge
    given = judge.max_unreadable != type(judge).model_fields["max_unreadable"].default
    if given and guard.max_unreadable not in (None, judge.max_unreadable):
        text = f"{judge.max_unreadable:g} counts for nothing: guard.max_unreadable is set"
        yield Fault(("judge", "max_unreadable"), text, "note")
    for key, why in idle(config).items():
        if getattr(guard, key, None) is not None:
            yield Fault(("guard", key), f"this guard can never fire: {why}", "note")


def idle(config: Config) -> dict[str, str]:
    """Guards that can never fire in such a run, each with the reason."""
    reasons = {
        "max_unreadable": _no_judgments(config),
        "max_flips": _no_flips(config),
        "length_drift": _no_drift(config),
        "hacking": _no_hacking(config),
        "max_kl": _no_distance(config),
        "finite_loss": "" if config.pool.recruit else _no_learners(config),
    }
    return {key: why for key, why in reasons.items() if why}


def _no_judgments(config: Config) -> str:
    if config.method in ANSWERING or "judge" not in USES[config.method]:
        return f"method {config.method} has no judgments by iterations"
    return ""


def _no_learners(config: Config) -> str:
    return "" if trains(config) and config.train.method != "none" else "nobody is trained"


def _no_flips(config: Config) -> str:
    if config.method not in _BOTH_ORDERS:
        return f"method {config.method} has no judgments in both orders"
    if config.method == "sparta" and config.judge.protocol in JUDGED_ALONE:
        return f"judge.protocol: {config.judge.protocol} judges each response alone"
    return ""


def _no_drift(config: Config) -> str:
    if config.method in (*ANSWERING, "frozen", "preference_file", "multiagent"):
        return f"method {config.method} has no responses by iterations to compare"
    return "" if config.iterations > 1 else "there is one iteration, and none to compare it with"


def _no_hacking(config: Config) -> str:
    if config.method != "sparta":
        return f"method {config.method} moves no reputations"
    if not config.evaluate.tasks or not config.evaluate.dev_share:
        return "nothing is measured on dev items (evaluate.tasks, evaluate.dev_share)"
    return ""


def _no_distance(config: Config) -> str:
    if nobody := _no_learners(config):
        return nobody
    if config.method == "consensus_grpo":
        return "" if config.grpo.kl else "grpo.kl is 0, so no distance is reckoned"
    if not learns_pairs(config) or config.train.method == "sft":
        return "learning from demonstrations has no reference"
    if not config.train.has_reference:
        return f"train.loss: {config.train.loss} has no reference"
    return ""
