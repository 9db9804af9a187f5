"""Who mixes and who learns, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from phalanx.config.base import Writes
from phalanx.config.schema import Config, MemberSettings, StudentSettings
from phalanx.errors import ConfigError
from phalanx.types import Member

MIXTURE = "mixture"
"""The name under which a mixture is measured and writes, and the builder of its answers."""
MOA = "moa"
"""The mixture as a judge, where the name of a member could stand."""
MAJORITY = "majority"
"""The vote of a pool, as it is measured."""
BEST_OF = "best_of"
"""The best of several answers: as it is measured, and as data to learn from."""
TOGETHER = ("self_consistency", "debate", "council", "best_of_n")
"""Methods that answer together and train nobody, and the names under which they are measured."""
RESERVED = (MIXTURE, MOA, MAJORITY, BEST_OF, *TOGETHER, "none")
"""What settings and rows call a collective or nobody: names that no member may have."""
BUILDERS = (MIXTURE, "combined", "random", BEST_OF)
"""Data that the whole mixture writes; beside them `teacher:NAME` and `none`."""
TEACHER = "teacher:"
USER_TURN_TOKENS = 512
"""A rewritten user turn that is longer has run away from its task."""


def pool_settings(config: Config) -> list[MemberSettings]:
    """Every member as it is set: those listed, then the recruits."""
    recruits = config.pool.recruit.specialists if config.pool.recruit else {}
    listed = {member.name for member in config.pool.members}
    made = [MemberSettings.model_construct(name=name) for name in recruits if name not in listed]
    return [*config.pool.members, *made]


def students_of(config: Config) -> tuple[StudentSettings, ...]:
    """The students of ``moaa``: those listed, or every learner that is not in the mixture."""
    if config.moaa.students:
        return tuple(config.moaa.students)
    settings = config.mixture
    mixing = {settings.aggregator, *settings.proposers, *chain(*settings.per_layer)}
    names = [m.name for m in pool_settings(config) if "learn" in m.roles and m.engine == "hf"]
    return tuple(StudentSettings(name=name) for name in names if name not in mixing)


def proposers_of(config: Config, joined: Sequence[str] = ()) -> tuple[tuple[str, ...], ...]:
    """Names of the proposers of each layer before the aggregator, each once in a layer.

    Who has ``joined`` proposes in all of them, too.
    """
    settings = config.mixture
    layers = settings.per_layer
    if not layers:
        names = settings.proposers
        if not names:
            students = {student.name for student in config.moaa.students}
            every = [m.name for m in pool_settings(config) if "contest" in m.roles]
            names = [name for name in every if name not in students]
        layers = [names] * (settings.layers - 1)
    return tuple(tuple(dict.fromkeys([*layer, *joined])) for layer in layers)


def teachers_of(config: Config) -> tuple[str, ...]:
    """Everybody configured in the mixture, proposers first, each once: whom baselines learn from.

    Students that join a mixture are none of them.
    """
    names = dict.fromkeys([*chain(*proposers_of(config)), config.mixture.aggregator])
    return tuple(name for name in names if name)


def also_measured(config: Config) -> frozenset[str]:
    """Names of those that a run measures whatever their roles, beside the contestants.

    With ``moaa`` the mixture's members and the students, since results are compared with the best
    teacher; with the other methods that train whoever learns.
    """
    if config.method in ("sparta", MIXTURE, "frozen", *TOGETHER):
        return frozenset()
    if config.method == "moaa":
        students = (student.name for student in students_of(config))
        return frozenset((*teachers_of(config), *students))
    return frozenset(m.name for m in pool_settings(config) if "learn" in m.roles)


def named(names: Iterable[str], members: Sequence[Member], where: str) -> dict[str, Member]:
    """All members by their names. Raises ConfigError where some of ``names`` are none's.

    ``where`` is the setting that has the names.
    """
    known = {member.name: member for member in members}
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        raise ConfigError(
            f"{where}: no member is named {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return known


def longest_answer(config: Config, data: str) -> tuple[str, int]:
    """(key, its value): the most tokens of an answer that a student with this data learns from."""
    settings = config.mixture
    if data == MIXTURE:
        return "mixture.aggregate.max_new_tokens", settings.aggregate.max_new_tokens
    return "mixture.propose.max_new_tokens", settings.propose.max_new_tokens


def panel_of(config: Config) -> tuple[str, ...]:
    """Names of those that write evaluations for the reward of a mixture, each once.

    Where the mixture has no proposers either, its aggregator evaluates, too.
    """
    given = config.reward.proposers or chain(*proposers_of(config))
    return tuple(dict.fromkeys(given)) or (verdict_of(config),)


def verdict_of(config: Config) -> str:
    """The name of the member that gives the verdict."""
    return config.reward.aggregator or config.mixture.aggregator


def selector_of(config: Config) -> str:
    """The name of the member that chooses the criteria."""
    return config.reward.selector or verdict_of(config)


def rewriter_of(config: Config) -> str:
    """The name of the member that mends user turns."""
    return config.moaa.rewriter or config.mixture.aggregator


def ranker_of(config: Config) -> str:
    """Who ranks the teachers' answers: a member's name, or :data:`MOA`."""
    return config.moaa.ranker or config.mixture.aggregator


def debaters_of(config: Config) -> tuple[str, ...]:
    """Names of those that debate: those that are named, or every contestant."""
    every = [m.name for m in pool_settings(config) if "contest" in m.roles]
    return tuple(config.debate.debaters or every)


def panel_chooses(config: Config) -> bool:
    """Whether the panel of ``reward`` is the one judge of ``best_of_n``."""
    return not config.best_of_n.judge and config.judge.protocol == MOA


def choosers_of(config: Config, answerer: str, judges: Iterable[str]) -> list[str]:
    """Who chooses among the answers of one member in ``best_of_n``: names, or :data:`MOA` alone.

    ``judges`` are those with the role. Nobody judges an answer of their own, so it may be nobody.
    """
    if panel_chooses(config):
        seats = {*panel_of(config), verdict_of(config), selector_of(config)}
        return [] if answerer in seats else [MOA]
    every = [config.best_of_n.judge] if config.best_of_n.judge else judges
    return [name for name in every if name != answerer]


def collective_writes(config: Config) -> tuple[str, Writes]:
    """(setting, how the answer is written) of the collective that ``single_multi`` learns from."""
    name = config.single_multi.collective
    if name == MIXTURE:
        return "mixture.aggregate", config.mixture.aggregate
    return f"{name}.sample", getattr(config, name).sample


def critics_of(config: Config) -> tuple[str, ...]:
    """Names of the learners that learn to revise (``multiagent``); the other learners learn to
    answer first. Where none is named, every second learner of the debate."""
    learners = {m.name for m in pool_settings(config) if "learn" in m.roles}
    debating = [name for name in dict.fromkeys(debaters_of(config)) if name in learners]
    return tuple(config.multiagent.critics or debating[1::2])
