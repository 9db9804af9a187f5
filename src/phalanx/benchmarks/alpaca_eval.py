"""AlpacaEval 2: the raw and the length-controlled win rate (Dubois et al., arXiv 2404.04475).

All rates are shares from 0 to 1; the published tables show them times 100.

For instruction *i*, y is the share of the judge's preference that the model got, and

    s_i = (baseline's characters - model's characters) / their standard deviation over the rows
    P(model wins)_i = sigmoid(length * tanh(s_i) + difficulty * d_i + model)

fitted to one model at a time. The length-controlled rate is the mean of P with the length term
set to nought. The difficulties d are a public vector of 805 numbers. A second public table, the
baseline's own answers prompted to be verbose and to be concise ("gamed"), joins the fit with
weight 0.1 a row and without the model term, so that it pins the length term.

The published fit is scikit-learn's L1-penalised LogisticRegressionCV. :mod:`.logistic` finds the
same optimum exactly; the published one stops early, which moves the rate by less than 0.0001. Where
held-out losses are nearly equal another C may be chosen; on six published models that moved it by
0.00014 at most.

d and the gamed rows belong to the baseline and the judge that they were made with (both
GPT-4-1106-preview). With others, leave the gamed rows out, call the result "length-controlled, own
judge", and do not set it beside the published table. A model that gives every instruction the same
answer can win: look whether the answers depend on the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from phalanx.benchmarks.logistic import choose_penalty, fit
from phalanx.errors import ConfigError
from phalanx.statistics import Interval, clustered_mean, percentiles, resampled_counts

GAMED_WEIGHT = 0.1
"""Weight of a gamed row: the published 0.2, halved because there are two gamed baselines."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One instruction's verdict. ``share`` in [0, 1]: 0 the baseline won, 1 the model, 0.5 a draw.

    Lengths are in characters of the whole output.
    """

    index: int
    share: float
    len_baseline: int
    len_model: int


@dataclass(frozen=True, slots=True)
class Gamed:
    """A row of the regulariser; its length difference is already in standard deviations."""

    index: int
    share: float
    length_difference: float
    difficulty: float


class Weights(NamedTuple):
    """The three fitted weights, in the order of the published files."""

    length: float
    difficulty: float
    model: float


@dataclass(frozen=True, slots=True)
class RawWinRate:
    """``standard_error`` is the sample's SD over the root of n, None for a single comparison."""

    win_rate: float
    standard_error: float | None
    num_wins: int
    num_losses: int
    num_draws: int

    @property
    def n(self) -> int:
        return self.num_wins + self.num_losses + self.num_draws

    @property
    def discrete_win_rate(self) -> float:
        """Share of wins, a draw being half a win."""
        return (self.num_wins + self.num_draws / 2) / self.n


@dataclass(frozen=True, slots=True)
class LengthControlled:
    """The fit of one model; ``penalty`` is the C that held-out loss chose."""

    win_rate: float
    weights: Weights
    penalty: float
    n: int


@dataclass(frozen=True, slots=True)
class Spread:
    """A bootstrapped value: the standard error and the percentile interval of its refits."""

    value: float
    standard_error: float
    interval: Interval


def share_from_logprobs(baseline: float, model: float) -> float:
    """The share from the judge's log-probabilities (nats) of its two one-token answers.

    >>> share_from_logprobs(baseline=-1.0, model=-1.0)
    0.5
    """
    from scipy.special import expit

    if math.isnan(baseline) or math.isnan(model) or max(baseline, model) == -math.inf:
        raise ValueError(f"one of the two tokens must be possible, got {baseline} and {model}")
    return float(expit(model - baseline))


def raw_win_rate(comparisons: Sequence[Comparison]) -> RawWinRate:
    """The mean share of the model. Raises ConfigError for faulty comparisons or none."""
    shares = _checked(comparisons)
    spread = clustered_mean(shares.tolist()).error if len(shares) > 1 else None
    wins, losses = int((shares > 0.5).sum()), int((shares < 0.5).sum())
    return RawWinRate(float(shares.mean()), spread, wins, losses, len(shares) - wins - losses)


def controlled_rate(weights: Weights, difficulties: Sequence[float]) -> float:
    """The length-controlled rate that ``weights`` give over instructions of these difficulties.

    The difference of two models' weights gives the rate of the one against the other.
    """
    from scipy.special import expit

    logits = weights.difficulty * np.asarray(difficulties, dtype=float) + weights.model
    return float(expit(logits).mean())


def length_controlled(
    comparisons: Sequence[Comparison],
    difficulty: Mapping[int, float],
    gamed: Sequence[Gamed] = (),
) -> LengthControlled:
    """Fit one model. ``difficulty`` maps an instruction's index to its d.

    Raises ConfigError for faulty comparisons, an instruction without a difficulty, or lengths
    that never differ from the baseline's by different amounts.
    """
    return _whole(_Table.build(comparisons, difficulty, gamed))


def bootstrap_length_controlled(
    comparisons: Sequence[Comparison],
    difficulty: Mapping[int, float],
    gamed: Sequence[Gamed] = (),
    *,
    seed: int,
    draws: int = 200,
    confidence: float = 0.95,
) -> Spread:
    """Standard error and interval of the length-controlled rate: instructions drawn, refitted.

    An instruction is drawn with its gamed rows; the lengths are scaled and C is chosen anew, which
    takes a tenth of a second a draw. The published ``lc_standard_error`` is the spread of the
    fitted values alone, half of this or less. Raises as :func:`length_controlled`.
    """
    table = _Table.build(comparisons, difficulty, gamed)
    whole = _whole(table)
    rates = _refits(table, resampled_counts(whole.n, seed=seed, draws=draws))
    return Spread(whole.win_rate, float(rates.std(ddof=1)), percentiles(rates, confidence))


def compare_length_controlled(
    before: Sequence[Comparison],
    after: Sequence[Comparison],
    difficulty: Mapping[int, float],
    gamed: Sequence[Gamed] = (),
    *,
    seed: int,
    draws: int = 200,
    confidence: float = 0.95,
) -> Spread:
    """How much higher ``after``'s length-controlled rate is, on the same instructions.

    Both are refitted on the same draws, so what the instructions do to both cancels out. Raises
    ConfigError where the two do not have the same instructions; else as the others.
    """
    pair = [sorted(rows, key=lambda row: row.index) for rows in (before, after)]
    places = [[row.index for row in rows] for rows in pair]
    if places[0] != places[1]:
        odd = sorted(set(places[0]) ^ set(places[1]))
        raise ConfigError(
            f"the two models were not judged on the same instructions ({len(odd)} of them by one "
            f"only: {odd[:5]}); keep those that both have"
        )
    tables = [_Table.build(rows, difficulty, gamed) for rows in pair]
    first, second = (_whole(table).win_rate for table in tables)
    old, new = (
        _refits(table, resampled_counts(len(places[0]), seed=seed, draws=draws)) for table in tables
    )
    change, value = new - old, second - first
    return Spread(value, float(change.std(ddof=1)), percentiles(change, confidence))


@dataclass(frozen=True, slots=True)
class _Table:
    """Arrays over the comparisons [n] and the gamed rows [g]; ``owner`` is a gamed row's place
    among the comparisons, -1 where its instruction was not compared."""

    shares: np.ndarray
    differences: np.ndarray
    difficulties: np.ndarray
    gamed_features: np.ndarray
    gamed_shares: np.ndarray
    owner: np.ndarray

    @classmethod
    def build(
        cls,
        comparisons: Sequence[Comparison],
        difficulty: Mapping[int, float],
        gamed: Sequence[Gamed],
    ) -> _Table:
        shares = _checked(comparisons)
        missing = [row.index for row in comparisons if row.index not in difficulty]
        if missing:
            raise ConfigError(
                f"{len(missing)} instructions have no difficulty (the first: {missing[:5]}); "
                "compare by the index of the 805 instructions, or give a file that has them"
            )
        if len(comparisons) < 10:
            raise ConfigError(
                f"{len(comparisons)} comparisons are too few for the length-controlled fit; "
                "give at least 10 (200 give a standard error of 2 to 3 points)"
            )
        place = {row.index: number for number, row in enumerate(comparisons)}
        columns = [(math.tanh(row.length_difference), row.difficulty, 0.0) for row in gamed]
        return cls(
            shares,
            np.asarray([row.len_baseline - row.len_model for row in comparisons], dtype=float),
            np.asarray([difficulty[row.index] for row in comparisons], dtype=float),
            np.asarray(columns, dtype=float).reshape(-1, 3),
            np.asarray([row.share for row in gamed], dtype=float),
            np.asarray([place.get(row.index, -1) for row in gamed], dtype=int),
        )

    @property
    def all_shares(self) -> np.ndarray:
        return np.concatenate([self.gamed_shares, self.shares])

    def features(self, counts: np.ndarray) -> np.ndarray:
        """[n, 3]; the lengths are scaled by their SD over the rows as often as they count."""
        total = counts.sum()
        centred = self.differences - counts @ self.differences / total
        spread = math.sqrt(float(counts @ centred**2) / (total - 1))
        if spread == 0:
            raise ConfigError(
                "the outputs' lengths differ from the baseline's by the same amount everywhere: "
                "there is nothing to control for; report the raw win rate"
            )
        scaled = np.tanh(self.differences / spread)
        return np.stack([scaled, self.difficulties, np.ones(len(scaled))], axis=1)

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Row weights [g + n]; a gamed row of no compared instruction counts once always."""
        own = np.where(self.owner < 0, 1.0, counts[self.owner]) if self.owner.size else self.owner
        return np.concatenate([GAMED_WEIGHT * own, counts])


def _whole(table: _Table) -> LengthControlled:
    """The fit with every instruction once."""
    return _fitted(table, np.ones(len(table.shares)))


def _fitted(table: _Table, counts: np.ndarray) -> LengthControlled:
    """The fit with every instruction as often as it counts."""
    features = np.vstack([table.gamed_features, table.features(counts)])
    rows = (features, table.all_shares, table.weights(counts))
    penalty = choose_penalty(*rows)
    weights = Weights(*(float(value) for value in fit(*rows, penalty)))
    rate = controlled_rate(weights, np.repeat(table.difficulties, counts.astype(int)).tolist())
    return LengthControlled(rate, weights, penalty, int(counts.sum()))


def _refits(table: _Table, all_counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.asarray([_fitted(table, counts).win_rate for counts in all_counts])


def _checked(comparisons: Sequence[Comparison]) -> np.ndarray:
    """The shares [n]; every fault in one ConfigError."""
    if not comparisons:
        raise ConfigError("there is no comparison: a win rate needs at least one")
    faults, seen = [], set()
    for row in comparisons:
        if not 0 <= row.share <= 1:  # a NaN fails this too
            faults.append(f"instruction {row.index}: share {row.share} is not between 0 and 1")
        if min(row.len_baseline, row.len_model) < 0:
            faults.append(f"instruction {row.index}: a length cannot be negative")
        if row.index in seen:
            faults.append(f"instruction {row.index} was compared twice; keep one verdict of each")
        seen.add(row.index)
    if faults:
        raise ConfigError(faults)
    return np.asarray([row.share for row in comparisons], dtype=float)
