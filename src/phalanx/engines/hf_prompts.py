"""Prompts that fit: token ids of a request, shortened in the middle where that is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from phalanx.chat import ChatFormat
from phalanx.collective.templates import ASKED, fenced
from phalanx.types import Failure, Member, Message, Request, UserTurn, Want

SMALLEST_PART = 16
"""Tokens that a shortened part keeps at least."""
_MARK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids ready to run. ``num_shortened`` is the number of tokens left out."""

    ids: list[int]
    num_shortened: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """``messages[at].content[start:end]``."""

    at: int
    start: int
    end: int

    def meets(self, other: _Place) -> bool:
        return self.at == other.at and self.start < other.end and other.start < self.end


@dataclass
class _Part:
    text: str
    places: list[_Place]
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
    prompt, above all its end, stays whole. A part is cut where it stands between marks (see
    ``collective.templates.fence``), or else where it is a message of its own, or else where it
    stands last: the same words elsewhere, such as a question that an answer repeats, stay whole.
    Where that is not possible: a ``too_long`` failure.
    ``encode`` makes ids of the messages; by default the request's want says how.
    """
    encode = encode or encoder(chat, request.want)
    messages, shortenable = request.messages, request.shortenable
    ids = encode(messages)
    room = context_length - num_new
    first_length = len(ids)
    parts = _parts(chat, messages, shortenable)
    for _ in range(4 * len(parts)):
        part = max(parts, key=lambda p: p.kept)
        if part.kept <= SMALLEST_PART:
            break
        others = max((p.kept for p in parts if p is not part), default=0)
        wanted = part.kept - (len(ids) - room) - _MARK_TOKENS
        part.kept = max(wanted, min(others, part.kept - 1) // 2, SMALLEST_PART)
        ids = encode(_cut(messages, parts))
        if len(ids) <= room:
            return Prompt(ids, sum(len(p.starts) - p.kept for p in parts))
    can = "it has no part that may be shortened" if not parts else "shortening was not enough"
    return Failure(
        "too_long",
        f"the prompt has {first_length} tokens and {num_new} more are to come, but the context "
        f"holds {context_length}; {can}",
    )


def _parts(
    chat: ChatFormat, messages: Sequence[Message], shortenable: Sequence[str]
) -> list[_Part]:
    """The parts that may be cut, longest first; of two that overlap the longer one."""
    parts: list[_Part] = []
    for text in sorted(filter(None, dict.fromkeys(shortenable)), key=len, reverse=True):
        taken = [place for part in parts for place in part.places]
        found = _places(messages, text)
        places = [place for place in found if not any(map(place.meets, taken))]
        if places:
            starts = chat.token_starts(text)
            parts.append(_Part(text, places, starts, len(starts)))
    return parts


def _places(messages: Sequence[Message], text: str) -> list[_Place]:
    """Where a part is cut: between marks every time, since equal texts are one part."""
    pattern = fenced(text)
    marked = [
        (match[1] in ASKED, _Place(at, *match.span(3)))
        for at, message in enumerate(messages)
        for match in pattern.finditer(message.content)
    ]
    if marked:
        others = [place for asked, place in marked if not asked]
        return others or [place for _, place in marked]
    holding = [at for at, message in enumerate(messages) if text in message.content]
    if not holding:
        return []
    last = max([at for at in holding if messages[at].content == text] or holding)
    start = messages[last].content.rindex(text)
    return [_Place(last, start, start + len(text))]


def _cut(messages: Sequence[Message], parts: Sequence[_Part]) -> list[Message]:
    cuts = sorted(
        ((place, part.shortened()) for part in parts for place in part.places),
        key=lambda cut: cut[0].start,
        reverse=True,  # from the end, so that what is still to be cut stays where it was
    )
    contents = [message.content for message in messages]
    for place, text in cuts:
        old = contents[place.at]
        contents[place.at] = old[: place.start] + text + old[place.end :]
    return [replace(m, content=c) for m, c in zip(messages, contents, strict=True)]
