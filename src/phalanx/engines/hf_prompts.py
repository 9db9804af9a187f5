"""Prompts that fit: token ids of a request, shortened in the middle where that is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from phalanx.chat import ChatFormat
from phalanx.types import Failure, Member, Message, Request, UserTurn, Want

SMALLEST_PART = 16
"""Tokens that a shortened part keeps at least."""
_MARK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids ready to run. ``num_shortened`` is the number of tokens left out."""

    ids: list[int]
    num_shortened: int = 0


@dataclass
class _Part:
    text: str
    starts: list[int]
    """Where in the text each token starts."""
    kept: int

    def shortened(self) -> str:
        size = len(self.starts)
        if self.kept >= size:
            return self.text
        first = self.kept - self.kept // 2
        head = self.text[: self.starts[first]]
        tail = self.text[self.starts[size - self.kept // 2] :]
        return f"{head}\n[… {size - self.kept} tokens left out …]\n{tail}"


Encode = Callable[[Sequence[Message]], list[int]]
"""From a conversation to the token ids of the prompt that it makes."""


def encoder(chat: ChatFormat, want: Want) -> Encode:
    """How a conversation becomes the prompt of a request that wants this."""
    return chat.user_turn_ids if isinstance(want, UserTurn) else chat.prompt_ids


def not_a_reward_model(member: Member) -> Failure:
    text = f"{member.name} writes text and has no reward to give; ask a member of engine reward"
    return Failure("engine", text)


def shorten(
    chat: ChatFormat,
    request: Request,
    num_new: int,
    context_length: int,
    encode: Encode | None = None,
) -> Prompt | Failure:
    """A prompt that is too long, cut so that it and ``num_new`` tokens fit in the context.

    The cut is in the middle of the longest shortenable part, with a visible mark; the rest of the
    prompt, above all its end, stays whole. Where that is not possible: a ``too_long`` failure.
    ``encode`` makes ids of the messages; by default the request's want says how.
    """
    encode = encode or encoder(chat, request.want)
    messages, shortenable = request.messages, request.shortenable
    ids = encode(messages)
    room = context_length - num_new
    first_length = len(ids)
    inside = [p for p in dict.fromkeys(shortenable) if any(p in m.content for m in messages)]
    parts = [_split(chat, text) for text in sorted(inside, key=len, reverse=True)]
    for _ in range(4 * len(parts)):
        part = max(parts, key=lambda p: p.kept)
        if part.kept <= SMALLEST_PART:
            break
        others = max((p.kept for p in parts if p is not part), default=0)
        wanted = part.kept - (len(ids) - room) - _MARK_TOKENS
        part.kept = max(wanted, min(others, part.kept - 1) // 2, SMALLEST_PART)
        ids = encode(_replaced(messages, parts))
        if len(ids) <= room:
            return Prompt(ids, sum(len(p.starts) - p.kept for p in parts))
    can = "it has no part that may be shortened" if not parts else "shortening was not enough"
    return Failure(
        "too_long",
        f"the prompt has {first_length} tokens and {num_new} more are to come, but the context "
        f"holds {context_length}; {can}",
    )


def _split(chat: ChatFormat, text: str) -> _Part:
    starts = chat.token_starts(text)
    return _Part(text, starts, len(starts))


def _replaced(messages: Sequence[Message], parts: Sequence[_Part]) -> list[Message]:
    done = []
    for message in messages:
        content = message.content
        for part in parts:
            content = content.replace(part.text, part.shortened())
        done.append(replace(message, content=content))
    return done
