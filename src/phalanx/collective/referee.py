"""Rank several responses to each instruction by a judge: the mixture, a member, a reward model.

``moa`` and pairwise judges see pairs of responses in a tournament (``reward.ranking``); so do
rankers, reward models whose score is of pairs alone. Every other judge scores each response once.
A member may rank responses of its own where the user has it do so: candidates have names such as
``ada#2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from phalanx.collective.aggregation import outcome
from phalanx.collective.comparing import (
    RANKER,
    ByJudge,
    ByPanel,
    ByRanker,
    Compare,
    Place,
    Texts,
)
from phalanx.collective.judging import judge_requests, read_judgment
from phalanx.collective.moa_reward import panel_from
from phalanx.collective.ranking import (
    Candidate,
    Knockout,
    Pair,
    Ranked,
    Tournament,
    Verdict,
    distinct,
    tournament,
)
from phalanx.config.mixing import MOA, named
from phalanx.config.schema import AggregateSettings, Config, JudgeSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Judgment,
    Member,
    Outcome,
    Request,
    Response,
)

__all__ = ["MOA", "RANKER", "Candidate", "Ranked", "Rankings", "Several", "rank_by", "rank_by_each"]


@dataclass(frozen=True, slots=True)
class Rankings:
    """What was ranked, in the order given, and the duels behind it.

    Contestants of the duels are candidates' names. A judge that scores each response alone has one
    duel a group, best against worst; ``metrics`` count its scores: ``scores.asked``,
    ``scores.unreadable``, and ``said`` has its replies by (instruction's id, candidate's name), of
    the same texts that of the first. Those of the mixture: ``evaluations.left_out.NAME``,
    ``criteria.unreadable``, ``criteria.chosen.NAME``.
    """

    ranked: tuple[Ranked, ...]
    duels: tuple[Duel, ...] = ()
    judgments: tuple[Judgment, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    said: dict[tuple[str, str], Response] = field(default_factory=dict)


def rank_by(
    judge: str,
    groups: Sequence[tuple[Instruction, Sequence[Candidate]]],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    place: Place,
    kind: str = "",
) -> Rankings:
    """Rank the candidates of each group by ``judge``: ``moa``, or the name of a member.

    ``moa`` is the panel of ``config.reward``. A member of the engine ``reward`` scores; any other
    judges by ``config.judge.protocol``. ``place`` is where in the work this happens, the run seed
    first, for instance (run seed, iteration); ids and seeds are derived from it. Candidates that
    failed or are empty, and texts that are the same as another, meet no judge. ``kind`` is
    the tournament of pairs; empty: that of ``reward.ranking``.

    Raises ConfigError for an unknown judge or one that cannot rank by the protocol, and ValueError
    where two candidates of a group have one name.
    """
    gathered = [_Group.of(instruction, candidates) for instruction, candidates in groups]
    compare: Compare
    if judge == MOA:
        compare = ByPanel(panel_from(config, members), ask, place)
        return _by_duels(gathered, compare, judge, kind or config.reward.ranking, place)
    member = named([judge], members, "ranking")[judge]
    settings = _settings(member, config.judge)
    if settings.protocol == "pairwise":
        compare = ByJudge(member, settings, ask, place)
    elif settings.protocol == "reward" and _is_ranker(gathered, member, settings, ask, place):
        compare = ByRanker(member, ask, place)
    else:
        return _by_scores(gathered, member, settings, ask, place)
    return _by_duels(gathered, compare, judge, kind or config.reward.ranking, place)


def _settings(judge: Member, settings: JudgeSettings) -> JudgeSettings:
    if judge.engine == "reward":
        return settings.model_copy(update={"protocol": "reward", "template": None})
    scripted_reward = settings.protocol == "reward" and judge.engine == "scripted"
    if settings.protocol in ("reward", "moa") and not scripted_reward:
        raise ConfigError(
            f"judge.protocol is {settings.protocol!r}, by which {judge.name!r} (engine "
            f"{judge.engine}) cannot rank responses; name a member with engine: reward, name "
            f"{MOA!r} as the judge, or set judge.protocol to pairwise, rubric, expected or "
            "likelihood"
        )
    return settings


# Several judges ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Several:
    """What several judges say: ``ranked`` has, of each group in the order given, the rankings by
    its judges' names; ``by_judge`` the duels behind them."""

    ranked: tuple[dict[str, Ranked], ...]
    by_judge: dict[str, Rankings]

    @property
    def duels(self) -> tuple[Duel, ...]:
        return tuple(chain.from_iterable(one.duels for one in self.by_judge.values()))

    @property
    def judgments(self) -> tuple[Judgment, ...]:
        return tuple(chain.from_iterable(one.judgments for one in self.by_judge.values()))

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(chain.from_iterable(one.outcomes for one in self.by_judge.values()))

    @property
    def metrics(self) -> dict[str, float]:
        """The sums over the judges."""
        counts: Counter[str] = Counter()
        for one in self.by_judge.values():
            counts.update(one.metrics)
        return dict(counts)


def rank_by_each(
    groups: Sequence[tuple[Instruction, Sequence[Candidate]]],
    judges: Sequence[Sequence[str]],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    place: Place,
) -> Several:
    """Each group by each of its own ``judges``, one judge after the other in the order of the pool.

    Pairwise judges and rankers see every pair, whatever ``reward.ranking`` says: a knockout finds
    the best alone, and what it counts are the rounds won, byes among them. Nobody is asked about a
    group without two texts that differ. Raises as :func:`rank_by`.
    """
    known = [member.name for member in members]
    wanted = sorted(
        dict.fromkeys(chain.from_iterable(judges)),
        key=lambda name: known.index(name) if name in known else len(known),
    )
    differ = [len(distinct(candidates)) > 1 for _, candidates in groups]
    by_judge: dict[str, Rankings] = {}
    ranked: list[dict[str, Ranked]] = [{} for _ in groups]
    for judge in wanted:
        mine = [at for at, some in enumerate(judges) if judge in some and differ[at]]
        part = [groups[at] for at in mine]
        found = rank_by(judge, part, members, ask, config, place=place, kind="round_robin")
        by_judge[judge] = found
        for at, one in zip(mine, found.ranked, strict=True):
            ranked[at][judge] = one
    return Several(tuple(ranked), by_judge)


# The group ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """One group: ``distinct`` has the position of the first candidate with each usable text."""

    instruction: Instruction
    candidates: tuple[Candidate, ...]
    distinct: tuple[int, ...]

    @staticmethod
    def of(instruction: Instruction, candidates: Sequence[Candidate]) -> _Group:
        names = [candidate.name for candidate in candidates]
        if len(set(names)) < len(names):
            raise ValueError(
                f"candidates of instruction {instruction.id!r} share a name: {', '.join(names)}; "
                "give each its own, such as ada#1 and ada#2"
            )
        return _Group(instruction, tuple(candidates), tuple(distinct(candidates)))

    def reason(self) -> str:
        """Why there is nothing to compare, or ""."""
        if len(self.distinct) > 1:
            return ""
        if sum(candidate.usable for candidate in self.candidates) > 1:
            return "identical"
        if any(candidate.failed for candidate in self.candidates):
            return "failed"
        return "single" if len(self.candidates) == 1 and self.distinct else "empty"

    def ranked(
        self, scores: dict[int, float | None], best: int | None, worst: int | None, reason: str
    ) -> Ranked:
        """``scores`` are those of the distinct ones; the others have the score of their twin."""
        by_text = {self.candidates[at].text.strip(): score for at, score in scores.items()}
        every = tuple(by_text.get(c.text.strip()) if c.usable else None for c in self.candidates)
        return Ranked(self.instruction, self.candidates, every, best, worst, reason)


def _duel(group: _Group, pair: Pair, judge: str, place: Place) -> tuple[Duel, Texts]:
    left, right = (group.candidates[at] for at in pair)
    key = content_id("ranking", *place, judge, group.instruction.id, left.name, right.name)
    duel = Duel(key, group.instruction, left.name, right.name, matched="ranking")
    return duel, (left.text, right.text)


def _outcome(duel: Duel, judgment: Judgment) -> Outcome:
    settings = AggregateSettings(rule="mean")
    return outcome(duel, [judgment], num_asked=1, settings=settings, quorum=1.0, reputations={})


# By duels ----------------------------------------------------------------------------------------


@dataclass
class _Contest:
    """One group in a tournament, whose positions are places among ``group.distinct``."""

    group: _Group
    games: Tournament

    def at(self, pair: Pair) -> Pair:
        return self.group.distinct[pair[0]], self.group.distinct[pair[1]]

    def ranked(self) -> Ranked:
        distinct, reason = self.group.distinct, self.group.reason()
        if reason:
            return self.group.ranked({}, None, None, reason)
        placing = self.games.placing()
        scores = dict(zip(distinct, placing.scores, strict=True))
        if placing.best is None or placing.worst is None:
            return self.group.ranked(scores, None, None, placing.reason)
        return self.group.ranked(scores, distinct[placing.best], distinct[placing.worst], "")


def _by_duels(
    groups: Sequence[_Group], compare: Compare, judge: str, kind: str, place: Place
) -> Rankings:
    """All tournaments side by side: each round is one ask."""
    contests = [
        _Contest(
            group,
            tournament(
                kind,
                len(group.distinct),
                derived_random("tournament", *place, judge, group.instruction.id,
                               [candidate.name for candidate in group.candidates]),
            ),
        )
        for group in groups
    ]  # fmt: skip
    duels: list[Duel] = []
    judgments: list[Judgment] = []
    number = 0
    while owed := [(contest, pairs) for contest in contests if (pairs := contest.games.pairs())]:
        number += 1
        put = [
            _duel(contest.group, contest.at(pair), judge, place)
            for contest, pairs in owed
            for pair in pairs
        ]
        suffix = f" {number}" if kind == "knockout" else ""
        asked, texts = [duel for duel, _ in put], [pair for _, pair in put]
        found = iter(compare.judge(asked, texts, suffix))
        for contest, pairs in owed:
            mine = [next(found) for _ in pairs]
            judgments += _told(contest, pairs, mine)
        duels += asked
    return Rankings(
        ranked=tuple(contest.ranked() for contest in contests),
        duels=tuple(duels),
        judgments=tuple(judgments),
        outcomes=tuple(map(_outcome, duels, judgments)),
        metrics=compare.metrics(),
    )


def _told(
    contest: _Contest, pairs: Sequence[Pair], judgments: Sequence[Judgment]
) -> list[Judgment]:
    """Tell the tournament the verdicts. Flag those after which it was drawn who goes on."""
    contest.games.tell(dict(zip(pairs, map(_verdict, judgments), strict=True)))
    drawn = contest.games.drawn if isinstance(contest.games, Knockout) else {}
    return [
        replace(judgment, flags=(*judgment.flags, f"drawn:{'left' if on == pair[0] else 'right'}"))
        if (on := drawn.get(pair)) is not None
        else judgment
        for pair, judgment in zip(pairs, judgments, strict=True)
    ]


def _verdict(judgment: Judgment) -> Verdict | None:
    left, right = judgment.score_left, judgment.score_right
    if left is None or right is None:
        return None
    if left == right:
        return "tie"
    return "left" if left > right else "right"


# By scores ---------------------------------------------------------------------------------------


def _score_request(
    group: _Group, at: int, judge: Member, settings: JudgeSettings, place: Place
) -> Request:
    """The question about one response: alike for all of a group but for the response."""
    text = group.candidates[at].text
    key = content_id("scores", *place, group.instruction.id)
    alone = Duel(key, group.instruction, group.candidates[at].name, "", matched="ranking")
    return judge_requests(alone, (text, text), judge, settings, seed_parts=place)[0]


def _is_ranker(
    groups: Sequence[_Group], judge: Member, settings: JudgeSettings, ask: Ask, place: Place
) -> bool:
    """Whether a reward model has scores for pairs only, as the flag of its reply says.

    It is asked about a pair, which both kinds can answer. Where no two texts differ, about one
    text, which has to be scored anyway.
    """
    requests = [
        ByRanker(judge, ask, place).request(duel, "first", texts)
        for group in groups
        if len(group.distinct) > 1
        for duel, texts in [_duel(group, group.distinct[:2], judge.name, place)]
    ] or [
        _score_request(group, group.distinct[0], judge, settings, place)
        for group in groups
        if group.distinct
    ]
    return bool(requests) and RANKER in ask("judge", requests[:1])[0].flags


def _by_scores(
    groups: Sequence[_Group], judge: Member, settings: JudgeSettings, ask: Ask, place: Place
) -> Rankings:
    requests = [
        _score_request(group, at, judge, settings, place)
        for group in groups
        for at in group.distinct
    ]
    replies = iter(ask("judge", requests) if requests else ())
    ranked: list[Ranked] = []
    duels: list[Duel] = []
    judgments: list[Judgment] = []
    every: dict[tuple[str, str], Response] = {}
    num_unreadable = 0
    for group in groups:
        said = {at: next(replies) for at in group.distinct}
        every |= {
            (group.instruction.id, group.candidates[at].name): reply for at, reply in said.items()
        }
        scores = {at: _score(group, at, reply, judge, settings) for at, reply in said.items()}
        num_unreadable += list(scores.values()).count(None)
        ranked.append(_scored(group, scores))
        if len(said) > 1:
            best, worst = ranked[-1].best, ranked[-1].worst
            pair = group.distinct[:2] if best is None or worst is None else sorted((best, worst))
            left, right = pair
            duel, texts = _duel(group, (left, right), judge.name, place)
            duels.append(duel)
            replied = [said[left], said[right]]
            judgments.append(read_judgment(duel, texts, judge, settings, replied))
    return Rankings(
        ranked=tuple(ranked),
        duels=tuple(duels),
        judgments=tuple(judgments),
        outcomes=tuple(map(_outcome, duels, judgments)),
        metrics={"scores.asked": len(requests), "scores.unreadable": num_unreadable},
        said=every,
    )


def _score(
    group: _Group, at: int, reply: Response, judge: Member, settings: JudgeSettings
) -> float | None:
    """The score of one response, which stands on both sides of a judgment."""
    candidate = group.candidates[at]
    alone = Duel(candidate.name, group.instruction, candidate.name, "", matched="ranking")
    texts = (candidate.text, candidate.text)
    return read_judgment(alone, texts, judge, settings, [reply, reply]).score_left


def _scored(group: _Group, scores: dict[int, float | None]) -> Ranked:
    known = {at: score for at, score in scores.items() if score is not None}
    if reason := group.reason():
        return group.ranked(scores, None, None, reason)
    if len(known) < 2:
        return group.ranked(scores, None, None, "unscored")
    best, worst = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    if known[best] == known[worst]:
        return group.ranked(scores, None, None, "tie")
    return group.ranked(scores, best, worst, "")
