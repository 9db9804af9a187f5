"""The section "People": how far people and the judges say the same."""

from __future__ import annotations

import math

from phalanx.report.moaa_words import Section, TableView
from phalanx.report.people import EVERYBODY, Agreement, People, Share
from phalanx.report.words import plural

NOTE = (
    "Same side: of the duels of which both name a side, with its 95 % interval. Kappa counts ties, "
    "too, and is 0 where agreement is what chance gives; a dash for its interval: too few duels. "
    "People see more disputed duels (whose judges disagree) than the run has: read them apart from "
    "the clear ones."
)


def people_sections(found: People | None) -> list[Section]:
    """The section; none where nobody said anything."""
    if found is None:
        return []
    tables = [_persons(found)]
    if found.council:
        tables.append(_agreements("The council beside people", found.council, "with", NOTE))
    if found.judges:
        who = (
            "what most people say"
            if found.judges[0].person == EVERYBODY
            else (found.judges[0].person)
        )
        tables.append(_agreements(f"Judges beside {who}", found.judges, "judge", ""))
    if found.between:
        alpha = "" if found.alpha is None else f"Krippendorff's alpha of all: {found.alpha:.2f}."
        tables.append(_agreements("People among themselves", found.between, "", alpha))
    if found.bouts:
        tables.append(_bouts(found))
    return [Section("people", "People", tuple(_lines(found)), tuple(tables))]


def _lines(found: People) -> list[str]:
    labels = sum(person.num_labels for person in found.persons)
    count = len(found.persons)
    who = "1 person" if count == 1 else f"{count} people"
    lines = [f"{who} gave {plural(labels, 'label')}."]
    for line in found.council:
        if line.over_run is not None:
            share, interval = line.over_run
            lines.append(
                f"Over all duels of the run the council would name the side of {line.person} in "
                f"{_percent(share)} ({_percent(interval.low)} to {_percent(interval.high)})."
            )
    return lines


def _persons(found: People) -> TableView:
    rows = [
        (
            one.name, f"{one.num_labels:,}", f"{one.num_sided:,}", f"{one.num_ties:,}",
            f"{one.num_skipped:,}", "–" if one.seconds is None else f"{one.seconds:.0f} s",
            *_share(one.first),
        )
        for one in found.persons
    ]  # fmt: skip
    headers = (
        "person",
        "labels",
        "a side",
        "ties",
        "skipped",
        "median time",
        "first is better",
        "95 %",
    )
    return TableView("Labels", headers, tuple(rows), left=(0,))


def _agreements(title: str, lines: tuple[Agreement, ...], head: str, note: str) -> TableView:
    rows = []
    for line in lines:
        name = line.person if head == "with" else line.who
        if not head:
            name = f"{line.who}, {line.person}"
        kappa = "–" if line.kappa.value is None else f"{line.kappa.value:.2f}"
        cells = (name, *_share(line.share), _count(line.clear), _count(line.disputed), kappa)
        rows.append((*cells, _ends(line)))
    headers = (
        head or "persons", "same side", "95 %", "clear", "disputed", "kappa", "95 % of kappa",
    )  # fmt: skip
    return TableView(title, headers, tuple(rows), note=note, left=(0,))


def _bouts(found: People) -> TableView:
    rows = [(one.member, f"{one.won:,}", f"{one.lost:,}", f"{one.tied:,}") for one in found.bouts]
    note = "Blind, in a chat; in no iteration."
    return TableView("Bouts", ("member", "won", "lost", "tied"), tuple(rows), note, left=(0,))


def _share(share: Share) -> tuple[str, str]:
    """The share, and its interval."""
    if share.value is None:
        return "–", "–"
    low, high = share.interval
    return _percent(share.value), f"{100 * low:.0f}–{100 * high:.0f} %"


def _count(share: Share) -> str:
    return f"{share.equal:,} of {share.n:,}" if share.n else "–"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _ends(line: Agreement) -> str:
    """The interval of kappa; none where some draws of so few duels have no kappa."""
    interval = line.kappa.interval
    if interval is None or not all(map(math.isfinite, interval)):
        return "–"
    return f"{interval.low:.2f} to {interval.high:.2f}"
