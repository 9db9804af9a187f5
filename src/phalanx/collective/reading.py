"""Reading what a judge wrote: a score on a scale, or a verdict between A and B.

The judge's own last conclusion counts; a text that states none is unreadable. There is no default,
no clipping, no rescaling, and no guess from words of praise. Reference implementations of peer
judging book an unreadable side as the middle of the scale; that fault is what this module avoids.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from phalanx.collective import ownwords as own
from phalanx.collective.ownwords import Statement
from phalanx.collective.scorenumber import (
    DIGITS,
    SENTENCE_END,
    WORD,
    Number,
    ends_statement,
    number_at,
)

Verdict = Literal["A", "B", "tie"]
SCORES: dict[Verdict | None, tuple[float, float] | tuple[None, None]] = {
    "A": (1.0, 0.0),
    "B": (0.0, 1.0),
    "tie": (0.5, 0.5),
    None: (None, None),
}
"""What a verdict is worth to the left and the right response; where there is none, nothing."""


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """``value`` within the scale, or None with a ``reason``."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VerdictReading:
    """``value`` is the better one as shown to the judge, or None with a ``reason``."""

    value: Verdict | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OrderReading:
    """Both orders together, in the letters of the first; ``flipped``: the orders disagreed."""

    value: Verdict | None
    flipped: bool = False


_NAMES = (
    r"(?:(?<![^\W\d])(?:scores?|rating|grade|marks?|verdict|nota|puntuaci[oó]n|calificaci[oó]n"
    r"|punteggio|voto|bewertung|punktzahl|оценка)(?![^\W\d])"
    r"|评分|評分|得分|分数|分數|总分|總分|打分|スコア|評価|点数|점수|평점)"
)
_GAP = r"[*_`\"'“”~ \t]{0,12}"
_LABEL = re.compile(
    rf"{_NAMES}{_GAP}(?:(?:\([^()\n]{{0,60}}\)|\[[^\[\]\n]{{0,60}}\]){_GAP})?"
    r"(?:(?P<strong>:|=|->|=>|→|\||[-–—](?=[ \t]))[*_`\"'“”~ \t\n]{0,12}"
    r"|(?:is|was|of|would[ ]be|will[ ]be|should[ ]be)[*_`\"'“”~ \t:]{1,12})"
    r"(?:(?:an?|about|around|approximately|roughly|only|just|exactly|solid|strong|≈)"
    r"[ \t]{1,3}){0,3}"
    r"(?:≈|\\boxed\{|\[{1,2})?[ \t]{0,3}",
    re.IGNORECASE,
)
_RATED = re.compile(
    r"(?<![^\W_])(?:(?:I|we)(?:['’](?:d|ll))?(?:[ ](?:would|will|can|must|should|shall|do|have|to"
    r"|therefore|thus|hence|personally|overall|also|still)){0,4}[ ](?:rate|give|score|assign|award"
    r"|grade|mark)\b|(?:deserves|merits|earns|warrants)(?=[ ]an?[ ]))"
    r"(?:[ ](?!(?:not|never|no|neither|rather)\b)[^\W\d_][\w'’]{0,20}){0,10}?"
    r"[ ](?:it|this|that|an?|as|at|of|with|answer|response|reply|solution|text|essay|summary)"
    r"(?:[ ](?:an?|as|at|of|score|rating|grade|solid|strong|full|only|just|exactly|fair|generous"
    r"|weak|low|high|perfect|about|around|roughly)){0,4}[ ]?:?[ ][*_`\"“\[]{0,4}"
    rf"(?={DIGITS}|(?:{WORD})\b)",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\[\[[ \t]{0,4}")
_FRACTION = re.compile(
    rf"(?<![\w.,/])(?=(?:{DIGITS}|{WORD})[ \t]{{0,3}}(?:/|out[ ]of))", re.IGNORECASE
)
_SENTENCE_START = re.compile(r"(?:\A|[.!?:;\n])[\s*_`>#-]{0,20}\Z")
_HYPOTHETICAL = re.compile(
    r"[ \t]{1,3}(?:would|means?|requires?|could|might|needs?|if|unless|is[ ]reserved|had)\b"
    r"|[ ]?=",
    re.IGNORECASE,
)
_WORD_BEFORE = re.compile(r"([^\W\d_]{1,30})(?:['’]s)?[ \t*_`\"'“]{0,6}\Z")
_FINAL = {"final", "overall", "total", "concluding", "gesamt", "finale", "global", "总", "總"}
_NEUTRAL = {
    "my", "the", "a", "an", "this", "that", "its", "our", "so", "and", "quality", "answer",
    "response", "proposed", "updated", "revised", "is", "la", "mi", "ma", "die", "meine", "il",
}  # fmt: skip
_LIMITS = {
    "max", "maximum", "min", "minimum", "highest", "lowest", "top", "best", "worst", "perfect",
    "possible", "full", "passing", "threshold",
}  # fmt: skip
_SCORE_KEYS = ("final_score", "overall_score", "score", "rating", "评分")
_NOT_GIVEN = re.compile(r"(?:n/a|none|null|nan|unknown)(?![^\W_])", re.IGNORECASE)


def _statement(start: int, number: Number, strength: int) -> Statement:
    value = None if number.reason else number.value
    return Statement(start, number.end, strength, value, number.reason)


def _field_score(value: Any, low: float, high: float) -> tuple[float | None, str]:
    """The score in an object's field: a number, or a string that is nothing but a number."""
    if value is None or isinstance(value, bool):
        return None, f"score is {'null' if value is None else str(value).lower()}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return None, "score is not finite"
        if not low <= value <= high:
            return None, f"out of scale: {value:g}"
        return value, ""
    if isinstance(value, str):
        return _whole_score(value, low, high) or (None, f"score is not a number: {value[:40]}")
    return None, f"score is a {type(value).__name__}"


def _whole_score(text: str, low: float, high: float) -> tuple[float | None, str] | None:
    """The score where the whole text is one number: ``8``, ``8/10``, ``Four stars.``"""
    bare = text.strip(" \t\r\n*_`\"'“”#").rstrip(".!")
    number = number_at(bare, 0, low, high)
    if number is None or number.end != len(bare):
        return None
    return (None if number.reason else number.value), number.reason


def _object_statements(
    text: str, objects: list[own.FoundObject], low: float, high: float
) -> list[Statement]:
    found = []
    for item in objects:
        has_score, value = own.field_of(item.data, _SCORE_KEYS)
        if has_score and not str(value).startswith("<"):  # not {"score": <number>}, a pattern
            score, reason = _field_score(value, low, high)
            strength = own.object_strength(text, item)
            found.append(Statement(item.start, item.end, strength, score, reason))
    return found


def _label_strength(text: str, match: re.Match[str]) -> int | None:
    """How far a labelled score claims to be the conclusion; None: it names a limit of the scale."""
    before = text[max(0, match.start() - 40) : match.start()].rpartition("\n")[2]
    word_match = _WORD_BEFORE.search(before)
    word = word_match[1].lower() if word_match else ""
    if word in _LIMITS:
        return None
    if word in _FINAL or match[0][:1] in ("总", "總"):
        return own.FINAL
    if word and word not in _NEUTRAL and word.isascii():
        return own.ASIDE  # "Clarity score: 9", "draft score: 3"
    if match[0].endswith("[[") and match["strong"]:
        return own.FINAL
    return own.STATED if match["strong"] else own.MENTIONED


def _labelled(text: str, low: float, high: float) -> list[Statement]:
    """``Score: 8``, ``Rating (1-10): **7**``, ``a score of 8``; also within an unclosed object."""
    found = []
    for match in _LABEL.finditer(text):
        strength = _label_strength(text, match)
        if strength is None:
            continue
        number = number_at(text, match.end(), low, high)
        if number is None:
            if match["strong"] and (none := _NOT_GIVEN.match(text, match.end())):
                found.append(
                    Statement(match.start(), none.end(), strength, None, "score not given")
                )
            continue
        if _HYPOTHETICAL.match(text, number.end):
            continue
        if "\n" in match[0] and not ends_statement(text, number.end):
            continue
        opened = text[max(0, match.start() - 200) : match.start()]
        if "{" in opened[opened.rfind("}") + 1 :] and not text[number.end :].strip():
            found.append(Statement(match.start(), number.end, strength, None, "truncated"))
            continue
        found.append(_statement(match.start(), number, strength))
    return found


def _unlabelled(text: str, low: float, high: float) -> list[Statement]:
    """``[[8]]``, ``I would rate this a seven``, and a fraction that is a sentence of its own."""
    found = []
    for match in _BRACKETS.finditer(text):
        number = number_at(text, match.end(), low, high)
        if number and re.match(r"[ \t]{0,4}\]\]", text[number.end : number.end + 6]):
            alone = own.stands_alone(text, match.start(), number.end + 2)
            strength = own.FINAL if alone else own.MENTIONED
            found.append(_statement(match.start(), number, strength))
    for match in _RATED.finditer(text):
        number = number_at(text, match.end(), low, high)
        if (
            number
            and ends_statement(text, number.end)
            and not _HYPOTHETICAL.match(text, number.end)
        ):
            found.append(_statement(match.start(), number, own.MENTIONED))
    for match in _FRACTION.finditer(text):
        at = match.start()
        if not _SENTENCE_START.search(text[max(0, at - 24) : at]):
            continue
        number = number_at(text, at, low, high)
        if number and number.has_top and SENTENCE_END.match(text, number.end):
            found.append(_statement(at, number, own.MENTIONED))
    return found


def read_score(text: str, low: float, high: float, *, truncated: bool = False) -> ScoreReading:
    """The score that a judge states, on the scale from ``low`` to ``high``.

    Read in this order of strength: a JSON object with the key ``score`` that opens the text; an
    object or ``[[8]]`` that stands alone, or a score called final or overall; ``Score: 8``; a score
    inside a sentence. A text that is nothing but a number is that number. A fraction must be out
    of ``high``. Nothing outside the scale is ever returned. Never raises on any text.
    ``truncated`` says that the text hit the token limit: then a number that it ends in, or one
    that is no conclusion, is not read.

    >>> read_score('My draft score was 3. Final score: 7', 1, 10).value
    7.0
    >>> read_score("4/5", 1, 10)
    ScoreReading(value=None, reason='denominator 5 is not 10')
    """
    if not text.strip():
        return ScoreReading(None, "empty")
    plain, reason = own.without_reasoning(own.normalise(text))
    if reason:
        return ScoreReading(None, reason)
    if not plain:
        return ScoreReading(None, "nothing after the reasoning")
    if not truncated and (whole := _whole_score(plain, low, high)):
        return ScoreReading(*whole)
    objects = own.find_objects(plain)
    statements = _object_statements(plain, objects, low, high)
    statements += _labelled(plain, low, high) + _unlabelled(plain, low, high)
    return ScoreReading(*own.conclude(plain, objects, statements, "score", truncated))


_VERDICT_KEYS = (
    "final_verdict",
    "verdict",
    "winner",
    "better",
    "preferred",
    "preference",
    "choice",
)
_VERDICT_BRACKETS = re.compile(r"\[\[[ \t]{0,4}([^\[\]\n]{1,20})\]\]")
_VERDICT_LABEL = re.compile(
    r"(?<![^\W\d])(?i:verdict|winner|decision|preference|conclusion|judge?ment|choice)"
    r"[*_`\"' \t]{0,8}(?:[:=]|is\b)[*_`\"'“ \t\n]{0,8}"
    r"(?i:(?:the[ ])?(?:response|answer|assistant|model|output|candidate)[ \t(]{1,3})?"
    r"(?P<value>[A-Z]|(?i:tie|draw))(?=[*_`\"'”)]{0,6}[ \t]{0,4}(?:[.,;!)]|\r?\n|\Z))"
)
_COMPARISON = re.compile(r"([AB])\s?(>{1,3}|<{1,3}|=|≈|~)\s?([AB])")
_NAMED = re.compile(
    r"(?:THE )?(?:RESPONSE|ANSWER|ASSISTANT|MODEL|OUTPUT|CANDIDATE)[ _]\(?([ABC])\)?"
)
_CHOICES: dict[str, Verdict] = {"A": "A", "B": "B", "C": "tie", "TIE": "tie", "DRAW": "tie"}
_NO_VERDICT = "no verdict"
_NO_CHOICE = "no choice"


def _verdict_of(token: str) -> str:
    """A, B or tie; ``_NO_CHOICE`` for a letter or comparison that is none of them."""
    token = token.strip(" \t\r\n*_`\"'[].").upper()
    if named := _NAMED.fullmatch(token):
        token = named[1]
    if token in _CHOICES:
        return _CHOICES[token]
    if sides := _COMPARISON.fullmatch(token):
        left, sign, right = sides.groups()
        if left == right:
            return _NO_CHOICE
        if sign[0] in "=≈~":
            return "tie"
        return left if sign[0] == ">" else right
    return _NO_CHOICE if len(token) == 1 and token.isalpha() else _NO_VERDICT


def _verdict_statement(start: int, end: int, strength: int, token: str) -> Statement:
    value = _verdict_of(token)
    if value in (_NO_CHOICE, _NO_VERDICT):
        return Statement(start, end, strength, None, f"not a choice: {token[:40]}")
    return Statement(start, end, strength, value)


def _verdict_statements(text: str, objects: list[own.FoundObject]) -> list[Statement]:
    found = []
    for item in objects:
        has_verdict, value = own.field_of(item.data, _VERDICT_KEYS)
        if has_verdict:
            strength = own.object_strength(text, item)
            found.append(_verdict_statement(item.start, item.end, strength, str(value)))
    for match in _VERDICT_BRACKETS.finditer(text):
        if _verdict_of(match[1]) != _NO_VERDICT:
            strength = own.FINAL if own.stands_alone(text, *match.span()) else own.MENTIONED
            found.append(_verdict_statement(*match.span(), strength, match[1]))
    for match in _VERDICT_LABEL.finditer(text):
        found.append(_verdict_statement(*match.span(), own.STATED, match["value"]))
    return found


def read_verdict(text: str, *, truncated: bool = False) -> VerdictReading:
    """The verdict that a judge states between A and B; ``[[C]]`` means a tie.

    Read are ``[[A]]``, ``[[A>>B]]``, ``[[A=B]]``, ``{"winner": "B"}``, ``Verdict: B`` and a text
    that is nothing but the letter. The judge's own last verdict counts; one in quotation marks is
    not its own. Words such as "both are good" are no verdict. Never raises on any text.

    >>> read_verdict('Answer 2 says "[[B]]", which I disregard. My verdict: [[A]]').value
    'A'
    """
    if not text.strip():
        return VerdictReading(None, "empty")
    plain, reason = own.without_reasoning(own.normalise(text))
    if reason:
        return VerdictReading(None, reason)
    if not plain:
        return VerdictReading(None, "nothing after the reasoning")
    if not truncated and len(plain) <= 40 and _verdict_of(plain) in ("A", "B", "tie"):
        return VerdictReading(cast(Verdict, _verdict_of(plain)))
    objects = own.find_objects(plain)
    statements = _verdict_statements(plain, objects)
    return VerdictReading(*own.conclude(plain, objects, statements, "verdict", truncated))


def combine_orders(first: Verdict | None, second: Verdict | None) -> OrderReading:
    """Two verdicts on the same pair, shown in both orders, as one in the letters of the first.

    In the first call contestant 1 is shown as A, in the second contestant 2 is. A win needs both
    orders; a disagreement is a tie and ``flipped``; half a verdict is none.

    >>> combine_orders("A", "A")
    OrderReading(value='tie', flipped=True)
    """
    if first is None or second is None:
        return OrderReading(None)
    turned = {"A": "B", "B": "A", "tie": "tie"}[second]
    if first == turned:
        return OrderReading(first)
    return OrderReading("tie", flipped=True)
