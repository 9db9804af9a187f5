"""What somebody who talks to a member directly may want, beyond a :class:`phalanx.types.Request`.

A conversation, or a prompt as it is (text, or token ids); strings that end the text; the
log-probabilities of what is written, and of the prompt itself. No ledger holds any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.identity import content_id
from phalanx.types import Failure, FinishReason, Member, Message, Request, Response, Sampling


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as it is shown: its text, and the bytes that it stands for.

    ``text`` is that of the bytes where they are whole characters, else ``bytes:\\xe2\\x82``, as
    OpenAI writes such tokens.
    """

    text: str
    bytes: bytes


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was read or written. ``logprob`` is in nats, by the model's own distribution
    (no temperature), None where it was not asked for, and for the first token of a prompt.
    ``top`` has the likeliest tokens in its place, likeliest first. ``ends``: it ended the text and
    is no part of it.
    """

    id: int
    piece: Piece
    logprob: float | None = None
    top: tuple[tuple[Piece, float], ...] = ()
    ends: bool = False


Hear = Callable[[str, Sequence[Token]], None]
"""Gets each new piece of text, and the tokens (where asked for) that are new with it."""


def never() -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One text from one member.

    ``prompt`` is a conversation, system message included, or a text or token ids that are read as
    they are. ``sampling.max_new_tokens`` may be 0: nothing is written. ``fits``: where the context
    has room for fewer tokens, fewer are written. ``stop`` ends the text and is no part of it.
    ``num_top``: log-probabilities with so many alternatives; None: none at all. ``echo``: those of
    the prompt, too. ``given_up`` is looked at while the text is written. ``shortenable`` is that of
    a :class:`phalanx.types.Request`.
    """

    member: Member
    prompt: tuple[Message, ...] | str | tuple[int, ...]
    sampling: Sampling
    seed: int = 0
    fits: bool = False
    stop: tuple[str, ...] = ()
    num_top: int | None = None
    echo: bool = False
    hear: Hear | None = None
    given_up: Callable[[], bool] = never
    shortenable: tuple[str, ...] = ()

    @property
    def is_chat(self) -> bool:
        return not isinstance(self.prompt, str) and not all(
            isinstance(part, int) for part in self.prompt
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What became of an :class:`Order`: the text, or ``error``.

    ``tokens`` are those of the text (with ``num_top``), ``prompt`` those that were read (with
    ``echo``), ``prompt_text`` their text.
    """

    text: str = ""
    finish_reason: FinishReason = ""
    tokens: tuple[Token, ...] = ()
    prompt: tuple[Token, ...] = ()
    prompt_text: str = ""
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    flags: tuple[str, ...] = ()
    error: Failure | None = None


def request_of(order: Order) -> Request:
    """The request that an order of a conversation, or of a text, is beside its further wishes."""
    prompt: Any = order.prompt
    messages = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    identity = content_id("order", order.member, messages, order.sampling, order.seed)
    return Request(identity, order.member, messages, order.sampling, "chat", order.seed,
                   order.shortenable)  # fmt: skip


def written_from(response: Response) -> Written:
    """A response as what became of an order."""
    return Written(
        text=response.text or "",
        finish_reason=response.finish_reason,
        num_prompt_tokens=response.num_prompt_tokens,
        num_completion_tokens=response.num_completion_tokens,
        flags=response.flags,
        error=response.error,
    )


def response_from(written: Written, request_id: str) -> Response:
    """The other way round: what became of an order as a response."""
    if written.error is not None:
        return Response(request_id, error=written.error)
    return Response(
        request_id,
        text=written.text,
        finish_reason=written.finish_reason,
        num_prompt_tokens=written.num_prompt_tokens,
        num_completion_tokens=written.num_completion_tokens,
        flags=written.flags,
    )


def cut_at(text: str, stop: Sequence[str]) -> int | None:
    """Where the first of the strings that end a text begins; None where there is none.

    >>> cut_at("one two\\nthree", ["\\n", "two"])
    4
    """
    found = [at for one in stop if (at := text.find(one)) >= 0]
    return min(found, default=None)


def open_end(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end may be the beginning of one of these strings.

    >>> open_end("What? \\n", ["\\n\\n", "END"])
    1
    """
    longest = max(map(len, stop), default=0) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(one.startswith(text[-size:]) for one in stop):
            return size
    return 0
