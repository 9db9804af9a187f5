"""A council: every member answers, and every voter votes for the best answer but its own.

After the Language Model Council (arXiv 2406.08598), in which models answer and judge each other and
their votes are aggregated by majority. It assumes voters that know a good answer when they see one;
with voters of about the same (poor) judgment the vote is noise, which the two orders show as
inconsistent votes. The vote itself, and how it differs from the paper's votes on pairs in four or
five levels, is :mod:`phalanx.collective.council`.

What is ours: the council chooses one answer to each question, where the paper ranks its members;
answers are written greedily unless ``council.sample`` says otherwise, and no longer than members'
answers may be.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import pool
from phalanx.collective.choosing import candidate
from phalanx.collective.council import elect
from phalanx.config.mixing import named
from phalanx.config.schema import Config
from phalanx.methods.answering import counted, first_answers, no_longer, reached
from phalanx.methods.method import Method, Question, Reached
from phalanx.types import Ask, Member, Sampling


def answer(
    questions: Sequence[Question],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    best: str,
    want: Sampling,
    place: tuple,
) -> list[Reached]:
    """See :class:`phalanx.methods.Answer`."""
    settings = config.council
    answering, voters = council_of(config, members)
    sample = no_longer(settings.sample, want)
    answered = first_answers(questions, answering, sample, ask, place=place)
    groups = [
        (
            question.turns,
            [candidate(m.name, reply) for m, reply in zip(answering, replies, strict=True)],
        )
        for question, replies in zip(questions, answered, strict=True)
    ]
    elected = elect(
        groups, voters, ask, settings.votes, place=(*place, "council"), phase="evaluate"
    )
    names = [member.name for member in answering]
    return [
        reached(one.at, replies, names, one.reason, counted(replies) | one.counts)
        for one, replies in zip(elected, answered, strict=True)
    ]


def council_of(
    config: Config, members: Sequence[Member]
) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """(who answers, who votes): those that are named, or else every contestant and every judge.

    A reward model that judges has no vote to write. Raises ConfigError for a name that is none's.
    """
    settings = config.council
    known = named(settings.members, members, "council.members")
    answering = [known[name] for name in dict.fromkeys(settings.members)]
    known = named(settings.voters, members, "council.voters")
    voters = [known[name] for name in dict.fromkeys(settings.voters)]
    judges = [judge for judge in pool.judges(members) if judge.engine != "reward"]
    return tuple(answering or pool.contestants(members)), tuple(voters or judges)


METHOD = Method(
    title="every member answers, and all vote for the best answer but their own",
    paper="Zhao et al. 2024, arXiv 2406.08598 (its vote; one answer chosen is ours)",
    kind="answer",
    answer=answer,
)
