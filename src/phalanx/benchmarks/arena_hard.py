"""Arena-Hard: games against one baseline, read from five labels (Li et al., arXiv 2406.11939).

Every prompt is played twice: the baseline's response shown first (as A), then the model's. A clear
win (``>>``) counts as several battles (3 as published, which is a choice: report 1 beside it), a
win as one, ``A=B`` as half a win. A game without a verdict is dropped alone, and counted.

All battles share the baseline, so the Bradley-Terry fit gives every model exactly its weighted
mean score as its win rate: the rating is the log odds of that mean, and nothing has to be fitted.

The published interval resamples battles as if they were independent, which here halves it: both
games of a prompt mostly agree, and one clear win is three copies of itself. Here whole prompts are
resampled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from phalanx.errors import ConfigError
from phalanx.statistics import Interval, percentiles, resampled_ratios

Label = Literal["A>>B", "A>B", "A=B", "B>A", "B>>A"]
LABELS: tuple[Label, ...] = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
CLEAR_WEIGHT = 3
BASELINE_RATING = 1000.0
_SCALE = 400.0
_SCORE_OF_A = {"A>>B": 1.0, "A>B": 1.0, "A=B": 0.5, "B>A": 0.0, "B>>A": 0.0}
_DOUBLE = re.compile(r"\[\[([AB<>=]+)\]\]")
_SINGLE = re.compile(r"\[([AB<>=]+)\]")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a judge's text says: a label, or None and why not."""

    label: Label | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Game:
    """One verdict; ``model_first`` says that the model's response was shown as A. ``judge`` tells
    the verdicts of several judges apart, which are all resampled with their prompt."""

    prompt: str
    model_first: bool
    label: Label | None
    judge: str = ""

    @property
    def score(self) -> float | None:
        """The model's score, 1, 0.5 or 0; None without a verdict."""
        if self.label is None:
            return None
        score = _SCORE_OF_A[self.label]
        return score if self.model_first else 1 - score


@dataclass(frozen=True, slots=True)
class ArenaHard:
    """``win_rate`` against the baseline with its interval over prompts; ``rating`` on Elo's scale
    with the baseline at 1000 (infinite where every battle went one way).

    ``first_slot`` is the share of the decided games that the response shown first won: 0.5
    without position bias, None where every game was a tie.
    """

    win_rate: float
    standard_error: float
    interval: Interval
    rating: float
    num_prompts: int
    num_games: int
    num_missing: int
    first_slot: float | None


def read_label(text: str, *, version: Literal["v0.1", "v2.0"] = "v0.1") -> Reading:
    """The label in a judge's text.

    v0.1: the one ``[[...]]``; several that differ say nothing. v2.0: the last one, in either case
    of letters, in single brackets where there are none in double. What stands in the brackets must
    be one of the five labels.
    """
    if version == "v0.1":
        found = _DOUBLE.findall(text)
        if len(set(found)) > 1:
            return Reading(None, f"several verdicts: {', '.join(dict.fromkeys(found))}")
    else:
        upper = text.upper()
        found = _DOUBLE.findall(upper) or _SINGLE.findall(upper)
    if not found:
        return Reading(None, "no verdict")
    for label in LABELS:
        if label == found[-1]:
            return Reading(label)
    return Reading(None, f"unknown label {found[-1]!r}")


def rating_of(win_rate: float) -> float:
    """The Bradley-Terry rating on Elo's scale that has this win rate against the baseline.

    >>> round(rating_of(10 / 11))
    1400
    """
    if not 0 <= win_rate <= 1:
        raise ValueError(f"a win rate lies between 0 and 1, got {win_rate}")
    if win_rate in (0, 1):
        return math.inf if win_rate else -math.inf
    return BASELINE_RATING + _SCALE * math.log10(win_rate / (1 - win_rate))


def win_rate_of(rating: float, other: float = BASELINE_RATING) -> float:
    """The win rate of ``rating`` against ``other`` by the Bradley-Terry model."""
    return 1 / (1 + 10 ** ((other - rating) / _SCALE))


def battle_weight(label: Label, clear_weight: float = CLEAR_WEIGHT) -> float:
    """How many battles a game with this label counts as."""
    return clear_weight if label in ("A>>B", "B>>A") else 1


def arena_hard(
    games: Iterable[Game],
    *,
    seed: int,
    clear_weight: float = CLEAR_WEIGHT,
    draws: int = 1000,
    confidence: float = 0.95,
) -> ArenaHard:
    """Score one model's games. Raises ConfigError for an order of a prompt that was played twice,
    or where no game has a verdict; ValueError for a weight that is not positive.
    """
    rows = list(games)
    if not 0 < clear_weight < math.inf:
        raise ValueError(f"the weight of a clear win must be positive, got {clear_weight}")
    _check(rows)
    totals = _totals(rows, clear_weight)
    tops, bottoms = [top for top, _ in totals], [bottom for _, bottom in totals]
    rates = resampled_ratios(tops, bottoms, seed=seed, draws=draws)
    win_rate = sum(tops) / sum(bottoms)
    return ArenaHard(
        win_rate=win_rate,
        standard_error=float(np.std(rates, ddof=1)),
        interval=percentiles(rates, confidence),
        rating=rating_of(win_rate),
        num_prompts=len(totals),
        num_games=len(rows),
        num_missing=sum(row.label is None for row in rows),
        first_slot=_first_slot(rows),
    )


def _totals(rows: Sequence[Game], clear_weight: float) -> list[tuple[float, float]]:
    """(weighted score, weight) of every prompt, those without a verdict too."""
    totals: dict[str, tuple[float, float]] = {}
    for row in rows:
        top, bottom = totals.get(row.prompt, (0.0, 0.0))
        if row.label is not None and row.score is not None:
            weight = battle_weight(row.label, clear_weight)
            top, bottom = top + weight * row.score, bottom + weight
        totals[row.prompt] = (top, bottom)
    return list(totals.values())


def _first_slot(rows: Sequence[Game]) -> float | None:
    decided = [_SCORE_OF_A[row.label] for row in rows if row.label not in (None, "A=B")]
    return sum(decided) / len(decided) if decided else None


def _check(rows: Sequence[Game]) -> None:
    faults, seen = [], set()
    for row in rows:
        if row.label is not None and row.label not in LABELS:
            faults.append(f"prompt {row.prompt}: unknown label {row.label!r}")
        if (row.prompt, row.model_first, row.judge) in seen:
            order = "model" if row.model_first else "baseline"
            faults.append(f"prompt {row.prompt} was played twice with the {order} first; keep one")
        seen.add((row.prompt, row.model_first, row.judge))
    if faults:
        raise ConfigError(faults)
    if not any(row.label for row in rows):
        raise ConfigError(
            f"none of {len(rows)} games has a verdict that can be read; look at the judge's texts"
        )
