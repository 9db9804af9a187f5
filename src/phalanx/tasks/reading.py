"""Find the number that a response states, and what stands in its boxes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

_MAX_DIGITS = 100  # longer runs of digits are noise, and slow to compute with
_MAX_POWER_DIGITS = 3  # with its sign: up to 1e999, or 1e-99

_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)\]}}])-)?(?<![\w.])[$€£]?(?P<top>{_PLAIN})(?:[eE](?P<power>[-+]?[0-9]+)"
    rf"(?![0-9\w]))?(?:\s*/\s*(?P<bottom>{_PLAIN})(?!\s*/))?"
)
_EXPONENT = r"\^\s*(?:[{(]\s*([-+]?[0-9]{1,3})\s*[)}]|([-+]?[0-9]{1,3})(?![0-9]))"
_SCIENTIFIC = re.compile(
    rf"(?<![\w.,^])(?:({_PLAIN})\s*(?:\\times|\\cdot|[x×·*])\s*)?10\s*{_EXPONENT}"
)
_UNIT_POWER = re.compile(rf"(?<=[^\W\d_])(?:[ )}}]*{_EXPONENT})+")
_TERM = r"[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?"
_EXPRESSION = re.compile(
    rf"{_TERM}(?:(?:\(|[\s(){{}}]*(?:[-+*/^×·x]|\\times|\\cdot)[\s(){{}}]*){_TERM})*(?:[\s)}}]*\^)?"
)
_SIGNED = re.compile(r"(?:(?<![\w.,])(\d{1,9})[ \u2009\u202f]?)?([¼-¾⅐-⅞↉])")
_RAISED = re.compile(r"(?<=[0-9)}])(?=[⁰¹²³⁴-⁹⁺⁻])")
_SEPARATORS = {0x066B: ".", 0x066C: ","}  # Arabic decimal and thousands separators
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_SENTENCE = 500
"""Characters in which a statement gives its number."""
STATED = re.compile(r"\banswer(?:\s+is\b\s*:?|\s*:)", re.IGNORECASE)
"""What stands before a stated answer."""


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
    for match in reversed(list(STATED.finditer(plain))):
        sentence = re.split(r"\n\s*\n|[.!?](?:\s|$)", plain[match.end() :].lstrip(), maxsplit=1)[0]
        found = _last(_numbers(sentence))
        if found:
            return found
    return _last(_numbers(plain))


def _plain_numbers(text: str) -> str:
    """The text with the ways of LaTeX and Unicode to write numbers replaced by plain ones, and
    without the marks that close a heading (``#### 42 ####``).

    A raised digit is a power, and a number with a sign such as ½ is a fraction: NFKC alone would
    make 52 of 5² and 31/2 of 3½. 2 × 10^3 is 2e3.
    """
    text = _SIGNED.sub(_fraction, text).translate(_SEPARATORS)
    text = _RAISED.sub("^", text)
    plain = "".join(map(ascii_digit, unicodedata.normalize("NFKC", text)))
    plain = plain.replace("{,}", ",").replace("\\!", "").replace("\\$", "$").replace("−", "-")
    plain = re.sub(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)", " ", plain)
    plain = _SCIENTIFIC.sub(lambda match: f"{match[1] or 1}e{match[2] or match[3]} ", plain)
    plain = re.sub(r"(?<=[^\s#])[ \t]*#+[ \t]*$", "", plain, flags=re.MULTILINE)
    return re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" \1/\2 ", plain)


def _fraction(match: re.Match[str]) -> str:
    """½ as 1/2, 3½ as 7/2. The numbers of these signs are ninths, tenths and the like."""
    value = Fraction(unicodedata.numeric(match[2])).limit_denominator(1000)
    value += int(match[1] or 0)
    return f"{value.numerator}/{value.denominator}"


def ascii_digit(character: str) -> str:
    """A digit of any script as one of 0 to 9; anything else as it is."""
    value = unicodedata.decimal(character, None)
    return character if value is None else str(value)


def _numbers(text: str) -> list[str]:
    """Without powers of units, and without expressions that hold another power: their value is
    not worked out, and no part of them is it.
    """
    text = _UNIT_POWER.sub("", text)
    text = _EXPRESSION.sub(lambda match: " " if "^" in match[0] else match[0], text)
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


def boxes(text: str) -> Iterator[tuple[int, str]]:
    """(start, content) of every closed ``\\boxed{...}`` or ``\\fbox{...}``, outermost ones."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            closing[opened.pop()] = brace.start()
    ended = 0
    for match in _BOX.finditer(text):
        if match.start() >= ended and match.end() in closing:
            ended = closing[match.end()]
            yield match.start(), text[match.end() : ended]


def read_stated_number(text: str) -> str:
    """The number that the text states as its answer, in canonical form, or "".

    Stricter than :func:`read_number`: the last of ``#### 42``, ``\\boxed{42}`` and "the answer is
    42" counts, else a last line that is a number alone; never just the last number of the text.
    After an equals sign stands what is meant; "not 12" and units do not count, and a statement of
    several numbers states none.
    """
    plain = _plain_numbers(text)
    found: list[tuple[int, str, bool]] = []
    for start, content in boxes(plain):
        found.append((start, _without_units(content), True))
    for match in re.finditer(r"#{4,}([^\n#]*)", plain):
        found.append((match.start(), match[1], False))
    for match in STATED.finditer(plain):
        rest = plain[match.end() : match.end() + _SENTENCE].lstrip(" \t\n*_:")
        sentence = re.split(r"\n|[.!?](?:\s|$)", rest, maxsplit=1)[0]
        if "\\boxed" not in sentence and _NUMBER.search(sentence):
            found.append((match.start(), sentence, False))
    if found:
        _, stated, boxed = max(found)
        values = _values(stated)
        return ("" if len(values) != 1 else values[0]) if boxed else _first_stated(stated)
    if "\\boxed{" in plain:
        return ""  # cut off inside
    last = plain.strip().rsplit("\n", 1)[-1].strip(" *_$.")
    whole = _NUMBER.fullmatch(last.removesuffix("%").strip())
    return _canonical(whole) if whole else ""


def _without_units(content: str) -> str:
    """A box without texts that hold no digit, and their power."""
    unit = r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}0-9]*)\}\s*(?:\^\s*\{?\s*\d+\s*\}?)?"
    return re.sub(unit, " ", content)


def _values(text: str) -> list[str]:
    """The numbers after the last equals sign, without those that are denied."""
    after = re.split(r"[=≈]", text)[-1]
    return _numbers(re.sub(r"\bnot\s+(?:[$€£]\s*)?[0-9.,]*[0-9]", " ", after, flags=re.IGNORECASE))


def _first_stated(sentence: str) -> str:
    """The first number, unless another is given beside it ("12 or 15")."""
    values = _values(sentence)
    if not values:
        return ""
    after = re.split(r"[=≈]", sentence)[-1]
    other = rf"(?:{_PLAIN})(?:\s+[a-z]+)?,?\s+(?:or|and)\s+[$€£]?(?:{_PLAIN})"
    return "" if re.search(other, after, re.IGNORECASE) else values[0]
