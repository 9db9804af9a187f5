"""Find the number or the option letter that a response states."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

LETTERS = "A-J"
_MAX_DIGITS = 100  # longer runs of digits are noise, and slow to compute with
_MAX_POWER_DIGITS = 3  # with its sign: up to 1e999, or 1e-99

_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)\]}}])[-−])?(?<![\w.])[$€£]?(?P<top>{_PLAIN})(?:[eE](?P<power>[-+]?[0-9]+)"
    rf"(?![0-9\w]))?(?:\s*/\s*(?P<bottom>{_PLAIN})(?!\s*/))?"
)
_STATED = re.compile(r"\banswer(?:\s+is\b\s*:?|\s*:)", re.IGNORECASE)


def read_number(text: str) -> str:
    """The number that the text gives as its answer, in canonical form, or "".

    In order: after the last ``####``, inside the last ``\\boxed{}``, in the sentence after the
    last "answer is" or "answer:", and else the last number of the text. Thousands separators,
    currency signs and fractions are understood; 0.50, .5 and 1/2 are one number.
    """
    plain = _plain_numbers(text)
    if "####" in plain:
        after = plain.rsplit("####", 1)[1].strip().split("\n", 1)[0]
        return next(iter(_numbers(after)), "")
    boxed = last_boxed(plain)
    if boxed is not None:
        return _last(_numbers(boxed))
    for match in reversed(list(_STATED.finditer(plain))):
        sentence = re.split(r"\n\s*\n|[.!?](?:\s|$)", plain[match.end() :].lstrip(), maxsplit=1)[0]
        found = _last(_numbers(sentence))
        if found:
            return found
    return _last(_numbers(plain))


def _plain_numbers(text: str) -> str:
    """The text with LaTeX's ways of writing numbers replaced by plain ones."""
    plain = unicodedata.normalize("NFKC", text)
    plain = plain.replace("{,}", ",").replace("\\!", "").replace("\\$", "$")
    return re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" \1/\2 ", plain)


def _numbers(text: str) -> list[str]:
    return [value for match in _NUMBER.finditer(text) if (value := _canonical(match))]


def _last(found: list[str]) -> str:
    return found[-1] if found else ""


def _canonical(match: re.Match[str]) -> str:
    top = match["top"].replace(",", "")
    bottom = (match["bottom"] or "1").replace(",", "")
    power = match["power"] or "0"
    if len(top) > _MAX_DIGITS or len(bottom) > _MAX_DIGITS or len(power) > _MAX_POWER_DIGITS:
        return ""
    if not Fraction(bottom):
        return ""
    value = Fraction(top) * Fraction(10) ** int(power) / Fraction(bottom)
    return _write(-value if match["sign"] else value)


def _write(value: Fraction) -> str:
    """42, 0.5 or -1/3: decimal where that is exact."""
    rest, places = value.denominator, 0
    while rest % 10 == 0 or rest % 2 == 0 or rest % 5 == 0:
        rest //= 10 if rest % 10 == 0 else 2 if rest % 2 == 0 else 5
        places += 1
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    if places == 0:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def last_boxed(text: str) -> str | None:
    """The text inside the last ``\\boxed{...}``: "" if it is cut off, None if there is no box."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + len("\\boxed{")
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return ""


_OPEN, _CLOSE = r"[(\[*_\"'`]*", r"(?![\w'’-])(?!\s+[0-9])"
_FILL = r"(?:\s+(?:therefore|thus|clearly|probably|likely|most|option|choice|letter|answer))*"
_EXPLICIT = re.compile(
    rf"\b(?i:answer|(?:correct|best|right)\s+(?:option|choice|letter|one)){_FILL}"
    rf"(?:\s+(?i:is|would\s+be|must\s+be))?{_FILL}[*_]*\s*[:=]?\s*(?i:option|choice)?\s*"
    rf"{_OPEN}(?P<a>[{LETTERS}]){_CLOSE}"
    rf"|\b(?i:choose|pick|select)\s+(?i:option\s+|choice\s+|answer\s+)?"
    rf"{_OPEN}(?P<b>[{LETTERS}]){_CLOSE}"
    rf"|(?<![\w'’-]){_OPEN}(?P<c>[{LETTERS}])[)\]*_\"'`]*\s+(?i:is)\s+(?i:the\s+)?"
    r"(?i:correct|right|best|answer)\b"
)
_ALONE = re.compile(rf"{_OPEN}([{LETTERS}{LETTERS.lower()}])[)\]*_\"'`.:,]*")
_LEADING = re.compile(rf"^\s*(?:[(\[*]+([{LETTERS}])[)\]*]+|([{LETTERS}])[).:])(?=\s|$)", re.M)


def read_choice(text: str) -> str:
    """The option letter (A to J) that the text states, or "".

    In order: inside the last ``\\boxed{}``; a text that is the letter alone; the last explicit
    statement ("the answer is B", "C is correct"); a last line that is the letter alone; and an
    option repeated with its mark ("B) fever"), unless several are. A letter that is a word
    ("A 45-year-old") is no choice.
    """
    boxed = last_boxed(text)
    whole = text if boxed is None else re.sub(r"\\text(?:bf)?\{([^{}]*)\}", r"\1", boxed)
    alone = _ALONE.fullmatch(whole.strip())
    if alone or boxed is not None:
        return alone[1].upper() if alone else ""
    stated = [m["a"] or m["b"] or m["c"] for m in _EXPLICIT.finditer(text)]
    if stated:
        return stated[-1]
    last_line = _ALONE.fullmatch(text.strip().rsplit("\n", 1)[-1].strip())
    if last_line:
        return last_line[1].upper()
    marked = {m[1] or m[2] for m in _LEADING.finditer(text)}
    return marked.pop() if len(marked) == 1 else ""
