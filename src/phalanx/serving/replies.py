"""Replies of the endpoint in OpenAI's shapes: whole ones, and the events of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.engines.orders import Piece, Token, Written
from phalanx.engines.token_pieces import Offsets
from phalanx.serving.bodies import Wish

LEAST = -9999.0
"""What stands for the logarithm of nothing, which JSON has no number for; as at OpenAI."""


@dataclass
class Replies:
    """The replies to one request; they share an id and a time."""

    wish: Wish
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    _offsets: dict[int, Offsets] = field(default_factory=dict)
    """Choice -> the places of its tokens; a stream sends them in parts."""

    def __post_init__(self) -> None:
        head = "chatcmpl" if self.wish.is_chat else "cmpl"
        self.id = self.id or f"{head}-{secrets.token_hex(12)}"

    def whole(self, choices: Sequence[Written]) -> dict[str, Any]:
        """The one reply to a request without ``stream``."""
        shape = self._chat_choice if self.wish.is_chat else self._text_choice
        found = self._head("chat.completion" if self.wish.is_chat else "text_completion")
        found["choices"] = [shape(at, written) for at, written in enumerate(choices)]
        return {**found, "usage": usage(self.wish, choices)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.wish.model,
        }

    def _chat_choice(self, at: int, written: Written) -> dict[str, Any]:
        return {
            "index": at,
            "message": {"role": "assistant", "content": written.text, "refusal": None},
            "logprobs": self._chat_logprobs(written.tokens),
            "finish_reason": written.finish_reason or "stop",
        }

    def _text_choice(self, at: int, written: Written) -> dict[str, Any]:
        return {
            "index": at,
            "text": written.prompt_text + written.text,
            "logprobs": self._text_logprobs(at, (*written.prompt, *written.tokens)),
            "finish_reason": written.finish_reason or "stop",
        }

    def _chat_logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self.wish.num_top is None:
            return None
        content = [
            {
                **_entry(token.piece, token.logprob),
                "top_logprobs": [_entry(piece, logprob) for piece, logprob in token.top],
            }
            for token in tokens
            if not token.ends
        ]
        return {"content": content, "refusal": None}

    def _text_logprobs(self, at: int, tokens: Sequence[Token]) -> dict[str, Any] | None:
        """The token that ended the text is among them, as it is at other servers."""
        if self.wish.num_top is None:
            return None
        places = self._offsets.setdefault(at, Offsets())
        return {
            "tokens": [token.piece.text for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [_top(token) for token in tokens],
            "text_offset": places([token.piece for token in tokens]),
        }

    # Streams -------------------------------------------------------------------------------------

    def began(self, at: int) -> list[dict[str, Any]]:
        """What opens a choice."""
        if not self.wish.is_chat:
            return []
        return [self._delta(at, {"role": "assistant", "content": "", "refusal": None}, ())]

    def piece(self, at: int, text: str, tokens: Sequence[Token]) -> dict[str, Any]:
        if self.wish.is_chat:
            return self._delta(at, {"content": text}, tokens)
        choice = {
            "index": at,
            "text": text,
            "logprobs": self._text_logprobs(at, tokens),
            "finish_reason": None,
        }
        return self._event([choice])

    def ended(self, at: int, written: Written) -> dict[str, Any]:
        """What closes a choice; of an echo it is the whole of it."""
        finish = written.finish_reason or "stop"
        if self.wish.is_chat:
            choice = {"index": at, "delta": {}, "logprobs": None, "finish_reason": finish}
        elif self.wish.echo:
            choice = self._text_choice(at, written)
        else:
            choice = {"index": at, "text": "", "logprobs": None, "finish_reason": finish}
        return self._event([choice])

    def used(self, choices: Sequence[Written]) -> dict[str, Any]:
        return {**self._event([]), "usage": usage(self.wish, choices)}

    def _delta(self, at: int, delta: Mapping[str, Any], tokens: Sequence[Token]) -> dict[str, Any]:
        logprobs = self._chat_logprobs(tokens) if tokens else None
        choice = {"index": at, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        return self._event([choice])

    def _event(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.wish.is_chat else "text_completion"
        found = {**self._head(kind), "choices": choices}
        # With stream_options every event has the key, as the clients' own types say.
        return {**found, "usage": None} if self.wish.include_usage else found


def event(data: Mapping[str, Any] | str) -> bytes:
    """One event of a stream."""
    text = data if isinstance(data, str) else dumped(data)
    return f"data: {text}\n\n".encode()


def dumped(value: Any) -> str:
    """ASCII alone, so that nothing in a text breaks a line of a stream. Numbers are finite."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def usage(wish: Wish, choices: Sequence[Written]) -> dict[str, int]:
    """A prompt counts once however many texts there are to it."""
    read = sum(written.num_prompt_tokens for written in choices[:: wish.n])
    wrote = sum(written.num_completion_tokens for written in choices)
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _entry(piece: Piece, logprob: float | None) -> dict[str, Any]:
    return {"token": piece.text, "logprob": _finite(logprob), "bytes": list(piece.bytes)}


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LEAST)


def _top(token: Token) -> dict[str, float] | None:
    """The likeliest tokens and the one that stands there; of equal texts the likelier counts."""
    if token.logprob is None:
        return None
    found = {token.piece.text: max(token.logprob, LEAST)}
    for piece, logprob in token.top:
        found[piece.text] = max(logprob, found.get(piece.text, LEAST))
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))
