"""Showing a text while it is written: what is shown, joined, is exactly the response's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from phalanx.chat import ChatFormat, clean_text
from phalanx.collective.ownwords import split_reasoning

# Tokens that stand for one byte: a run of them may still turn into other characters.
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MAY_OPEN = re.compile(r"\s*(?:<[a-z]{0,9})?\Z", re.IGNORECASE)
_OPENED = re.compile(r"\s*<(?:think|thinking|reasoning)>", re.IGNORECASE)


def answer_so_far(text: str, ends_reasoning: bool = False) -> str:
    """What of an unfinished ``text`` is answer: no reasoning in marks, nothing that may open it.

    With ``ends_reasoning`` there is no answer before a mark that closes reasoning.

    >>> [answer_so_far(text) for text in ("<th", "<think>France", "<think>F</think>Par", "<b>Par")]
    ['', '', 'Par', '<b>Par']
    """
    if ends_reasoning or _OPENED.match(text):
        answer, reasoned = split_reasoning(text)
        return answer if reasoned else ""
    return "" if _MAY_OPEN.match(text) else text


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
        self._shown.up_to(settled_text(self._chat, self._stop_ids, tokens))

    def finish(self, text: str | None) -> None:
        """Show the rest; ``text`` is the response's own."""
        self._shown.up_to(text or "")


def settled_text(chat: ChatFormat, stop_ids: Collection[int], tokens: Sequence[int]) -> str:
    """The text of the tokens before the first end token, without what the next may change."""
    end = next((at for at, token in enumerate(tokens) if token in stop_ids), len(tokens))
    settled = list(tokens[:end])
    while settled and _BYTE_TOKEN.fullmatch(str(chat.tokenizer.convert_ids_to_tokens(settled[-1]))):
        settled.pop()
    # Half a character is decoded as U+FFFD, until its other bytes are there.
    return clean_text(chat.decode(settled).rstrip("\ufffd"))[0]
