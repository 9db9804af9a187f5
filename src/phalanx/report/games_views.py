"""Sections of contests: results, how the verdicts were read, differences, domains."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.report.games import Contest, Difference, Line, Measure
from phalanx.report.measured_views import verdict_word
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.words import (
    counted,
    p_value,
    percent,
    plural,
    points,
    points_span,
    span,
)
from phalanx.statistics import Interval

TITLES = {
    "alpaca_eval": "AlpacaEval 2",
    "arena_hard": "Arena-Hard",
    "mt_bench": "MT-Bench",
    "open": "Open task",
}
ALL_JUDGES = "all judges"
_NO_PLACE = (
    "Judge and baseline are not those of the published table, so these numbers must not be set "
    "beside it."
)
_NOTES = {
    "alpaca_eval": (
        "The win rate is the mean of the judge's probability of the member's answer, in one random "
        "order an item. The length-controlled one is fitted anew in every draw of its interval."
    ),
    "arena_hard": (
        "Both orders. Weight 3 counts a clear win as three battles, as published; how often judges "
        "call a win clear differs, so weight 1 stands beside it. Prompts are resampled with all "
        "their games. The rating is that of Bradley-Terry with the baseline at 1000."
    ),
    "mt_bench": (
        "Means of the ratings from 1 to 10 that were read; questions are resampled with both turns."
    ),
    "open": (
        "Orders that disagree are a tie. Scores of one answer alone say nothing, so only "
        "differences are shown, in units of their standard deviation (SD)."
    ),
}
_READ = (
    "A verdict that cannot be read is missing. Who has no answer loses (or has the lowest rating), "
    "and equal answers are a tie; no judge sees those. A judge without a taste for places prefers "
    "what is shown first half of the time."
)
_TEST = (
    "p: exact McNemar where every item is won or lost, else of flipped signs. Holm adjusts it over "
    "the lines, and decides: below .05 is better or worse."
)
_FINDS = (
    "“Unclear” is not “equal”: a difference below “finds” would mostly go unnoticed (found four "
    "times in five); a dash: none would be found."
)
_MOST_DOMAINS = 20  # Arena-Hard's 250 clusters are no table


def contest_sections(contests: Sequence[Contest]) -> list[Section]:
    """One section a contest."""
    return [_section(contest, "" if at else _READ) for at, contest in enumerate(contests)]


def _section(contest: Contest, note: str) -> Section:
    """``note`` says how to read verdicts, once for all contests."""
    against = f" against {contest.baseline}" if contest.baseline else ""
    version = f" {contest.version}" if contest.kind == "arena_hard" else ""
    title = f"{TITLES[contest.kind]}{version}: {contest.task}{against}"
    lines = [_NOTES[contest.kind], *contest.notes]
    if contest.kind == "alpaca_eval" and not contest.published:
        lines.insert(1, _NO_PLACE)
    lines += [
        f"{line.member}, {line.judge or ALL_JUDGES}: {note}."
        for line in contest.lines
        for note in line.notes
    ]
    tables = [_results(contest), _reading(contest, note), _lengths(contest)]
    if contest.differences:
        tables.append(_differences(contest.differences, contest.kind == "mt_bench"))
    if table := _domains(contest):
        tables.append(table)
    return Section(f"contest-{contest.task}", title, tuple(lines), tuple(tables))


def _results(contest: Contest) -> TableView:
    rows = [
        (line.member, line.judge or ALL_JUDGES, f"{line.items:,}", measure.name, *_cells(measure))
        for line in contest.lines
        for measure in line.measures or (None,)
        if measure is not None
    ]
    silent = [line for line in contest.lines if not line.measures]
    rows += [
        (line.member, line.judge or ALL_JUDGES, f"{line.items:,}", "no verdict", "–", "–", "–", "–")
        for line in silent
    ]
    headers = ("member", "judge", "n", "what", "value", "95 % interval", "SE", "p")
    note = "p: sign test against one half." if any(row[-1] != "–" for row in rows) else ""
    return TableView("Results", headers, tuple(rows), note, left=(0, 1, 3))


def _cells(measure: Measure) -> tuple[str, str, str, str]:
    p = "–" if measure.p is None else p_value(measure.p)
    interval, error = measure.interval, measure.error
    if measure.unit == "share":
        return (
            f"{percent(measure.value)} %",
            span(interval, 1) if interval else "–",
            "–" if error is None else percent(error),
            p,
        )
    places = 0 if measure.unit == "points" else 2
    return (
        _plain(measure.value, places),
        _between(interval, places),
        "–" if error is None else f"{error:.{places}f}",
        p,
    )


def _plain(value: float, places: int) -> str:
    return f"{value:.{places}f}".replace("-", "−")


def _between(interval: Interval | None, places: int) -> str:
    if interval is None:
        return "–"
    return f"{_plain(interval.low, places)} to {_plain(interval.high, places)}"


def _reading(contest: Contest, note: str) -> TableView:
    headers = ("member", "judge", "n", "unread", "no answer", "equal", "first won", "swapped")
    rows = tuple(
        (
            line.member,
            line.judge or ALL_JUDGES,
            f"{line.games:,}",
            f"{sum(line.unreadable.values()):,}",
            f"{line.unanswered:,}",
            f"{line.alike:,}",
            _of(*line.first),
            _of(*line.swapped),
        )
        for line in contest.lines
    )
    return TableView("Verdicts", headers, rows, f"{note} {_unread(contest.lines)}".strip())


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" if whole else "–"


def _lengths(contest: Contest) -> TableView:
    """Mean lengths of the answers, which are the same whoever judges them."""
    whole = {line.member: line for line in reversed(contest.lines)}
    compared = any(line.rival_length is not None for line in contest.lines)
    rows = []
    for name in dict.fromkeys(line.member for line in contest.lines):
        own, other = whole[name].length, whole[name].rival_length
        cells = [f"{own:,.0f}"]
        if compared:
            cells.append("–" if other is None else f"{other:,.0f}")
        rows.append((name, *cells))
    headers = ("member", "characters", *(("baseline's",) if compared else ()))
    return TableView("Mean lengths", headers, tuple(rows), left=(0,))


def _unread(lines: Sequence[Line]) -> str:
    """Why verdicts could not be read, judge by judge."""
    sums: dict[str, dict[str, int]] = {}
    for line in lines:
        if line.judge and line.unreadable:
            mine = sums.setdefault(line.judge, {})
            for reason, n in line.unreadable.items():
                mine[reason] = mine.get(reason, 0) + n
    return " ".join(f"Unread of {judge}: {counted(mine)}." for judge, mine in sums.items())


def _differences(found: Sequence[Difference], rating: bool) -> TableView:
    def finds(one: Difference) -> str:
        if one.direction:
            return ""
        if one.detectable is None:
            return "–"
        return f"{one.detectable:.2f}" if rating else percent(one.detectable)

    rows = tuple(
        (
            one.member,
            one.against,
            f"{one.items:,}",
            _plain(one.value, 2) if rating else points(one.value),
            _between(one.interval, 2) if rating else points_span(one.interval),
            p_value(one.pvalue),
            p_value(one.adjusted),
            verdict_word(one.direction),
            finds(one),
        )
        for one in found
    )
    unit = "ratings" if rating else "points"
    headers = ("member", "against", "n", unit, "95 %", "p", "Holm", "verdict", "finds")
    title = f"Paired differences on the same items, in {unit}"
    note = _TEST if all(one.direction for one in found) else f"{_TEST} {_FINDS}"
    return TableView(title, headers, rows, note, left=(0, 1, 7))


def _domains(contest: Contest) -> TableView | None:
    """Members across, domains down; only where there are few domains."""
    whole = {line.member: line for line in reversed(contest.lines)}  # all judges come first
    names = list(dict.fromkeys(line.member for line in contest.lines))
    domains = list(dict.fromkeys(name for line in whole.values() for name in line.domains))
    if not 1 < len(domains) <= _MOST_DOMAINS:
        return None
    rating = contest.kind == "mt_bench"

    def cell(member: str, domain: str) -> str:
        found = whole[member].domains.get(domain)
        if found is None:
            return "–"
        value, n = found
        return f"{value:.2f} of {n}" if rating else f"{percent(value, 0)} % of {n}"

    rows = tuple((name or "–", *(cell(member, name) for member in names)) for name in domains)
    title = f"By domain: {plural(len(domains), 'domain')}, mean over items"
    return TableView(title, ("domain", *names), rows, left=(0,), detail=len(names) > 4)
