"""Orders to members behind endpoints: conversations, with what their servers tell of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from phalanx.engines import http_reading
from phalanx.engines.orders import Order, Piece, Token, Written, request_of, written_from
from phalanx.types import Failure, Response

Where = TypeVar("Where")


class GivenUp(Exception):
    """Nobody waits for the text any more."""


def fulfil(
    order: Order,
    tell: Callable[..., tuple[Response, tuple[http_reading.Token, ...]]],
    endpoint: Where,
) -> Written:
    """One text. ``tell(request, endpoint, show, further fields, given_up)`` has it written."""
    if not order.is_chat:
        return _refused(
            f"{order.member.name} is behind an endpoint, which is asked in conversations: it reads "
            "no prompt as it is; use chat completions"
        )
    more: dict[str, Any] = {}
    if order.stop:
        more["stop"] = list(order.stop)
    if order.num_top is not None:
        more["logprobs"] = True
        if order.num_top:
            more["top_logprobs"] = order.num_top
    hear = order.hear
    # Streams are put together without their log-probabilities, so those come in one piece.
    show = (lambda piece: hear(piece, ())) if hear and order.num_top is None else None
    try:
        response, found = tell(request_of(order), endpoint, show, more, order.given_up)
    except GivenUp:
        return Written(error=Failure("engine", "nobody waits for this text any more"))
    if response.error is not None:
        return Written(error=response.error)
    if order.num_top is not None and not found:
        return _refused(f"the server of {order.member.name} gives no log-probabilities")
    tokens = tuple(_token(token, order.num_top or 0) for token in found)
    written = written_from(response)
    if hear and show is None:
        hear(written.text, tokens)
    return replace(written, tokens=tokens)


def _token(found: http_reading.Token, count: int) -> Token:
    """A server names no ids."""
    top = tuple((_piece(text), logprob) for text, logprob in found.top[:count])
    return Token(-1, _piece(found.text), found.logprob, top)


def _piece(text: str) -> Piece:
    return Piece(text, text.encode("utf-8", "replace"))


def _refused(why: str) -> Written:
    return Written(error=Failure("refused", why))
