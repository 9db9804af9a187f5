"""Showing a text while it is written: what is shown, joined, is exactly the response's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from phalanx.chat import ChatFormat, clean_text

# Tokens that stand for one byte: a run of them may still turn into other characters.
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Shown:
    """What somebody has seen of a text so far. ``show`` gets each further piece."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.text = ""

    def up_to(self, text: str) -> None:
        """Show what ``text`` has beyond what was shown; nothing where it does not begin with it."""
        if len(text) > len(self.text) and text.startswith(self.text):
            piece, self.text = text[len(self.text) :], text
            self._show(piece)


class TokenStream:
    """Shows the text of tokens as they come; text that the next token may change is held back."""

    def __init__(
        self, chat: ChatFormat, stop_ids: Sequence[int], show: Callable[[str], None]
    ) -> None:
        self._chat = chat
        self._stop_ids = frozenset(stop_ids)
        self._shown = Shown(show)

    def __call__(self, tokens: Sequence[int]) -> None:
        """``tokens`` are all of those written so far."""
        end = next((at for at, token in enumerate(tokens) if token in self._stop_ids), len(tokens))
        settled = list(tokens[:end])
        while settled and _BYTE_TOKEN.fullmatch(self._name(settled[-1])):
            settled.pop()
        # Half a character is decoded as U+FFFD, until its other bytes are there.
        text = self._chat.decode(settled).rstrip("\ufffd")
        self._shown.up_to(clean_text(text)[0])

    def finish(self, text: str | None) -> None:
        """Show the rest; ``text`` is the response's own."""
        self._shown.up_to(text or "")

    def _name(self, token: int) -> str:
        return str(self._chat.tokenizer.convert_ids_to_tokens(token))
