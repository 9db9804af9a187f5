"""Self-consistency: the most frequent final answer of several samples of one member.

Wang et al., arXiv 2203.11171, known as maj@k. It assumes answers that can be compared, and a member
whose mistakes differ more than its right answers do.

What is ours: the member is the best of the pool on the dev items before the run, unless
``self_consistency.member`` names one. Every sample has one voice (the paper's unweighted vote); of
equally frequent answers the one that was given first wins; a sample without a readable answer has
no voice. The answer is the first sample that gives it, no longer than members' answers may be.
Free answers, on which nobody can vote, are refused before anybody is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.collective.voting import first_of_majority
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.methods.answering import (
    counted,
    first_answers,
    no_answer,
    no_longer,
    one_member,
    reached,
    usable_text,
)
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
    """See :class:`phalanx.methods.Answer`. Raises ConfigError for free answers."""
    settings = config.self_consistency
    free = [question.id for question in questions if question.read is None]
    if free:
        raise ConfigError(
            f"self_consistency votes on final answers, and {len(free)} questions ask for free ones "
            f"({free[0]}): nothing to vote on; leave them out, or use best_of_n or council"
        )
    member = one_member(settings.member, best, members, "self_consistency.member")
    sampled = first_answers(
        questions,
        [member],
        no_longer(settings.sample, want),
        ask,
        place=place,
        samples=settings.samples,
    )
    names = [member.name] * settings.samples
    found = []
    for question, replies in zip(questions, sampled, strict=True):
        at = first_of_majority(list(map(usable_text, replies)), question.read, question.same)
        found.append(reached(at, replies, names, no_answer(replies), counted(replies)))
    return found


METHOD = Method(
    title="the most frequent of several answers of one member",
    paper="Wang et al. 2023, arXiv 2203.11171",
    kind="answer",
    answer=answer,
)
