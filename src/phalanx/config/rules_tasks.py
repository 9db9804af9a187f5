"""Rules about tasks: how they are compared, sampled and judged, and where they can be measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.keys import Path
from phalanx.config.mixing import MIXTURE, also_measured, pool_settings
from phalanx.config.rules_moaa import Purpose
from phalanx.config.schema import Config, MemberSettings, TaskSettings
from phalanx.config.schema_evaluate import CONTESTS

LIKELIHOODS = ("truthfulqa_mc1", "truthfulqa_mc2")


def check_tasks(config: Config, purpose: Purpose) -> Iterator[Fault]:
    """Faults of all tasks, one by one, and of ``evaluate.judges``."""
    for position, task in enumerate(config.evaluate.tasks):
        path: Path = ("evaluate", "tasks", position)
        yield from _match(task, path)
        yield from _samples(task, path)
        if task.kind in LIKELIHOODS and purpose != "eval":  # there others may be measured
            yield from _by_likelihood(config, task, path)
        if task.kind in CONTESTS and purpose in ("run", "search"):
            text = (
                f"{task.kind} compares answers with each other, which a "
                f"{'run' if purpose == 'run' else 'search'} does not; leave it out, and give it "
                "to phalanx eval"
            )
            yield Fault((*path, "kind"), text)
        if task.kind not in CONTESTS:
            for key in ("baseline", "difficulty", "gamed"):
                if getattr(task, key):
                    text = "has no use for a task that compares with nobody"
                    yield Fault((*path, key), text, "note")
    yield from _judges(config, purpose)


def is_judged(task: TaskSettings) -> bool:
    """Whether judges say if an answer means the same as the gold one."""
    return task.kind == "com2" or (not task.kind and task.match == "judged")


def _match(task: TaskSettings, path: Path) -> Iterator[Fault]:
    own_way = {("gsm8k", "number"), ("com2", "judged")}
    if task.match != "exact" and task.kind and (task.kind, task.match) not in own_way:
        text = f"{task.match} beside kind {task.kind}, which has its own way; leave match out"
        yield Fault((*path, "match"), text)


def _samples(task: TaskSettings, path: Path) -> Iterator[Fault]:
    if task.kind in LIKELIHOODS:
        if task.samples > 1 or task.temperature:
            key = "samples" if task.samples > 1 else "temperature"
            text = f"{task.kind} is scored by likelihoods, and nothing is written; leave it out"
            yield Fault((*path, key), text)
    elif task.kind in CONTESTS:
        if task.samples > 1:
            text = f"{task.kind} compares one answer of each; leave samples out"
            yield Fault((*path, "samples"), text)
    elif task.samples > 1 and not task.temperature:
        text = (
            f"{task.samples} samples at temperature 0 would be the same text each time; give the "
            "task a temperature, such as 0.7"
        )
        yield Fault((*path, "samples"), text)


def _by_likelihood(config: Config, task: TaskSettings, path: Path) -> Iterator[Fault]:
    if names := [member.name for member in _measured(config) if member.engine == "openai"]:
        text = f"{task.kind} cannot be asked of {', '.join(names)}: an endpoint gives no likelihood"
        yield Fault((*path, "kind"), f"{text} of a given text; use kind: truthfulqa")
    if config.evaluate.mixture:
        text = f"{task.kind} cannot be asked of a mixture, which only writes; use kind: truthfulqa"
        yield Fault((*path, "kind"), text)


def _measured(config: Config) -> list[MemberSettings]:
    """Whoever a run measures; see :func:`phalanx.pool.measured`."""
    also = also_measured(config)
    return [m for m in pool_settings(config) if "contest" in m.roles or m.name in also]


# Judges ------------------------------------------------------------------------------------------


def _judges(config: Config, purpose: Purpose) -> Iterator[Fault]:
    names, path = config.evaluate.judges, ("evaluate", "judges")
    known = {member.name: member for member in pool_settings(config)}
    for name, count in Counter(names).items():
        if known and name not in known:
            text = f"no member is named {name}; {did_you_mean(name, list(known))}"
            yield Fault(path, text)
        if count > 1:
            yield Fault(path, f"{name} is named {count} times; each judges once")
    judged = [task.name for task in config.evaluate.tasks if is_judged(task)]
    if not judged or not known:
        return
    listed = ", ".join(judged)
    if purpose == "search" and config.search.metric == "accuracy":
        text = (
            f"{listed}: judged, and a search by accuracy asks no judges; leave it out, or use "
            "search.metric: judge"
        )
        yield Fault(("evaluate", "tasks"), text)
    if purpose in ("run", "eval"):
        yield from _of_judged(config, listed, purpose)


def _of_judged(config: Config, listed: str, purpose: Purpose) -> Iterator[Fault]:
    names, path = config.evaluate.judges, ("evaluate", "judges")
    known = {member.name: member for member in pool_settings(config)}
    if not names:
        able = [name for name, member in known.items() if member.engine != "reward"]
        text = (
            f"names nobody, and {listed}: judges say whether an answer means the same as the gold "
            f"one; name some, at best who is not measured (members: {', '.join(able)})"
        )
        yield Fault(path, text)
    if unfit := [name for name in names if name in known and known[name].engine == "reward"]:
        text = (
            f"{', '.join(unfit)} only gives rewards, and a reward does not say whether two answers "
            f"mean the same ({listed}); name members that write"
        )
        yield Fault(path, text)
    alone = _judged_by_nobody(config) if names and purpose == "run" else []
    if alone:
        text = (
            f"{', '.join(alone)}: answers that nobody else judges ({listed}), since nobody judges "
            "an answer of their own; name another judge beside"
        )
        yield Fault(path, text)


def _judged_by_nobody(config: Config) -> Sequence[str]:
    """Whoever is measured and is the only judge; the mixture's answers are its aggregator's."""
    writers = {member.name: member.name for member in _measured(config)}
    if config.evaluate.mixture and config.mixture.aggregator:
        writers[MIXTURE] = config.mixture.aggregator
    judges = set(config.evaluate.judges)
    return [name for name, writer in writers.items() if judges == {writer}]
