"""Designs of mixtures, and how a search chooses among them: pure, no member is asked here.

A *design* is what ``phalanx mixture-search`` varies: who proposes, how often, in how many layers,
and who writes the last answer. The paper left the choice to hand search (arXiv 2505.03059); the
strategies here are ours. Successive halving is Jamieson and Talwalkar's (arXiv 1502.07943).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from phalanx.config.schema import MixtureSettings

ETA = 3
"""Of each rung of halving one in this many designs goes on, to this many times the items."""
COMPLETE = 0.9
"""Share of a trial's items that must have a score, or the design cannot be chosen."""


@dataclass(frozen=True, slots=True)
class Design:
    """``layers`` has the proposers of each layer before the aggregator; none: it answers alone.

    >>> Design((("ada", "bob"),), "cora").words
    'ada, bob > cora'
    >>> Design((("ada",), ("ada",)), "ada", samples=3).requests
    7
    """

    layers: tuple[tuple[str, ...], ...]
    aggregator: str
    samples: int = 1

    @property
    def alone(self) -> bool:
        return not self.layers

    @property
    def requests(self) -> int:
        """Requests that one answer takes, where the design is used alone."""
        return sum(len(layer) * self.samples for layer in self.layers) + 1

    @property
    def words(self) -> str:
        """The design on one line: layers and then the aggregator, with the samples as a factor."""
        times = f" x{self.samples}" if self.samples > 1 else ""
        parts = [", ".join(layer) + times for layer in self.layers]
        return " > ".join([*parts, self.aggregator])

    def settings(self, base: MixtureSettings) -> MixtureSettings:
        """``base`` with this design's members, layers and samples; all else stays."""
        return base.model_copy(update=self.as_yaml())

    def as_yaml(self) -> dict[str, Any]:
        """The keys of the section ``mixture`` that make this design, whatever it held before."""
        keys: dict[str, Any] = {"proposers": [], "per_layer": []}
        if len(set(self.layers)) > 1:
            keys["per_layer"] = [list(layer) for layer in self.layers]
        else:
            keys["proposers"] = list(self.layers[0]) if self.layers else [self.aggregator]
        keys["layers"] = len(self.layers) + 1
        return {**keys, "aggregator": self.aggregator, "samples": self.samples}

    def as_json(self) -> dict[str, Any]:
        return {
            "layers": [list(layer) for layer in self.layers],
            "aggregator": self.aggregator,
            "samples": self.samples,
        }


def design_from(stored: Mapping[str, Any]) -> Design:
    """The inverse of :meth:`Design.as_json`."""
    layers = tuple(tuple(layer) for layer in stored["layers"])
    return Design(layers, stored["aggregator"], stored["samples"])


def uniform(proposers: Sequence[str], layers: int, aggregator: str, samples: int = 1) -> Design:
    """The same proposers in every layer; ``layers`` counts the aggregator's own.

    Without proposing layers nothing else of a design matters, so equal designs are equal records.
    """
    if layers == 1:
        return Design((), aggregator)
    return Design((tuple(proposers),) * (layers - 1), aggregator, samples)


@dataclass(frozen=True, slots=True)
class Space:
    """The designs that a search may try: the same proposers in every layer of a design.

    ``names`` are the members in pool order; proposals are shown in that order. ``fewest`` is the
    mixture's ``min_proposals``: a design that could never reach it is none.
    """

    names: tuple[str, ...]
    max_proposers: int
    max_layers: int
    max_samples: int
    fewest: int = 1

    @property
    def alone(self) -> tuple[Design, ...]:
        """Every member by itself: what a mixture has to beat."""
        return tuple(Design((), name) for name in self.names)

    def _shapes(self) -> list[tuple[int, int, int]]:
        """(proposers, layers, samples) of designs that have proposers at all."""
        sizes = range(1, min(self.max_proposers, len(self.names)) + 1)
        layers, samples = range(2, self.max_layers + 1), range(1, self.max_samples + 1)
        return [(k, n, s) for k, n, s in product(sizes, layers, samples) if k * s >= self.fewest]

    @property
    def mixes(self) -> bool:
        """Whether there are designs with proposers."""
        return bool(self._shapes())

    @property
    def size(self) -> int:
        """How many designs there are."""
        members = len(self.names)
        return members + sum(math.comb(members, k) * members for k, _, _ in self._shapes())

    def holds(self, design: Design) -> bool:
        """Whether it is one of :meth:`every`."""
        if design.aggregator not in self.names or len(set(design.layers)) > 1:
            return False
        if design.alone:
            return design.samples == 1
        proposers = design.layers[0]
        shape = (len(proposers), len(design.layers) + 1, design.samples)
        inside = tuple(name for name in self.names if name in proposers)
        return shape in self._shapes() and inside == proposers

    def every(self) -> Iterator[Design]:
        yield from self.alone
        for count, layers, samples in self._shapes():
            for proposers in combinations(self.names, count):
                for aggregator in self.names:
                    yield uniform(proposers, layers, aggregator, samples)

    def draw(self, count: int, rng: random.Random, first: Sequence[Design] = ()) -> list[Design]:
        """``count`` distinct designs, or all there are: each member alone, ``first``, then random.

        Shapes are drawn first and members second, so that small mixtures, of which there are few,
        are tried as often as large ones.
        """
        found = dict.fromkeys([*self.alone, *first])
        if count >= len(found) and 2 * count > self.size:  # drawing would repeat itself for long
            rest = [design for design in self.every() if design not in found]
            rng.shuffle(rest)
            found.update(dict.fromkeys(rest))
        shapes = self._shapes()
        while len(found) < min(count, self.size):
            size, layers, samples = rng.choice(shapes)
            picked = set(rng.sample(self.names, size))
            proposers = [name for name in self.names if name in picked]
            found[uniform(proposers, layers, rng.choice(self.names), samples)] = None
        return list(found)[:count]


def rungs(trials: int, items: int, eta: int = ETA) -> list[tuple[int, int]]:
    """(designs, items) of each rung: the last has at most ``eta`` designs, on all ``items``.

    >>> rungs(27, 64)
    [(27, 8), (9, 22), (3, 64)]
    """
    sizes = [trials]
    while sizes[-1] > eta:
        sizes.append(math.ceil(sizes[-1] / eta))
    last = len(sizes) - 1
    return [(size, math.ceil(items / eta ** (last - at))) for at, size in enumerate(sizes)]


@dataclass(frozen=True, slots=True)
class Trial:
    """One design on the first ``num_items`` dev items; the row of ``trials`` in the ledger.

    ``score`` is the mean over the items that have one (``num_scored``), with its 95 % interval.
    ``calls``, ``tokens`` and ``money`` are what its answers would cost by themselves; as designs
    share proposals, ``new_calls`` is what the trial really sent, scoring included.
    """

    number: int
    rung: int
    design: Design
    num_items: int
    num_scored: int
    score: float | None
    low: float | None
    high: float | None
    calls: int
    tokens: int
    money: float
    new_calls: int
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether enough items have a score for the design to be chosen."""
        return self.score is not None and self.num_scored >= COMPLETE * self.num_items

    @property
    def cost(self) -> tuple[float, float, float]:
        """Money, tokens and requests for one answer: cheaper ones sort first."""
        return (
            self.money / self.num_items,
            self.tokens / self.num_items,
            self.calls / self.num_items,
        )

    @property
    def rank(self) -> tuple[bool, float, tuple[float, float, float], int]:
        """Sorts the best first: complete, then by score, then the cheaper, then the earlier."""
        score = -math.inf if self.score is None else self.score
        return (not self.complete, -score, self.cost, self.number)


def trial_from(row: Mapping[str, Any]) -> Trial:
    """A row of ``trials`` as the ledger has it."""
    return Trial(**{**row, "design": design_from(json.loads(row["design"]))})


def promoted(rung: Sequence[Trial], keep: int) -> list[Design]:
    """The best ``keep`` designs of a rung; and, beside them, the best member alone.

    That last one is how the end can say whether a mixture is worth its cost.
    """
    ranked = sorted((trial for trial in rung if trial.complete), key=lambda trial: trial.rank)
    chosen = ranked[:keep]
    alone = next((trial for trial in ranked if trial.design.alone), None)
    if alone is not None and alone not in chosen:
        chosen.append(alone)
    return [trial.design for trial in chosen]


def latest(trials: Sequence[Trial]) -> list[Trial]:
    """The trial on the most items of each design, the best first."""
    found: dict[Design, Trial] = {}
    for trial in trials:
        if trial.design not in found or trial.num_items > found[trial.design].num_items:
            found[trial.design] = trial
    return sorted(found.values(), key=lambda trial: (-trial.num_items, trial.rank))


def front(trials: Sequence[Trial]) -> list[Trial]:
    """Complete trials that no other one beats or equals on score and on every cost, and betters.

    The cheapest first. Two that are equal in everything are both there.
    """
    able = [trial for trial in trials if trial.complete]
    kept = [one for one in able if not any(_dominates(other, one) for other in able)]
    return sorted(kept, key=lambda trial: (trial.cost, trial.rank))


def _dominates(one: Trial, other: Trial) -> bool:
    mine, theirs = (one.score, *map(_minus, one.cost)), (other.score, *map(_minus, other.cost))
    return mine != theirs and all(a >= b for a, b in zip(mine, theirs, strict=True))


def _minus(value: float) -> float:
    return -value


@dataclass(frozen=True, slots=True)
class Choice:
    """``best`` by score among the trials on the most items, and the ``cheapest`` of them that lies
    within its interval: what could be had for less, as far as these items can tell."""

    best: Trial
    cheapest: Trial


def choose(trials: Sequence[Trial]) -> Choice | None:
    """None where no design has enough scores."""
    able = [trial for trial in latest(trials) if trial.complete]
    if not able:
        return None
    most = max(trial.num_items for trial in able)
    full = sorted((t for t in able if t.num_items == most), key=lambda trial: trial.rank)
    best = full[0]
    within = [t for t in full if best.low is not None and t.score >= best.low]
    return Choice(best, min([best, *within], key=lambda trial: (trial.cost, trial.rank)))


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has to show. ``stopped`` says why it ended early, "" where it did not.

    ``metric`` is what scores are, ``budget`` the most requests allowed, ``calls`` those sent.
    """

    trials: tuple[Trial, ...]
    metric: str
    num_dev_items: int
    calls: int
    budget: int | None
    priced: bool
    stopped: str = ""
