"""What single tokens stand for: bytes, since a character may be spread over several tokens."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.engines.orders import Piece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level() -> dict[str, int]:
    """The characters that byte-level BPE writes for bytes (Radford et al. 2019: GPT-2's table).

    >>> bytes(_byte_level()[character] for character in "Ġa")
    b' a'
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in shown}
    hidden = [byte for byte in range(256) if byte not in shown]
    return table | {chr(256 + at): byte for at, byte in enumerate(hidden)}


class Pieces:
    """Token id -> :class:`Piece`, of one tokenizer; each is made once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer: Any = tokenizer
        self._added = {id_: str(token) for id_, token in tokenizer.added_tokens_decoder.items()}
        self._table = _byte_level() if _is_byte_level(tokenizer) else {}
        self._known: dict[int, Piece] = {}

    def __call__(self, token: int) -> Piece:
        if token not in self._known:
            self._known[token] = piece_of(self._bytes(token))
        return self._known[token]

    def _bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        written = self._tokenizer.convert_ids_to_tokens(token)
        if written is None:  # a row of the embedding that no token has
            return b""
        if self._table:
            if all(character in self._table for character in written):
                return bytes(self._table[character] for character in written)
            return written.encode()
        if found := _BYTE.fullmatch(written):
            return bytes([int(found[1], 16)])
        if "\u2581" in written:  # SentencePiece's blank
            return written.replace("\u2581", " ").encode()
        return self._tokenizer.decode([token], clean_up_tokenization_spaces=False).encode()


def _is_byte_level(tokenizer: Any) -> bool:
    if not tokenizer.is_fast:
        return hasattr(tokenizer, "byte_decoder")
    decoder = json.loads(tokenizer.backend_tokenizer.to_str()).get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoder.get("decoders", ())])


def piece_of(found: bytes) -> Piece:
    """The piece of these bytes.

    >>> piece_of(" é".encode()).text, piece_of(b"\\xe2\\x82").text
    (' é', 'bytes:\\\\xe2\\\\x82')
    """
    try:
        return Piece(found.decode("utf-8"), found)
    except UnicodeDecodeError:
        return Piece("bytes:" + "".join(f"\\x{byte:02x}" for byte in found), found)


class Offsets:
    """Where in the text, in characters, each token begins. A text may come in parts; a character
    may begin in one of them and end in the next.

    >>> places = Offsets()
    >>> places([piece_of(b"a"), piece_of(b" \\xc3")]), places([piece_of(b"\\xa9"), piece_of(b"b")])
    ([0, 1], [2, 3])
    """

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._at = 0

    def __call__(self, pieces: Sequence[Piece]) -> list[int]:
        found = []
        for piece in pieces:
            found.append(self._at)
            self._at += len(self._decoder.decode(piece.bytes))
        return found
