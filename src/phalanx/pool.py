"""From the configuration to the members of the pool, and who may do what in a duel."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.config.mixing import also_measured
from phalanx.config.schema import Config, MemberSettings
from phalanx.errors import ConfigError
from phalanx.types import Duel, Member

SCRIPT = "script:"
DEFAULT_SCRIPT = "script:default"
"""What a scripted member that names no script answers from."""

TRAINABLE = frozenset({"hf", "vllm"})
"""Members of these engines have weights here that training can change."""


def members_from(config: Config) -> tuple[Member, ...]:
    """Every member at version 0: those listed, then the recruits in the order of the mapping.

    A recruit has no adapter until it is made. Raises ConfigError where a member has no base.

    >>> config = Config.model_validate(
    ...     {"pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]}})
    >>> [(member.key, member.base) for member in members_from(config)]
    [('ada@0', 'builtin:smollm2-135m')]
    """
    listed = [_member(settings, config) for settings in config.pool.members]
    return (*listed, *recruits_from(config))


def recruits_from(config: Config) -> tuple[Member, ...]:
    """The members that supervised fine-tuning will make, before it has made them."""
    recruit = config.pool.recruit
    if recruit is None:
        return ()
    if config.pool.base is None:
        raise ConfigError("pool.recruit: recruits are made from pool.base, which is missing")
    return tuple(
        Member(name=name, base=config.pool.base, system=recruit.system)
        for name in recruit.specialists
    )


def _member(settings: MemberSettings, config: Config) -> Member:
    base, endpoint = settings.model or config.pool.base, ""
    if settings.engine == "openai":
        base, endpoint = settings.model or "", endpoint_of(settings, config)
    if settings.engine == "scripted" and not (base or "").startswith(SCRIPT):
        base = DEFAULT_SCRIPT
    if base is None:
        raise ConfigError(f"pool: {settings.name} has no model and there is no pool.base")
    return Member(
        name=settings.name,
        base=base,
        adapter=settings.adapter,
        system=settings.system,
        engine="vllm" if settings.serve == "vllm" else settings.engine,
        endpoint=endpoint,
        dtype=settings.dtype,
        trust_remote_code=settings.trust_remote_code,
        family=settings.family,
        roles=tuple(settings.roles),
    )


def endpoint_of(settings: MemberSettings, config: Config) -> str:
    """The endpoint that a member is behind: the one it names, or the only one there is."""
    if settings.endpoint is None and len(config.endpoints) == 1:
        return config.endpoints[0].name
    return settings.endpoint or ""


def starting_reputations(config: Config) -> dict[str, float]:
    """The reputations that members were given by name; the others start at the rule's own."""
    given = config.pool.members
    return {member.name: member.reputation for member in given if member.reputation is not None}


def contestants(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members that answer in duels, in pool order."""
    return with_role(members, "contest")


def judges(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members that judge, in pool order."""
    return with_role(members, "judge")


def learners(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members that are trained, in pool order."""
    return with_role(members, "learn")


def measured(config: Config, members: Sequence[Member]) -> tuple[Member, ...]:
    """Members that evaluation measures, in pool order.

    These are the contestants, and :func:`phalanx.config.mixing.also_measured`.
    """
    also = also_measured(config)
    return tuple(m for m in members if "contest" in m.roles or m.name in also)


def with_role(members: Sequence[Member], role: str) -> tuple[Member, ...]:
    return tuple(member for member in members if role in member.roles)


def judges_of(duel: Duel, judges: Sequence[Member]) -> list[Member]:
    """Those of the judges who may judge this duel: nobody judges a duel they are in."""
    left, right = duel.contestants
    return [judge for judge in judges if judge.name != left and judge.name != right]
