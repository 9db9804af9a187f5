"""Best and worst of several responses from verdicts on pairs of them. Pure: asks nobody.

A tournament says which pairs it wants judged next, is told the verdicts, and gives a placing in
the end. ``round_robin`` judges every pair, n (n - 1) / 2 of them, at once. ``knockout`` finds best
and worst together in ceil(3n / 2) - 2 comparisons, over several rounds, and one more where the two
have not met: a pair that is to be learned from needs a verdict of its own.

How MoAA turns verdicts into a ranking is not published; both are ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, Protocol

from phalanx.types import Instruction

Verdict = Literal["left", "right", "tie"]
Pair = tuple[int, int]
"""Positions of the candidates shown left and right."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One response to an instruction; ``name`` is unique among those ranked with it: ``ada#2``.

    ``failed`` says why there is no text.
    """

    name: str
    text: str
    response_id: str = ""
    truncated: bool = False
    failed: str = ""

    @property
    def usable(self) -> bool:
        """Neither failed nor empty."""
        return not self.failed and bool(self.text.strip())


def twins(candidates: Sequence[Candidate], but: Sequence[bool] = ()) -> tuple[int | None, ...]:
    """For each candidate the position of the first with the same text; None for one that is not
    usable, or that ``but`` leaves out.

    >>> twins([Candidate("a#1", "Two."), Candidate("a#2", ""), Candidate("a#3", "Two. ")])
    (0, None, 0)
    """
    first: dict[str, int] = {}
    return tuple(
        first.setdefault(one.text.strip(), at) if one.usable and not (but and but[at]) else None
        for at, one in enumerate(candidates)
    )


def distinct(candidates: Sequence[Candidate]) -> list[int]:
    """The position of the first candidate with each usable text."""
    return [at for at, twin in enumerate(twins(candidates)) if at == twin]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of one instruction: ``best`` and ``worst`` are positions.

    ``scores`` are on the judge's own scale, or wins + 1/2 ties; None where there is none. Best and
    worst are set together; otherwise ``reason`` says why not: ``tie``, ``unscored``,
    ``identical`` (all texts are the same), ``empty``, ``failed`` or ``single`` (fewer than two
    candidates are left).
    """

    instruction: Instruction
    candidates: tuple[Candidate, ...]
    scores: tuple[float | None, ...]
    best: int | None
    worst: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Placing:
    """``scores`` by position: wins + 1/2 ties; None without any verdict.

    ``best`` and ``worst`` are set together. Otherwise ``reason`` is ``tie`` (in a round robin all
    scores are equal; in a knockout the best has not beaten the worst) or ``unscored`` (verdicts are
    missing). Of several at the top of a round robin, or at its bottom, one stands for all.
    """

    scores: tuple[float | None, ...]
    best: int | None = None
    worst: int | None = None
    reason: str = ""


class Tournament(Protocol):
    """``pairs`` is empty when there is no more to judge; ``tell`` answers all of them at once."""

    def pairs(self) -> list[Pair]: ...

    def tell(self, verdicts: Mapping[Pair, Verdict | None]) -> None: ...

    def placing(self) -> Placing: ...


def tournament(kind: str, count: int, rng: random.Random) -> Tournament:
    """A ``round_robin`` or ``knockout`` of ``count`` candidates.

    ``rng`` draws the order of a knockout, and who goes on after a tie.

    >>> games = tournament("round_robin", 3, random.Random(0))
    >>> games.tell({(0, 1): "left", (0, 2): "tie", (1, 2): "right"})
    >>> games.placing()
    Placing(scores=(1.5, 0.0, 1.5), best=0, worst=1, reason='')
    """
    return Knockout(count, rng) if kind == "knockout" else RoundRobin(count)


def most_comparisons(kind: str, count: int) -> int:
    """The most pairs that a tournament of ``count`` candidates has judged.

    >>> most_comparisons("round_robin", 5), most_comparisons("knockout", 5)
    (10, 7)
    """
    if count < 2:
        return 0
    if kind == "knockout":
        return (3 * count + 1) // 2 - 2 + (count > 3)
    return count * (count - 1) // 2


class RoundRobin:
    """Every pair once, in one round.

    Score: wins + 1/2 ties. A pair without a verdict counts for neither: a candidate that lacks
    some is scored by its share of points over those it has, times n - 1.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._verdicts: dict[Pair, Verdict | None] | None = None

    def pairs(self) -> list[Pair]:
        return [] if self._verdicts is not None else list(combinations(range(self._count), 2))

    def tell(self, verdicts: Mapping[Pair, Verdict | None]) -> None:
        self._verdicts = dict(verdicts)

    def placing(self) -> Placing:
        verdicts = self._verdicts or {}
        shares = _shares(range(self._count), verdicts)
        exact = {at: share * (self._count - 1) for at, share in shares.items()}
        scores = tuple(
            float(exact[position]) if position in exact else None for position in range(self._count)
        )
        if len(exact) < 2:
            return Placing(scores, reason="unscored")
        high, low = max(exact.values()), min(exact.values())
        if high == low:
            return Placing(scores, reason="tie")
        best = _one_of(exact, high, verdicts, top=True)
        return Placing(scores, best, _one_of(exact, low, verdicts, top=False))


def _points(at: int, pair: Pair, verdict: Verdict) -> Fraction:
    if verdict == "tie":
        return Fraction(1, 2)
    return Fraction(at == pair[verdict == "right"])


def _shares(
    positions: Sequence[int], verdicts: Mapping[Pair, Verdict | None]
) -> dict[int, Fraction]:
    """Points over verdicts, of meetings among ``positions``; none for those that have no verdict.

    Exact, so that equal scores are equal.
    """
    among = set(positions)
    points: dict[int, list[Fraction]] = {}
    for pair, verdict in verdicts.items():
        if verdict is not None and among.issuperset(pair):
            for at in pair:
                points.setdefault(at, []).append(_points(at, pair, verdict))
    return {at: sum(points[at], Fraction(0)) / len(points[at]) for at in positions if at in points}


def _one_of(
    scores: Mapping[int, Fraction],
    value: Fraction,
    verdicts: Mapping[Pair, Verdict | None],
    *,
    top: bool,
) -> int:
    """The candidate with this score; of several the one that their own meetings set apart.

    Where those are level, too, the first of them: each is as good an example of the best (or the
    worst), and to drop the instruction would lose a quarter of them (docs/methods/moaa.md).
    """
    level = [at for at, score in scores.items() if score == value]
    among = _shares(level, verdicts)
    if len(among) < len(level):
        return level[0]
    edge = (max if top else min)(among.values())
    return next(at for at, share in among.items() if share == edge)


class Knockout:
    """Best and worst without a full ranking.

    First round: everybody meets one other (with an odd number one is left over). Then winners meet
    winners until one is left, and at the same time losers meet losers; the one left over plays in
    both. Who goes on after a tie, or a missing verdict, is drawn; ``drawn`` has those pairs with
    the position that went on (as the winner in the first round and among winners; as the loser
    among losers). At last best and worst meet, unless they have.
    """

    def __init__(self, count: int, rng: random.Random) -> None:
        order = list(range(count))
        rng.shuffle(order)
        self._count = count
        self._rng = rng
        self._verdicts: dict[Pair, Verdict | None] = {}
        self.drawn: dict[Pair, int] = {}
        self._winners: list[int] = []
        self._losers: list[int] = []
        self._first = _neighbours(order)
        self._left_over = order[len(self._first) * 2 :]

    def pairs(self) -> list[Pair]:
        if self._first:
            return list(self._first)
        owed = [*_neighbours(self._winners), *_neighbours(self._losers)]
        if not owed and self._count > 1:
            best, worst = self._winners[0], self._losers[0]
            if best != worst and self._meeting(best, worst) is None:
                owed = [(best, worst)]
        return owed

    def tell(self, verdicts: Mapping[Pair, Verdict | None]) -> None:
        self._verdicts.update(verdicts)
        if self._first:
            for pair in self._first:
                winner = self._goes_on(pair, "left", "right")
                self._winners.append(winner)
                self._losers.append(pair[0] if winner == pair[1] else pair[1])
            self._winners += self._left_over
            self._losers += self._left_over
            self._first = []
        elif len(self._winners) > 1 or len(self._losers) > 1:
            self._winners = self._next(self._winners, "left", "right")
            self._losers = self._next(self._losers, "right", "left")

    def _next(self, bracket: list[int], if_first: Verdict, if_second: Verdict) -> list[int]:
        pairs = _neighbours(bracket)
        bye = bracket[len(pairs) * 2 :]
        return [self._goes_on(pair, if_first, if_second) for pair in pairs] + bye

    def _goes_on(self, pair: Pair, if_first: Verdict, if_second: Verdict) -> int:
        verdict = self._verdicts.get(pair)
        if verdict in (if_first, if_second):
            return pair[verdict == if_second]
        self.drawn[pair] = self._rng.choice(pair)
        return self.drawn[pair]

    def _meeting(self, one: int, other: int) -> Pair | None:
        return next((p for p in ((one, other), (other, one)) if p in self._verdicts), None)

    def placing(self) -> Placing:
        met = {
            at: [_points(at, pair, v) for pair, v in self._verdicts.items() if v and at in pair]
            for at in range(self._count)
        }
        scores = tuple(float(sum(points)) if points else None for points in met.values())
        if self._count < 2:
            return Placing(scores, reason="unscored")
        best, worst = self._winners[0], self._losers[0]
        if best == worst:
            return Placing(scores, reason="tie")
        meeting = self._meeting(best, worst)
        verdict = self._verdicts[meeting] if meeting else None
        if meeting is None or verdict is None:
            return Placing(scores, reason="unscored")
        if verdict != ("left" if meeting[0] == best else "right"):
            return Placing(scores, reason="tie")
        return Placing(scores, best, worst)


def _neighbours(bracket: Sequence[int]) -> list[Pair]:
    """First and second, third and fourth, and so on; an odd last one is left out."""
    return list(zip(bracket[0::2], bracket[1::2], strict=False))
