"""One number as judges write it: ``8``, ``8,5``, ``seven and a half``, ``8/10``, ``9 points``.

A number is read with its decimal part, its unit and the top of its scale. What does not fit the
declared scale is invalid; it is never cut, multiplied or divided until it fits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A number token that ends at ``end``; invalid when ``reason`` is set."""

    value: float
    reason: str
    end: int
    has_top: bool


_WORDS = {
    word: float(value)
    for value, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
}
DIGITS = r"[+\-−]?(?:[0-9]{1,40}(?:[.,][0-9]{1,40})?|[.,][0-9]{1,40})"
WORD = "|".join(_WORDS)
_NUMBER = re.compile(
    rf"(?:(?P<digits>{DIGITS})(?![.,]?[0-9])|(?P<word>{WORD})(?![^\W_]))"
    r"(?P<half>[ ]?½|[ ]and[ ]a[ ]half\b|[ ]point[ ]five\b|[ ]1/2\b)?",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"[*_`\"'”]{0,4}[ \t]{0,3}-?(?:(?:points?|pts?|stars?|баллов|балла?|punti|puntos|Punkte)"
    r"(?![^\W\d_])|分|点|점)",
    re.IGNORECASE,
)
_SCALE_WORDS = (
    r"(?:out[ ]of|of|over|von|sur|de|su)(?:[ ]an?)?(?:[ ](?:possible|maximum|max|total))?"
)
_TOP = re.compile(
    rf"[*_`\]\"'”]{{0,4}}[ \t]{{0,3}}(?:\([^()\n]{{0,300}}\)[ \t]{{0,3}})?(?:/|{_SCALE_WORDS}[ ])"
    rf"[ \t*_]{{0,4}}(?:(?P<digits>{DIGITS})(?![.,]?[0-9])|(?P<word>{WORD})\b)"
    r"|[*_`]{0,4}[ \t]{0,3}\([ \t]{0,3}(?:/|(?:out[ ])?of|max(?:imum)?\.?|满分|滿分|von|sur)"
    r"[ \t:]{0,3}"
    r"(?P<inner>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
    r"|[ \t,(]{1,3}on[ ]an?[ ](?:scale[ ](?:of|from)[ ])?[0-9]{1,9}[ ]?(?:to|-|–)[ ]?"
    r"(?P<scale>[0-9]{1,9})"
    r"|[ \t]?(?P<percent>%)",
    re.IGNORECASE,
)
_RANGE = re.compile(rf"(?:[-–~]|[ \t](?:to|or)[ \t]){DIGITS}", re.IGNORECASE)

SENTENCE_END = re.compile(r"[*_`\"'”)\]}]{0,6}[ \t]{0,4}(?:[.,;:!?|)]|\r?\n|\Z)")
_GOES_ON = re.compile(r"[ \t]{1,3}(?:because|for|since|as|due|overall|given|but|and|on)\b", re.I)


def _value(digits: str | None, word: str | None) -> tuple[float, str]:
    if digits is None:
        return _WORDS[(word or "").lower()], ""
    whole, comma, part = digits.partition(",")
    if comma and len(part) == 3 and whole.strip("+-−") not in ("", "0"):
        return math.nan, f"ambiguous number: {digits}"
    return float(digits.replace("−", "-").replace(",", ".")), ""


def number_at(text: str, at: int, low: float, high: float) -> Number | None:
    """The number token at ``at`` with its unit and the top of its scale, checked; or None."""
    match = _NUMBER.match(text, at)
    if not match:
        return None
    value, reason = _value(match["digits"], match["word"])
    if match["half"]:
        value += 0.5
    end, top = match.end(), None
    if span := _RANGE.match(text, end):
        reason, end = f"a range: {text[at : span.end()].strip()[:40]}", span.end()
    if unit := _UNIT.match(text, end):
        end = unit.end()
    if scale := _TOP.match(text, end):
        end = scale.end()
        if scale["percent"]:
            top = 100.0
        elif scale["inner"] or scale["scale"]:
            top = float(scale["inner"] or scale["scale"])
        else:
            top, _ = _value(scale["digits"], scale["word"])
    if re.match(r"[A-Za-z]|_\w", text[end : end + 2]):
        return None  # "8th", "7x": part of a word
    if match["word"] and top is None and not (unit or ends_statement(text, end)):
        return None  # "one that I would defend"
    if not reason and top is not None and top != high:
        reason = f"denominator {top:g} is not {high:g}"
    if not reason and not low <= value <= high:
        reason = f"out of scale: {value:g}"
    return Number(value, reason, end, top is not None)


def ends_statement(text: str, at: int) -> bool:
    """True when the sentence or clause ends at ``at``, so that the number counts nothing."""
    return bool(SENTENCE_END.match(text, at) or _GOES_ON.match(text, at))
