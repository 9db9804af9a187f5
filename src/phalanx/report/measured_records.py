"""The numbers of an evaluation (``phalanx eval``), without words. Shares are in [0, 1].

A subject is whoever was measured: a member, ``ada@2`` (the member after iteration 2), or several
that answer together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.statistics import Interval
from phalanx.statistics.paired import ALPHA


@dataclass(frozen=True, slots=True)
class Sums:
    """One subject on one task: every item is ``done`` (an answer was read), ``unreadable`` or
    ``failed`` (there is no response, for a recorded reason)."""

    subject: str
    task: str
    done: int
    unreadable: int
    failed: int

    @property
    def items(self) -> int:
        return self.done + self.unreadable + self.failed


@dataclass(frozen=True, slots=True)
class TaskScore:
    """What a subject got on a task, or on one ``domain`` of it, over all of its items.

    ``score`` is the mean of the items' scores, ``whole`` the share of items that are right as a
    whole: another number where an item can be partly right. Items without a response, or whose
    request failed, are ``failed``; those whose response could not be read are ``unreadable``; both
    count as wrong. ``reasons`` counts why (a tie of likelihoods is one). ``characters`` is the mean
    length of the responses as they were written, None where nothing was. ``cut`` counts those that
    ended at the limit of new tokens, ``cut_unread`` by reason those of them that could not be read.

    Of several samples all of this but ``score`` is of the first one; ``later`` counts the items of
    which another failed or could not be read (and is wrong).
    """

    subject: str
    task: str
    domain: str
    n: int
    score: float
    interval: Interval
    whole: float
    unreadable: int
    failed: int
    reasons: dict[str, int]
    characters: float | None
    cut: int = 0
    cut_unread: dict[str, int] = field(default_factory=dict)
    later: int = 0


@dataclass(frozen=True, slots=True)
class TaskMean:
    """The mean of a subject's scores over the tasks that all subjects have; each counts the same.

    The interval is made of those of the tasks.
    """

    subject: str
    score: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Paired:
    """``subject`` minus ``other`` on the ``n`` items of ``task`` that both have.

    ``task`` "" is the mean over the tasks that all subjects have: one test, which is not adjusted.

    ``pvalue`` is exact McNemar where ``exact`` (every item right or wrong on both sides), else of
    flipped signs; ``adjusted`` is that after Holm over the tasks of this comparison.
    ``detectable`` is the smallest difference that the test would find with 80 % chance, see
    :func:`phalanx.statistics.detectable`. ``gained`` and ``lost`` count items.
    """

    subject: str
    other: str
    task: str
    n: int
    difference: float
    interval: Interval
    gained: int
    lost: int
    exact: bool
    pvalue: float
    adjusted: float | None = None
    detectable: float | None = None

    @property
    def direction(self) -> int:
        """1 or -1 where the test, adjusted where it is one of several, says so, else 0."""
        pvalue = self.pvalue if self.adjusted is None else self.adjusted
        return 0 if pvalue >= ALPHA else 1 if self.difference > 0 else -1


@dataclass(frozen=True, slots=True)
class PassAt:
    """The unbiased chance that one of ``k`` samples is right, mean over the ``n`` items."""

    subject: str
    task: str
    samples: int
    k: int
    n: int
    share: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Picked:
    """The subject with the best mean on the dev items, and its mean on the test items."""

    subject: str
    dev: float
    num_dev: int
    test: float
    num_test: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class AnswerExample:
    """One item: ``said`` has (who, what was read, or why nothing was, the response, cut off) of the
    subject, and first of whom it is compared with where ``kind`` is gained or lost."""

    kind: str
    subject: str
    task: str
    item: str
    question: str
    gold: str
    said: tuple[tuple[str, str, str, bool], ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything measured by one evaluation.

    ``kinds``: task -> the benchmark that it is, "" for rows of one's own. ``common`` are the tasks
    that every subject has, ``missing`` the (subject, task) that nobody measured;
    ``max_new_tokens`` is how long a response may be.
    """

    subjects: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    max_new_tokens: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    sampled: dict[str, int] = field(default_factory=dict)
    common: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    scores: tuple[TaskScore, ...] = ()
    by_domain: tuple[TaskScore, ...] = ()
    means: tuple[TaskMean, ...] = ()
    paired: tuple[Paired, ...] = ()
    passes: tuple[PassAt, ...] = ()
    best: Picked | None = None
    examples: tuple[AnswerExample, ...] = ()

    def score(self, subject: str, task: str) -> TaskScore | None:
        for one in self.scores:
            if (one.subject, one.task) == (subject, task):
                return one
        return None

    @property
    def comparisons(self) -> dict[tuple[str, str], tuple[Paired, ...]]:
        """(subject, other) -> its tasks, and after them the mean where there is one."""
        found: dict[tuple[str, str], list[Paired]] = {}
        for one in self.paired:
            found.setdefault((one.subject, one.other), []).append(one)
        return {pair: tuple(rows) for pair, rows in found.items()}

    def overall(self, rows: Sequence[Paired]) -> Paired | None:
        """Of one comparison: what is of the same tasks as ``means``, None without such tasks."""
        task = "" if len(self.common) > 1 else next(iter(self.common), None)
        return next((row for row in rows if row.task == task), None)
