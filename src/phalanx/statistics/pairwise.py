"""Bradley-Terry strengths from battles with ties, weights and covariates such as length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_MOST_STEPS = 100
_FAR = 30.0  # log-odds of 1e13 to 1: no finite number of battles says this


class Battle(NamedTuple):
    """One comparison. ``score`` is 1 where left won, 0 where right did, 0.5 for a tie.

    ``covariates`` are differences left - right that may sway the judge whoever answered (relative
    length, headers); the same ones in every battle, or none.
    """

    left: str
    right: str
    score: float
    weight: float = 1.0
    covariates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """``strengths`` are natural log-odds with mean 0; ``effects`` one for each covariate."""

    strengths: Mapping[str, float]
    effects: tuple[float, ...]

    def win_rate(self, left: str, right: str) -> float:
        """Chance that ``left`` beats ``right`` where all covariates are 0 (equal lengths)."""
        from scipy.special import expit

        return float(expit(self.strengths[left] - self.strengths[right]))

    def elo(self, anchor: str, at: float = 1000.0, scale: float = 400.0) -> dict[str, float]:
        """Strengths on Elo's scale, where ``scale`` points are odds of 10 to 1; ``anchor`` at."""
        points = scale / math.log(10)
        zero = self.strengths[anchor]
        return {name: at + points * (value - zero) for name, value in self.strengths.items()}


def bradley_terry(battles: Iterable[Battle], *, penalty: float = 0.0) -> BradleyTerry:
    """Maximum likelihood of P(left wins) = logistic(strength left - right + effects . covariates).

    A tie is half a win for each, a weight so many battles (Bradley and Terry 1952; Arena-Hard's
    form). Where all battles share one opponent and there are no covariates, each win rate against
    it is the weighted mean score. ``penalty`` takes penalty / 2 * (sum of squares) off the
    log-likelihood, effects included, so scale covariates alike (by their SD) before. Centred
    covariates leave the strengths at the average style, raw differences at equal styles.

    No standard errors: battles of one prompt depend on each other. Resample prompts with
    :func:`phalanx.statistics.bootstrap` and fit again; give a small penalty there, because a draw
    may lack the only defeat of a member.

    ValueError where there is no battle, a battle is impossible, and, without a penalty, where the
    maximum lies at infinity (members that never lose to the others, or never win against them; a
    covariate that decides every battle) or is not unique (covariates that say the same).
    """
    fights = [battle for battle in battles if battle.weight != 0]
    _check(fights, penalty)
    names = sorted({name for battle in fights for name in battle[:2]})
    table = _Table.of(fights, names)
    if penalty == 0:
        _check_connected(names, table)
    found = _maximise(table, penalty)
    strengths = found[: len(names)] - found[: len(names)].mean()
    return BradleyTerry(
        dict(zip(names, strengths.tolist(), strict=True)), tuple(found[len(names) :].tolist())
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """Battles as arrays, equal ones as one of their summed weight; ``extra``: n x covariates."""

    left: np.ndarray
    right: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    extra: np.ndarray
    members: int

    @classmethod
    def of(cls, fights: Sequence[Battle], names: Sequence[str]) -> _Table:
        together: dict[tuple, float] = {}
        for left, right, score, weight, covariates in fights:
            key = (left, right, score, covariates)
            together[key] = together.get(key, 0.0) + weight
        lefts, rights, scores, extra = zip(*together, strict=True)
        place = {name: number for number, name in enumerate(names)}
        return cls(
            left=np.array([place[name] for name in lefts]),
            right=np.array([place[name] for name in rights]),
            scores=np.array(scores, dtype=float),
            weights=np.array(list(together.values())),
            extra=np.array(extra, dtype=float).reshape(len(together), -1),
            members=len(names),
        )

    def odds(self, at: np.ndarray) -> np.ndarray:
        """Log-odds that left wins, with ``at`` strengths and then effects."""
        strengths, effects = at[: self.members], at[self.members :]
        return strengths[self.left] - strengths[self.right] + self.extra @ effects

    def totals(self, values: np.ndarray) -> np.ndarray:
        """``values`` added up over battles: plus for left, minus for right, times covariates."""
        ours = np.bincount(self.left, values, self.members)
        theirs = np.bincount(self.right, values, self.members)
        return np.concatenate([ours - theirs, self.extra.T @ values])

    def products(self, values: np.ndarray) -> np.ndarray:
        """The matrix of the columns' products, each battle times ``values``."""
        m = self.members
        met = np.bincount(self.left * m + self.right, values, m * m).reshape(m, m)
        square = np.empty((m + self.extra.shape[1],) * 2)
        square[:m, :m] = np.diag(met.sum(axis=0) + met.sum(axis=1)) - met - met.T
        for number, column in enumerate(self.extra.T, start=m):
            square[number] = square[:, number] = self.totals(values * column)
        return square


def _check(fights: Sequence[Battle], penalty: float) -> None:
    if not 0 <= penalty < math.inf:
        raise ValueError(f"penalty must be 0 or more, got {penalty}")
    if not fights:
        raise ValueError("there is no battle (of a weight above 0) to fit")
    for number, battle in enumerate(fights):
        if battle.left == battle.right:
            raise ValueError(f"battle {number} is of {battle.left!r} against itself")
        if not 0 <= battle.score <= 1:  # a NaN fails this too
            raise ValueError(f"battle {number} has the score {battle.score}, not one in [0, 1]")
        if not 0 < battle.weight < math.inf:
            raise ValueError(f"battle {number} has the weight {battle.weight}, not 0 or more")
        if len(battle.covariates) != len(fights[0].covariates):
            raise ValueError(f"battle {number} has other covariates than the first")
        if not all(map(math.isfinite, battle.covariates)):
            raise ValueError(f"battle {number} has covariates that are not finite")


def _check_connected(names: Sequence[str], table: _Table) -> None:
    """Every member must have lost to every other, if by detours (Ford 1957)."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    left, right, scores = table.left, table.right, table.scores
    winners = np.concatenate([left[scores > 0], right[scores < 1]])
    losers = np.concatenate([right[scores > 0], left[scores < 1]])
    graph = sparse.csr_matrix((np.ones(winners.size), (losers, winners)), shape=(len(names),) * 2)
    number, groups = connected_components(graph, connection="strong")
    if number > 1:
        smallest = int(np.argmin(np.bincount(groups)))
        apart = [name for name, group in zip(names, groups, strict=True) if group == smallest]
        raise ValueError(
            f"{', '.join(apart)}: wins and defeats do not lead both ways between these and the "
            "others, so their distance has no finite value; add battles or a penalty"
        )


def _maximise(table: _Table, penalty: float) -> np.ndarray:
    """Strengths, then effects, by Newton's method with halved steps (the height is concave)."""
    from scipy.special import expit, log_expit

    size = table.members + table.extra.shape[1]
    level = np.zeros(size)
    level[: table.members] = math.sqrt(table.weights.mean()) / table.members
    # All strengths up by the same changes nothing; this pins their mean, and nothing else.
    fixed = np.outer(level, level) + penalty * np.eye(size)

    def height(at: np.ndarray) -> float:
        odds = table.odds(at)
        gain = table.scores * log_expit(odds) + (1 - table.scores) * log_expit(-odds)
        return float(table.weights @ gain) - penalty / 2 * float(at @ at)

    def curvature(at: np.ndarray) -> np.ndarray:
        chance = expit(table.odds(at))
        return table.products(table.weights * chance * (1 - chance)) + fixed

    found = np.zeros(size)
    _check_unique(curvature(found))
    for _ in range(_MOST_STEPS):
        slope = table.totals(table.weights * (table.scores - expit(table.odds(found))))
        step = np.linalg.solve(curvature(found), slope - penalty * found)
        here = height(found)
        while height(found + step) < here - 1e-12 * abs(here):
            step = step / 2
        found = found + step
        if penalty == 0 and np.abs(table.odds(found)).max() > _FAR:
            raise ValueError(
                "the covariates decide every battle, so that their effects have no finite value; "
                "add battles or a penalty, or leave out a covariate"
            )
        if np.abs(step).max() <= 1e-10 * max(1.0, np.abs(found).max()):
            return found
    raise ValueError(
        f"the Bradley-Terry fit did not settle in {_MOST_STEPS} steps; raise the penalty "
        f"({penalty}), or scale the covariates by their SD"
    )


def _check_unique(curvature: np.ndarray) -> None:
    """Raise ValueError where a column is constant or a combination of the others."""
    scale = np.sqrt(np.diag(curvature))
    if (scale == 0).any() or np.linalg.cond(curvature / np.outer(scale, scale)) > 1e10:
        raise ValueError(
            "a covariate is always 0 or says the same as others or as who is compared; "
            "leave it out, or add a penalty"
        )
