"""What every file of this folder uses: an interval, and checks of what is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """Both ends of a confidence interval, ``low <= high``."""

    low: float
    high: float


def deviations(confidence: float) -> float:
    """How many standard deviations of a normal hold ``confidence`` of it, as 1.96 do 95%."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1 (both excluded), got {value}")


def check_draws(draws: int) -> None:
    """Raise ValueError unless there is at least one draw."""
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")


def finite_values(name: str, values: Sequence[float]) -> np.ndarray:
    """``values`` as one row of floats; ValueError where they are empty, nested or not finite."""
    found = np.asarray(values, dtype=float)
    if found.ndim != 1:
        raise ValueError(f"{name} must be one row of numbers, got the shape {found.shape}")
    if found.size == 0:
        raise ValueError(f"{name} are empty: there is nothing to compute from")
    if not np.isfinite(found).all():
        place = int(np.flatnonzero(~np.isfinite(found))[0])
        raise ValueError(
            f"{name} hold {found[place]} at place {place}; leave such items out first, and say so"
        )
    return found
