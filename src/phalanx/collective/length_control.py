"""Best and worst of a member's own responses, by their scores, with length held in check.

Judges that are models like length. Length control (Meta-Rewarding, arXiv 2407.19594, section 2)
takes the shortest response that is nearly best and the longest that is nearly worst.
"""

from __future__ import annotations

from collections.abc import Sequence


def best_and_worst(
    scores: Sequence[float | None], choosable: Sequence[bool]
) -> tuple[int, int] | None:
    """Positions of the highest and the lowest score, the first of several that are alike.

    None stands for a response without a score. Only ``choosable`` ones can be best. None where no
    choosable response has a higher score than another.

    >>> best_and_worst([3.0, None, 4.0, 1.0], [True] * 4)
    (2, 3)
    """
    known = [at for at, score in enumerate(scores) if score is not None]
    whole = [at for at in known if choosable[at]]
    if not whole:
        return None
    best = max(whole, key=lambda at: scores[at])
    worst = min(known, key=lambda at: scores[at])
    return (best, worst) if scores[best] > scores[worst] else None


def length_controlled(
    scores: Sequence[float | None],
    lengths: Sequence[int],
    rho: float,
    choosable: Sequence[bool],
) -> tuple[int, int] | None:
    """Positions of the chosen and the rejected response, in the manner of :func:`best_and_worst`.

    Chosen is the shortest with a score of at least (1 - rho) * highest + rho * lowest, rejected
    the longest with one of at most (1 - rho) * lowest + rho * highest; of equally long ones the
    better and the worse. ``rho`` is from 0 (length decides ties alone) to 1. From 0.5 on the two
    ranges overlap: None where the chosen one would not have the higher score.

    >>> length_controlled([5.0, 4.8, 1.0, 1.2], [90, 40, 10, 70], 0.1, [True] * 4)
    (1, 3)
    """
    ends = best_and_worst(scores, choosable)
    if ends is None:
        return None
    high, low = scores[ends[0]], scores[ends[1]]
    # Rounding must not shut the ends of the scale out of their own ranges.
    enough = min((1 - rho) * high + rho * low, high)
    little = max((1 - rho) * low + rho * high, low)
    good = [at for at, s in enumerate(scores) if s is not None and s >= enough and choosable[at]]
    poor = [at for at, s in enumerate(scores) if s is not None and s <= little]
    chosen = min(good, key=lambda at: (lengths[at], -scores[at]))
    rejected = max(poor, key=lambda at: (lengths[at], -scores[at]))
    return (chosen, rejected) if scores[chosen] > scores[rejected] else None
