"""Find the option or the label that a response states: its last explicit statement wins.

Statements are "the answer is (C)", "C is correct", "I choose C", a ``\\boxed{C}``, and a ``**C**``
that ends its line. One that is denied, belongs to an "if", or names several options states none.
Where there is no statement: a line at the end with the option alone, then an option written with
its mark ("B) fever"), unless several are. Words of the options are never searched for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from phalanx.tasks.reading import boxes

LETTERS = "ABCDEFGHIJ"
_AFTER_LETTER = frozenset((
    "according", "and", "as", "at", "based", "because", "but", "by", "due", "first", "for",
    "from", "given", "hence", "here", "if", "in", "instead", "is", "it", "its", "not", "of",
    "on", "only", "or", "rather", "second", "since", "so", "than", "that", "then", "therefore",
    "third", "though", "thus", "to", "via", "when", "where", "which", "while", "with", "would",
))  # fmt: skip
"""Words that may follow a letter; before any other word, a lone A or I is a word itself."""

_OPEN, _CLOSE = r"[(\[*_\"'`$]*", r"(?![\w'’-])(?!\s+[0-9])"
_FILL = r"(?:\s+(?:therefore|thus|clearly|probably|likely|most|option|choice|letter|answer))*"
_CLAUSE = re.compile(r"[,;:.!?\n]|\b(?:so|but|therefore|thus|hence|because|since|then)\b", re.I)
_DENIAL = re.compile(
    r"\b(?:not|never|neither|nor|cannot|hardly)\b|n['’]t\b|"
    r"\b(?:wrong|incorrect|false|worst|second[- ]best|other|alternative)\s+$|"
    r"\b(?:wrong|incorrect|false|untrue)\s+that\b",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    r"[)\]*_\"'`]*\s+(?:is|was|would\s+be|seems|looks)(?:n['’]t|\s+(?:not|wrong|incorrect|false))\b",
    re.IGNORECASE,
)
_ASKED = re.compile(r"[)\]*_\"'`]*\s*\?")
_SUPPOSED = re.compile(r"\b(?:if|unless|had)\b", re.IGNORECASE)


class Statement(NamedTuple):
    """Where it starts, and the option or label; "" where several are named."""

    start: int
    found: str


@cache
def _explicit(letters: str) -> re.Pattern[str]:
    one, low = f"[{letters}]", f"[{letters.lower()}](?=[)\\]]|[*_.!\"'`$]*[ \\t]*$)"
    several = rf"(?:and|or|&)\s+{_OPEN}(?i:option\s+)?{one}[)\]*_]*"
    return re.compile(
        rf"\b(?i:answer|(?:correct|best|right|wrong|incorrect)\s+(?:option|choice|letter|one))"
        rf"{_FILL}(?:(?:\s+[a-z]+){{0,6}}?\s+(?P<verb>(?i:is|would\s+be|must\s+be)))?{_FILL}"
        rf"[*_]*\s*[:=]?[*_]*\s*(?i:(?:option|choice)\s+)?{_OPEN}(?P<a>{one}{_CLOSE}|{low})"
        rf"|\b(?i:choose|pick|select|go\s+with)\s+(?i:option\s+|choice\s+|answer\s+)?"
        rf"{_OPEN}(?P<b>{one}){_CLOSE}"
        rf"|(?<![\w'’-]){_OPEN}(?P<c>{one})[)\]*_\"'`]*\s+(?i:is)\s+(?i:the\s+)?"
        r"(?i:correct|right|best|answer)\b"
        rf"|(?<![\w'’-]){_OPEN}(?P<d>{one})[)\]*_]*\s+{several}\s+(?i:are)\s+(?i:both\s+)?"
        r"(?i:correct|right|possible)\b",
        re.MULTILINE,
    )


def read_choice(text: str, letters: str = LETTERS) -> str:
    """The option letter that the text states, or "". ``letters``: those that there are.

    A letter that is a word ("A 45-year-old", "the answer is A patient") is no choice.
    """
    plain = _tidy(text)
    one = f"[{letters}{letters.lower()}]"
    alone = re.compile(rf"(?:(?i:option|choice)\s+)?{_OPEN}({one})[)\]*_\"'`$.:,]*")
    if whole := alone.fullmatch(plain.strip()):
        return whole[1].upper()
    bold = re.compile(rf"(?:\*\*|__)[(\[]?([{letters}])[)\]]?(?:\*\*|__)[.!]?[ \t]*$", re.MULTILINE)
    found = [
        *_boxed(plain, letters),
        *_explicitly(plain, letters),
        *(Statement(match.start(), match[1]) for match in bold.finditer(plain)),
    ]
    if found:
        return max(found).found
    if list(boxes(plain)):
        return ""  # it states something, and that is no letter
    if last := alone.fullmatch(plain.strip().rsplit("\n", 1)[-1].strip()):
        return last[1].upper()
    leading = re.compile(
        rf"^\s*[*_]*(?:[(\[*]+([{letters}])[)\]*]+|([{letters}])[).:])(?=\s|$|\*)", re.MULTILINE
    )
    marked = {match[1] or match[2] for match in leading.finditer(plain)}
    return marked.pop() if len(marked) == 1 else ""


def _tidy(text: str) -> str:
    """The text in plain characters, with long runs of spaces and marks cut to short ones."""
    plain = unicodedata.normalize("NFKC", text)
    plain = re.sub(r"[^\S\n]+", " ", plain)
    plain = re.sub(r" ?\n ?(?:\n ?)+", "\n\n", plain)
    return re.sub(r"([*_`$\"'(\[)\]])[*_`$\"'(\[)\]]{5,}", r"\1", plain)


def _boxed(plain: str, letters: str) -> Iterator[Statement]:
    """Boxes that hold a letter, or a letter with its mark and the option's text."""
    for start, content in boxes(plain):
        bare = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", content).strip()
        inner = re.fullmatch(
            rf"{_OPEN}([{letters}{letters.lower()}])(?:[)\]*_\"'`$.:,]*|[).:]\s+(.*))",
            bare,
            re.DOTALL,
        )
        if inner:
            yield Statement(start, inner[1].upper())
        elif re.match(rf"{_OPEN}[{letters}][)\]]*\s*(?:,|/|&|and|or)\s*{_OPEN}[{letters}]\b", bare):
            yield Statement(start, "")


def _explicitly(plain: str, letters: str) -> Iterator[Statement]:
    for match in _explicit(letters).finditer(plain):
        name = next(name for name in "abcd" if match[name])
        begin, end = match.span(name)
        letter = match[name].upper()
        before, after = plain[max(0, match.start() - 300) : match.start()], plain[end : end + 300]
        if _denied(before, match[0], after) or _is_word(plain, begin, end):
            continue
        several = name == "d" or _another(before, after, letter, rf"[{letters}]")
        yield Statement(match.start(), "" if several else letter)


def _is_word(plain: str, begin: int, end: int) -> bool:
    """Whether a lone A or I is an article or a pronoun."""
    if plain[begin:end] not in ("A", "I") or plain[begin - 1 : begin] in ("(", "[", "*", "$"):
        return False
    word = re.match(r"\s+([a-z][\w-]*)", plain[end:])
    return word is not None and word[1] not in _AFTER_LETTER


def _denied(before: str, statement: str, after: str) -> bool:
    """Whether a statement is refuted, a question, or made under a condition."""
    clause = _CLAUSE.split(before[-200:])[-1]
    if _DENIAL.search(clause) or re.match(r"(?i:wrong|incorrect)\b", statement):
        return True
    if _REFUTED.match(after) or _ASKED.match(after):
        return True
    if not re.search(r"\bwould\b", statement):
        return False
    sentence = re.split(r"[.!?\n]", before[-300:])[-1] + re.split(r"[.!?\n]", after[:300])[0]
    return _SUPPOSED.search(sentence) is not None


def _another(before: str, after: str, found: str, one: str) -> bool:
    """Whether the statement goes on with, or began with, another option."""
    join = r"(?:,\s*(?:and|or)\b|,|/|&|\band\b|\bor\b)"
    following = re.match(
        rf"[)\]*_\"'`$]*\s*{join}\s*(?i:(?:option|choice)\s+)?{_OPEN}({one})[)\]*_]*(?![\w'’-])"
        r"(?!\s+(?:is|was|has|would|can|could|does|seems|think|am|have))",
        after,
    )
    leading = re.search(rf"(?<![\w'’-])({one})[)\]*_]*\s*{join}\s*$", before[-40:])
    return any(match is not None and match[1].upper() != found for match in (following, leading))


def read_label(text: str, labels: tuple[str, ...]) -> str:
    """The label (a lower-case word, such as yes, no, neutral) that the text states, or "".

    As :func:`read_choice`; where there is no statement also a first word before a mark ("No, it
    is rude."), after a last line of the label alone.
    """
    plain = _tidy(text).casefold()
    one = rf"\b(?:{'|'.join(map(re.escape, labels))})\b(?![-'’])"
    alone = re.compile(rf"{_OPEN}({one})[)\]*_\"'`$.:,!]*")
    if whole := alone.fullmatch(plain.strip()):
        return whole[1]
    explicit = re.compile(
        rf"\b(?:answer|label|verdict)\b{_FILL}(?:(?:\s+[a-z]+){{0,6}}?\s+(?:is|would\s+be))?{_FILL}"
        rf"[*_]*\s*[:=]?[*_]*\s*{_OPEN}({one})"
    )
    bold = re.compile(rf"(?:\*\*|__)({one})[.!]?(?:\*\*|__)[.!]?[ \t]*$", re.MULTILINE)
    found = [Statement(match.start(), match[1]) for match in bold.finditer(plain)]
    for start, content in boxes(plain):
        if inside := re.fullmatch(rf"(?:\\text\{{)?\s*({one})[\s.}}]*", content):
            found.append(Statement(start, inside[1]))
    for match in explicit.finditer(plain):
        start, end = match.span()
        before, after = plain[max(0, start - 300) : start], plain[end : end + 300]
        if not _denied(before, match[0], after):
            several = _another("", after, match[1].upper(), one)
            found.append(Statement(match.start(), "" if several else match[1]))
    if found:
        return max(found).found
    if last := alone.fullmatch(plain.strip().rsplit("\n", 1)[-1].strip()):
        return last[1]
    first = re.match(rf"\s*{_OPEN}({one})[)\]*_\"'`]*\s*[,.:;!–—\n]", plain)
    return first[1] if first else ""


def read_blanks(text: str, blanks: tuple[str, ...]) -> str:
    """``blank 1: A; blank 2: C``, the last letter given to each; "" unless all have one."""
    plain = _tidy(text)
    found = []
    for blank in blanks:
        stated = re.findall(
            rf"(?i:{re.escape(blank)})[*_]*\s*(?::|=|(?i:is))[*_]*\s*{_OPEN}([{LETTERS}]){_CLOSE}",
            plain,
        )
        if not stated:
            return ""
        found.append(f"{blank}: {stated[-1]}")
    return "; ".join(found)
