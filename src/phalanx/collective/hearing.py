"""Pairs of responses from elsewhere before a whole pool: its judges, or the mixture as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.collective import moa_reward
from phalanx.collective.comparing import RANKER, ByPanel, ByRanker
from phalanx.collective.panel import decide, judge_duels
from phalanx.config.mixing import MOA
from phalanx.config.schema import AggregateSettings, Config, JudgeSettings
from phalanx.identity import derived_random
from phalanx.types import Ask, Duel, Judgment, Member, Outcome

Texts = tuple[str, str]
Place = tuple[Any, ...]


def hear(
    duels: Sequence[tuple[Duel, Texts]],
    members: Sequence[Member],
    config: Config,
    ask: Ask,
    *,
    work: str,
) -> tuple[list[Judgment], dict[str, float]]:
    """Judgments by ``judge.protocol`` of all duels, and what the mixture reports of itself.

    ``members`` are all of the pool: those with the role judge are asked, or those that the mixture
    is made of. ``work`` keeps the questions of one kind of work apart from those of another.
    """
    if config.judge.protocol != MOA:
        judges = [member for member in members if "judge" in member.roles]
        return _by_judges(duels, judges, config, ask, (work, config.seed)), {}
    compare = ByPanel(moa_reward.panel_from(config, members), ask, (config.seed, work))
    texts = [pair for _, pair in duels]
    judgments = compare.judge([duel for duel, _ in duels], texts, "")
    return list(judgments), compare.metrics()


def settle(
    duels: Sequence[Duel],
    settled: Mapping[str, Outcome],
    judgments: Sequence[Judgment],
    reputations: Mapping[str, float],
    config: Config,
) -> list[Outcome]:
    """The outcomes in the order of ``duels``, by ``aggregate``; the mixture is one judge, whose
    verdict needs no weight.

    ``reputations`` are those of all judges by name, ``settled`` the outcomes of duels that no
    judge saw, by the duel's id.
    """
    settings = config.aggregate
    if config.judge.protocol == MOA:
        reputations, settings = {moa_reward.JUDGE: 1.0}, AggregateSettings(rule="mean")
    found, _ = decide(
        duels,
        settled,
        judgments,
        list(reputations),
        settings,
        quorum=config.judge.quorum,
        reputations=reputations,
    )
    return [found[duel.id] for duel in duels]


def _by_judges(
    duels: Sequence[tuple[Duel, Texts]],
    judges: Sequence[Member],
    config: Config,
    ask: Ask,
    place: Place,
) -> list[Judgment]:
    """Every judge, or ``judge.per_duel`` of them, on every duel."""
    asked = [(duel, texts, _asked_judges(duel, judges, config)) for duel, texts in duels]
    return heard_by(asked, config.judge, ask, place)


def heard_by(
    asked: Sequence[tuple[Duel, Texts, Sequence[Member]]],
    settings: JudgeSettings,
    ask: Ask,
    place: Place,
) -> list[Judgment]:
    """Judgments by ``settings.protocol`` of each duel, from the judges that stand with it.

    A ranker is asked about both responses at once, in both orders.
    """
    rankers = _rankers(asked, ask, place) if settings.protocol == "reward" else []
    alone = [
        (duel, texts, [judge for judge in mine if judge not in rankers])
        for duel, texts, mine in asked
    ]
    judgments = judge_duels(alone, settings, ask, place=place)
    for ranker in rankers:
        before = [(duel, texts) for duel, texts, mine in asked if ranker in mine]
        put, shown = [duel for duel, _ in before], [texts for _, texts in before]
        judgments += ByRanker(ranker, ask, place).judge(put, shown, "")
    return judgments


def _rankers(
    asked: Sequence[tuple[Duel, Texts, Sequence[Member]]], ask: Ask, place: Place
) -> list[Member]:
    """The reward models that have scores for pairs alone, as their replies about one pair say."""
    first: dict[str, tuple[Member, Duel, Texts]] = {}
    for duel, texts, judges in asked:
        for judge in judges:
            first.setdefault(judge.name, (judge, duel, texts))
    requests = [
        ByRanker(judge, ask, place).request(duel, "first", texts)
        for judge, duel, texts in first.values()
    ]
    replies = ask("judge", requests)
    return [
        judge
        for (judge, _, _), reply in zip(first.values(), replies, strict=True)
        if RANKER in reply.flags
    ]


def _asked_judges(duel: Duel, judges: Sequence[Member], config: Config) -> Sequence[Member]:
    count = config.judge.per_duel
    if count is None or count >= len(judges):
        return judges
    return derived_random("judges", config.seed, duel.id).sample(list(judges), count)
