"""Two scores of each of the same items, tested, and what so many items could have shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, variance

from phalanx.statistics.resampling import sign_flip_test
from phalanx.statistics.shares import mcnemar_exact, minimum_detectable

ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True, slots=True)
class PairedTest:
    """``gained`` and ``lost``: items on which the second score is higher, and lower.

    ``exact`` says how ``pvalue`` came about: exact McNemar, where every item is right or wrong on
    both sides; else signs were flipped.
    """

    n: int
    gained: int
    lost: int
    pvalue: float
    exact: bool


def paired_test(before: Sequence[float], after: Sequence[float], *, seed: int) -> PairedTest:
    """Test whether the mean of ``after - before`` is 0. ValueError where lengths differ."""
    differences = [two - one for one, two in zip(before, after, strict=True)]
    gained, lost = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    exact = {*before, *after} <= {0, 1}
    pvalue = mcnemar_exact(lost, gained) if exact else sign_flip_test(differences, seed=seed)
    return PairedTest(len(differences), gained, lost, pvalue, exact)


def detectable(before: Sequence[float], after: Sequence[float], *, family: int = 1) -> float | None:
    """The smallest difference of means that :func:`paired_test` finds with 80 % chance.

    It takes what is seen as given: of right and wrong items how many differ, else the standard
    deviation of the differences (normal approximation). ``family`` is the number of tests that
    Holm adjusts together: the first of them must pass 5 % / ``family``, and so must this one.
    None where nothing differs, or where a change of all items that differ would not be found.
    """
    differences = [two - one for one, two in zip(before, after, strict=True)]
    differing = sum(d != 0 for d in differences) / len(differences)
    if not differing:
        return None
    if {*before, *after} <= {0, 1}:
        # A share of 1 is no share of a binomial; this is as close as matters.
        differing = min(differing, 0.999)
        return minimum_detectable(len(differences), differing, POWER, 1 - ALPHA / family)
    return detectable_mean([differences], family=family)


def mean_test(tasks: Sequence[Sequence[float]], *, seed: int) -> float:
    """p of flipped signs: is the mean over tasks of their mean differences 0?"""
    weighted = [value / len(task) for task in tasks for value in task]
    return sign_flip_test(weighted, seed=seed)


def detectable_mean(tasks: Sequence[Sequence[float]], *, family: int = 1) -> float | None:
    """What :func:`mean_test` finds with 80 % chance, by the normal approximation.

    None where a task has a single item, and where so few items differ that flipping their signs
    cannot come below the level, even if all changed one way.
    """
    level = ALPHA / family
    differing = sum(value != 0 for task in tasks for value in task)
    if least_pvalue(differing) >= level or any(len(task) < 2 for task in tasks):
        return None
    return found_with(
        math.sqrt(sum(variance(task) / len(task) for task in tasks)) / len(tasks), family=family
    )


def least_pvalue(differing: int) -> float:
    """The smallest two-sided p that flipping the signs of so many differences can reach: that
    where all of them go one way. It is exact McNemar's then."""
    return min(1.0, 2 * 0.5**differing)


def found_with(error: float, *, family: int = 1) -> float | None:
    """The smallest mean that a test with this standard error finds with 80 % chance, by the normal
    approximation; None where that is none, or more than a share can be."""
    normal = NormalDist()
    found = (normal.inv_cdf(1 - ALPHA / family / 2) + normal.inv_cdf(POWER)) * error
    return found if 0 < found <= 1 else None
