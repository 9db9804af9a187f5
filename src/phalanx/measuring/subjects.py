"""Whoever is measured: one member, or several that answer as one.

``majority`` votes over the members' answers as they are compared, ``mixture`` is the mixture of
``mixture``, ``best_of`` has judges choose among the members' answers. The methods that only answer
(``self_consistency``, ``debate``, ``council``, ``best_of_n``) are measured by their own sections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from phalanx import pool
from phalanx.asking import Asking
from phalanx.collective.choosing import Chosen, Group, candidate, choose, shown_to_judges
from phalanx.collective.mixture import Mixture, answer_request, mix_as
from phalanx.collective.referee import MOA
from phalanx.collective.reputation import initial_standing
from phalanx.config.mixing import TOGETHER
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json, content_id
from phalanx.ledger.rows import together_key
from phalanx.marking import named_judges
from phalanx.methods import METHODS, Question, Reached
from phalanx.tasks import BY_LIKELIHOOD, TaskItem
from phalanx.tasks.items import UNVOTED
from phalanx.types import (
    Ask,
    Member,
    Message,
    Response,
    Sampling,
)

Together = Literal[
    "", "majority", "mixture", "best_of", "self_consistency", "debate", "council", "best_of_n"
]
MAJORITY: Together = "majority"
MIXED: Together = "mixture"
BEST_OF: Together = "best_of"
SAMPLED: Together = "self_consistency"
COLLECTIVES: tuple[Together, ...] = (MAJORITY, MIXED, BEST_OF, *TOGETHER)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whoever is measured. ``name`` is that of its rows: ``ada``, ``ada@2``, ``majority``.

    ``members`` keep their own names: of a subject ``ada@2`` the member is ``ada``, as it was after
    iteration 2, so that nobody judges an answer of their own. ``mixture`` has the layers of one,
    ``judges`` are those who choose for ``best_of``. Of a method that answers ``members`` are those
    whose words an answer may be, ``asked`` everybody whom it may ask (debaters, voters, judges),
    ``seats`` names those who debate or answer in a council, and ``best`` is the member that was
    best at the start.
    """

    name: str
    members: tuple[Member, ...]
    together: Together = ""
    mixture: Mixture | None = None
    judges: tuple[Member, ...] = ()
    asked: tuple[Member, ...] = ()
    seats: tuple[str, ...] = ()
    best: str = ""

    @property
    def is_method(self) -> bool:
        """Whether it is a method that answers, with a section of its name."""
        return self.together in TOGETHER

    def settings(self, config: Config) -> Config:
        """The configuration by which a method answers: those who have a seat are named."""
        key = {"debate": "debaters", "council": "members"}.get(self.together)
        if key is None:
            return config
        section = getattr(config, self.together).model_copy(update={key: list(self.seats)})
        return config.model_copy(update={self.together: section})

    @property
    def writer(self) -> str:
        """The member whose words an answer is, who does not judge it; "" where that differs."""
        if self.mixture is not None:
            return self.mixture.aggregator.name
        return self.members[0].name if len(self.members) == 1 else ""


def left_out(subject: Subject, item: TaskItem | None) -> str:
    """Why a subject is not measured on tasks of such items; "" where it is. None: a contest."""
    if subject.together in (MAJORITY, SAMPLED):
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
) -> list[Reached]:
    """One answer to each conversation, which ends with a user turn; ``wants`` says how it is
    written. There may be none: a mixture without proposals, no verdict for ``best_of``.

    A member's failed request is a response with its error. The same conversation and settings are
    asked once. Raises ConfigError for ``majority``, which has no answers but those it votes on.
    """
    if len(wants) != len(conversations):
        raise ValueError(f"{len(conversations)} conversations but {len(wants)} wants")
    if subject.together in (MAJORITY, SAMPLED):
        raise ConfigError(
            f"{subject.name} votes on answers that can be compared and writes none of its own; "
            "measure a member, the mixture or best_of on tasks with free answers"
        )
    ask = place.ask(0)
    if subject.together == MIXED:
        return _mixed(subject, conversations, wants, place, ask)
    if subject.together == BEST_OF:
        return _best(subject, conversations, wants, place, ask)
    if subject.is_method:
        return _reached(subject, conversations, wants, place, ask)
    (member,) = subject.members
    replies = _alone([member], conversations, wants, place.config, ask)[0]
    return [Reached(reply, member.name) for reply in replies]


def record_counts(subject: Subject, task: str, counts: Mapping[str, int], place: Asking) -> None:
    """Record, and tell, what happened while a method answered all of a task; of others nothing."""
    if subject.is_method:
        place.ledger.put(together_key(0, f"{subject.name}:{task}"), canonical_json(counts))
        listed = ", ".join(f"{count} {what}" for what, count in counts.items())
        place.progress.say(f"{subject.name} on {task}: {listed}")


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
) -> list[Reached]:
    """Proposers write by their own settings; the last answer as wanted."""
    mixture = subject.mixture
    if mixture is None:
        raise ValueError(f"{subject.name} has no mixture")
    found = [Reached(None)] * len(conversations)
    for want in dict.fromkeys(wants):
        mine = [at for at, one in enumerate(wants) if one == want]
        made = mix_as(
            [conversations[at] for at in mine],
            mixture,
            ask,
            want,
            place=("evaluate", place.config.seed),
            phase="evaluate",
        )
        for at, one in zip(mine, made, strict=True):
            found[at] = Reached(one.response, mixture.aggregator.name, one.reason)
    return found


def _reached(
    subject: Subject,
    conversations: Sequence[tuple[Message, ...]],
    wants: Sequence[Sampling],
    place: Asking,
    ask: Ask,
) -> list[Reached]:
    """What a method that answers together reaches: free answers, on which nobody can vote."""
    answer = METHODS[subject.together].answer
    if answer is None:
        raise ValueError(f"{subject.together} does not answer")
    found = [Reached(None)] * len(conversations)
    for want in dict.fromkeys(wants):
        mine = [at for at, one in enumerate(wants) if one == want]
        made = answer(
            [Question(content_id(*conversations[at]), conversations[at]) for at in mine],
            subject.asked,
            ask,
            subject.settings(place.config),
            best=subject.best,
            want=want,
            place=("evaluate", place.config.seed),
        )
        for at, one in zip(mine, made, strict=True):
            found[at] = one
    return found


# Best of several ---------------------------------------------------------------------------------


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
) -> list[Reached]:
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
    made = chosen_among(groups, subject.judges, place, ask)
    return [
        Reached(None, reason=one.reason)
        if one.at is None
        else Reached(replies[one.at][at], subject.members[one.at].name)
        for at, one in enumerate(made)
    ]


def chosen_among(
    groups: Sequence[Group], judges: Sequence[Member], place: Asking, ask: Ask
) -> list[Chosen]:
    """The best candidate of each group, as :func:`phalanx.collective.choosing.choose` has it."""
    given = pool.starting_reputations(place.config)
    reputations = {
        judge.name: initial_standing(place.config.reputation, given.get(judge.name)).value
        for judge in judges
    }
    members = place.ledger.members(0)
    return choose(groups, judges, members, ask, place.config, reputations=reputations)
