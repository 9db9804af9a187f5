"""Judges under test: how right, how consistent and how partial each is, and the panel together.

Everything is counted from :class:`~phalanx.benchmarks.panel_readings.Reading`. Shares are of pairs
whose better response is known; ties and missing verdicts are not right, and stay in the count.
Pairs of one prompt are not independent: intervals and tests take prompts as what was drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.benchmarks.judgebench import JudgeBench, judgebench
from phalanx.benchmarks.panel_readings import Reading, TestedPair, in_both_orders, right
from phalanx.benchmarks.records import Share
from phalanx.benchmarks.rewardbench import SUBSETS, overall_score, section_scores
from phalanx.identity import content_id
from phalanx.statistics import (
    Interval,
    LengthPreference,
    PanelWorth,
    PositionBias,
    brier,
    by_cluster,
    detectable,
    effective_judges,
    expected_calibration_error,
    holm,
    krippendorff_alpha,
    length_preference,
    paired_test,
    position_bias,
)
from phalanx.statistics.shares import wilson_of_share

Readings = Mapping[str, Sequence[Reading]]
_SEED = 0  # of flipped signs, where prompts have several pairs


@dataclass(frozen=True, slots=True)
class Partiality:
    """How often a judge prefers its own side, among ``n`` pairs that it read and in which exactly
    one response is of its side; ``truly``: how often that response is the better one.

    ``favoured`` has ties as half; ``pvalue`` is that of a paired test by prompt, of the pairs that
    the judge gave to its own side against the truth and those that it took from it.
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
    probabilities. ``published`` is by JudgeBench's rule, where that was asked for and judges saw
    both orders. ``sections`` are RewardBench's, None where a subset is missing.
    """

    name: str
    right: Share
    interval: Interval
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
    published: JudgeBench | None = None

    @property
    def sections(self) -> dict[str, float | None]:
        """RewardBench's four sections and ``overall``; empty where a group is no subset of it."""
        if not self.by_group or not set(self.by_group) <= set(SUBSETS):
            return {}
        found = section_scores({name: share.share for name, share in self.by_group.items()})
        return {**found, "overall": overall_score(found)}


@dataclass(frozen=True, slots=True)
class Change:
    """One line on the same pairs: a judge or rule at two times, or (``before``) the judge that was
    best on the dev half and (``after``) the panel by one rule, on the other half.

    ``gained`` pairs are right only after, ``lost`` only before. ``pvalue`` is that of a paired test
    by prompt; ``adjusted`` is Holm's over all lines. ``detectable``: the difference that such a
    test finds in four of five tries, at the level of Holm's first step.
    """

    name: str
    before: Share
    after: Share
    gained: int
    lost: int
    pvalue: float
    adjusted: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class PanelTest:
    """The table of one panel at one time. ``why`` says what could not be computed."""

    num_pairs: int
    num_prompts: int
    alone: tuple[JudgeLine, ...]
    together: tuple[JudgeLine, ...]
    alpha: float | None
    worth: PanelWorth | None
    best: str
    best_on_dev: Share | None
    versus: tuple[Change, ...]
    why: tuple[str, ...] = ()


def dev_half(pairs: Sequence[TestedPair]) -> set[str]:
    """Ids of the pairs that choose the best judge; the others report.

    By a hash of the prompts alone, every other one in each group: halves with as many prompts,
    alike in what they ask, and no prompt in both.
    """
    groups: dict[str, str] = {}
    for pair in pairs:
        groups[pair.prompt] = min(pair.group, groups.get(pair.prompt, pair.group))
    ordered = sorted(groups, key=lambda key: (groups[key], content_id("judges under test", key)))
    chosen = set(ordered[::2])
    return {pair.id for pair in pairs if pair.prompt in chosen}


def by_prompt(
    pairs: Sequence[TestedPair], before: Sequence[float], after: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Scores of pairs as scores of prompts, whose mean is that of the pairs.

    With one pair a prompt they are the same.
    """
    prompts = [pair.prompt for pair in pairs]
    scale = len(set(prompts)) / len(prompts)
    first, second = (
        [scale * sum(mine) for mine in by_cluster(scores, prompts)] for scores in (before, after)
    )
    return first, second


def share_interval(share: float, pairs: Sequence[TestedPair]) -> Interval:
    """Wilson's, as if all pairs of a prompt were one; prompts of different size count as Kish's
    effective number, (sum of sizes)^2 / sum of their squares. It is never too narrow."""
    sizes = Counter(pair.prompt for pair in pairs).values()
    return wilson_of_share(share, len(pairs) ** 2 / sum(size * size for size in sizes))


# One judge ---------------------------------------------------------------------------------------


def judge_line(
    name: str,
    pairs: Sequence[TestedPair],
    readings: Sequence[Reading],
    families: Mapping[str, str] = {},
    *,
    published: bool = False,
) -> JudgeLine:
    """Everything about one judge. ``families`` has the family of each judge by name; ``published``
    asks for JudgeBench's rule as well."""
    marks = [right(pair, one) for pair, one in zip(pairs, readings, strict=True)]
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
        interval=share_interval(sum(marks) / len(marks), pairs),
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
        published=_published(pairs, readings) if published else None,
    )


def _published(pairs: Sequence[TestedPair], readings: Sequence[Reading]) -> JudgeBench | None:
    if all(one.orders is None for one in readings):
        return None
    return judgebench(map(in_both_orders, pairs, readings))


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
    interval = share_interval(found.longer_share, [pair for pair, _ in uneven])
    return found._replace(interval=interval), truth.longer_share


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
    pairs = [pair for _, pair, _ in mine]
    kept = [t if s == 0 else s for s, t in zip(said, true, strict=True)]  # a tie moves nothing
    test = paired_test(
        *by_prompt(pairs, list(map(_worth, true)), list(map(_worth, kept))), seed=_SEED
    )
    return Partiality(
        favoured=favoured,
        truly=sum(map(_worth, true)) / n,
        n=n,
        interval=share_interval(favoured, pairs),
        pvalue=test.pvalue,
    )


# The panel ---------------------------------------------------------------------------------------


def panel_test(
    pairs: Sequence[TestedPair],
    alone: Readings,
    collective: Readings,
    families: Mapping[str, str] = {},
    *,
    published: bool = False,
) -> PanelTest:
    """The whole table; readings are those of :mod:`phalanx.benchmarks.panel_readings`.

    ``published``: with JudgeBench's rule beside the judges' own verdicts, which decide everything
    else; the panel has one verdict a pair and no orders.
    Raises ValueError where there is no pair or no judge.
    """
    if not pairs or not alone:
        raise ValueError(f"a test needs pairs and judges, got {len(pairs)} and {len(alone)}")
    several = len(alone) > 1
    alpha, worth, why = _agreement(pairs, alone) if several else (None, None, ())
    best, on_dev, versus = _versus(pairs, alone, collective) if several else ("", None, ())
    return PanelTest(
        num_pairs=len(pairs),
        num_prompts=len({pair.prompt for pair in pairs}),
        alone=tuple(
            judge_line(name, pairs, alone[name], families, published=published) for name in alone
        ),
        together=tuple(judge_line(name, pairs, collective[name]) for name in collective)
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
    pairs: Sequence[TestedPair], alone: Readings
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
            None if one.sign is None else float(not right(pair, one))
            for pair, one in zip(pairs, mine, strict=True)
        ]
        for mine in alone.values()
    ]
    try:
        worth = effective_judges(errors)
    except ValueError as fault:
        why.append(f"effective judges: {fault}")
    return alpha, worth, tuple(why)


def _marks(pairs: Sequence[TestedPair], readings: Sequence[Reading]) -> list[bool]:
    return [right(pair, one) for pair, one in zip(pairs, readings, strict=True)]


def _versus(
    pairs: Sequence[TestedPair], alone: Readings, collective: Readings
) -> tuple[str, Share | None, tuple[Change, ...]]:
    """The judge that is best on the dev half, its share there, and the rules against it."""
    chosen = dev_half(pairs)
    halves = [[at for at, pair in enumerate(pairs) if (pair.id in chosen) == dev]
              for dev in (True, False)]  # fmt: skip
    if not all(halves):
        return "", None, ()
    dev, test = halves
    marks = {name: _marks(pairs, mine) for name, mine in (*alone.items(), *collective.items())}
    best = max(alone, key=lambda name: sum(marks[name][at] for at in dev))  # the first of equals
    single = [marks[best][at] for at in test]
    changes = _changes(
        [pairs[at] for at in test],
        {name: (single, [marks[name][at] for at in test]) for name in collective},
    )
    on_dev = Share(sum(marks[best][at] for at in dev), len(dev))
    return best, on_dev, changes


def _changes(
    pairs: Sequence[TestedPair], marks: Mapping[str, tuple[Sequence[bool], Sequence[bool]]]
) -> tuple[Change, ...]:
    """``marks`` has what each line got right before and after."""
    scores = {name: by_prompt(pairs, *both) for name, both in marks.items()}
    pvalues = {name: paired_test(*both, seed=_SEED).pvalue for name, both in scores.items()}
    adjusted = holm(list(pvalues.values()))
    return tuple(
        Change(
            name=name,
            before=Share(sum(before), len(pairs)),
            after=Share(sum(after), len(pairs)),
            gained=sum(b < a for b, a in zip(before, after, strict=True)),
            lost=sum(b > a for b, a in zip(before, after, strict=True)),
            pvalue=pvalues[name],
            adjusted=corrected,
            detectable=detectable(*scores[name], family=len(marks)),
        )
        for (name, (before, after)), corrected in zip(marks.items(), adjusted, strict=True)
    )


def shifts(pairs: Sequence[TestedPair], before: Readings, after: Readings) -> tuple[Change, ...]:
    """The paired change of everybody who is in both, on the same pairs."""
    return _changes(
        pairs,
        {
            name: (_marks(pairs, before[name]), _marks(pairs, after[name]))
            for name in before
            if name in after
        },
    )
