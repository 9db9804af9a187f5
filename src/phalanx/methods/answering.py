"""What the methods that answer together have in common: who answers, and first answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from phalanx.collective.mixture import answer_request
from phalanx.collective.ownwords import answer_alone
from phalanx.config.base import AnswerSettings
from phalanx.config.mixing import named
from phalanx.errors import ConfigError
from phalanx.methods.method import Question, Reached
from phalanx.types import Ask, Member, Response, Sampling

Settings = TypeVar("Settings", bound=AnswerSettings)


def one_member(name: str, best: str, members: Sequence[Member], where: str) -> Member:
    """The member of this name, or else the one that was best at the start.

    ``where`` is the setting that has the name. Raises ConfigError where nobody is of that name, or
    none is given and nobody was measured.
    """
    if name:
        return named([name], members, where)[name]
    if not best:
        raise ConfigError(
            f"{where} names nobody, and nobody was measured on dev items, of whom the best would "
            f"answer; name one there ({', '.join(member.name for member in members)}), or have "
            "tasks with evaluate.dev_share above 0"
        )
    return named([best], members, where)[best]


def no_longer(settings: Settings, want: Sampling) -> Settings:
    """Settings of answers of which one is the last: no longer than a last answer may be."""
    most = min(settings.max_new_tokens, want.max_new_tokens)
    return settings.model_copy(update={"max_new_tokens": most})


def first_answers(
    questions: Sequence[Question],
    members: Sequence[Member],
    settings: AnswerSettings,
    ask: Ask,
    *,
    place: tuple,
    samples: int = 1,
) -> list[list[Response]]:
    """Every question's answers, all in one ask: member by member, and each its samples in turn."""
    requests = [
        answer_request(
            member, question.turns, settings, place=place, sample=sample, purpose="answer"
        )
        for question in questions
        for member in members
        for sample in range(samples)
    ]
    replies = iter(ask("evaluate answer", requests) if requests else [])
    each = len(members) * samples
    return [[next(replies) for _ in range(each)] for _ in questions]


def usable_text(reply: Response) -> str:
    """An answer without its reasoning; "" where it failed or says nothing."""
    return answer_alone(reply.text or "").strip() if reply.error is None else ""


def num_failed(replies: Sequence[Response]) -> int:
    """How many of the answers cannot be used: failed, empty, or reasoning alone."""
    return sum(not usable_text(reply) for reply in replies)


def counted(replies: Sequence[Response]) -> dict[str, int]:
    """How many answers there were, and how many of them cannot be used."""
    return {"answers": len(replies), "failed": num_failed(replies)}


def verdicts_in(counts: Mapping[str, float]) -> tuple[int, int]:
    """(verdicts that were asked for on the way to answers, how many of them say nothing)."""
    silent = sum(counts.get(key, 0) for key in ("unreadable", "silent"))
    said = sum(counts.get(key, 0) for key in ("votes", "inconsistent", "voices"))
    return int(said + silent), int(silent)


def reached(
    at: int | None,
    replies: Sequence[Response],
    writers: Sequence[str],
    reason: str,
    counts: dict[str, int],
) -> Reached:
    """The answer at a position, by its writer; for None the reason why there is none."""
    if at is None:
        return Reached(None, reason=reason, counts=counts)
    return Reached(replies[at], writers[at], counts=counts)


def no_answer(replies: Sequence[Response]) -> str:
    """Why none of these answers has a final answer to vote on."""
    if not any(map(usable_text, replies)):
        kind = next((reply.error.kind for reply in replies if reply.error is not None), "empty")
        return f"failed: none of {len(replies)} answers is usable ({kind})"
    return f"no vote: none of {len(replies)} answers has a final answer that can be read"
