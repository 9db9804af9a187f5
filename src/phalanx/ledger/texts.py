"""Long lines of prompts, stored once: packing for the writer, unpacking for the reader.

A prompt that judges see repeats a template, an instruction and a response many times over. A
stored message is ``[role, piece, ...]``: a piece is text, or the number of a line in the table
``texts``; joined with newlines, the pieces are the content.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from phalanx.identity import canonical_json, quoted
from phalanx.types import Message, Options, Want

# Shorter lines cost less where they stand than a number and a row of their own.
LONG_LINE = 48
# The writer forgets what it knows beyond this many characters; then a line is stored again.
MAX_KNOWN_CHARACTERS = 4_000_000


class TextWriter:
    """Packs messages. ``take`` hands over the (number, text) rows that are new since the last."""

    def __init__(self, next_number: int) -> None:
        self._next = next_number
        self._known: dict[str, int] = {}
        self._num_characters = 0
        self._new: list[tuple[int, str]] = []

    def take(self) -> list[tuple[int, str]]:
        new, self._new = self._new, []
        return new

    def number(self, text: str) -> int:
        """The number under which ``text`` is stored, or will be with the next ``take``."""
        number = self._known.get(text)
        if number is None:
            if self._num_characters > MAX_KNOWN_CHARACTERS:
                self._known.clear()
                self._num_characters = 0
            number = self._known[text] = self._next
            self._next += 1
            self._num_characters += len(text)
            self._new.append((number, text))
        return number

    def pack(self, messages: Sequence[Message]) -> str:
        return f"[{','.join([self._message(message) for message in messages])}]"

    def _message(self, message: Message) -> str:
        pieces = [f'["{message.role}"']
        short: list[str] = []
        for line in message.content.split("\n"):
            if len(line) < LONG_LINE:
                short.append(line)
                continue
            if short:
                pieces.append(quoted("\n".join(short)))
                short = []
            pieces.append(str(self.number(line)))
        if short:
            pieces.append(quoted("\n".join(short)))
        return ",".join(pieces) + "]"


class TextReader:
    """Unpacks what :class:`TextWriter` packed. ``find`` looks up a line by its number."""

    def __init__(self, find: Callable[[int], str]) -> None:
        self._find = lru_cache(maxsize=4096)(find)
        self._options = lru_cache(maxsize=64)(lambda want: json.loads(find(want))["options"])

    def messages(self, packed: str) -> str:
        """The messages as ``[{"content": ..., "role": ...}, ...]``."""
        return canonical_json(
            [
                {"role": role, "content": "\n".join(self._text(piece) for piece in pieces)}
                for role, *pieces in json.loads(packed)
            ]
        )

    def text(self, number: int) -> str:
        return self._find(number)

    def probabilities(self, packed: bytes | str | None, want: int) -> dict[str, float] | None:
        """What :func:`packed_probabilities` packed for the want of that number."""
        if not isinstance(packed, bytes):
            return json.loads(packed) if packed else None
        values = struct.unpack(f"<{len(packed) // 8}d", packed)
        return dict(zip(self._options(want), values, strict=True))

    def _text(self, piece: str | int) -> str:
        return piece if isinstance(piece, str) else self._find(piece)


class WantTexts:
    """The JSON of wants, made once for each object: a phase asks thousands with the same one.

    Told apart as objects, not by value: 0 and 0.0 are equal and have unequal JSON.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Want, str]] = {}

    def of(self, want: Want) -> str:
        known = self._known.get(id(want))
        if known is None:
            # Holding the object keeps its id from being given to another one.
            known = self._known[id(want)] = (want, canonical_json(want))
        return known[1]


def packed_flags(flags: Sequence[Any]) -> str:
    return canonical_json(flags) if flags else "[]"


def packed_probabilities(chances: Mapping[str, float] | None, want: Want) -> bytes | str | None:
    """Eight bytes a number in the order of the options; JSON where they are not those wanted."""
    if not chances:
        return None
    if isinstance(want, Options) and tuple(chances) == want.options:
        return struct.pack(f"<{len(chances)}d", *chances.values())
    return canonical_json(chances)
