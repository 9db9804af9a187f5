"""Which texts that models invented are fit to be instructions: checks that need no model, near
duplicates, and the reading of a rating.

After Magpie (arXiv 2406.08464), with our own thresholds; there duplicates are found by the
distance of embeddings, here by the overlap of character n-grams.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from phalanx.collective import ownwords as own
from phalanx.collective.templates import INSTRUCTION, fence, fill, load_template
from phalanx.errors import MissingPackage
from phalanx.identity import content_id, derive_seed
from phalanx.types import Member, Message, Request, Response, Sampling

RATINGS = ("very poor", "poor", "average", "good", "excellent")
GOOD = frozenset({"good", "excellent"})
_RATING_TOKENS = 160

# Control tokens of chat formats, and headers of prompts: a text that holds one is more (or less)
# than a user's turn.
_MARKERS = re.compile(
    r"<\|[^|\n]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|<<?/?SYS>>?|</?s>|<(?:bos|eos|pad)>"
    r"|^#{2,4}[ ]?(?:Instruction|Response|Input|User|Assistant|System)s?\b[ ]?:?[ ]?$"
    r"|^(?:Assistant|Human|User|System)[ ]?:",
    re.IGNORECASE | re.MULTILINE,
)
_WORDS = re.compile(r"\w+")
_STATED = re.compile(r"\[\[[ \t]{0,4}([A-Za-z ]{1,20}?)[ \t]{0,4}\]\]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in characters, and the overlap from which on two texts are near duplicates."""

    min_chars: int = 12
    max_chars: int = 4000
    overlap: float = 0.7


def fault_of(response: Response, limits: Limits) -> str:
    """Why the text of a response cannot be an instruction, by name, or "".

    ``failed: KIND``, ``truncated``, ``empty``, ``markers``, ``ends_with_colon``, ``too_short``,
    ``too_long``; the first that holds.
    """
    if response.error is not None:
        return f"failed: {response.error.kind}"
    text = (response.text or "").strip()
    if not text:
        return "empty"
    if response.truncated:
        return "truncated"
    if _MARKERS.search(text):
        return "markers"
    if text.endswith((":", "：")):
        return "ends_with_colon"
    if len(text) < limits.min_chars:
        return "too_short"
    return "too_long" if len(text) > limits.max_chars else ""


def normalised(text: str) -> str:
    """A text for comparison: words alone, without case, width or punctuation.

    >>> normalised("What's  the Capital of Peru?") == normalised("what s the capital of peru")
    True
    """
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def shingles(text: str, length: int = 5) -> frozenset[str]:
    """All runs of ``length`` characters of the normalised text; a shorter text is one."""
    plain = normalised(text) or text
    return frozenset(plain[at : at + length] for at in range(max(1, len(plain) - length + 1)))


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's index: what two sets share, of all that is in either."""
    return len(one & other) / len(one | other)


class Seen:
    """Texts so far; :meth:`take` says whether a new one repeats one of them.

    Candidates come from MinHash with locality-sensitive hashing (datasketch), whose threshold is
    set lower, and are then compared exactly: nothing is dropped by an estimate. Raises
    MissingPackage.
    """

    def __init__(self, least_overlap: float) -> None:
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError:
            raise MissingPackage("datasketch", "synthesise", "Finding near duplicates") from None
        self._least = least_overlap
        self._make = MinHash
        self._index = MinHashLSH(threshold=max(0.1, least_overlap - 0.2), num_perm=128)
        self._exact: set[str] = set()
        self._texts: list[frozenset[str]] = []

    def take(self, text: str) -> str:
        """Remember a text; ``duplicate`` or ``near_duplicate`` where it repeats one, else ""."""
        plain = normalised(text) or text
        if plain in self._exact:
            return "duplicate"
        parts = shingles(text)
        sketch = self._make(num_perm=128)
        sketch.update_batch([part.encode("utf-8", "replace") for part in sorted(parts)])
        for at in self._index.query(sketch):
            if overlap(parts, self._texts[at]) >= self._least:
                return "near_duplicate"
        self._exact.add(plain)
        self._index.insert(len(self._texts), sketch)
        self._texts.append(parts)
        return ""


def rating_request(text: str, rater: Member) -> Request:
    """The request for a rating of one instruction; greedy, the same wherever it is asked."""
    marked = fence(text, derive_seed("rate", text), INSTRUCTION)[0]
    prompt = fill(load_template("rate", ("instruction",)), {"instruction": marked})
    messages, want = (Message("user", prompt),), Sampling(0.0, 1.0, 0, _RATING_TOKENS)
    key = content_id("rate", rater.key, messages, want)
    return Request(key, rater, messages, want, "rate", shortenable=(text,))


def read_rating(response: Response) -> str | None:
    """The one rating that a rater states; None where there is none, or more than one.

    >>> read_rating(Response("r", text="Clear, but short.\\n[[good]]"))
    'good'
    >>> read_rating(Response("r", text="Either [[good]] or [[poor]].")) is None
    True
    """
    if response.error is not None or response.truncated:
        return None
    plain, reason = own.without_reasoning(own.normalise(response.text or ""))
    if reason:
        return None
    stated = {" ".join(word.lower().split()) for word in _STATED.findall(plain)}
    return stated.pop() if len(stated) == 1 and stated <= {*RATINGS} else None
