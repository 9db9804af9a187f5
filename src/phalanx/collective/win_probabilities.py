"""How probable it is that one response is preferred to another, and to a policy's responses.

SPPO (arXiv 2405.00675) learns from P(y beats the policy): the mean of P(y beats y') over all of a
policy's own responses y', y itself included at one half. Where P(y beats y') comes from depends on
the judge:

* a ranker (``engine: reward``, a logit for each ordered pair): r_i is the mean of l_ij - l_ji over
  all responses, and P = sigma(r_i - r_j), as the released code takes PairRM;
* a reward model: sigma of the difference of its rewards;
* ``likelihood``: sigma of the difference of mean log-probabilities (nats a token);
* ``pairwise``: 1, 0, or 1/2 for a tie and for orders that disagree;
* ``rubric``: 1, 0, or 1/2 for equal scores, since a written score says no more than an order;
* ``expected``: the chance that a score drawn from the judge's probabilities for one response is
  above one drawn for the other, and half of the chance that the two are equal.

Only the first is published. Several judges: the mean of those that can be read, where they are the
``judge.quorum`` of those asked; and a response has a probability where its comparisons with such a
share of the other texts are known. What cannot be read is missing: never a number, never one half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from phalanx.collective.comparing import RANKER
from phalanx.collective.ranking import Candidate, Ranked, twins
from phalanx.collective.referee import Rankings, Several, rank_by_each
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.types import Ask, Instruction, Judgment, Member, Response

Beats = tuple[tuple[float | None, ...], ...]
"""``beats[i][j]`` is the probability that response i is preferred to j: 1/2 where the texts are the
same, None where it is not known. ``beats[i][j] + beats[j][i]`` is 1."""
DIGITS = 12
"""Places to which means are rounded, so that what is equal but for the order of sums is equal."""
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Contested:
    """A member's responses to an instruction, and the names of those who are to judge them."""

    instruction: Instruction
    candidates: tuple[Candidate, ...]
    judges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preferred:
    """``wins`` are the probabilities of each response to be preferred to the policy's; None where
    no verdict on it can be read. ``ranked`` has what each judge says on its own scale."""

    wins: tuple[float | None, ...]
    beats: Beats
    ranked: dict[str, Ranked]


@dataclass(frozen=True, slots=True)
class Heard:
    """What was preferred, in the order given, and what was said of it."""

    preferred: tuple[Preferred, ...]
    said: Several


def hear_all(
    contested: Sequence[Contested],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    place: tuple,
) -> Heard:
    """Every judge on all that it is to judge, by :func:`phalanx.collective.referee.rank_by_each`,
    and the probabilities that follow. Raises ConfigError as that does."""
    several = rank_by_each(
        [(one.instruction, one.candidates) for one in contested],
        [one.judges for one in contested],
        members,
        ask,
        config,
        place=place,
    )
    verdicts = {judge: _by_pair(rankings) for judge, rankings in several.by_judge.items()}
    quorum, preferred = config.judge.quorum, []
    for one, mine in zip(contested, several.ranked, strict=True):
        each = [
            judge_beats(ranked, verdicts[judge], several.by_judge[judge].said)
            for judge, ranked in mine.items()
        ]
        beats = mean_beats(each, quorum) or _nothing(len(one.candidates))
        texts = [c.text.strip() if c.usable else "" for c in one.candidates]
        preferred.append(Preferred(over_all(beats, texts, quorum), beats, mine))
    return Heard(tuple(preferred), several)


def _nothing(size: int) -> Beats:
    return ((None,) * size,) * size


def judges_for(writer: str, named: str, members: Sequence[Member]) -> tuple[str, ...]:
    """Who judges the responses of ``writer``: the one ``named`` in a setting, or with "" everybody
    with the role judge; never the writer.

    Raises ConfigError where that leaves nobody.
    """
    every = [named] if named else [one.name for one in members if "judge" in one.roles]
    judges = tuple(name for name in every if name != writer)
    if not judges:
        raise ConfigError(
            f"nobody may judge the responses of {writer} (the judges are: "
            f"{', '.join(every) or 'nobody'}, and nobody judges their own); add a member with "
            "roles: [judge]"
        )
    return judges


Pairs = Mapping[tuple[str, str, str], Judgment]
"""Judgments by (instruction's id, left candidate's name, right candidate's name)."""


def _by_pair(rankings: Rankings) -> Pairs:
    return {
        (duel.instruction.id, duel.left, duel.right): judgment
        for duel, judgment in zip(rankings.duels, rankings.judgments, strict=True)
    }


# One judge ---------------------------------------------------------------------------------------


def judge_beats(ranked: Ranked, verdicts: Pairs, said: Mapping[tuple[str, str], Response]) -> Beats:
    """What one judge's verdicts on one group say; see the top of this file.

    ``said`` has the replies of a judge that scores each response alone.
    """
    candidates = ranked.candidates
    twin = twins(candidates)
    texts = [at for at, first in enumerate(twin) if at == first]
    known = _known(ranked, texts, verdicts, said)

    def beats(left: int | None, right: int | None) -> float | None:
        if left is None or right is None:
            return None
        if left == right:
            return HALF
        if left > right:
            value = known.get((right, left))
            return None if value is None else 1.0 - value
        return known.get((left, right))

    return tuple(tuple(beats(left, right) for right in twin) for left in twin)


Known = dict[tuple[int, int], float]
"""Probabilities by positions of distinct texts, the smaller one first."""


def _known(
    ranked: Ranked,
    texts: Sequence[int],
    verdicts: Pairs,
    said: Mapping[tuple[str, str], Response],
) -> Known:
    names, key = [candidate.name for candidate in ranked.candidates], ranked.instruction.id
    told = {
        (left, right): verdict
        for left, right in combinations(texts, 2)
        if (verdict := verdicts.get((key, names[left], names[right]))) is not None
    }
    if not told:
        return {}
    some = next(iter(told.values()))
    if some.protocol in _BY_SCORES and RANKER not in some.flags:
        return _by_scores(ranked, texts, some.protocol, said)
    scores = {
        pair: (verdict.score_left, verdict.score_right)
        for pair, verdict in told.items()
        if verdict.score_left is not None and verdict.score_right is not None
    }
    if RANKER in some.flags:
        gaps = {pair: 2 * (left - right) for pair, (left, right) in scores.items()}
        return ranker_beats(gaps, {at: _twins(ranked, at) for at in texts})
    return {pair: _order(*both) for pair, both in scores.items()}


def _by_scores(
    ranked: Ranked, texts: Sequence[int], protocol: str, said: Mapping[tuple[str, str], Response]
) -> Known:
    """Of a judge that scores each response alone."""
    scores = {at: score for at in texts if (score := ranked.scores[at]) is not None}
    if protocol == "expected":
        key, names = ranked.instruction.id, [one.name for one in ranked.candidates]
        chances = {at: said[key, names[at]].probabilities or {} for at in scores}
        return {
            (left, right): chance_above(chances[left], chances[right])
            for left, right in combinations(scores, 2)
        }
    compare = _order if protocol == "rubric" else _by_difference
    return {
        (left, right): compare(scores[left], scores[right])
        for left, right in combinations(scores, 2)
    }


_BY_SCORES = ("rubric", "expected", "likelihood", "reward")


def _twins(ranked: Ranked, at: int) -> int:
    """How many of the candidates have this text."""
    text = ranked.candidates[at].text.strip()
    return sum(one.usable and one.text.strip() == text for one in ranked.candidates)


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def _by_difference(left: float, right: float) -> float:
    return sigmoid(left - right)


def _order(left: float, right: float) -> float:
    return HALF if left == right else float(left > right)


def ranker_beats(gaps: Mapping[tuple[int, int], float], counts: Mapping[int, int]) -> Known:
    """sigma(r_i - r_j), with r_i the mean of l_ij - l_ji over all responses, i itself included.

    ``gaps`` has l_ij - l_ji by positions of distinct texts; ``counts`` says how many responses have
    each of them. Pairs without a gap count for neither; who has none at all has no r.

    >>> found = ranker_beats({(0, 1): 1.0}, {0: 1, 1: 1})
    >>> round(found[0, 1], 4)
    0.7311
    """
    strength: dict[int, float] = {}
    for at in counts:
        met = [(b, gap) for (a, b), gap in gaps.items() if a == at]
        met += [(a, -gap) for (a, b), gap in gaps.items() if b == at]
        if met:
            total = counts[at] + sum(counts[other] for other, _ in met)
            strength[at] = math.fsum(counts[other] * gap for other, gap in met) / total
    return {
        (left, right): sigmoid(strength[left] - strength[right])
        for left, right in combinations(counts, 2)
        if left in strength and right in strength
    }


def chance_above(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """The chance that a score drawn from ``left`` is above one of ``right``, ties counting half.

    Keys are scores; values need not sum to one.

    >>> chance_above({"1": 0.5, "2": 0.5}, {"2": 1.0})
    0.25
    """
    above = math.fsum(
        chance * other * (1.0 if float(score) > float(rival) else HALF)
        for score, chance in left.items()
        for rival, other in right.items()
        if float(score) >= float(rival)
    )
    return above / (math.fsum(left.values()) * math.fsum(right.values()))


# Several judges, several responses ---------------------------------------------------------------


def mean_beats(each: Sequence[Beats], quorum: float) -> Beats:
    """The mean over judges; None where fewer than the share ``quorum`` of them can be read."""
    if not each:
        return ()

    def mean(left: int, right: int) -> float | None:
        values = [value for beats in each if (value := beats[left][right]) is not None]
        if not values or len(values) < quorum * len(each) - 1e-12:
            return None
        return round(math.fsum(values) / len(values), DIGITS)

    size = range(len(each[0]))
    return tuple(tuple(mean(left, right) for right in size) for left in size)


def over_all(beats: Beats, texts: Sequence[str], quorum: float) -> tuple[float | None, ...]:
    """P(i beats the policy) of each response: the mean of its row, itself at one half included.

    ``texts`` are those of the responses, "" where there is none. None for a response of which the
    comparison with fewer than the share ``quorum`` of the responses with another text is known, or
    with none: the fewer they are, the more extreme their mean.

    >>> over_all(((0.5, 1.0), (0.0, 0.5)), ("yes", "no"), 0.5)
    (0.75, 0.25)
    """
    wins: list[float | None] = []
    for row, text in zip(beats, texts, strict=True):
        values = [value for value in row if value is not None]
        others = [value for value, other in zip(row, texts, strict=True) if other not in ("", text)]
        known = len(others) - others.count(None)
        enough = known and known >= quorum * len(others) - 1e-12
        wins.append(round(math.fsum(values) / len(values), DIGITS) if enough else None)
    return tuple(wins)
