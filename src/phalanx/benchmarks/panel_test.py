"""Judges under test: how right, how consistent and how partial each is, and the panel together.

Everything is counted from :class:`~phalanx.benchmarks.panel_readings.Reading`. Shares are of pairs
whose better response is known; ties and missing verdicts are not right, and stay in the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.benchmarks.panel_readings import Reading, Rule, TestedPair, right
from phalanx.benchmarks.records import Share
from phalanx.benchmarks.rewardbench import SUBSETS, overall_score, section_scores
from phalanx.identity import content_id
from phalanx.statistics import (
    Interval,
    LengthPreference,
    PanelWorth,
    PositionBias,
    brier,
    effective_judges,
    expected_calibration_error,
    holm,
    krippendorff_alpha,
    length_preference,
    mcnemar_exact,
    minimum_detectable,
    position_bias,
)
from phalanx.statistics.shares import wilson_of_share

Readings = Mapping[str, Sequence[Reading]]


@dataclass(frozen=True, slots=True)
class Partiality:
    """How often a judge prefers its own side, among ``n`` pairs that it read and in which exactly
    one response is of its side; ``truly``: how often that response is the better one.

    ``favoured`` has ties as half; ``pvalue`` is exact McNemar's, of the pairs that the judge gave
    to its own side against the truth and those that it took from it.
    """

    favoured: float
    truly: float
    n: int
    interval: Interval
    pvalue: float


@dataclass(frozen=True, slots=True)
class JudgeLine:
    """One judge, or the panel by one rule.

    ``flipped``: of the pairs read in both orders; ``first``, ``longer``, ``own`` and ``family``
    are None where nothing could be counted. ``truly_longer`` is the share of pairs (lengths
    differ) whose longer response is the better one. ``brier`` and ``ece`` rest on ``num_stated``
    probabilities. ``sections`` are RewardBench's, None where a subset is missing.
    """

    name: str
    right: Share
    ties: int
    unread: int
    by_group: dict[str, Share]
    flipped: Share | None = None
    first: PositionBias | None = None
    longer: LengthPreference | None = None
    truly_longer: float | None = None
    own: Partiality | None = None
    family: Partiality | None = None
    brier: float | None = None
    ece: float | None = None
    num_stated: int = 0

    @property
    def sections(self) -> dict[str, float | None]:
        """RewardBench's four sections and ``overall``; empty where a group is no subset of it."""
        if not self.by_group or not set(self.by_group) <= set(SUBSETS):
            return {}
        found = section_scores({name: share.share for name, share in self.by_group.items()})
        return {**found, "overall": overall_score(found)}


@dataclass(frozen=True, slots=True)
class Versus:
    """The panel by one rule against the judge that was best on the dev half, on the other half.

    ``gained`` pairs only the panel has right, ``lost`` only the judge. ``adjusted`` is Holm's over
    all rules. ``detectable``: the difference that so many pairs would show in four of five tries.
    """

    name: str
    right: Share
    best: Share
    gained: int
    lost: int
    pvalue: float
    adjusted: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class PanelTest:
    """The table of one panel at one time. ``why`` says what could not be computed."""

    num_pairs: int
    alone: tuple[JudgeLine, ...]
    together: tuple[JudgeLine, ...]
    alpha: float | None
    worth: PanelWorth | None
    best: str
    best_on_dev: Share | None
    versus: tuple[Versus, ...]
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shift:
    """What happened to one judge (or rule) between two times, on the same pairs.

    ``gained`` pairs are right only later, ``lost`` only before; ``adjusted`` is Holm's over all
    lines.
    """

    name: str
    before: Share
    after: Share
    gained: int
    lost: int
    pvalue: float
    adjusted: float
    detectable: float | None


def dev_half(pairs: Sequence[TestedPair]) -> set[str]:
    """Ids of the pairs that choose the best judge; the others report.

    By a hash of the ids alone, every other one in each group: halves of equal size, alike in what
    they ask.
    """
    ordered = sorted(pairs, key=lambda pair: (pair.group, content_id("judges under test", pair.id)))
    return {pair.id for pair in ordered[::2]}


# One judge ---------------------------------------------------------------------------------------


def judge_line(
    name: str,
    pairs: Sequence[TestedPair],
    readings: Sequence[Reading],
    rule: Rule,
    families: Mapping[str, str] = {},
) -> JudgeLine:
    """Everything about one judge. ``families`` has the family of each judge by name."""
    marks = [right(pair, one, rule) for pair, one in zip(pairs, readings, strict=True)]
    groups = dict.fromkeys(pair.group for pair in pairs)
    read = [(pair, one) for pair, one in zip(pairs, readings, strict=True) if one.sign is not None]
    longer, truly = _longer(read)
    chances = [
        (one.probability, pair.truth > 0) for pair, one in read if one.probability is not None
    ]
    brier_, ece = _calibration(chances)
    turned = [one.flipped for _, one in read if one.flipped is not None]
    return JudgeLine(
        name=name,
        right=Share(sum(marks), len(marks)),
        ties=sum(one.sign == 0 for one in readings),
        unread=sum(one.sign is None for one in readings),
        by_group={
            group: Share(
                sum(mark for pair, mark in zip(pairs, marks, strict=True) if pair.group == group),
                sum(pair.group == group for pair in pairs),
            )
            for group in groups
        },
        flipped=Share(sum(turned), len(turned)) if turned else None,
        first=_first(readings),
        longer=longer,
        truly_longer=truly,
        own=_own(name, read),
        family=_family(name, read, families),
        brier=brier_,
        ece=ece,
        num_stated=len(chances),
    )


def _first(readings: Sequence[Reading]) -> PositionBias | None:
    orders = [one.orders for one in readings if one.orders is not None]
    if not any(first is not None and second is not None for first, second in orders):
        return None
    return position_bias(orders)


def _worth(sign: int) -> float:
    return (1 + sign) / 2


def _longer(
    read: Sequence[tuple[TestedPair, Reading]],
) -> tuple[LengthPreference | None, float | None]:
    """Of the judge, and of the truth on the same pairs."""
    uneven = [(pair, one) for pair, one in read if pair.lengths[0] != pair.lengths[1]]
    if not uneven:
        return None, None
    lengths = [pair.lengths for pair, _ in uneven]
    found = length_preference(lengths, [_worth(one.sign or 0) for _, one in uneven])
    truth = length_preference(lengths, [_worth(pair.truth) for pair, _ in uneven])
    return found, truth.longer_share


def _calibration(chances: Sequence[tuple[float, bool]]) -> tuple[float | None, float | None]:
    """Brier score, and calibration error of the confidence in the judge's own verdict.

    Confidence, because which response is called A means nothing, and in some files the better one
    always is.
    """
    if not chances:
        return None, None
    confidence = [max(chance, 1 - chance) for chance, _ in chances]
    hits = [(chance > 0.5) == is_a and chance != 0.5 for chance, is_a in chances]
    return (
        brier([chance for chance, _ in chances], [is_a for _, is_a in chances]),
        expected_calibration_error(confidence, hits),
    )


def writer_name(writer: str) -> str:
    """The member that a writer is: ``ada@2`` is ``ada``.

    >>> writer_name("ada@2")
    'ada'
    """
    return writer.partition("@")[0]


def _own(name: str, read: Sequence[tuple[TestedPair, Reading]]) -> Partiality | None:
    mine = [
        (tuple(writer_name(writer) == name for writer in pair.writers), pair, one)
        for pair, one in read
    ]
    return _partiality([(own[0], pair, one) for own, pair, one in mine if own[0] != own[1]])


def _family(
    name: str, read: Sequence[tuple[TestedPair, Reading]], families: Mapping[str, str]
) -> Partiality | None:
    """Pairs with the judge's own responses are left out: those are the other measure."""
    family = families.get(name, "")
    if not family:
        return None
    mine = [
        (pair.families[0] == family, pair, one)
        for pair, one in read
        if all(pair.families)
        and (pair.families[0] == family) != (pair.families[1] == family)
        and name not in map(writer_name, pair.writers)
    ]
    return _partiality(mine)


def _partiality(mine: Sequence[tuple[bool, TestedPair, Reading]]) -> Partiality | None:
    """Each entry says whether A is the response of the judge's side."""
    if not mine:
        return None
    said = [(one.sign or 0) * (1 if own_is_a else -1) for own_is_a, _, one in mine]
    true = [pair.truth * (1 if own_is_a else -1) for own_is_a, pair, _ in mine]
    n = len(mine)
    favoured = sum(map(_worth, said)) / n
    given = sum(s > 0 > t for s, t in zip(said, true, strict=True))
    taken = sum(s < 0 < t for s, t in zip(said, true, strict=True))
    return Partiality(
        favoured=favoured,
        truly=sum(map(_worth, true)) / n,
        n=n,
        interval=wilson_of_share(favoured, n),
        pvalue=mcnemar_exact(given, taken),
    )


# The panel ---------------------------------------------------------------------------------------


def panel_test(
    pairs: Sequence[TestedPair],
    alone: Readings,
    collective: Readings,
    rule: Rule,
    families: Mapping[str, str] = {},
) -> PanelTest:
    """The whole table; readings are those of :mod:`phalanx.benchmarks.panel_readings`.

    Raises ValueError where there is no pair or no judge.
    """
    if not pairs or not alone:
        raise ValueError(f"a test needs pairs and judges, got {len(pairs)} and {len(alone)}")
    several = len(alone) > 1
    alpha, worth, why = _agreement(pairs, alone, rule) if several else (None, None, ())
    best, on_dev, versus = _versus(pairs, alone, collective, rule) if several else ("", None, ())
    return PanelTest(
        num_pairs=len(pairs),
        alone=tuple(judge_line(name, pairs, alone[name], rule, families) for name in alone),
        together=tuple(judge_line(name, pairs, collective[name], rule) for name in collective)
        if several
        else (),
        alpha=alpha,
        worth=worth,
        best=best,
        best_on_dev=on_dev,
        versus=versus,
        why=why,
    )


def _agreement(
    pairs: Sequence[TestedPair], alone: Readings, rule: Rule
) -> tuple[float | None, PanelWorth | None, tuple[str, ...]]:
    """Krippendorff's alpha of the signs, and the effective number of judges of their errors."""
    alpha = worth = None
    why = []
    try:
        alpha = krippendorff_alpha([[one.sign for one in mine] for mine in alone.values()])
    except ValueError as fault:
        why.append(f"agreement: {fault}")
    errors = [
        [
            None if one.sign is None else float(not right(pair, one, rule))
            for pair, one in zip(pairs, mine, strict=True)
        ]
        for mine in alone.values()
    ]
    try:
        worth = effective_judges(errors)
    except ValueError as fault:
        why.append(f"effective judges: {fault}")
    return alpha, worth, tuple(why)


def _versus(
    pairs: Sequence[TestedPair], alone: Readings, collective: Readings, rule: Rule
) -> tuple[str, Share | None, tuple[Versus, ...]]:
    chosen = dev_half(pairs)
    dev = [at for at, pair in enumerate(pairs) if pair.id in chosen]
    test = [at for at, pair in enumerate(pairs) if pair.id not in chosen]
    if not dev or not test:
        return "", None, ()
    marks = {
        name: [right(pair, one, rule) for pair, one in zip(pairs, mine, strict=True)]
        for name, mine in (*alone.items(), *collective.items())
    }
    best = max(alone, key=lambda name: sum(marks[name][at] for at in dev))  # the first of equals
    single = [marks[best][at] for at in test]
    compared = [(name, *_paired(single, [marks[name][at] for at in test])) for name in collective]
    adjusted = holm([pvalue for *_, pvalue, _ in compared])
    on_dev = Share(sum(marks[best][at] for at in dev), len(dev))
    return (
        best,
        on_dev,
        tuple(
            Versus(name, Share(sum(marks[name][at] for at in test), len(test)), before, gained,
                   lost, pvalue, corrected, detectable)
            for (name, before, _, gained, lost, pvalue, detectable), corrected in zip(
                compared, adjusted, strict=True
            )
        ),
    )  # fmt: skip


def _paired(
    before: Sequence[bool], after: Sequence[bool]
) -> tuple[Share, Share, int, int, float, float | None]:
    """Both shares, gained, lost, exact McNemar, and what so many pairs could have shown."""
    n = len(before)
    gained = sum(b < a for b, a in zip(before, after, strict=True))
    lost = sum(b > a for b, a in zip(before, after, strict=True))
    unlike = (gained + lost) / n
    detectable = minimum_detectable(n, discordant=unlike) if 0 < unlike < 1 else None
    pvalue = mcnemar_exact(lost, gained)
    return Share(sum(before), n), Share(sum(after), n), gained, lost, pvalue, detectable


def shifts(
    pairs: Sequence[TestedPair], before: Readings, after: Readings, rule: Rule
) -> tuple[Shift, ...]:
    """The paired change of everybody who is in both, on the same pairs."""
    found = []
    for name in before:
        if name not in after:
            continue
        marks = [
            [right(pair, one, rule) for pair, one in zip(pairs, readings[name], strict=True)]
            for readings in (before, after)
        ]
        found.append((name, *_paired(*marks)))
    adjusted = holm([pvalue for *_, pvalue, _ in found])
    return tuple(
        Shift(name, was, now, gained, lost, pvalue, corrected, detectable)
        for (name, was, now, gained, lost, pvalue, detectable), corrected in zip(
            found, adjusted, strict=True
        )
    )
