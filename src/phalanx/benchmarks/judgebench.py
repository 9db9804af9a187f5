"""JudgeBench: does a judge find the right one of two responses, asked in both orders?

The published rule (Tan et al., arXiv 2410.12784): of the two verdicts each that agrees with the
label counts +1, each opposite one -1, a tie or a missing verdict 0; the pair is right if the sum
is above nought. One right verdict and one tie is right; one right and one wrong is not. Pairs
without a verdict stay in the denominator.

A coin that decides the two orders apart gets 25 % right, and a judge that always names the first
response 0 %: set that beside the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from phalanx.benchmarks.records import Share
from phalanx.errors import ConfigError

Verdict = Literal["A>B", "A=B", "B>A"]
VERDICTS: tuple[Verdict, ...] = ("A>B", "A=B", "B>A")
_FOLDED: dict[str, Verdict] = {
    "A>>B": "A>B", "A>B": "A>B", "A=B": "A=B", "B>A": "B>A", "B>>A": "B>A",
}  # fmt: skip
_FLIPPED: dict[Verdict, Verdict] = {"A>B": "B>A", "A=B": "A=B", "B>A": "A>B"}
GROUPS = ("mmlu-pro", "livebench-reasoning", "livebench-math", "livecodebench")


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Both verdicts on a pair, each as it was written: ``swapped`` saw B's response as A.

    None is a verdict that is missing or could not be read.
    """

    id: str
    group: str
    label: Verdict
    straight: Verdict | None
    swapped: Verdict | None


@dataclass(frozen=True, slots=True)
class JudgeBench:
    """``consistent``: share of pairs whose two verdicts say the same; ``num_unread``: pairs that
    lack at least one verdict."""

    overall: Share
    by_group: dict[str, Share]
    consistent: Share
    num_unread: int


def fold(label: str) -> Verdict:
    """One of Arena-Hard's five labels as one of three. Raises ValueError for any other text.

    >>> fold("B>>A")
    'B>A'
    """
    if label not in _FOLDED:
        raise ValueError(f"unknown verdict {label!r}; known are {', '.join(_FOLDED)}")
    return _FOLDED[label]


def flip(verdict: Verdict | None) -> Verdict | None:
    """What a verdict on swapped responses says of the pair in its own order."""
    return None if verdict is None else _FLIPPED[verdict]


def group_of(source: str) -> str:
    """The group that a pair is reported in: ``mmlu-pro-law`` is ``mmlu-pro``."""
    return next((group for group in GROUPS if source.startswith(group)), source)


def pair_sum(pair: JudgedPair) -> int:
    """Agreeing minus opposite verdicts, -2 to 2."""
    opposite = flip(pair.label)
    said = (pair.straight, flip(pair.swapped))
    return sum((verdict == pair.label) - (verdict == opposite) for verdict in said)


def is_right(pair: JudgedPair) -> bool:
    """The published rule for one pair."""
    return pair_sum(pair) > 0


def judgebench(pairs: Iterable[JudgedPair]) -> JudgeBench:
    """Score the pairs; overall is over all pairs, not the mean of the groups.

    Raises ConfigError for no pair, a pair twice, a label that is a tie or an unknown verdict.
    """
    rows = list(pairs)
    _check(rows)
    groups = sorted({row.group for row in rows})
    return JudgeBench(
        overall=_right(rows),
        by_group={name: _right([row for row in rows if row.group == name]) for name in groups},
        consistent=Share(sum(row.straight == flip(row.swapped) for row in rows), len(rows)),
        num_unread=sum(row.straight is None or row.swapped is None for row in rows),
    )


def _right(rows: Sequence[JudgedPair]) -> Share:
    return Share(sum(map(is_right, rows)), len(rows))


def _check(rows: Sequence[JudgedPair]) -> None:
    if not rows:
        raise ConfigError("there is no judged pair to score")
    faults, seen = [], set()
    for row in rows:
        if row.label not in ("A>B", "B>A"):
            faults.append(f"pair {row.id}: the label must be A>B or B>A, got {row.label!r}")
        for verdict in (row.straight, row.swapped):
            if verdict is not None and verdict not in VERDICTS:
                faults.append(f"pair {row.id}: unknown verdict {verdict!r}; fold() it first")
        if row.id in seen:
            faults.append(f"pair {row.id} is there twice; keep one")
        seen.add(row.id)
    if faults:
        raise ConfigError(faults)
