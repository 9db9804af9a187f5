"""Judgments and weights in, outcomes out. A missing judgment is missing: it has no value.

Four rules: ``mean``; ``reputation`` (Sparta's, the judges' standing at the start of the
iteration); ``median`` of the judges' differences; ``one_coin``, reliability estimated from
agreement (Dawid and Skene's model with one parameter a judge). Any of them on differences that
were standardised per judge first, if asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from phalanx.config.schema import AggregateSettings
from phalanx.types import Duel, Judgment, Outcome, Winner

if TYPE_CHECKING:
    import numpy as np

# Scores are means of floats: equal verdicts can differ in the last bits after weighting.
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``value`` is None when no score was readable; ``num_missing`` counts the others."""

    value: float | None
    num_missing: int


def _known(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def aggregate(scores: Sequence[float | None], weights: Sequence[float]) -> Aggregate:
    """Weighted mean over the judges that answered, weights renormalised over them.

    Raises TypeError for a score that is no number; ValueError for unequal lengths, negative or
    non-finite weights, or weights that are zero for every judge that answered.
    """
    if len(scores) != len(weights):
        raise ValueError(f"{len(scores)} scores but {len(weights)} weights")
    if any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise ValueError(f"weights must be finite and at least 0, got {list(weights)}")
    known = [
        (score, weight) for score, weight in zip(scores, weights, strict=True) if _known(score)
    ]
    missing = len(scores) - len(known)
    if not known:
        return Aggregate(None, missing)
    total = math.fsum(weight for _, weight in known)
    if total == 0:
        raise ValueError("the weights of all judges that answered are 0")
    return Aggregate(math.fsum(score * weight for score, weight in known) / total, missing)


def spreads(judgments: Sequence[Judgment]) -> dict[str, float]:
    """Root mean square of each judge's score differences over an iteration (1 where all are 0)."""
    differences: dict[str, list[float]] = {}
    for judgment in judgments:
        if judgment.readable:
            difference = judgment.score_left - judgment.score_right
            differences.setdefault(judgment.judge, []).append(difference)
    result = {}
    for judge, values in differences.items():
        spread = math.sqrt(math.fsum(value * value for value in values) / len(values))
        result[judge] = spread or 1.0
    return result


def one_coin_reliability(
    signs_DJ: np.ndarray,
    *,
    known_D: np.ndarray | None = None,
    prior: tuple[float, float] = (1.4, 0.6),
    max_rounds: int = 200,
    tolerance: float = 1e-8,
) -> tuple[np.ndarray, np.ndarray]:
    """Each judge's chance of naming the better side, and each duel's chance that left is better.

    ``signs_DJ``: duels x judges with 1 (left better), -1 (right better) and 0 (no vote). EM
    started from the majority, with a Beta prior on the reliabilities: without its pull a few
    judges who agree by accident are believed absolutely, and with few votes nothing else holds
    the estimate. ``known_D`` has 1 or -1 for duels whose better side is known (left, right) and 0
    for the others: those are truth in every round, and what judges said of them, not the majority,
    is the start, for judges who are wrong together are a majority that explains itself.
    crowd-kit's OneCoinDawidSkene is the same model without a prior and without known duels; the
    tests compare the two.

    Returns (reliability_J in (0, 1), prob_left_D). Duels without votes have 0.5.
    """
    import numpy as np  # here, so that a plan does without

    votes_DJ = np.asarray(signs_DJ, dtype=float)
    num_duels, num_judges = votes_DJ.shape
    # Few judges see a duel: the rounds run over the votes (V of them), not over the whole table.
    duel_V, judge_V = np.nonzero(votes_DJ)
    vote_V = votes_DJ[duel_V, judge_V]
    num_votes_D = np.bincount(duel_V, minlength=num_duels)
    num_votes_J = np.bincount(judge_V, minlength=num_judges)
    num_left_D = np.bincount(duel_V, weights=vote_V > 0, minlength=num_duels)
    prob_left_D = np.where(num_votes_D > 0, num_left_D / np.maximum(num_votes_D, 1), 0.5)
    truth_D = np.zeros(num_duels) if known_D is None else np.asarray(known_D, dtype=float)
    alpha, beta = prior
    reliability_J = np.full(num_judges, alpha / (alpha + beta))

    def weighed(trusted_J: np.ndarray) -> np.ndarray:
        log_odds_J = np.log(trusted_J) - np.log1p(-trusted_J)
        weighed_V = vote_V * log_odds_J[judge_V]
        log_odds_D = np.bincount(duel_V, weights=weighed_V, minlength=num_duels)
        return np.where(truth_D != 0, truth_D > 0, 1 / (1 + np.exp(-log_odds_D)))

    if truth_D.any():
        told_V = truth_D[duel_V]
        right_J = np.bincount(judge_V, weights=vote_V * told_V > 0, minlength=num_judges)
        told_J = np.bincount(judge_V, weights=told_V != 0, minlength=num_judges)
        prob_left_D = weighed((right_J + alpha) / (told_J + alpha + beta))
    for _ in range(max_rounds):
        right_V = np.where(vote_V > 0, prob_left_D[duel_V], 1 - prob_left_D[duel_V])
        right_J = np.bincount(judge_V, weights=right_V, minlength=num_judges)
        updated_J = (right_J + alpha) / (num_votes_J + alpha + beta)
        prob_left_D = weighed(updated_J)
        moved = float(np.max(np.abs(updated_J - reliability_J), initial=0.0))
        reliability_J = updated_J
        if moved < tolerance:
            break
    return reliability_J, prob_left_D


def estimate_reliability(
    duels: Sequence[Duel],
    judgments: Sequence[Judgment],
    judges: Sequence[str],
    anchors: Sequence[tuple[Judgment, Winner]] = (),
) -> dict[str, float]:
    """One-coin reliability of every judge over an iteration's readable, untied judgments.

    ``anchors`` are judgments of other duels with the side that is known to be better (people said
    so); those of nobody among ``judges`` are left out. Weights are then the odds of being right as
    people see it, and judges who agree among themselves alone no longer carry the estimate.
    """
    import numpy as np

    row = {duel.id: number for number, duel in enumerate(duels)}
    column = {name: number for number, name in enumerate(judges)}
    anchors = [one for one in anchors if one[0].judge in column]
    for judgment, _ in anchors:
        row.setdefault(judgment.duel_id, len(row))
    signs_DJ = np.zeros((len(row), len(judges)))
    known_D = np.zeros(len(row))
    for judgment, winner in anchors:
        known_D[row[judgment.duel_id]] = 1 if winner == "left" else -1
    for judgment in (*judgments, *(judgment for judgment, _ in anchors)):
        if judgment.readable:
            left, right = judgment.score_left, judgment.score_right
            sign = (left > right) - (left < right)
            signs_DJ[row[judgment.duel_id], column[judgment.judge]] = sign
    reliability_J, _ = one_coin_reliability(signs_DJ, known_D=known_D)
    return {name: float(reliability_J[column[name]]) for name in judges}


def _weights(
    judgments: Sequence[Judgment],
    settings: AggregateSettings,
    reputations: Mapping[str, float],
    reliability: Mapping[str, float],
) -> list[float]:
    if settings.rule == "reputation":
        return [reputations[judgment.judge] for judgment in judgments]
    if settings.rule == "one_coin":
        # Log-odds of being right; a judge that is worse than a coin has no say, not a vote
        # against: with few judges its verdicts are noise rather than a mirror.
        odds = [reliability[judgment.judge] for judgment in judgments]
        return [max(0.0, math.log(p / (1 - p))) for p in odds]
    return [1.0] * len(judgments)


def _combine(
    readable: Sequence[Judgment], weights: Sequence[float], settings: AggregateSettings,
    spread: Mapping[str, float],
) -> tuple[float, float]:  # fmt: skip
    """Aggregated (score_left, score_right) of one duel."""
    left = aggregate([judgment.score_left for judgment in readable], weights).value
    right = aggregate([judgment.score_right for judgment in readable], weights).value
    differences = [judgment.score_left - judgment.score_right for judgment in readable]
    if settings.standardise:
        differences = [
            difference / spread[judgment.judge]
            for difference, judgment in zip(differences, readable, strict=True)
        ]
    elif settings.rule == "one_coin":
        differences = [float((difference > 0) - (difference < 0)) for difference in differences]
    elif settings.rule != "median":
        return left, right
    if settings.rule == "median":
        difference = float(median(differences))
    else:
        difference = aggregate(differences, weights).value
    # Keep the level that the judges gave; only the difference follows the rule.
    middle = (left + right) / 2
    return middle + difference / 2, middle - difference / 2


def outcome(
    duel: Duel,
    judgments: Sequence[Judgment],
    *,
    num_asked: int,
    settings: AggregateSettings,
    quorum: float,
    reputations: Mapping[str, float],
    reliability: Mapping[str, float] | None = None,
    spread: Mapping[str, float] | None = None,
) -> Outcome:
    """The judges' common verdict on one duel.

    ``num_asked`` judges were asked; at least one, and the share ``quorum`` of them, must be
    readable on both sides. ``reputations`` are those at the start of the iteration.
    """
    readable = [judgment for judgment in judgments if judgment.readable]
    missing = num_asked - len(readable)
    base = {"duel_id": duel.id, "num_judges": len(readable), "num_missing": missing}
    if not readable or len(readable) < quorum * num_asked - 1e-12:
        reason = f"{len(readable)} of {num_asked} judgments readable, quorum is {quorum:g}"
        return Outcome(**base, status="no_quorum", reason=reason)
    weights = _weights(readable, settings, reputations, reliability or {})
    if not any(weights):
        return Outcome(**base, status="no_quorum", reason="no judge with any reliability")
    left, right = _combine(readable, weights, settings, spread or {})
    if abs(left - right) <= _TIE * max(1.0, abs(left), abs(right)):
        return Outcome(**base, status="tie", score_left=left, score_right=right)
    side = 1.0 if left > right else -1.0
    votes = [
        side * math.copysign(1, difference) if difference else 0.0
        for difference in (j.score_left - j.score_right for j in readable)
    ]
    agreement = aggregate([(vote + 1) / 2 for vote in votes], weights).value
    return Outcome(
        **base,
        status="decided",
        winner="left" if left > right else "right",
        score_left=left,
        score_right=right,
        agreement=agreement,
    )
