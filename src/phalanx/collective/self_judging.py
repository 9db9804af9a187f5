"""A member judges its own responses by an additive rubric of five points, several times each.

Self-Rewarding Language Models (arXiv 2401.10020, section 2): a judgment gives reasons and ends with
a score from 0 to 5; the mean of several judgments is the response's reward. A judgment without a
score line of its own within the scale is unreadable: it is left out of the mean and counted. Where
fewer than the share ``judge.quorum`` of a response's judgments can be read it has no reward.

The prompt is the one in which the member would answer it, its own system prompt included, so that
a judgment can be learned as it was written. All judgments of a response have the same prompt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from phalanx.collective import ownwords as own
from phalanx.collective.judging import read_written
from phalanx.collective.mixture import answer_request
from phalanx.collective.ranking import twins
from phalanx.collective.reading import ScoreReading
from phalanx.collective.samples import Place, Samples
from phalanx.collective.scorenumber import number_at
from phalanx.collective.templates import fence, fill, load_template
from phalanx.config.base import Writes
from phalanx.identity import derive_seed
from phalanx.types import Ask, Message, Request, Response

TEMPLATE = "additive"
"""The rubric, and the protocol under which its judgments are stored."""
PLACEHOLDERS = ("instruction", "response")
LOW, HIGH = 0, 5

_LINE = re.compile(
    r"^[ \t*_#`-]{0,12}(?:(?:the|my)[ ])?(?:(?:final|total|overall)[ ])?score"
    r"[*_` \t]{0,6}:[*_`<\[ \t]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_END = re.compile(r"(?:[*_`> \t]{0,8}\([^()\n0-9]{1,80}\))?[*_`>\]). \t]{0,8}(?:\r?\n|\Z)")


def read_points(text: str, *, truncated: bool = False) -> ScoreReading:
    """The score on the judge's own last score line, from 0 to 5.

    Such a line has the word score, a colon, a number, and nothing else but a denominator of 5,
    markup, and a remark in brackets without another number. One that is quoted, or said to be
    another's, is not the judge's own. A number elsewhere is none: points are counted aloud before
    they are added up. Never raises on any text.

    >>> read_points("It is on topic (1 point) and clear (1 point).\\nScore: 2").value
    2.0
    >>> read_points("I give it a score of 4.").reason
    'no score line'
    """
    if not text.strip():
        return ScoreReading(None, "empty")
    plain, reason = own.without_reasoning(own.normalise(text))
    if reason or not plain:
        return ScoreReading(None, reason or "nothing after the reasoning")
    found = [_stated(plain, match) for match in _LINE.finditer(plain)]
    return ScoreReading(*own.conclude(plain, [], found, "score line", truncated))


def _stated(text: str, match: re.Match[str]) -> own.Statement:
    number = number_at(text, match.end(), LOW, HIGH)
    if number is None or not _END.match(text, number.end):
        line = text[match.start() : match.start() + 60].partition("\n")[0].strip()
        end = max(match.end(), number.end if number else 0)
        return own.Statement(match.start(), end, own.FINAL, None, f"not a score line: {line}")
    value = None if number.reason else number.value
    return own.Statement(match.start(), number.end, own.FINAL, value, number.reason)


@dataclass(frozen=True, slots=True)
class OwnJudgments:
    """What a member said of one of its own responses: ``scores`` has None where unreadable.

    ``quorum`` is the share of them that must be readable.
    """

    prompt: str
    replies: tuple[Response, ...]
    scores: tuple[float | None, ...]
    reasons: tuple[str, ...]
    quorum: float = 0.0

    @property
    def known(self) -> list[float]:
        return [score for score in self.scores if score is not None]

    @property
    def mean(self) -> float | None:
        """The response's reward; None where too few judgments can be read."""
        return _mean(self.known) if not self.gap else None

    @property
    def gap(self) -> str:
        """Why there is no reward."""
        if not self.known:
            return self.reasons[0]
        if len(self.known) < self.quorum * len(self.scores) - 1e-12:
            return f"{len(self.known)} of {len(self.scores)} judgments readable"
        return ""

    @property
    def variance(self) -> float:
        """Of the scores that can be read (population variance); 0 for fewer than two."""
        if len(self.known) < 2:
            return 0.0
        mean = _mean(self.known)
        return _mean([(score - mean) ** 2 for score in self.known])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Judged:
    """One member's responses to one instruction, and what it said of them.

    ``said`` has each response that is judged by its position: of those that are the same the
    first. ``twins`` has for every response that position, or None for one that is not compared:
    failed, empty, or cut where those that are cut are left out.
    """

    samples: Samples
    said: dict[int, OwnJudgments]
    twins: tuple[int | None, ...]

    @property
    def scores(self) -> tuple[float | None, ...]:
        """Every response's mean score; that of its twin where the same was written twice."""
        return tuple(self.said[twin].mean if twin in self.said else None for twin in self.twins)


def judge_own(
    sampled: Sequence[Samples],
    times: int,
    settings: Writes,
    ask: Ask,
    *,
    place: Place,
    quorum: float,
    template: str | None = None,
    whole_only: bool = False,
) -> list[Judged]:
    """Every member judges its own responses ``times`` times each, in one ask (phase ``judge``).

    Responses come without the reasoning before them (``answers_alone``). Where fewer than two
    different ones are left nobody is asked. ``quorum`` is the share of a response's judgments that
    must be readable; ``whole_only`` leaves out responses that hit the token limit. Raises
    ConfigError for a template that cannot be used.
    """
    text = load_template(template or TEMPLATE, PLACEHOLDERS)
    owed: list[tuple[Samples, tuple[int | None, ...], dict[int, str]]] = []
    requests: list[Request] = []
    for one in sampled:
        twin = twins(one.candidates, [whole_only and c.truncated for c in one.candidates])
        distinct = [at for at, first in enumerate(twin) if at == first]
        prompts: dict[int, str] = {}
        for at in distinct if len(distinct) > 1 else ():
            answer = one.candidates[at].text
            prompts[at] = _prompt(text, one, at, answer, place)
            requests += _requests(one, at, prompts[at], answer, times, settings, place)
        owed.append((one, twin, prompts))
    replies = iter(ask("judge", requests) if requests else ())
    found = []
    for one, twin, prompts in owed:
        said = {
            at: _read(prompt, [next(replies) for _ in range(times)], quorum)
            for at, prompt in prompts.items()
        }
        found.append(Judged(one, said, twin))
    return found


def _prompt(template: str, one: Samples, at: int, answer: str, place: Place) -> str:
    seed = derive_seed("fence", *place, one.instruction.id, one.names[at], one.member.key)
    return fill(
        template,
        {
            "instruction": fence(one.instruction.text, seed, "instruction")[0],
            "response": fence(answer, seed + 1)[0],
        },
    )


def _requests(
    one: Samples,
    at: int,
    prompt: str,
    answer: str,
    times: int,
    settings: Writes,
    place: Place,
) -> list[Request]:
    turns = (Message("user", prompt),)
    where = (*place, one.instruction.id, one.names[at])
    return [
        changed(
            answer_request(
                one.member, turns, settings, place=where, sample=number, purpose="judge"
            ),
            shortenable=(answer,),
        )
        for number in range(1, times + 1)
    ]


def _read(prompt: str, replies: Sequence[Response], quorum: float) -> OwnJudgments:
    def points(text: str, truncated: bool) -> ScoreReading:
        return read_points(text, truncated=truncated)

    read = [read_written(reply, points) for reply in replies]
    scores, reasons = zip(*read, strict=True)
    return OwnJudgments(prompt, tuple(replies), scores, reasons, quorum)
