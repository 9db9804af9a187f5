"""What in a judge's text is the judge's own statement, and which statement counts.

Shared by the readers of scores and of verdicts (:mod:`phalanx.collective.reading`). A judge may
think aloud, quote the response that it judges, or add remarks; none of that is its verdict.
Everything here is linear in the length of the text: every repetition in a pattern is bounded.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# How strongly a statement claims to be the conclusion; within one strength the last one counts.
OPENING, FINAL, STATED, MENTIONED, ASIDE = 4, 3, 2, 1, 0

_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {0x3000: " "}
_TAG = re.compile(
    r"[<\[◁](?P<close>/?)[ ]?(?:think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad)"
    r"[ ]?[>\]▷]",
    re.IGNORECASE,
)
_THINKING = "think|thinking|reasoning"
_OPENS = re.compile(rf"<({_THINKING})>", re.IGNORECASE)
_OPEN = re.compile(rf"\s*{_OPENS.pattern}", re.IGNORECASE)
_CLOSE = re.compile(rf"</({_THINKING})>", re.IGNORECASE)
_CLOSE_LINE = re.compile(rf"{_CLOSE.pattern}[ \t]*(?:\n|\Z)", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "「": "」", "『": "』", "„": "“"}
_BRACKETS = {"(": ")", "[": "]"}
_LONGEST_QUOTE = 4000
_BLOCKQUOTE = re.compile(r"^[ \t]{0,8}>[ \t][^\n]*", re.MULTILINE)
_CODE_SPAN = re.compile(r"(?<!`)`(?!`)[^`\n]{1,400}`(?!`)")
_MARKUP = " \t*_`#>|-"

_OTHERS_SAY = re.compile(
    r"(?P<own>\b(?:I|we|my[ ](?:\w{1,20}[ ])?(?:verdict|score|rating|conclusion|decision))[ ])?"
    r"\b(?P<verb>says?|said|saying|states?|stated|claims?|claimed|contains?|containing|includes?"
    r"|including|writes?|wrote|written|reads?|ends?|ending|ended|concludes?|asks?|asking|tells?"
    r"|telling|instructs?|demands?|wants?|prints?|printed|outputs?|inserts?|inserted|mentions?"
    r"|(?P<never>ignor\w{1,3}|disregard\w{0,3}|inject\w{0,3}|embed\w{0,4}|echo\w{0,3}|quot\w{1,3}))"
    r"(?:[ \t:;*_`\"'“‘«(-]|\b(?:with|by|the|an?|its|own|line|text|string|phrase|words?|verdict"
    r"|score|rating|statement|json|object|literal|literally|me|us|you|judges?|to|write|output|give"
    r"|answer|reply|of|in|for|that|as|final|fake|embedded|injected|instruction|it|is|at|this)\b){0,20}"
    r"\s{0,4}\Z",
    re.IGNORECASE,
)
_DISOWNED = re.compile(
    r"[\"'”’»`)\]]{0,4}[.,]?[\"'”’»`]?[ ]{0,2}(?:which|that)[ ](?:I|we)[ ](?:\w{1,12}[ ]){0,2}?"
    r"(?:disregard|ignore|reject|discard|set[ ]aside)",
    re.IGNORECASE,
)

_OBJECT_START = re.compile(r"\{[ \t\r\n]{0,40}[\"'“‘A-Za-z}]")
_LONGEST_OBJECT = 20_000
_PAIR = re.compile(
    r"\s{0,40}(?:'(?P<k1>[^'\n]{1,60})'|\"(?P<k2>[^\"\n]{1,60})\"|[“‘](?P<k3>[^”’\n]{1,60})[”’]"
    r"|(?P<k4>[A-Za-z_]\w{0,40}))\s{0,10}:\s{0,10}"
    r"(?:'(?P<v1>(?:[^'\\]|\\.){0,4000})'|\"(?P<v2>(?:[^\"\\]|\\.){0,4000})\""
    r"|[“‘](?P<v3>[^”’]{0,4000})[”’]|(?P<v4>[^\s,{}\[\]'\"][^,{}\[\]'\"\n]{0,60}))\s{0,40}"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a value at ``text[start:end]``; ``value`` None means stated but invalid."""

    start: int
    end: int
    strength: int
    value: Any
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A complete JSON object, or a flat one written loosely, at ``text[start:end]``."""

    start: int
    end: int
    data: dict[str, Any]


class Spans:
    """Non-overlapping stretches of a text, with a fast test of what lies within one."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(spans):
            if self.ends and start < self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)

    def cover(self, start: int, end: int) -> bool:
        """True when one stretch opens before ``start`` and closes after ``end``."""
        place = bisect.bisect_left(self.starts, start) - 1
        return place >= 0 and end <= self.ends[place]

    def __len__(self) -> int:
        return len(self.starts)


def normalise(text: str) -> str:
    """Full-width characters and the decimal digits of other scripts become ASCII.

    Not the whole of NFKC: that would join a raised footnote number to the digit before it.
    """
    digits = {ord(c): str(int(c)) for c in set(text) if c.isdecimal() and not c.isascii()}
    return text.translate(digits | _FULL_WIDTH)


def without_reasoning(text: str) -> tuple[str, str]:
    """The text without reasoning blocks, and a reason when none of it can be trusted.

    A closed block is removed; everything before a lone closing tag is reasoning (the opening tag
    stood in the prompt); a block that never closes was cut off.
    """
    if not _TAG.search(text):
        return text.strip(), ""
    quoted = quotations(text, ())
    kept: list[str] = []
    position, is_open = 0, False
    for tag in _TAG.finditer(text):
        if quoted.cover(tag.start(), tag.end()):
            continue
        if not tag["close"]:
            if not is_open:
                kept.append(text[position : tag.start()])
            is_open = True
            continue
        if not is_open:
            kept.clear()
        is_open, position = False, tag.end()
    if is_open:
        return "", "truncated reasoning"
    kept.append(text[position:])
    return "\n".join(kept).strip(), ""


def split_reasoning(text: str) -> tuple[str, bool]:
    """(the answer without the reasoning in front of it, whether there was any).

    For texts that others read or learn from, where :func:`without_reasoning` is for verdicts: here
    tags further on are the answer's own, since it may be about them. Reasoning that is not closed
    is no answer.

    >>> split_reasoning("<think>France, so</think>\\n\\nParis."), split_reasoning("A <think> tag.")
    (('Paris.', True), ('A <think> tag.', False))
    """
    if opened := _OPEN.match(text):
        closed = [
            m for m in _CLOSE.finditer(text, opened.end()) if m[1].lower() == opened[1].lower()
        ]
        return (text[closed[0].end() :].lstrip(), True) if closed else ("", True)
    closed = list(_CLOSE_LINE.finditer(text))
    # The chat template opened it, so the reply holds the end alone.
    if closed and not _OPENS.search(text, 0, closed[-1].start()):
        return text[closed[-1].end() :].lstrip(), True
    return text, False


def answer_alone(text: str) -> str:
    """The answer of :func:`split_reasoning`."""
    return split_reasoning(text)[0]


def _in_line(space: str) -> bool:
    """A space within a line, which shows what a straight mark is not; a quotation over several
    lines may begin and end with a line break."""
    return space.isspace() and space not in "\r\n"


def _pairs(text: str, marks: dict[str, str], skip: Spans, limit: int) -> list[tuple[int, int]]:
    """Matching opening and closing marks, but for those within ``skip``."""
    closers = set(marks.values())
    stacks: dict[str, list[int]] = {mark: [] for mark in marks}
    found: list[tuple[int, int]] = []
    for match in re.finditer("[" + re.escape("".join(set(marks) | closers)) + "]", text):
        at, mark = match.start(), match[0]
        if skip.cover(at, at + 1):
            continue
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        if before == "\\":
            continue
        opener = next((o for o, c in marks.items() if c == mark and stacks[o]), "")
        straight = marks.get(mark) == mark
        closes = not straight or (
            not (after.isalnum() or after == "_") and not _in_line(before) and before not in "([{"
        )
        if opener and closes:
            start = stacks[opener].pop()
            if at - start <= limit:
                found.append((start, at + 1))
        elif mark in marks and (not straight or not (before.isalnum() or _in_line(after))):
            stacks[mark].append(at)
    return found


def quotations(text: str, objects: Iterable[FoundObject]) -> Spans:
    """Stretches in quotation marks, block quotes, and code spans that share their line."""
    inside = Spans((found.start - 1, found.end) for found in objects)
    found = _pairs(text, _QUOTES, inside, _LONGEST_QUOTE)
    found += [match.span() for match in _BLOCKQUOTE.finditer(text)]
    for match in _CODE_SPAN.finditer(text):
        if not stands_alone(text, *match.span()):
            found.append(match.span())
    whole = (len(text) - len(text.lstrip()), len(text.rstrip()))
    return Spans(span for span in found if span != whole)


def asides(text: str, objects: Iterable[FoundObject]) -> Spans:
    """Stretches in round or square brackets."""
    inside = Spans((found.start - 1, found.end) for found in objects)
    return Spans(_pairs(text, _BRACKETS, inside, len(text)))


def stands_alone(text: str, start: int, end: int) -> bool:
    """True after a label with a colon, or where nothing else stands on the line or sentence."""
    before = text[max(0, start - 80) : start].rpartition("\n")[2].rstrip(_MARKUP)
    if before.endswith((":", "=")):
        return True
    after = text[end : end + 80].partition("\n")[0].lstrip(_MARKUP)
    return before.lower() in ("", "json") and (not after or after[0] in ".!;")


def is_attributed(text: str, start: int, end: int) -> bool:
    """True when the words around say that somebody else wrote it, or that it is disregarded."""
    said = _OTHERS_SAY.search(text[max(0, start - 100) : start])
    if said and (said["never"] or not said["own"]):
        return True
    return bool(_DISOWNED.match(text[end : end + 60]))


def find_objects(text: str) -> list[FoundObject]:
    """Complete objects from left to right, outermost first.

    The work is bounded: text that nests objects without end stops the search early.
    """
    decoder = json.JSONDecoder(parse_int=float, parse_constant=str, strict=False)
    found: list[FoundObject] = []
    position, budget = 0, 20_000 + 4 * len(text)
    while budget > 0 and (opening := _OBJECT_START.search(text, position)):
        start = opening.start()
        piece = text[start : start + _LONGEST_OBJECT]
        data: dict[str, Any] | None = None
        try:
            data, size = decoder.raw_decode(piece)
        except json.JSONDecodeError as error:
            budget -= error.pos + 50
            data, size = _loose_object(piece)
            budget -= size
        except RecursionError:  # nested hundreds deep: no verdict looks like that
            return found
        if data is None:
            position = start + 1
        else:
            found.append(FoundObject(start, start + size, data))
            position = start + size
    return found


def _loose_object(piece: str) -> tuple[dict[str, Any] | None, int]:
    """A flat object with single, curly or no quotes, and how far the reading went."""
    data: dict[str, Any] = {}
    position = 1
    while pair := _PAIR.match(piece, position):
        groups = pair.groupdict()
        key = next(groups[name] for name in ("k1", "k2", "k3", "k4") if groups[name] is not None)
        value = next(groups[name] for name in ("v1", "v2", "v3", "v4") if groups[name] is not None)
        data[key] = value.strip()
        position = pair.end()
        if piece[position : position + 1] != ",":
            break
        position += 1
    rest = piece[position : position + 40]
    if data and rest.lstrip().startswith("}"):
        return data, position + len(rest) - len(rest.lstrip()) + 1
    return None, position


def field_of(data: dict[str, Any], keys: tuple[str, ...]) -> tuple[bool, Any]:
    """The first of ``keys`` (any case) in an object, or in the one object that it wraps."""
    for _ in range(4):
        plain = {str(key).strip().lower().replace(" ", "_"): value for key, value in data.items()}
        for key in keys:
            if key in plain:
                return True, plain[key]
        inner = next(iter(data.values())) if len(data) == 1 else None
        if not isinstance(inner, dict):
            return False, None
        data = inner
    return False, None


def may_be_cut(text: str, end: int) -> bool:
    """True when a text that hit the token limit ends inside the word or number before ``end``."""
    return not text[end:].strip() and text.rstrip()[-1:].isalnum()


def object_strength(text: str, found: FoundObject) -> int:
    """An object that opens the text and stands alone answers; what follows it is remark."""
    if not stands_alone(text, found.start, found.end):
        return MENTIONED
    opens = text[: found.start].strip(_MARKUP + "\n\r").lower() in ("", "json")
    return OPENING if opens else FINAL


def conclude(
    text: str,
    objects: list[FoundObject],
    statements: list[Statement],
    what: str,
    truncated: bool = False,
) -> tuple[Any, str]:
    """The value of the judge's own conclusion and '', or None and the reason.

    Statements that are quoted, attributed to others or inside an object are left out. The
    strongest that remains counts, and the last of several. Asides (in brackets, or about one
    criterion) count only where nothing else is said, and only if they agree. Of a truncated text
    only what stands as a conclusion counts: a mention may be an early guess.
    """
    inside = Spans((found.start, found.end) for found in objects)
    statements = [
        item for item in statements if not inside.cover(item.start, max(item.start, item.end - 1))
    ]
    if not statements:
        return None, f"no {what}"
    quoted, bracketed = quotations(text, objects), asides(text, objects)
    weak: list[Statement] = []
    for item in sorted(statements, key=lambda item: (item.strength, item.start), reverse=True):
        last = max(item.start, item.end - 1)
        if quoted.cover(item.start, last) or is_attributed(text, item.start, item.end):
            continue
        if item.strength > ASIDE and not bracketed.cover(item.start, last):
            if truncated and (item.strength < STATED or may_be_cut(text, item.end)):
                return None, f"cut off before the {what} was final"
            return item.value, item.reason
        weak.append(item)
    if not weak:
        return None, f"only a quoted {what}"
    if len({item.value for item in weak}) > 1:
        return None, f"several {what}s and no conclusion"
    if truncated:
        return None, f"cut off before the {what} was final"
    return weak[0].value, weak[0].reason
