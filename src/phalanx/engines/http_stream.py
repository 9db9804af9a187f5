"""Replies that come piece by piece: shown as they come, then read like any other reply.

The pieces are put together to the body that the server would have sent at once, so what a reply
means, what it costs and how it fails is told in one place (:mod:`phalanx.engines.http_reading`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from phalanx.chat import clean_text
from phalanx.engines.http_secret import Secret
from phalanx.engines.streaming import Shown, answer_so_far

FIELDS = {"stream": True, "stream_options": {"include_usage": True}}
"""What a body holds besides where its reply is to come piece by piece."""
SHOWN_OTHERWISE = "shown_otherwise"
"""Flag of a response that is not what was shown while it came."""
_VISIBLE = "".join(map(chr, range(33, 127)))


class BrokenOff(Exception):
    """A stream that ended before the reply did."""


class Listener:
    """Shows a reply's text while it comes: no reasoning in marks, no key, nothing half done.

    Reasoning that a server does not mark at its beginning cannot be known for what it is until it
    ends: then the shown text is not the response's, which has the flag ``SHOWN_OTHERWISE``. With
    ``ends_reasoning`` nothing is shown before such an end, or the end of the text.
    """

    def __init__(
        self, show: Callable[[str], None], secret: Secret, ends_reasoning: bool = False
    ) -> None:
        self._shown = Shown(show)
        self._secret = secret
        self._ends_reasoning = ends_reasoning
        self._raw = ""

    @property
    def began(self) -> bool:
        """Whether anything was shown."""
        return bool(self._shown.text)

    def hear(self, piece: str) -> None:
        self._raw += piece
        text, _ = clean_text(self._secret.hide_long(settled(self._raw)))
        self._shown.up_to(answer_so_far(text, self._ends_reasoning))

    async def body_of(self, reply: Any) -> bytes:
        """The body that a reply of the openai package amounts to, heard while it comes.

        A server that does not stream sends it at once. Raises BrokenOff.
        """
        self._raw = ""  # an earlier try may have come to nothing before anything was shown
        pieces = Pieces(self.hear)
        try:
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                return await reply.read()
            async for line in _lines_of(reply.iter_bytes()):
                pieces.take(line)
        except Exception as error:
            if not _is_transport(error):
                raise
            raise BrokenOff(f"{type(error).__name__}: {error}") from error
        if not (pieces.whole or pieces.error):
            raise BrokenOff("the stream ended before the reply did")
        return pieces.body()

    def finish(self, text: str) -> tuple[str, ...]:
        """Show the rest of the response's ``text``; flags."""
        self._shown.up_to(text)
        return () if self._shown.text == text else (SHOWN_OTHERWISE,)


def settled(raw: str) -> str:
    """``raw`` without its last word, or half a character, that the next piece may go on with.

    Keys are ASCII without white space: a word that has not ended may be the beginning of one.
    """
    text = raw.rstrip(_VISIBLE)
    halved = text == raw and "\ud800" <= raw[-1:] <= "\udbff"
    return raw[:-1] if halved else text


class Pieces:
    """Puts the events of a stream together: content, reasoning, the end, the usage.

    ``whole`` once the server said that this was all.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._texts: dict[str, str] = {}
        self._finish: Any = None
        self._usage: Any = None
        self._has_choices = False
        self.error: Any = None
        self.whole = False

    def take(self, line: str) -> None:
        """One line of the event stream; comments and other fields mean nothing here."""
        data = data_of(line)
        if data == "[DONE]":
            self.whole = True
        event = event_of(data)
        self.error = event.get("error") or self.error
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> None:
        self._has_choices = True
        delta = choice.get("delta")
        for name, value in (delta if isinstance(delta, dict) else {}).items():
            if isinstance(value, str) and name != "role":
                self._texts[name] = self._texts.get(name, "") + value
                if name == "content":
                    self._hear(value)
        if choice.get("finish_reason"):
            self._finish, self.whole = choice["finish_reason"], True

    def body(self) -> bytes:
        """The reply as one JSON body. A stream that holds an error and no text is that error."""
        found: dict[str, Any] = {"usage": self._usage} if self._usage else {}
        if self.error and not self._texts.get("content"):
            found["error"] = self.error
        else:
            finish = "error" if self.error else self._finish
            message = {"role": "assistant", **self._texts}
            found["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
            if not self._has_choices:
                found["choices"] = []
        return json.dumps(found).encode("ascii")


class Lines:
    """Lines of an event stream. Only line feeds end one: JSON may hold other separators.

    A stream need not end with one: take ``END`` after it, for the last line.
    """

    END = b"\n"

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> list[str]:
        """The lines that end in this chunk."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]


async def _lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    lines = Lines()
    async for chunk in chunks:
        for line in lines.take(chunk):
            yield line
    for line in lines.take(Lines.END):
        yield line


def data_of(line: str) -> str:
    """What a line of an event stream brings; "" for a comment or another field."""
    return line[len("data:") :].strip() if line.startswith("data:") else ""


def event_of(data: str) -> dict[str, Any]:
    """The JSON object that the data is; {} for anything else: what is missing shows in the end."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _is_transport(error: Exception) -> bool:
    """Whether the HTTP package below the openai one lost its connection."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
