"""MT-Bench: two turns, each rated 1 to 10 by a judge (Zheng et al., arXiv 2306.05685).

The score is the mean over all ratings that could be read; those that could not are counted. Near 9
the benchmark is saturated, and with 160 ratings its standard error is about 0.15: differences
under 0.4 say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from phalanx.collective.reading import ScoreReading
from phalanx.errors import ConfigError
from phalanx.statistics import Interval, percentiles, resampled_ratios

LOW, HIGH = 1.0, 10.0
TEMPERATURES = {
    "writing": 0.7, "roleplay": 0.7, "extraction": 0.0, "math": 0.0,
    "coding": 0.0, "reasoning": 0.0, "stem": 0.1, "humanities": 0.1,
}  # fmt: skip
"""The published temperature of the answers, by category."""
NEEDS_REFERENCE = ("math", "reasoning", "coding")
"""Categories that are judged against a reference answer."""
_RATING = re.compile(r"\[\[([^\[\]]*)\]\]")
_NUMBER = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,4})?")

Outcome = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class RatedTurn:
    """The rating of one turn (1 or 2) of one question; None where it could not be read.

    ``judge`` tells the ratings of several judges apart."""

    question: str
    category: str
    turn: int
    value: float | None
    judge: str = ""


@dataclass(frozen=True, slots=True)
class MTBench:
    """Means on the scale 1 to 10; a category or turn without any rating is None."""

    score: float
    standard_error: float
    interval: Interval
    by_turn: dict[int, float | None]
    by_category: dict[str, float | None]
    num_questions: int
    num_rated: int
    num_missing: int


def read_rating(text: str) -> ScoreReading:
    """The number in ``[[8]]``, strictly.

    The brackets hold a plain number from 1 to 10 and nothing else; several that differ say
    nothing. ``[8]``, ``[[8/10]]``, ``[[8, 9]]`` and a number elsewhere are not read.
    """
    found = list(dict.fromkeys(_RATING.findall(text)))
    if not found:
        return ScoreReading(None, "no rating")
    values = []
    for inner in found:
        if not _NUMBER.fullmatch(inner):
            return ScoreReading(None, f"not a number: [[{inner[:40]}]]")
        values.append(float(inner))
    if len(set(values)) > 1:
        return ScoreReading(None, f"several ratings: {', '.join(found[:5])}")
    if not LOW <= values[0] <= HIGH:
        return ScoreReading(None, f"out of scale: {values[0]:g}")
    return ScoreReading(values[0])


def mt_bench(
    ratings: Iterable[RatedTurn], *, seed: int, draws: int = 1000, confidence: float = 0.95
) -> MTBench:
    """Mean over all ratings read, by turn and category, with an interval over questions.

    A question is resampled with both of its turns. Raises ConfigError for a rating off the scale,
    a turn other than 1 or 2, a turn rated twice, or where nothing was rated.
    """
    rows = list(ratings)
    _check(rows)
    groups: dict[str, list[float]] = {row.question: [] for row in rows}
    for row in rows:
        if row.value is not None:
            groups[row.question].append(row.value)
    means = resampled_ratios(
        [sum(values) for values in groups.values()],
        [len(values) for values in groups.values()],
        seed=seed,
        draws=draws,
    )
    read = [row.value for row in rows if row.value is not None]
    return MTBench(
        score=sum(read) / len(read),
        standard_error=float(np.std(means, ddof=1)),
        interval=percentiles(means, confidence),
        by_turn={turn: _mean(row for row in rows if row.turn == turn) for turn in (1, 2)},
        by_category={
            name: _mean(row for row in rows if row.category == name)
            for name in dict.fromkeys(row.category for row in rows)
        },
        num_questions=len(groups),
        num_rated=len(read),
        num_missing=len(rows) - len(read),
    )


def both_orders(straight: Outcome, swapped: Outcome) -> Outcome:
    """One outcome of two, both told of the same models: those that disagree are a tie."""
    return straight if straight == swapped else "tie"


def adjusted_win_rate(outcomes: Iterable[Outcome]) -> float:
    """Share of "first", a tie being half a win. Raises ConfigError for no or unknown outcomes."""
    said = list(outcomes)
    unknown = sorted(set(said) - {"first", "second", "tie"})
    if unknown or not said:
        raise ConfigError(f"outcomes must be first, second or tie, got {unknown or 'none at all'}")
    return (said.count("first") + said.count("tie") / 2) / len(said)


def _mean(rows: Iterable[RatedTurn]) -> float | None:
    values = [row.value for row in rows if row.value is not None]
    return sum(values) / len(values) if values else None


def _check(rows: Sequence[RatedTurn]) -> None:
    faults, seen = [], set()
    for row in rows:
        name = f"question {row.question}, turn {row.turn}"
        if row.turn not in (1, 2):
            faults.append(f"{name}: MT-Bench has turns 1 and 2")
        if row.value is not None and not LOW <= row.value <= HIGH:
            faults.append(f"{name}: rating {row.value} is not between 1 and 10")
        if (row.question, row.turn, row.judge) in seen:
            faults.append(f"{name} was rated twice; keep one")
        seen.add((row.question, row.turn, row.judge))
    if faults:
        raise ConfigError(faults)
    if not any(row.value is not None for row in rows):
        raise ConfigError(f"none of {len(rows)} turns has a rating; look at the judge's texts")
