"""Several responses of one member to one instruction, for methods that compare a member's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from phalanx.collective.mixture import answer_request
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.ranking import Candidate
from phalanx.config.base import Writes
from phalanx.errors import JudgmentError
from phalanx.types import Ask, Duel, Instruction, Member, Message, Response

Place = tuple


@dataclass(frozen=True, slots=True)
class Samples:
    """One member's responses to one instruction, in the order of their numbers, from 1.

    ``names`` are the contestants that they are where two of them meet: ``ada#1``.
    """

    member: Member
    instruction: Instruction
    responses: tuple[Response, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.member.name}#{at}" for at in range(1, len(self.responses) + 1))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All of them, those that failed or are empty included."""
        return tuple(
            Candidate(
                name=name,
                text=response.text or "",
                response_id=response.request_id,
                truncated=response.truncated,
                failed=response.error.kind if response.error else "",
            )
            for name, response in zip(self.names, self.responses, strict=True)
        )


def sample_own(
    members: Sequence[Member],
    instructions: Sequence[Instruction],
    settings: Writes,
    count: int,
    ask: Ask,
    *,
    place: Place,
) -> list[Samples]:
    """``count`` responses of every member to every instruction, in one ask (phase ``sample``).

    Of a conversation the first turn is answered. ``place`` is where in the work this happens, the
    run seed first. Members in their order, each with all instructions in theirs.
    """
    numbers = range(1, count + 1)
    asked = [(member, item) for member in members for item in instructions]
    requests = [
        answer_request(
            member,
            (Message("user", item.text),),
            settings,
            place=(*place, item.id),
            sample=number,
            purpose="sample",
        )
        for member, item in asked
        for number in numbers
    ]
    replies = iter(ask("sample", requests) if requests else ())
    return [Samples(member, item, tuple(next(replies) for _ in numbers)) for member, item in asked]


def sampling_metrics(sampled: Sequence[Samples]) -> dict[str, float]:
    """How many responses there are, and how many of them failed, are empty or were cut."""
    candidates = [candidate for one in sampled for candidate in one.candidates]
    return {
        "num_samples": len(candidates),
        "num_samples_failed": sum(bool(candidate.failed) for candidate in candidates),
        "num_samples_empty": sum(not c.failed and not c.usable for c in candidates),
        "num_samples_truncated": sum(candidate.truncated for candidate in candidates),
    }


def responses_in(duels: Sequence[Duel], sampled: Sequence[Samples]) -> dict[tuple[str, str], str]:
    """(duel, contestant) -> the request that wrote it, of duels between samples."""
    written = {
        (one.instruction.id, name): response.request_id
        for one in sampled
        for name, response in zip(one.names, one.responses, strict=True)
    }
    return {
        (duel.id, name): written[duel.instruction.id, name]
        for duel in duels
        for name in duel.contestants
    }


def answers_alone(sampled: Sequence[Samples]) -> list[Samples]:
    """The same without the reasoning before an answer: what is judged, and what is learned."""
    return [
        replace(
            one,
            responses=tuple(
                replace(response, text=answer_alone(response.text)) if response.text else response
                for response in one.responses
            ),
        )
        for one in sampled
    ]


def refuse_failed(sampled: Sequence[Samples], learning: Collection[str]) -> None:
    """Raise JudgmentError for a member with nothing to learn (none of ``learning``) since most of
    its samples failed.

    Samples that were written and teach nothing all the same, ties for instance, are a result.
    """
    for name in dict.fromkeys(one.member.name for one in sampled):
        mine = [c for one in sampled if one.member.name == name for c in one.candidates]
        kinds = Counter(candidate.failed for candidate in mine if candidate.failed)
        if name not in learning and kinds and 2 * kinds.total() >= len(mine):
            listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            raise JudgmentError(
                f"{name} has nothing to learn from: {kinds.total()} of its {len(mine)} samples "
                f"failed ({listed}). Look at the responses (phalanx export RUN responses); failed "
                "ones are asked again next time"
            )
