"""Judges under test, as sections: a table of judges and rules, what they prefer, what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from phalanx.benchmarks.panel_test import Change, JudgeLine, PanelTest, Partiality
from phalanx.benchmarks.records import Share
from phalanx.benchmarks.rewardbench import SECTIONS
from phalanx.report.judged_facts import Tested
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.words import counted, p_value, percent, plural, points, span
from phalanx.statistics import LengthPreference

NONE = "–"
FEW_COLUMNS = 5
"""More judges than that do not fit a terminal as columns."""
_STATED = {
    "expected": "from the two distributions of scores",
    "reward": "the logistic of the difference of rewards",
    "rubric": "no probability is stated: the normal distribution of the score difference in units "
    "of the judge's own spread",
    "likelihood": "no probability is stated: the normal distribution of the difference in units of "
    "the judge's own spread",
}


_TEST = "exact McNemar (of flipped signs, by prompt, where a prompt has several pairs)"
_DETECTABLE = (
    "Detectable: the difference in points that such a test finds in four of five tries, at the "
    "level of Holm's first step."
)


def judged_sections(tested: Tested) -> list[Section]:
    """The tables of every iteration, and what happened between the first and the last."""
    found = []
    for number, test in tested.tests.items():
        when = _when(tested, number)
        lines = (*_about(tested, test), *_agreement(test))
        tables = [
            _accuracy(tested, test),
            *_preferences(test),
            *_against_best(test),
            *_groups(test),
            *_judgebench(test),
            *_rewardbench(test),
            *_many(tested, number),
        ]
        title = f"Judges under test{when}"
        found.append(Section(f"judges-{number}", title, lines, tuple(tables)))
    if tested.shifts:
        found.append(_shifts(tested))
    return found


def _when(tested: Tested, number: int) -> str:
    if len(tested.tests) == 1 and number == 0:
        return ""
    return ", before alignment" if number == 0 else f", after iteration {number}"


# What the numbers mean ---------------------------------------------------------------------------


def _about(tested: Tested, test: PanelTest) -> Iterator[str]:
    left_out = f"; left out: {counted(tested.left_out)}" if tested.left_out else ""
    fewer = test.num_prompts < test.num_pairs
    prompts = f" of {plural(test.num_prompts, 'prompt')}" if fewer else ""
    yield (
        f"{plural(test.num_pairs, 'pair')}{prompts} with a known better response "
        f"({tested.format}), judged by the protocol {tested.protocol}{left_out}."
    )
    yield chance(tested)


def chance(tested: Tested) -> str:
    """What somebody who knows nothing would get."""
    if not tested.ordered:
        return (
            "Responses were scored apart, so order plays no part. A coin gets 50 %; equal scores "
            "and missing verdicts are not right."
        )
    return (
        "A win needs both orders; contradictions and ties are not right. A coin thrown for each "
        "order gets 25 %, whoever always names the first response 0 %."
    )


def _agreement(test: PanelTest) -> Iterator[str]:
    if test.alpha is not None:
        yield f"Agreement of the judges (Krippendorff's alpha of their verdicts): {test.alpha:.2f}."
    worth = test.worth
    if worth is not None and worth.effective is not None:
        shared = worth.correlation is not None and worth.correlation > 0
        why = f"errors correlate by {worth.correlation:.2f}" if shared else "no correlation found"
        yield (
            f"Worth as many independent judges: {worth.effective:.1f} of {worth.judges} ({why}, "
            f"participation {worth.participation:.1f}; {plural(worth.items, 'pair')} that all "
            "judged). It counts judges as good as these whose errors have nothing in common."
        )
    yield from (f"Not computed: {why}." for why in test.why)


# Tables ------------------------------------------------------------------------------------------


def _accuracy(tested: Tested, test: PanelTest) -> TableView:
    ordered = tested.ordered or any(line.flipped for line in test.alone)
    headers = ["judge", "right %", "95 %", "ties", "unread"]
    headers += ["flipped", "first wins"] if ordered else []
    headers += ["Brier", "ECE"]
    rows = [tuple(_cells(line, test.num_pairs, ordered)) for line in (*test.alone, *test.together)]
    notes = []
    if test.together:
        notes.append(
            "std.: each judge's score differences divided by their spread first. Majority: of the "
            "judges' verdicts."
        )
    if ordered:
        notes.append(
            "Flipped: of pairs read in both orders, those whose verdict changed with it. First "
            "wins: how often what stood first did; 50 % without preference."
        )
    if stated := _STATED.get(tested.protocol):
        notes.append(
            f"Probabilities: {stated}; 'mean' has the mean of the judges'. Brier: 0.25 is that of "
            "a coin. ECE: how far confidence and success lie apart; biased upwards on few pairs."
        )
    title = f"{plural(len(test.alone), 'judge')} alone"
    title += f", and together by {plural(len(test.together), 'rule')}" if test.together else ""
    return TableView(title, tuple(headers), tuple(rows), " ".join(notes), left=(0,))


def _cells(line: JudgeLine, num_pairs: int, ordered: bool) -> Iterator[str]:
    yield line.name
    yield percent(line.right.share)
    yield span(line.interval)
    yield _percent_of(line.ties, num_pairs)
    yield _percent_of(line.unread, num_pairs)
    if ordered:
        yield NONE if line.flipped is None else f"{percent(line.flipped.share, 0)} %"
        yield NONE if line.first is None else f"{percent(line.first.first_share, 0)} %"
    yield NONE if line.brier is None else f"{line.brier:.3f}"
    yield NONE if line.ece is None else f"{line.ece:.3f}"


def _percent_of(part: int, whole: int) -> str:
    return f"{percent(part / whole, 0)} %" if part else "0"


def _preferences(test: PanelTest) -> Iterator[TableView]:
    """What judges favour beside what is better: longer texts, their own, their family's."""
    lines = [*test.alone, *(line for line in test.together if line.name == "mean")]
    rows = [
        _length_cells(line.name, line.longer, line.truly_longer)
        for line in lines
        if line.longer is not None and line.truly_longer is not None
    ]
    if rows:
        note = (
            "Truth: how often the longer one is the better one, on the same pairs; the difference "
            "is the bias, in points."
        )
        headers = ("judge", "longer wins %", "95 %", "truth %", "bias", "pairs")
        yield TableView("Preference for the longer response", headers, tuple(rows), note, left=(0,))
    for title, of in (
        ("Preference for one's own response", _own_of),
        ("Preference for responses of one's own family", _family_of),
    ):
        rows = [_own_cells(line.name, found) for line in lines if (found := of(line))]
        if rows:
            note = (
                "Of pairs in which exactly one response is of the judge's side; ties half. p: "
                f"{_TEST}, pairs given to one's own side against the truth and taken from it."
            )
            headers = ("judge", "favours own %", "95 %", "truth %", "bias", "pairs", "p")
            yield TableView(title, headers, tuple(rows), note, left=(0,))


def _own_of(line: JudgeLine) -> Partiality | None:
    return line.own


def _family_of(line: JudgeLine) -> Partiality | None:
    return line.family


def _length_cells(name: str, longer: LengthPreference, truth: float) -> tuple[str, ...]:
    return (
        name,
        percent(longer.longer_share),
        span(longer.interval),
        percent(truth),
        points(longer.longer_share - truth),
        f"{longer.n:,}",
    )


def _own_cells(name: str, found: Partiality) -> tuple[str, ...]:
    return (
        name,
        percent(found.favoured),
        span(found.interval),
        percent(found.truly),
        points(found.favoured - found.truly),
        f"{found.n:,}",
        p_value(found.pvalue),
    )


def _against_best(test: PanelTest) -> Iterator[TableView]:
    if not test.versus or test.best_on_dev is None:
        return
    best = test.versus[0].before
    title = (
        f"Together against {test.best}, best on the dev half "
        f"({_share(test.best_on_dev)}); on the other half {_share(best)}"
    )
    note = (
        "Halves by a hash, within groups. Gained: right together and wrong by the judge alone. p: "
        f"{_TEST}, and Holm's over all rules. {_DETECTABLE}"
    )
    headers = ("rule", "right %", "change", "gained", "lost", "p", "Holm", "detectable")
    rows = tuple((one.name, percent(one.after.share), *_change(one)) for one in test.versus)
    yield TableView(title, headers, rows, note, left=(0,))


def _share(share: Share) -> str:
    return f"{share.count} of {share.n}, {percent(share.share)} %"


def _change(one: Change) -> tuple[str, ...]:
    return (
        points(one.after.share - one.before.share),
        f"{one.gained:,}",
        f"{one.lost:,}",
        p_value(one.pvalue),
        p_value(one.adjusted),
        NONE if one.detectable is None else percent(one.detectable),
    )


def _groups(test: PanelTest) -> Iterator[TableView]:
    """Share right by group: all judges and the plain mean, if there are several groups."""
    groups = list(test.alone[0].by_group)
    if len(groups) < 2:
        return
    lines = [*test.alone, *(line for line in test.together if line.name == "mean")]
    rows = [
        (
            group or "(none)",
            f"{lines[0].by_group[group].n:,}",
            *(percent(line.by_group[group].share) for line in lines),
        )
        for group in groups
    ]
    headers = ("group", "pairs", *(line.name for line in lines))
    yield _wide("Right by group, in %", headers, rows, lines)


def _wide(
    title: str,
    headers: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    lines: Sequence[JudgeLine],
    note: str = "",
) -> TableView:
    detail = len(lines) > FEW_COLUMNS
    return TableView(title, tuple(headers), tuple(rows), note, left=(0,), detail=detail)


def _judgebench(test: PanelTest) -> Iterator[TableView]:
    """The published number, of judges alone: the panel has one verdict a pair."""
    lines = [line for line in test.alone if line.published]
    found = [line.published for line in lines if line.published]
    if not found:
        return
    rows = [
        ("all", f"{found[0].overall.n:,}", *(percent(one.overall.share) for one in found)),
        ("95 %", "", *(span(one.overall.interval) for one in found)),
    ]
    rows += [
        (group, f"{share.n:,}", *(percent(one.by_group[group].share) for one in found))
        for group, share in found[0].by_group.items()
    ]
    note = (
        "Right where the verdicts of both orders, +1 for a right one and −1 for a wrong one, sum "
        "to more than 0: one order may be a tie or missing, which the other tables do not count."
    )
    headers = ("group", "pairs", *(line.name for line in lines))
    yield _wide("By JudgeBench's published rule, in %", headers, rows, lines, note)


def _rewardbench(test: PanelTest) -> Iterator[TableView]:
    """Sections by the published weights; those that lack a subset have no number."""
    lines = [line for line in (*test.alone, *test.together) if line.sections]
    names = (*SECTIONS, "overall")
    if not any(line.sections[name] is not None for line in lines for name in names):
        return
    rows = tuple((line.name, *_sections(line, names)) for line in lines)
    note = "Subsets weigh as published; a section that lacks a subset has no number."
    yield TableView("RewardBench's sections, in %", ("judge", *names), rows, note, left=(0,))


def _sections(line: JudgeLine, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        value = line.sections[name]
        yield NONE if value is None else percent(value)


def _many(tested: Tested, number: int) -> Iterator[TableView]:
    lines = tested.many.get(number, ())
    ks = sorted({k for one in lines for k in one.curve})
    if not ks:
        return
    rows = tuple(
        (one.name, f"{one.rows:,}",
         *(percent(one.curve[k]) if k in one.curve else NONE for k in ks))
        for one in lines
    )  # fmt: skip
    note = (
        "The chance, in %, that the best scored of k responses drawn without replacement is right."
    )
    headers = ("judge", "prompts", *(f"k={k}" for k in ks))
    yield TableView("The best of k", headers, rows, note, left=(0,))


def _shifts(tested: Tested) -> Section:
    first, last = min(tested.tests), max(tested.tests)
    rows = tuple(
        (one.name, percent(one.before.share), percent(one.after.share), *_change(one))
        for one in tested.shifts
    )
    headers = ("judge", "before %", "after %", "change", "gained", "lost", "p", "Holm",
               "detectable")  # fmt: skip
    note = f"The same pairs before and after. p: {_TEST}, and Holm's over all lines. {_DETECTABLE}"
    title = f"Right, iteration {first} and iteration {last}"
    lines = tuple(_moved(tested, first, last))
    table = TableView(title, headers, rows, note, left=(0,))
    return Section("judges-change", "What happened to the judges", lines, (table,))


def _moved(tested: Tested, first: int, last: int) -> Iterator[str]:
    before, after = tested.tests[first], tested.tests[last]
    measures: tuple[tuple[str, Callable[[PanelTest], float | None]], ...] = (
        ("Agreement (alpha)", lambda test: test.alpha),
        ("Effective judges", lambda test: test.worth.effective if test.worth else None),
    )
    for name, of in measures:
        was, now = of(before), of(after)
        if was is not None and now is not None:
            yield f"{name}: {was:.2f} → {now:.2f}."
