"""Reputation: how well a member answers. One pure update function per rule.

``sparta`` is the formula of the paper with the constants of its released code
(``rating_system.py``); ``elo`` and ``bradley_terry`` have the expected-score term that it
lacks; ``frozen`` never moves. Both members of a duel are updated from the same old values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phalanx.config.schema import (
    BradleyTerryReputation,
    EloReputation,
    FrozenReputation,
    ReputationSettings,
    SpartaReputation,
)
from phalanx.types import Duel, Outcome, ReputationChange, Standing

# The released code adds no further member to the fade-out after this iteration (counted from 0).
_LAST_FADE = 7


def initial_standing(settings: ReputationSettings, value: float | None = None) -> Standing:
    deviation = settings.deviation if isinstance(settings, SpartaReputation) else 0.0
    return Standing(value=settings.initial if value is None else value, deviation=deviation)


def sparta_k(num_duels: int, settings: SpartaReputation) -> float:
    """K for the ``num_duels``-th duel, counted from 1: max(k_min, k_start * decay^(n / steps))."""
    decayed = settings.k_start * settings.k_decay ** (num_duels / settings.k_steps)
    return max(settings.k_min, decayed)


def sparta_gap(left: Standing, right: Standing) -> float:
    """|Phi(z) - Phi(-z)| with z = (R_left - R_right) / sqrt(sigma_left^2 + sigma_right^2).

    That is |2 Phi(z) - 1| = erf(|z| / sqrt 2): symmetric, 0 for equals, 1 for a wide gap.
    """
    spread = math.hypot(left.deviation, right.deviation)
    return math.erf(abs(left.value - right.value) / (spread * math.sqrt(2)))


def _moved(standing: Standing, change: float, settings: SpartaReputation) -> Standing:
    value = max(settings.floor, standing.value + change)
    changes = (*standing.changes, value - standing.value)[-settings.window :]
    deviation = standing.deviation
    if len(changes) >= 2:
        deviation = max(settings.min_deviation, _population_deviation(changes))
    return Standing(value, deviation, changes, standing.num_updates + 1)


def _population_deviation(values: Sequence[float]) -> float:
    """As ``statistics.pstdev``, to the last bit or two, at a fraction of its time."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum([(value - mean) ** 2 for value in values]) / len(values))


def update_sparta(
    left: Standing,
    right: Standing,
    difference: float,
    settings: SpartaReputation,
    *,
    num_duels: int,
) -> tuple[Standing, Standing]:
    """Both members after one duel, each from the old values of both.

    ``difference`` is the aggregated score of left minus that of right; ``num_duels`` counts this
    duel, from 1. R += (K / scale) * difference * tanh(sigma) * max(gap, epsilon), not below the
    floor; sigma is the population deviation of the last ``window`` actual changes.
    """
    step = sparta_k(num_duels, settings) / settings.scale * difference
    step *= max(sparta_gap(left, right), settings.epsilon)
    return (
        _moved(left, step * math.tanh(left.deviation), settings),
        _moved(right, -step * math.tanh(right.deviation), settings),
    )


def update_elo(
    left: Standing, right: Standing, left_score: float, settings: EloReputation
) -> tuple[Standing, Standing]:
    """``left_score`` is 1, 0.5 or 0. Zero-sum except at the floor."""
    # Clamped: beyond odds of 10^30 the expected score is 0 or 1 in any case.
    exponent = max(-30.0, min(30.0, (right.value - left.value) / settings.spread))
    expected = 1 / (1 + 10**exponent)
    step = settings.k * (left_score - expected)

    def moved(standing: Standing, change: float) -> Standing:
        value = max(settings.floor, standing.value + change)
        return replace(standing, value=value, num_updates=standing.num_updates + 1)

    return moved(left, step), moved(right, -step)


def fit_bradley_terry(
    standings: Mapping[str, Standing],
    results: Sequence[tuple[str, str, float]],
    settings: BradleyTerryReputation,
) -> dict[str, Standing]:
    """Refit everybody who duelled on this iteration's results: (left, right, left_score).

    Members learn between iterations, so old results do not count. Uses choix (I-LSR).
    """
    import choix

    names = sorted({name for left, right, _ in results for name in (left, right)})
    if not names:
        return dict(standings)
    number = {name: position for position, name in enumerate(names)}
    data: list[tuple[int, int]] = []
    for left, right, left_score in results:
        forward, backward = (number[left], number[right]), (number[right], number[left])
        # choix knows no ties: a tie is half a win each way, so a win counts twice.
        wins = {1.0: [forward, forward], 0.0: [backward, backward], 0.5: [forward, backward]}
        data.extend(wins[left_score])
    strengths = choix.ilsr_pairwise(len(names), data, alpha=settings.regularise)
    fitted = dict(standings)
    for name in names:
        value = settings.initial + settings.spread * float(strengths[number[name]])
        fitted[name] = replace(
            standings[name],
            value=max(settings.floor, value),
            num_updates=standings[name].num_updates + 1,
        )
    return fitted


def _left_score(outcome: Outcome) -> float:
    if outcome.status == "tie":
        return 0.5
    return 1.0 if outcome.winner == "left" else 0.0


def update_all(
    standings: Mapping[str, Standing],
    duels: Sequence[Duel],
    outcomes: Mapping[str, Outcome],
    settings: ReputationSettings,
    *,
    num_duels_before: int = 0,
    faded: Mapping[str, float] | None = None,
) -> tuple[dict[str, Standing], list[ReputationChange]]:
    """Run an iteration's judged duels, in order, through the chosen rule.

    Duels that no judge saw (no quorum, unanswered, identical responses) change nothing.
    ``num_duels_before`` carries K's decay over iterations; ``faded`` multiplies contestants'
    scores (see :func:`fade`).
    """
    current = dict(standings)
    if isinstance(settings, FrozenReputation):
        return current, []
    judged = [
        duel
        for duel in duels
        if outcomes[duel.id].status in ("decided", "tie") and outcomes[duel.id].num_judges
    ]
    if isinstance(settings, BradleyTerryReputation):
        results = [(duel.left, duel.right, _left_score(outcomes[duel.id])) for duel in judged]
        fitted = fit_bradley_terry(current, results, settings)
        changes = [
            ReputationChange("", name, current[name].value, fitted[name].value, 0.0)
            for name in current
            if fitted[name] is not current[name]
        ]
        return fitted, changes
    changes = []
    factors = faded or {}
    for count, duel in enumerate(judged, start=num_duels_before + 1):
        outcome, names = outcomes[duel.id], duel.contestants
        before = [current[name] for name in names]
        if isinstance(settings, EloReputation):
            after = update_elo(*before, _left_score(outcome), settings)
        else:
            difference = outcome.score_left * factors.get(duel.left, 1.0)
            difference -= outcome.score_right * factors.get(duel.right, 1.0)
            after = update_sparta(*before, difference, settings, num_duels=count)
        for name, old, new in zip(names, before, after, strict=True):
            current[name] = new
            changes.append(ReputationChange(duel.id, name, old.value, new.value, new.deviation))
    return current, changes


def fade(
    variant: str, previous: Mapping[str, float], reputations: Mapping[str, float], iteration: int
) -> dict[str, float]:
    """The released code's fade-out: factors on contestants' scores in the reputation update.

    ``iteration`` counts from 0; from 2 on, ``iteration - 1`` members are faded, by 0, 0.1, 0.2
    and so on. ``static``: the lowest member not yet faded joins for good. ``dynamic``: the lowest
    ones now. After iteration 7 the factors stay as they are.
    """
    if variant == "none" or iteration < 2:
        return {}
    if iteration > _LAST_FADE:
        return dict(previous)
    ranked = sorted(reputations, key=lambda name: reputations[name])
    if variant == "dynamic":
        return {name: 0.1 * rank for rank, name in enumerate(ranked[: iteration - 1])}
    rest = [name for name in ranked if name not in previous]
    joined = {rest[0]: 0.1 * len(previous)} if rest else {}
    return {**previous, **joined}
