"""Judging: the requests that put a duel before a judge, and the judgment read from the replies.

Five protocols. ``rubric`` (the published one): each response alone, a JSON score written out.
``expected``: the same prompt, but the mean of the score's probabilities after a forced prefix.
``pairwise``: both responses side by side, in both orders; a win needs both. ``likelihood``: mean
log-probability of the response as the judge's own answer; no prompt, for models too small to
follow one. ``reward``: the score of a reward model, each response alone; no prompt either. (A
ranker, which has a score for pairs only, refuses that with the flag ``ranker``: it serves through
:mod:`phalanx.collective.referee`.)

A side that cannot be read is None with a reason. It is never a number and never a tie, and what
the judge wrote is kept in ``Judgment.raw``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from phalanx.collective.conversation import earlier_answers, judged_turns
from phalanx.collective.reading import SCORES, Verdict, combine_orders, read_score, read_verdict
from phalanx.collective.templates import fence, fill, fill_around, imitates_verdict, load_template
from phalanx.config.base import sampling
from phalanx.config.schema import JudgeSettings
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json, joined_id, joined_seed, messages_json
from phalanx.types import (
    Duel,
    Judgment,
    Likelihood,
    Member,
    Message,
    Options,
    Request,
    Response,
    Reward,
    Want,
)

__all__ = [
    "PROTOCOLS",
    "combine_orders",
    "judge_requests",
    "read_judgment",
    "read_reward",
    "read_score",
    "read_verdict",
    "validate_template",
    "why_unread",
]

Texts = tuple[str, str]
WRITTEN_SCORE = "written_score"
LOW_MASS = 0.5
"""Below this share of a judge's probability on the score options, the judgment is flagged."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One request in the making: ``slot`` is the side or the order, ``parts`` may be shortened."""

    slot: str
    messages: tuple[Message, ...]
    want: Want
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Scores, why one is missing, what was said per slot, and flags."""

    scores: tuple[float | None, float | None]
    reason: str
    raw: dict[str, Any]
    flipped: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeProtocol:
    """How a protocol asks and reads. ``template`` "" means that it has no prompt of its own.

    ``required`` and ``optional`` are the placeholders of its template. It asks two questions.
    """

    ask: Callable[[Duel, Texts, Member, JudgeSettings, int], list[_Question]]
    read: Callable[[JudgeSettings, Sequence[Response]], _Reading]
    template: str = ""
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


# Asking ------------------------------------------------------------------------------------------


def _template(settings: JudgeSettings) -> str:
    protocol = PROTOCOLS[settings.protocol]
    name = settings.template or protocol.template
    return load_template(name, protocol.required, protocol.optional)


def _alone(
    duel: Duel, texts: Texts, settings: JudgeSettings, seed: int, want: Want
) -> list[_Question]:
    """Each response alone. Both sides get the same fence, so that they differ in nothing else."""
    around = _around(_template(settings), duel.instruction.text, settings.low, settings.high)
    questions = []
    for slot, text in (("left", texts[0]), ("right", texts[1])):
        message = Message("user", fence(text, seed)[0].join(around))
        parts = (text, *earlier_answers(duel.instruction))
        questions.append(_Question(slot, (message,), want, parts))
    return questions


@lru_cache(maxsize=32)
def _around(template: str, instruction: str, low: int, high: int) -> tuple[str, ...]:
    """The prompt but for the response, cut where it goes: the same for every judge of a duel."""
    values = {"instruction": instruction, "low": str(low), "high": str(high)}
    return fill_around(template, "response", values)


def _ask_rubric(
    duel: Duel, texts: Texts, judge: Member, settings: JudgeSettings, seed: int
) -> list[_Question]:
    return _alone(duel, texts, settings, seed, sampling(settings))


@lru_cache(maxsize=8)
def _score_options(low: int, high: int) -> Options:
    return Options('{"score": ', tuple(str(score) for score in range(low, high + 1)))


@lru_cache(maxsize=8)
def _options_json(want: Options) -> str:
    return canonical_json(want)


def _want_json(want: Want) -> str:
    """Remembered for options alone: equal ones have equal JSON, which 0 and 0.0 have not."""
    return _options_json(want) if isinstance(want, Options) else canonical_json(want)


def _ask_expected(
    duel: Duel, texts: Texts, judge: Member, settings: JudgeSettings, seed: int
) -> list[_Question]:
    return _alone(duel, texts, settings, seed, _score_options(settings.low, settings.high))


def _ask_pairwise(
    duel: Duel, texts: Texts, judge: Member, settings: JudgeSettings, seed: int
) -> list[_Question]:
    """Both orders. The first shows the left response as A, the second shows the right one as A."""
    template, want = _template(settings), sampling(settings)
    questions = []
    for slot, shown in (("first", texts), ("second", texts[::-1])):
        values = {
            "instruction": duel.instruction.text,
            "response_a": fence(shown[0], seed, "response A")[0],
            "response_b": fence(shown[1], seed + 1, "response B")[0],
            "low": str(settings.low),
            "high": str(settings.high),
        }
        message = Message("user", fill(template, values))
        parts = (*shown, *earlier_answers(duel.instruction))
        questions.append(_Question(slot, (message,), want, parts))
    return questions


def _ask_likelihood(
    duel: Duel, texts: Texts, judge: Member, settings: JudgeSettings, seed: int
) -> list[_Question]:
    """The conversation is the one in which the judge itself would answer. It is never shortened:
    how much were left out of it would depend on the response."""
    messages = judge.conversation(judged_turns(duel.instruction))
    return [
        _Question(slot, messages, Likelihood(text), ())
        for slot, text in zip(("left", "right"), texts, strict=True)
    ]


def _ask_reward(
    duel: Duel, texts: Texts, judge: Member, settings: JudgeSettings, seed: int
) -> list[_Question]:
    """The conversation alone: a reward model reads the instruction and the response as turns."""
    messages = judge.conversation(judged_turns(duel.instruction))
    return [
        _Question(slot, messages, Reward(text), (text, *earlier_answers(duel.instruction)))
        for slot, text in zip(("left", "right"), texts, strict=True)
    ]


def judge_requests(
    duel: Duel,
    texts: Texts,
    judge: Member,
    settings: JudgeSettings,
    *,
    seed_parts: tuple[Any, ...],
) -> list[Request]:
    """The requests that put the responses ``texts`` (left, right) before one judge.

    ``seed_parts`` places the duel in the run, for instance (run seed, iteration); ids and seeds
    are derived from it. Raises ValueError when the judge is a contestant of the duel, and
    ConfigError when the template cannot be used.
    """
    if judge.name in duel.contestants:
        raise ValueError(
            f"{judge.name!r} is a contestant of duel {duel.id!r} and must not judge it; "
            f"choose judges outside {duel.contestants}"
        )
    protocol = PROTOCOLS[settings.protocol]
    # The JSON of (*seed_parts, duel id, judge), without its brackets: it begins every id here.
    place = canonical_json((*seed_parts, duel.id, judge.key))[1:-1]
    fence_seed = joined_seed('"fence"', place)
    kind = f'"{settings.protocol}"'
    return [
        Request(
            id=joined_id(
                '"judge"',
                place,
                kind,
                f'"{item.slot}"',
                messages_json(item.messages),
                _want_json(item.want),
            ),
            member=judge,
            messages=item.messages,
            want=item.want,
            purpose="judge",
            seed=joined_seed('"judge"', place, f'"{item.slot}"'),
            shortenable=tuple(part for part in item.parts if part),
        )
        for item in protocol.ask(duel, texts, judge, settings, fence_seed)
    ]


# Reading -----------------------------------------------------------------------------------------


def read_written(response: Response, read: Callable[[str, bool], Any]) -> tuple[Any, str]:
    """What ``read(text, truncated)`` finds in a written reply."""
    if response.error is not None:
        return None, f"{response.error.kind}: {response.error.message}"
    if response.text is None:
        return None, "no text"
    reading = read(response.text, response.truncated)
    if reading.value is None and response.truncated:
        return None, f"truncated at the token limit ({reading.reason})"
    return reading.value, reading.reason


def read_written_verdict(response: Response) -> tuple[Verdict | None, str]:
    """The verdict of a written reply, in its own words alone, or why there is none."""
    return read_written(response, lambda text, truncated: read_verdict(text, truncated=truncated))


def _expected_score(response: Response) -> tuple[float | None, str]:
    """Mean of the scores under their probabilities."""
    if response.error is not None:
        return None, f"{response.error.kind}: {response.error.message}"
    if not response.probabilities:
        return None, "no probabilities"
    chances = response.probabilities
    total = math.fsum(chances.values())
    if not math.isfinite(total) or total <= 0:
        return None, f"probabilities sum to {total:g}"
    return math.fsum([float(score) * chance for score, chance in chances.items()]) / total, ""


def _mean_logprob(response: Response) -> tuple[float | None, str]:
    """Mean log-probability of the response, in nats per token."""
    if response.error is not None:
        return None, f"{response.error.kind}: {response.error.message}"
    if response.logprob_sum is None:
        return None, "no log-probability"
    if response.num_scored_tokens <= 0:
        return None, "no scored tokens"
    if not math.isfinite(response.logprob_sum):
        return None, f"log-probability is {response.logprob_sum:g}"
    return response.logprob_sum / response.num_scored_tokens, ""


def _sides(
    responses: Sequence[Response], score: Callable[[Response], tuple[float | None, str]]
) -> _Reading:
    """Two sides that are read one by one: one that cannot be read leaves the other as it is."""
    (left, why_left), (right, why_right) = score(responses[0]), score(responses[1])
    reasons = [f"{side}: {why}" for side, why in (("left", why_left), ("right", why_right)) if why]
    raw = {"left": responses[0].said, "right": responses[1].said}
    return _Reading((left, right), "; ".join(reasons), raw)


def _read_rubric(settings: JudgeSettings, responses: Sequence[Response]) -> _Reading:
    def read(text: str, truncated: bool) -> Any:
        return read_score(text, settings.low, settings.high, truncated=truncated)

    return _sides(responses, lambda response: read_written(response, read))


def _read_expected(settings: JudgeSettings, responses: Sequence[Response]) -> _Reading:
    reading = _sides(responses, _expected_score)
    masses = [response.option_mass for response in responses]
    low = any(mass is not None and mass < LOW_MASS for mass in masses)
    flags = ("low_mass",) if low else ()
    return _Reading(reading.scores, reading.reason, reading.raw, flags=flags)


def _read_pairwise(settings: JudgeSettings, responses: Sequence[Response]) -> _Reading:
    (first, why_first), (second, why_second) = map(read_written_verdict, responses)
    reasons = [
        f"{slot}: {why}" for slot, why in (("first", why_first), ("second", why_second)) if why
    ]
    raw = {"first": responses[0].said, "second": responses[1].said}
    both = combine_orders(first, second)
    return _Reading(SCORES[both.value], "; ".join(reasons), raw, flipped=both.flipped)


def _read_likelihood(settings: JudgeSettings, responses: Sequence[Response]) -> _Reading:
    return _sides(responses, _mean_logprob)


def read_reward(response: Response) -> tuple[float | None, str]:
    """The reward model's score, on its own scale; or None, and why there is none."""
    if response.error is not None:
        return None, f"{response.error.kind}: {response.error.message}"
    if response.reward is None:
        return None, "no reward"
    if not math.isfinite(response.reward):
        return None, f"the reward is {response.reward:g}"
    return response.reward, ""


def _read_reward(settings: JudgeSettings, responses: Sequence[Response]) -> _Reading:
    return _sides(responses, read_reward)


def read_judgment(
    duel: Duel,
    texts: Texts,
    judge: Member,
    settings: JudgeSettings,
    responses: Sequence[Response],
) -> Judgment:
    """The judgment in the replies to :func:`judge_requests`, in the same order.

    Scores are on the protocol's own scale: ``low`` to ``high``; nats per token for likelihood;
    the model's own for reward; 1/0, 0/1 or 0.5/0.5 for pairwise. Flags: ``low_mass``,
    ``shortened`` (a judged text did not fit whole), ``written_score`` (a server gave no
    probabilities, so that the option it wrote counts alone), ``imitates_verdict:left`` and
    ``:right``. ``Judgment.judge`` is the judge's name.
    Raises ValueError unless there are exactly two responses.
    """
    if len(responses) != 2:
        raise ValueError(
            f"judge {judge.key} on duel {duel.id!r}: got {len(responses)} responses, need the two "
            "that answer judge_requests, in order"
        )
    protocol = PROTOCOLS[settings.protocol]
    reading = protocol.read(settings, responses)
    flags = list(reading.flags)
    if any(response.num_shortened_tokens > 0 for response in responses):
        flags.append("shortened")
    if any(WRITTEN_SCORE in response.flags for response in responses):
        flags.append(WRITTEN_SCORE)
    if protocol.template:  # without a prompt there is no judge that a text could play
        sides = zip(("left", "right"), texts, strict=True)
        flags += [f"imitates_verdict:{side}" for side, text in sides if imitates_verdict(text)]
    return Judgment(
        duel_id=duel.id,
        judge=judge.name,
        protocol=settings.protocol,
        score_left=reading.scores[0],
        score_right=reading.scores[1],
        reason=reading.reason,
        flipped=reading.flipped,
        raw=reading.raw,
        flags=tuple(flags),
        requests={
            slot: response.request_id for slot, response in zip(reading.raw, responses, strict=True)
        },
    )


def why_unread(settings: JudgeSettings, response: Response) -> str:
    """Why one of the two replies of a judgment cannot be read, whatever the other says, or ""."""
    reading = PROTOCOLS[settings.protocol].read(settings, (response, response))
    if None not in reading.scores:
        return ""
    return reading.reason.split("; ")[0].partition(": ")[2] or "unreadable"


def validate_template(settings: JudgeSettings) -> None:
    """Raises ConfigError before a run when the scale or the template cannot be used."""
    if settings.low >= settings.high:
        raise ConfigError(
            f"judge.low is {settings.low} and judge.high is {settings.high}; low must be smaller"
        )
    if PROTOCOLS[settings.protocol].template:
        _template(settings)
    elif settings.template is not None:
        raise ConfigError(
            f"judge.template is {settings.template!r}, but protocol {settings.protocol!r} has no "
            "prompt; remove the template or choose rubric, expected or pairwise"
        )


_ONE = ("instruction", "response")
_TWO = ("instruction", "response_a", "response_b")
_SCALE = ("low", "high")
PROTOCOLS: dict[str, JudgeProtocol] = {
    "rubric": JudgeProtocol(_ask_rubric, _read_rubric, "rubric", _ONE, _SCALE),
    "expected": JudgeProtocol(_ask_expected, _read_expected, "rubric", _ONE, _SCALE),
    "pairwise": JudgeProtocol(_ask_pairwise, _read_pairwise, "pairwise", _TWO, _SCALE),
    "likelihood": JudgeProtocol(_ask_likelihood, _read_likelihood),
    "reward": JudgeProtocol(_ask_reward, _read_reward),
}
