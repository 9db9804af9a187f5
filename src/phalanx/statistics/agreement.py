"""Agreement: of two raters, of many with gaps, and what their errors have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np

Level = Literal["nominal", "ordinal", "interval"]


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa (1960) of two raters' labels for the same items, in order.

    (p - e) / (1 - e), where p is the share of equal labels and e the share that their own label
    counts would give by chance. None where both gave one and the same label throughout (0/0).
    Intervals: :func:`phalanx.statistics.bootstrap` over the items. Kappa falls where one label is
    rare, at the same share of equal labels: give that share beside it.

    ValueError where the lengths differ or there is no item.
    """
    if len(first) != len(second):
        raise ValueError(f"two raters need the same items, got {len(first)} and {len(second)}")
    if not first:
        raise ValueError("there is no item to agree on")
    n = len(first)
    ours, theirs = Counter(first), Counter(second)
    equal = n * sum(left == right for left, right in zip(first, second, strict=True))
    chance = sum(count * theirs[label] for label, count in ours.items())
    return None if chance == n * n else (equal - chance) / (n * n - chance)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable | None]], level: Level = "nominal"
) -> float | None:
    """Krippendorff's alpha (2011) of a table with a row for each rater and a column for each item.

    None is a rating that is missing; items with fewer than two ratings say nothing and are left
    out. ``nominal``: labels of any kind; ``ordinal``: numbers of which only the order counts;
    ``interval``: numbers with differences. 1 is full agreement, 0 what chance gives, below 0 is
    worse. None where all ratings are the same value (no disagreement was possible).

    alpha = 1 - observed / expected disagreement. The mean squared difference within items and over
    all ratings gives both, of ordinal ratings after they are replaced by their mid-ranks (the
    ordinal metric is the squared difference of those), so no table of value pairs is needed.

    ValueError where rows differ in length, no item has two ratings, or a number is not finite.
    """
    if level not in ("nominal", "ordinal", "interval"):
        raise ValueError(f"level must be nominal, ordinal or interval, got {level!r}")
    units = _rated_twice(ratings)
    everything = [value for unit in units for value in unit]
    if len(set(everything)) == 1:
        return None
    if level == "nominal":
        expected = _unlike(everything) / (len(everything) - 1)
        observed = math.fsum(_unlike(unit) / (len(unit) - 1) for unit in units)
    else:
        places = _places(everything, level)
        scaled = [np.array([places[value] for value in unit]) for unit in units]
        expected = _spread(np.concatenate(scaled)) / (len(everything) - 1)
        observed = math.fsum(_spread(unit) / (unit.size - 1) for unit in scaled)
    return 1 - observed / expected


def _rated_twice(ratings: Sequence[Sequence[Hashable | None]]) -> list[list[Hashable]]:
    """The ratings of each item that has at least two."""
    lengths = {len(row) for row in ratings}
    if len(lengths) > 1:
        raise ValueError(f"every rater needs a place for every item, got rows of {sorted(lengths)}")
    columns = zip(*ratings, strict=True)
    units = [[value for value in column if value is not None] for column in columns]
    units = [unit for unit in units if len(unit) >= 2]
    if not units:
        raise ValueError("no item has two ratings: there is nothing to agree on")
    return units


def _unlike(values: Sequence[Hashable]) -> int:
    """Ordered pairs of different values."""
    return len(values) ** 2 - sum(count * count for count in Counter(values).values())


def _spread(values: np.ndarray) -> float:
    """Sum of squared differences over ordered pairs."""
    return float(2 * values.size * ((values - values.mean()) ** 2).sum())


def _places(values: Sequence[Hashable], level: Level) -> dict[Hashable, float]:
    """Each value as a number of which differences count."""
    counts: Counter[float] = Counter()
    for value in values:
        if not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise ValueError(
                f"{level} ratings must be finite numbers, got {value!r}; use None for a missing "
                "one, or the level nominal for labels"
            )
        counts[float(value)] += 1
    if level == "interval":
        return {value: value for value in counts}
    places: dict[Hashable, float] = {}
    before = 0
    for value, count in sorted(counts.items()):
        places[value] = before + count / 2
        before += count
    return places


class PanelWorth(NamedTuple):
    """What a panel of judges is worth in independent judges; see :func:`effective_judges`.

    ``judges`` and ``items`` are those that the numbers rest on; ``constant`` lists the judges
    (places in the table) that were left out because their error never changes.
    """

    judges: int
    items: int
    constant: tuple[int, ...]
    correlation: float | None
    effective: float | None
    participation: float | None


def effective_judges(errors: Sequence[Sequence[float | None]]) -> PanelWorth:
    """How many independent judges the panel is worth (the question of arXiv 2605.29800).

    ``errors`` has a row for each judge and a column for each item: 1 where the judge was wrong
    and 0 where it was right, or its score minus the true one. None: no judgment; such items are
    left out for all judges.

    ``effective`` is Kish's k / (1 + (k - 1) r) with the mean correlation r of the k(k - 1)/2 pairs
    of judges' errors: the number of independent judges, as good as these, whose mean verdict errs
    with the same variance. This is the number to report, since averaging and voting are what a
    panel is for. It is k where r is 0 or less: no errors in common were found, and a panel is not
    worth more judges than it has. ``correlation`` still says by how much errors cancel.
    ``participation`` is (sum of eigenvalues)^2 / (sum of their squares) of the correlation matrix,
    the number of different ways to be wrong. It lies between 1 and k, cannot tell cancelling from
    shared errors, and is too low on few items, where chance correlations count as shared ones; it
    stands beside the other for the case that one block of alike judges hides in a low mean.

    The three are None where fewer than two judges have errors that change. ValueError where there
    are fewer than two judges, rows differ in length, or fewer than two items were judged by all.
    """
    table = _judged_by_all(errors)
    change = np.ptp(table, axis=1) > 0
    constant = tuple(int(place) for place in np.flatnonzero(~change))
    k = int(change.sum())
    if k < 2:
        return PanelWorth(k, table.shape[1], constant, None, None, None)
    matrix = np.corrcoef(table[change])
    pairs = matrix[np.triu_indices(k, 1)]
    mean = float(pairs.mean())
    effective = k / (1 + (k - 1) * max(0.0, mean))
    participation = k * k / float(k + 2 * (pairs**2).sum())
    return PanelWorth(k, table.shape[1], constant, mean, effective, participation)


def _judged_by_all(errors: Sequence[Sequence[float | None]]) -> np.ndarray:
    """judges x items, the items that every judge judged."""
    if len(errors) < 2:
        raise ValueError(f"a panel needs at least 2 judges, got {len(errors)}")
    lengths = {len(row) for row in errors}
    if len(lengths) > 1:
        raise ValueError(f"every judge needs a place for every item, got rows of {sorted(lengths)}")
    columns = [column for column in zip(*errors, strict=True) if None not in column]
    if len(columns) < 2:
        raise ValueError(f"{len(columns)} items were judged by all judges; at least 2 are needed")
    table = np.array(columns, dtype=float).T
    if not np.isfinite(table).all():
        raise ValueError("errors hold NaN or infinity; use None for a missing judgment")
    return table
