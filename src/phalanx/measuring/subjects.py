"""Whoever is measured: one member, or several that answer as one.

``majority`` votes over the members' answers as they are compared, ``mixture`` is the mixture of
``mixture``, ``best_of`` has judges choose among the members' answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from phalanx import pool
from phalanx.asking import Asking
from phalanx.collective.conversation import transcript
from phalanx.collective.hearing import heard_by
from phalanx.collective.mixture import Mixture, answer_request, mix
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.panel import decide
from phalanx.collective.ranking import Candidate
from phalanx.collective.referee import MOA, rank_by
from phalanx.collective.reputation import initial_standing
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derive_seed, derived_random
from phalanx.marking import named_judges
from phalanx.tasks import BY_LIKELIHOOD, TaskItem
from phalanx.tasks.items import UNVOTED
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Judgment,
    Member,
    Message,
    Outcome,
    Response,
    Sampling,
)

Together = Literal["", "majority", "mixture", "best_of"]
MAJORITY: Together = "majority"
MIXED: Together = "mixture"
BEST_OF: Together = "best_of"
COLLECTIVES: tuple[Together, ...] = (MAJORITY, MIXED, BEST_OF)

Group = tuple[Instruction, Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whoever is measured. ``name`` is that of its rows: ``ada``, ``ada@2``, ``majority``.

    ``members`` keep their own names: of a subject ``ada@2`` the member is ``ada``, as it was after
    iteration 2, so that nobody judges an answer of their own. ``mixture`` has the layers of one,
    ``judges`` are those who choose for ``best_of``.
    """

    name: str
    members: tuple[Member, ...]
    together: Together = ""
    mixture: Mixture | None = None
    judges: tuple[Member, ...] = ()

    @property
    def writer(self) -> str:
        """The member whose words an answer is, who does not judge it; "" where that differs."""
        if self.mixture is not None:
            return self.mixture.aggregator.name
        return "" if self.together else self.members[0].name


def left_out(subject: Subject, item: TaskItem | None) -> str:
    """Why a subject is not measured on tasks of such items; "" where it is. None: a contest."""
    if subject.together == MAJORITY:
        if item is None:
            return "a vote writes no answer of its own"
        if item.match in UNVOTED:
            return "its answers are nothing that members could agree on"
    elif subject.together and item is not None and item.match in BY_LIKELIHOOD:
        return "it is scored by the likelihood of given texts, and there is no text to choose"
    return ""


def writing(subjects: Sequence[Subject]) -> list[Subject]:
    """Those who write answers of their own, to whatever they are asked."""
    return [subject for subject in subjects if not left_out(subject, None)]


def voters(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Members of ``majority`` and ``best_of`` that are no subjects of their own, as subjects."""
    known = {subject.members[0] for subject in subjects if not subject.together}
    found: dict[Member, Subject] = {}
    for subject in subjects:
        _, at, number = subject.name.partition("@")
        for member in subject.members if subject.together in (MAJORITY, BEST_OF) else ():
            if member not in known:
                found.setdefault(member, Subject(f"{member.name}{at}{number}", (member,)))
    return tuple(found.values())


def answering(
    subjects: Sequence[Subject], others: Sequence[Subject], item: TaskItem
) -> list[Subject]:
    """Whoever is measured on tasks of such items: the subjects that are not left out, and those of
    ``others`` (the :func:`voters`) among whose answers one of them chooses."""
    players = [subject for subject in subjects if not left_out(subject, item)]
    serving = {m for one in players if one.together in (MAJORITY, BEST_OF) for m in one.members}
    return [*players, *(one for one in others if one.members[0] in serving)]


def answers(
    subject: Subject,
    conversations: Sequence[tuple[Message, ...]],
    wants: Sequence[Sampling],
    place: Asking,
) -> list[Response | None]:
    """One answer to each conversation, which ends with a user turn; ``wants`` says how it is
    written. None where there is none: a mixture without proposals, no verdict for ``best_of``.

    A member's failed request is a response with its error. The same conversation and settings are
    asked once. Raises ConfigError for ``majority``, which has no answers but those it votes on.
    """
    if len(wants) != len(conversations):
        raise ValueError(f"{len(conversations)} conversations but {len(wants)} wants")
    if subject.together == MAJORITY:
        raise ConfigError(
            f"{subject.name} votes on answers that can be compared and writes none of its own; "
            "measure a member, the mixture or best_of on tasks with free answers"
        )
    ask = place.ask(0)
    if subject.together == MIXED:
        return _mixed(subject, conversations, wants, place, ask)
    if subject.together == BEST_OF:
        return _best(subject, conversations, wants, place, ask)
    (member,) = subject.members
    return list(_alone([member], conversations, wants, place.config, ask)[0])


def _alone(
    members: Sequence[Member],
    conversations: Sequence[tuple[Message, ...]],
    wants: Sequence[Sampling],
    config: Config,
    ask: Ask,
) -> list[list[Response]]:
    """Every member's answers, asked together."""
    place = ("eval", config.seed)
    requests = [
        answer_request(member, turns, want, place=place, purpose="evaluate")
        for member in members
        for turns, want in zip(conversations, wants, strict=True)
    ]
    replies = iter(ask("evaluate", requests) if requests else [])
    return [[next(replies) for _ in conversations] for _ in members]


def _mixed(
    subject: Subject,
    conversations: Sequence[tuple[Message, ...]],
    wants: Sequence[Sampling],
    place: Asking,
    ask: Ask,
) -> list[Response | None]:
    """Proposers write by their own settings; the last answer as wanted."""
    mixture = subject.mixture
    if mixture is None:
        raise ValueError(f"{subject.name} has no mixture")
    found: list[Response | None] = [None] * len(conversations)
    for want in dict.fromkeys(wants):
        mine = [at for at, one in enumerate(wants) if one == want]
        aggregate = mixture.settings.aggregate.model_copy(update=_settings_of(want))
        settings = mixture.settings.model_copy(update={"aggregate": aggregate})
        made = mix(
            [conversations[at] for at in mine],
            Mixture(mixture.layers, mixture.aggregator, settings),
            ask,
            place=("evaluate", place.config.seed),
            phase="evaluate",
        )
        for at, one in zip(mine, made, strict=True):
            found[at] = one.response
    return found


def _settings_of(want: Sampling) -> dict[str, float]:
    return {
        name: getattr(want, name) for name in ("temperature", "top_p", "top_k", "max_new_tokens")
    }


# Best of several ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """``at`` is the position of the candidate that judges like best; None without a verdict.

    ``reason`` says why there is none, or "drawn" where several were equally good.
    """

    at: int | None
    reason: str = ""


def judges_from(config: Config, members: Sequence[Member]) -> tuple[Member, ...]:
    """``evaluate.judges``, or everybody with the role judge where none are named."""
    if not config.evaluate.judges:
        return pool.judges(members)
    return named_judges(config, members)


def may_compare(judge: Member, config: Config) -> bool:
    """Whether a judge can compare two answers by ``judge.protocol``; reward models score."""
    if judge.engine == "reward" or config.judge.protocol not in ("reward", MOA):
        return True
    return config.judge.protocol == "reward" and judge.engine == "scripted"


def _best(
    subject: Subject,
    conversations: Sequence[tuple[Message, ...]],
    wants: Sequence[Sampling],
    place: Asking,
    ask: Ask,
) -> list[Response | None]:
    replies = _alone(subject.members, conversations, wants, place.config, ask)
    groups = [
        (
            shown_to_judges(turns),
            [
                candidate(member.name, reply[at])
                for member, reply in zip(subject.members, replies, strict=True)
            ],
        )
        for at, turns in enumerate(conversations)
    ]
    made = choose(groups, subject.judges, place, ask)
    return [None if one.at is None else replies[one.at][at] for at, one in enumerate(made)]


def shown_to_judges(turns: Sequence[Message]) -> Instruction:
    """A conversation as judges see it: its last user turn, or a transcript with all turns."""
    text = turns[-1].content
    if len(turns) == 1:
        return Instruction(content_id(text), text)
    written = transcript(turns, derive_seed("best_of", *turns))
    return Instruction(content_id(*turns), written, turns=tuple(turns))


def candidate(name: str, reply: Response) -> Candidate:
    """A member's answer as judges compare it: without reasoning that goes before it."""
    text = answer_alone(reply.text or "") if reply.error is None else ""
    failed = reply.error.kind if reply.error else ""
    return Candidate(name, text, reply.request_id, reply.truncated, failed)


def choose(
    groups: Sequence[Group], judges: Sequence[Member], place: Asking, ask: Ask
) -> list[Chosen]:
    """The best candidate of each group; candidates are named after the members that wrote them.

    With ``judge.protocol: moa``, or one judge who is no candidate, :func:`rank_by` ranks them.
    Otherwise every two are a duel before all judges who are in neither side of it, decided by
    ``aggregate``, and the largest share of duels won is best: judges of different severity count
    the same. Of equals one is drawn by the seed.
    """
    config = place.config
    names = {one.name for _, candidates in groups for one in candidates}
    outside = [judge for judge in judges if judge.name not in names]
    if config.judge.protocol == MOA:
        scores = _ranked(MOA, groups, place.ledger.members(0), ask, config)
    elif len(judges) == 1 and outside:
        scores = _ranked(outside[0].name, groups, outside, ask, config)
    else:
        scores = _by_duels(groups, judges, ask, config)
    return [
        _first_of(instruction, candidates, mine, config.seed)
        for (instruction, candidates), mine in zip(groups, scores, strict=True)
    ]


def _ranked(
    judge: str, groups: Sequence[Group], members: Sequence[Member], ask: Ask, config: Config
) -> list[Sequence[float | None]]:
    # A knockout finds the best alone: what it counts are the rounds won, byes among them.
    reward = config.reward.model_copy(update={"ranking": "round_robin"})
    config = config.model_copy(update={"reward": reward})
    found = rank_by(judge, groups, members, ask, config, place=(config.seed, "best_of"))
    return [one.scores for one in found.ranked]


def _distinct(candidates: Sequence[Candidate]) -> list[int]:
    """The position of the first candidate with each usable text."""
    first: dict[str, int] = {}
    for at, one in enumerate(candidates):
        if one.usable:
            first.setdefault(one.text.strip(), at)
    return list(first.values())


def _by_duels(
    groups: Sequence[Group], judges: Sequence[Member], ask: Ask, config: Config
) -> list[Sequence[float | None]]:
    """The share of duels that each candidate won (a tie is half a win); None without any.

    Who wrote the same as one side judges it no more than its writer does. Where that leaves no
    judge, the side that more of the members wrote wins: what they wrote is all they have to say.
    """
    asked: list[tuple[Duel, tuple[str, str], list[Member]]] = []
    settled: dict[str, Outcome] = {}
    for number, (instruction, candidates) in enumerate(groups):
        for left, right in combinations(_distinct(candidates), 2):
            one, two = candidates[left], candidates[right]
            key = content_id("best_of", config.seed, number, instruction.id, one, two)
            duel = Duel(key, instruction, one.name, two.name, matched="ranking")
            lefts, rights = _writers(one, candidates), _writers(two, candidates)
            mine = [judge for judge in judges if judge.name not in lefts | rights]
            asked.append((duel, (one.text, two.text), mine))
            if not mine:
                settled[key] = _by_number(key, len(lefts), len(rights))
    outcomes = _outcomes(asked, settled, judges, ask, config)
    duels = iter([duel for duel, *_ in asked])
    return [_shares(candidates, duels, outcomes) for _, candidates in groups]


def _writers(one: Candidate, candidates: Sequence[Candidate]) -> set[str]:
    return {other.name for other in candidates if other.text.strip() == one.text.strip()}


def _by_number(key: str, lefts: int, rights: int) -> Outcome:
    if lefts == rights:
        return Outcome(key, "tie", reason="no judge")
    return Outcome(key, "decided", "left" if lefts > rights else "right", reason="no judge")


def _outcomes(
    asked: Sequence[tuple[Duel, tuple[str, str], list[Member]]],
    settled: Mapping[str, Outcome],
    judges: Sequence[Member],
    ask: Ask,
    config: Config,
) -> dict[str, Outcome]:
    """Reward models score; everybody else judges by ``judge.protocol``."""
    place, judgments = (config.seed, "best_of"), list[Judgment]()
    of_rewards = config.judge.model_copy(update={"protocol": "reward", "template": None})
    for settings, scorers in ((config.judge, False), (of_rewards, True)):
        some = [
            (duel, pair, [judge for judge in mine if (judge.engine == "reward") == scorers])
            for duel, pair, mine in asked
        ]
        if any(mine for *_, mine in some):
            judgments += heard_by(some, settings, ask, place)
    given = pool.starting_reputations(config)
    reputations = {
        judge.name: initial_standing(config.reputation, given.get(judge.name)).value
        for judge in judges
    }
    found, _ = decide(
        [duel for duel, *_ in asked],
        settled,
        judgments,
        list(reputations),
        config.aggregate,
        quorum=config.judge.quorum,
        reputations=reputations,
    )
    return found


def _shares(
    candidates: Sequence[Candidate], duels: Iterator[Duel], outcomes: Mapping[str, Outcome]
) -> list[float | None]:
    won, met = [0.0] * len(candidates), [0] * len(candidates)
    for left, right in combinations(_distinct(candidates), 2):
        outcome = outcomes[next(duels).id]
        if outcome.status not in ("decided", "tie"):
            continue
        points = {"left": 1.0, "right": 0.0, None: 0.5}[outcome.winner]
        won[left] += points
        won[right] += 1 - points
        met[left] += 1
        met[right] += 1
    return [wins / games if games else None for wins, games in zip(won, met, strict=True)]


def _first_of(
    instruction: Instruction,
    candidates: Sequence[Candidate],
    scores: Sequence[float | None],
    seed: int,
) -> Chosen:
    distinct = _distinct(candidates)
    if not distinct:
        failed = next((one.failed for one in candidates if one.failed), "")
        return Chosen(None, failed or "empty")
    if len(distinct) == 1:
        return Chosen(distinct[0])
    known = {at: score for at in distinct if (score := scores[at]) is not None}
    if not known:
        return Chosen(None, "no verdict")
    top = [at for at, score in known.items() if score == max(known.values())]
    if len(top) == 1:
        return Chosen(top[0])
    texts = [candidates[at].name for at in top]
    drawn = derived_random("best_of", seed, instruction.id, texts).choice(top)
    return Chosen(drawn, "drawn")
