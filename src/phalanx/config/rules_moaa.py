"""Rules about mixtures, the method moaa, reward models, and the commands that are no run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Literal

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.keys import Path
from phalanx.config.mixing import (
    BUILDERS,
    MIXTURE,
    MOA,
    TEACHER,
    longest_answer,
    pool_settings,
    proposers_of,
    ranker_of,
    students_of,
    teachers_of,
)
from phalanx.config.rules_training import check_learned, holds, prompt_leaves_room
from phalanx.config.schema import (
    Config,
    MemberSettings,
    MixtureSettings,
    MoaaSettings,
    StudentSettings,
)

Purpose = Literal["run", "mix", "judge", "synthesise", "search", "eval"]
"""What a configuration is for: a run, or one of the commands that ask members without one."""
SCORERS = ("reward", "scripted")
"""Engines that give rewards; a script says what it likes."""


def check_rewards(config: Config) -> Iterator[Fault]:
    """Reward models do nothing but score, and other members cannot do it in their place."""
    for position, member in enumerate(config.pool.members):
        if member.engine == "reward" and member.roles != ["judge"]:
            text = (
                f"{member.name} is a reward model, which neither answers nor learns here; expected "
                f"roles: [judge], got [{', '.join(member.roles)}]"
            )
            yield Fault(("pool", "members", position, "roles"), text)


def check_unused(config: Config) -> Iterator[Fault]:
    """Judges of duels, a mixture that is only measured, and what has no use in a run of duels."""
    yield from _judges(config)
    yield from check_learned(config)
    if config.moaa != MoaaSettings():
        yield Fault(("moaa",), "has no use with method: sparta; set method: moaa", "note")
    if config.evaluate.mixture and pool_settings(config):
        yield from check_mixture(config)
    if config.mixture != MixtureSettings() and not config.evaluate.mixture:
        text = "has no use in a run of method: sparta unless evaluate.mixture is on"
        yield Fault(("mixture",), text, "note")


def check_moaa(config: Config) -> Iterator[Fault]:
    """All faults and notes of a run of the method moaa; nothing where there is no pool yet."""
    if config.train.method == "sft":
        text = (
            "sft is for duels; here the stage dpo learns pairs, and the stage sft demonstrations: "
        )
        yield Fault(("train", "method"), text + "use dpo, and name the stages in moaa.stages")
    yield from _stages(config)
    yield from _lengths(config)
    if not pool_settings(config):
        return
    yield from check_mixture(config)
    yield from _students(config)
    if _mixes_reward(config):
        yield from check_panel(config)
    yield from _helpers(config)


def check_command(config: Config, purpose: Purpose) -> Iterator[Fault]:
    """What ``mix``, ``judge``, ``synthesise`` and ``mixture-search`` ask of a configuration."""
    if not pool_settings(config):
        return
    if purpose == "mix":
        yield from check_mixture(config)
    elif purpose == "judge" and config.judge.protocol == "moa":
        yield from check_judge_moa(config)
    elif purpose == "judge":
        yield from _judges(config)
        if not any("judge" in member.roles for member in pool_settings(config)):
            text = "nobody has the role judge; give it to a member, or use judge.protocol: moa"
            yield Fault(("pool", "members"), text)
    elif purpose == "synthesise":
        if not any(m.engine in ("hf", "scripted") for m in pool_settings(config)):
            text = (
                "nobody can invent instructions: that needs the chat template, so weights here "
                "(engine: hf), not an endpoint or a reward model; add such a member"
            )
            yield Fault(("pool", "members"), text)
    elif purpose == "search":
        yield from _search(config)


def _known(config: Config) -> dict[str, MemberSettings]:
    return {member.name: member for member in pool_settings(config)}


def _named(config: Config, name: str, path: Path) -> Iterator[Fault]:
    """A name that must be that of a member."""
    known = list(_known(config))
    if name not in known:
        yield Fault(path, f"there is no member {name!r}; {did_you_mean(name, known)}")


def check_writer(config: Config, name: str, path: Path) -> Iterator[Fault]:
    """A name that must be that of a member which can write."""
    member = _known(config).get(name)
    if member is None:
        yield from _named(config, name, path)
    elif member.engine == "reward":
        text = f"{name} is a reward model, which gives scores and writes nothing; name another"
        yield Fault(path, text)


def _twice(names: Sequence[str], path: Path, instead: str) -> Iterator[Fault]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Fault(path, f"names {name} {count} times; {instead}")


def check_mixture(config: Config) -> Iterator[Fault]:
    """Whether the section ``mixture`` can be used: who writes and who proposes."""
    settings = config.mixture
    if not settings.aggregator:
        known = ", ".join(m.name for m in pool_settings(config) if m.engine != "reward")
        text = f"names nobody; expected the member that writes the last answer, one of {known}"
        yield Fault(("mixture", "aggregator"), text)
    else:
        yield from check_writer(config, settings.aggregator, ("mixture", "aggregator"))
    yield from _proposers(config)
    if settings.samples > 1 and settings.propose.temperature == 0:
        text = f"is 0 (greedy), so the {settings.samples} samples of a proposer are all the same"
        yield Fault(("mixture", "propose", "temperature"), text, "note")
    yield from _file(settings.template, ("mixture", "template"))


def _proposers(config: Config) -> Iterator[Fault]:
    settings = config.mixture
    for name in settings.proposers:
        yield from check_writer(config, name, ("mixture", "proposers"))
    instead = "several proposals of one member are mixture.samples"
    yield from _twice(settings.proposers, ("mixture", "proposers"), instead)
    for position, layer in enumerate(settings.per_layer):
        for name in layer:
            yield from check_writer(config, name, ("mixture", "per_layer", position))
        yield from _twice(layer, ("mixture", "per_layer", position), instead)
    for position, layer in enumerate(proposers_of(config)):
        path: Path = ("mixture", "per_layer", position)
        if not settings.per_layer:
            path = ("mixture", "proposers")
        if not layer:
            yield Fault(path, "nobody proposes; name members, or set mixture.layers: 1")
        elif settings.min_proposals > len(layer) * settings.samples:
            yield Fault(
                ("mixture", "min_proposals"),
                f"{settings.min_proposals} proposals are wanted, but layer {position + 1} has "
                f"{len(layer)} proposers x {settings.samples} samples; lower it to "
                f"{len(layer) * settings.samples} or less",
            )
        if not settings.per_layer:
            return  # all layers are alike


def _file(name: str | None, path: Path) -> Iterator[Fault]:
    if name is not None and not FilePath(name).expanduser().is_file():
        text = f"there is no file {name!r} (looked beside the configuration, then here)"
        yield Fault(path, text)


def _stages(config: Config) -> Iterator[Fault]:
    stages = config.moaa.stages
    if not stages:
        yield Fault(("moaa", "stages"), "is empty; expected sft, dpo, or both in order")
    elif config.iterations % len(stages):
        last = config.iterations % len(stages)
        text = (
            f"{config.iterations} stages are no whole number of generations of {len(stages)} "
            f"({', '.join(stages)}): the last one ends after {stages[last - 1]}"
        )
        yield Fault(("iterations",), text, "note")
    instead = "a generation has each stage once; iterations counts stages"
    yield from _twice(stages, ("moaa", "stages"), instead)


def _students(config: Config) -> Iterator[Fault]:
    students = students_of(config)
    path: Path = ("moaa", "students")
    if not students:
        text = "nobody: no learner with weights here is outside the mixture; list some"
        yield Fault(path, f"{text}, or add a member")
    elif not config.moaa.students and not (config.mixture.proposers or config.mixture.per_layer):
        yield Fault(
            path,
            "are not named, nor are mixture.proposers: every contestant proposes, and every "
            "learner but the aggregator is a student, too; name either",
            "note",
        )
    yield from _twice([s.name for s in students], path, "a student is listed once")
    known = _known(config)
    for position, student in enumerate(students):
        here: Path = (*path, position) if config.moaa.students else path
        yield from _named(config, student.name, (*here, "name"))
        if member := known.get(student.name):
            yield from _learns(member, (*here, "name"), config)
        yield from _data(config, student, here)
        yield from _reward(config, student, here)
        yield from _something_to_learn(config, student, here)


def _learns(member: MemberSettings, path: Path, config: Config) -> Iterator[Fault]:
    if "learn" not in member.roles:
        text = f"{member.name} has not the role learn; add it, or take it off the students"
        yield Fault(path, text)
    elif member.engine == "reward":
        yield Fault(path, f"{member.name} is a reward model, which learns nothing; name another")
    elif member.engine != "hf" and config.train.method != "none":
        kind = {"scripted": "scripted", "openai": "behind an endpoint"}[member.engine]
        text = f"{member.name} is {kind} and has no weights to train: its data are made, no more"
        yield Fault(path, text, "note")


def _data(config: Config, student: StudentSettings, path: Path) -> Iterator[Fault]:
    data, below = student.data, (*path, "data")
    if data in BUILDERS or data == "none":
        return
    if data.startswith(TEACHER):
        yield from check_writer(config, data.removeprefix(TEACHER), below)
        return
    known = [*BUILDERS, "none", *(f"{TEACHER}{name}" for name in _known(config))]
    yield Fault(below, f"{data!r} is not known here; {did_you_mean(data, known)}")


def _reward(config: Config, student: StudentSettings, path: Path) -> Iterator[Fault]:
    below = (*path, "reward")
    if student.reward in ("none", MOA):
        return
    if student.reward not in _known(config):
        known = [MOA, "none", *_known(config)]
        text = f"there is no reward {student.reward!r}; {did_you_mean(student.reward, known)}"
        yield Fault(below, text)
    else:
        yield from _judge(config, student.reward, below)


def _something_to_learn(config: Config, student: StudentSettings, path: Path) -> Iterator[Fault]:
    stages = config.moaa.stages
    wants = {"sft": student.data, "dpo": student.reward}
    if stages and all(wants[stage] == "none" for stage in stages):
        text = (
            f"{student.name} learns in no stage (data: {student.data}, reward: {student.reward}, "
            f"stages: {', '.join(stages)}); give it something, or take it off the students"
        )
        yield Fault(path, text)


def _judge(config: Config, name: str, path: Path) -> Iterator[Fault]:
    """A member that scores alone: a reward model, or a judge by ``judge.protocol``."""
    member, protocol = _known(config)[name], config.judge.protocol
    if member.engine == "reward":
        return
    if protocol == "reward" and member.engine != "scripted":
        text = f"{name} is no reward model, which judge.protocol: reward needs; use another of both"
        yield Fault(path, text)
    elif protocol == "moa":
        text = (
            f"judge.protocol: moa is the mixture, not {name}; write moa here, or another protocol"
        )
        yield Fault(path, text)
    elif protocol == "likelihood" and member.engine == "openai":
        yield Fault(
            path,
            f"judge.protocol: likelihood cannot be asked of {name}: an endpoint gives no "
            "likelihood of a given text; use expected, rubric or pairwise",
        )


def _judges(config: Config) -> Iterator[Fault]:
    """The protocol ``reward`` goes with reward models as judges, and they with it."""
    protocol = config.judge.protocol
    judges = [m for m in pool_settings(config) if "judge" in m.roles]
    if protocol == "moa":
        text = (
            "moa is one judge made of many, for phalanx judge and method: moaa; in duels every "
            "judge has a verdict: use rubric, expected, pairwise or likelihood"
        )
        yield Fault(("judge", "protocol"), text)
        return
    rewards = [m.name for m in judges if m.engine == "reward"]
    others = [m.name for m in judges if m.engine not in SCORERS]
    if protocol == "reward" and others:
        yield Fault(
            ("judge", "protocol"),
            f"reward is for reward models (engine: reward), and {', '.join(others)} "
            f"{'is' if len(others) == 1 else 'are'} none; take the role judge from them",
        )
    elif protocol != "reward" and rewards:
        yield Fault(
            ("judge", "protocol"),
            f"{protocol} cannot be asked of {', '.join(rewards)}, which only "
            f"{'gives' if len(rewards) == 1 else 'give'} scores; use judge.protocol: reward",
        )


def _mixes_reward(config: Config) -> bool:
    """Whether the mixture is the reward of anybody."""
    students = students_of(config)
    ranks = ranker_of(config) == MOA and any(s.data == "best_of" for s in students)
    compares = "dpo" in config.moaa.stages and any(s.reward == MOA for s in students)
    return ranks or compares


def check_judge_moa(config: Config) -> Iterator[Fault]:
    """The panel of ``reward`` where no mixture is used for anything else."""
    yield from check_panel(config)
    if not (config.reward.proposers and config.reward.aggregator):
        yield from check_mixture(config)  # it stands in for what is not named


def check_panel(config: Config) -> Iterator[Fault]:
    """Whether the panel of ``reward`` can judge."""
    settings = config.reward
    for name in settings.proposers:
        yield from check_writer(config, name, ("reward", "proposers"))
    yield from _twice(settings.proposers, ("reward", "proposers"), "each evaluates once")
    if settings.aggregator:
        yield from check_writer(config, settings.aggregator, ("reward", "aggregator"))
    if settings.selector:
        yield from check_writer(config, settings.selector, ("reward", "selector"))
    if settings.criteria != "builtin":
        yield from _file(settings.criteria, ("reward", "criteria"))
    if settings.tie_below and settings.verdict == "written":
        text = "has no effect on written verdicts; set reward.verdict: options, or leave it out"
        yield Fault(("reward", "tie_below"), text, "note")


def _helpers(config: Config) -> Iterator[Fault]:
    """The rewriter, the ranker, and the samples of the students."""
    settings = config.moaa
    if settings.rewriter:
        yield from check_writer(config, settings.rewriter, ("moaa", "rewriter"))
    ranker, path = ranker_of(config), ("moaa", "ranker")
    if settings.ranker and ranker != MOA:
        yield from _named(config, ranker, path)
    if ranker in _known(config) and any(s.data == "best_of" for s in students_of(config)):
        yield from _judge(config, ranker, path)
        yield from _own_judge(config, ranker, path)
    compares = "dpo" in settings.stages and any(s.reward != "none" for s in students_of(config))
    if compares and config.reward.sample.temperature == 0:
        text = (
            f"is 0 (greedy): the {config.reward.samples} responses of a student would all be the "
            "same, and make no pair; expected more, such as 0.8"
        )
        yield Fault(("reward", "sample", "temperature"), text)


def _own_judge(config: Config, ranker: str, path: Path) -> Iterator[Fault]:
    """The ranker of best_of is by default the aggregator, and so one of those that it ranks."""
    if ranker not in teachers_of(config):
        return
    likes = (
        ", and by judge.protocol: likelihood its own is likely to be the likeliest"
        if config.judge.protocol == "likelihood"
        else ""
    )
    given = "" if config.moaa.ranker else " (the default, mixture.aggregator)"
    text = (
        f"{ranker}{given} ranks the answers of best_of, and one of them is its own{likes}; name a "
        "reward model, or a judge that is not in the mixture"
    )
    yield Fault(path, text, "note")


def _lengths(config: Config) -> Iterator[Fault]:
    """Examples that are longer than what training holds."""
    yield from prompt_leaves_room(("sft",), config.sft)
    train, stages = config.train, config.moaa.stages
    if train.method == "none":
        return
    students = students_of(config)
    learned = [s.data for s in students if s.data != "none"] if students else [MIXTURE]
    for key, written in dict.fromkeys(longest_answer(config, data) for data in learned):
        if "sft" in stages:
            yield from holds("sft", config.sft, key, written)
    if "dpo" in stages:
        written = config.reward.sample.max_new_tokens
        yield from holds("train", train, "reward.sample.max_new_tokens", written)


def _search(config: Config) -> Iterator[Fault]:
    search, path = config.search, ("search", "judge")
    if not any(m.engine != "reward" for m in pool_settings(config)):
        yield Fault(("pool", "members"), "nobody can write; a mixture needs at least one member")
    if not config.evaluate.tasks:
        text = "a search is scored on the dev rows of tasks; list at least one, with a dev_share"
        yield Fault(("evaluate", "tasks"), text)
    elif config.evaluate.dev_share == 0:
        text = "0 leaves no dev rows, on which a search is scored; use more, such as 0.3"
        yield Fault(("evaluate", "dev_share"), text)
    if config.mixture.aggregator:
        yield from check_mixture(config)  # it is tried, too
    if search.metric == "accuracy":
        return
    if not search.judge:
        text = f"names nobody, and metric: {search.metric} asks somebody for a score; name a member"
        yield Fault(path, text)
        return
    member = _known(config).get(search.judge)
    alone = (
        "a search is scored by one member, each answer by itself, and moa is many that compare "
        "two; use judge.protocol: expected, rubric or likelihood"
    )
    if member is None and search.judge == MOA:
        yield Fault(path, f"{alone}, and name a member here")
    elif member is None:
        yield from _named(config, search.judge, path)
    elif search.metric == "reward":  # whatever judge.protocol is
        if member.engine not in SCORERS:
            text = f"{member.name} is no reward model (engine: reward); name one, or use "
            yield Fault(path, text + "metric: judge")
    elif member.engine != "reward" and config.judge.protocol == MOA:
        yield Fault(("judge", "protocol"), alone)
    elif member.engine != "reward" and config.judge.protocol == "pairwise":
        text = (
            f"pairwise compares two answers, and a search scores each alone, by {member.name}; use "
            "judge.protocol: expected, rubric or likelihood"
        )
        yield Fault(("judge", "protocol"), text)
    else:
        yield from _judge(config, search.judge, path)
