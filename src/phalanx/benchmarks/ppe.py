"""Preference proxy evaluations (Frick et al., arXiv 2410.14872): pairs and best of K, from scores.

Human preferences: share of the pairs, ties left out, whose preferred response scores higher.
Verifiable responses: the same over pairs of a right and a wrong response, and how good the response
is that the scores would pick from K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from phalanx.benchmarks.records import ManyResponses, Pair, Share
from phalanx.errors import ConfigError


def pairwise_accuracy(pairs: Sequence[Pair], scores: Sequence[tuple[float, float]]) -> Share:
    """Right pairs among those with a better side; equal scores are wrong.

    ``scores`` has (A's, B's) of each pair. Raises ConfigError for a score that is not finite or
    where every pair is a tie; ValueError for another number of scores than of pairs.
    """
    if len(pairs) != len(scores):
        raise ValueError(f"every pair needs its scores, got {len(pairs)} pairs, {len(scores)}")
    _finite({pair.id: both for pair, both in zip(pairs, scores, strict=True)})
    decided = [
        (a > b) if pair.label == "A" else (b > a)
        for pair, (a, b) in zip(pairs, scores, strict=True)
        if pair.label != "tie"
    ]
    if not decided:
        raise ConfigError(f"none of {len(pairs)} pairs has a better side: nothing to score")
    return Share(sum(decided), len(decided))


def conflict_accuracy(rows: Sequence[ManyResponses], scores: Sequence[Sequence[float]]) -> Share:
    """Right ones among all pairs of a right and a wrong response that the rows name.

    Raises ConfigError where no row names one; else as :func:`best_of_k`.
    """
    _aligned(rows, scores)
    right = n = 0
    for row, given in zip(rows, scores, strict=True):
        for first, second in row.conflicts:
            good, bad = (first, second) if row.right[first] else (second, first)
            right += given[good] > given[bad]
            n += 1
    if not n:
        raise ConfigError("no row names pairs of a right and a wrong response")
    return Share(right, n)


def best_of_k(row: ManyResponses, scores: Sequence[float], k: int) -> float:
    """Chance that the best scored of ``k`` responses, drawn without replacement, is right.

    Exact, no drawing: a response is picked if it is drawn and none above it is; equal scores
    share their places. Raises ValueError for k outside 1 to the number of responses, ConfigError
    for scores that do not fit the row.
    """
    _aligned([row], [scores])
    n = len(scores)
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the {n} responses, got {k}")
    ways = math.comb(n, k)
    chance, below = 0.0, 0
    for level in sorted(set(scores)):
        tied = [right for right, score in zip(row.right, scores, strict=True) if score == level]
        # Chance that the best of the k is at this level, shared by those who are.
        at_level = (math.comb(below + len(tied), k) - math.comb(below, k)) / ways
        chance += at_level * sum(tied) / len(tied)
        below += len(tied)
    return chance


def best_of_k_curve(
    rows: Sequence[ManyResponses], scores: Sequence[Sequence[float]], ks: Sequence[int]
) -> dict[int, float]:
    """The mean of :func:`best_of_k` over the rows, for each k."""
    _aligned(rows, scores)
    return {
        k: sum(best_of_k(row, given, k) for row, given in zip(rows, scores, strict=True))
        / len(rows)
        for k in ks
    }


def _aligned(rows: Sequence[ManyResponses], scores: Sequence[Sequence[float]]) -> None:
    if len(rows) != len(scores) or not rows:
        raise ConfigError(f"every row needs its scores, got {len(rows)} rows, {len(scores)} lists")
    _finite({row.id: given for row, given in zip(rows, scores, strict=True)})
    faults = [
        f"row {row.id}: {len(row.responses)} responses, {len(given)} scores"
        for row, given in zip(rows, scores, strict=True)
        if len(row.responses) != len(given)
    ]
    if faults:
        raise ConfigError(faults)


def _finite(scores: dict[str, Sequence[float]]) -> None:
    faults = [
        f"row {name}: scores must be finite numbers, got {list(given)}"
        for name, given in scores.items()
        if not all(math.isfinite(score) for score in given)
    ]
    if faults:
        raise ConfigError(faults)
