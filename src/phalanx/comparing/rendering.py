"""A comparison as tables: for a terminal (80 columns), as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from phalanx.comparing.spec import FROZEN
from phalanx.comparing.table import Change, Difference, Findings, Row
from phalanx.report.html import write_whole
from phalanx.report.markdown import sections_text
from phalanx.report.moaa_words import Section, TableView, money, p_value
from phalanx.report.terminal import sections_page
from phalanx.report.words import percent, plural, points, points_span

NAME = "comparison"
NONE = "–"
OFF = "‡"
"""Behind the name of a way that used far less or more than its budget in a seed."""
KIND_WORDS = {"several": "together", "single": "alone", "answer": "answers", "none": NONE}
_WIDE = 26  # names that fit beside the columns in 80 characters
_LEVELS = (
    "A way is a method with its settings. % right on test items, and every domain (kind of item) "
    "weighs the same. “right”: of the best member after the run, or of the answers that members "
    "reach together (answers). Who is best is chosen on dev items, which count nowhere else. "
    "“mean” and “vote”: of the members, one voice each, at the start and the end."
)
_READING = (
    "Points, paired by item. “items”: 95 % for other questions and these seeds; “seeds”: 95 % for "
    "other pools and these questions; neither is adjusted. p is over items, and adjusted: Holm's "
    "method raises it the more, the more rows are tested here."
)
_VERDICT = (
    "Better or worse: p below .05 over items, with a star where the test over seeds (after Holm) "
    "does not say so as well, so that it is said of these pools alone. “Unclear” is not “equal”: "
    "“finds” is the smallest difference that the test would find with 80 % chance. “Same”: no item "
    "differs."
)


def page(
    findings: Findings, title: str, notes: Sequence[str] = (), more: Sequence[Section] = ()
) -> RenderableType:
    """What a terminal shows. ``notes`` are lines of the first section, ``more`` sections of the
    caller's."""
    return sections_page(title, comparison_sections(findings, notes, more))


def write(
    findings: Findings,
    folder: Path,
    title: str,
    notes: Sequence[str] = (),
    more: Sequence[Section] = (),
) -> tuple[Path, Path]:
    """Write ``comparison.md`` and ``comparison.json`` into ``folder``; their paths."""
    text, data = folder / f"{NAME}.md", folder / f"{NAME}.json"
    write_whole(text, sections_text(title, comparison_sections(findings, notes, more)))
    plain = {"title": title, "notes": list(notes), **as_plain(findings)}
    write_whole(data, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    return text, data


def as_plain(findings: Findings) -> dict[str, Any]:
    """Every number, in plain values; shares, not per cent."""
    return json.loads(json.dumps(asdict(findings)))


def comparison_sections(
    findings: Findings, notes: Sequence[str] = (), more: Sequence[Section] = ()
) -> list[Section]:
    """What was compared, how good everything is, the differences, what it took."""
    found = [Section("what", "What was compared", (*_scope(findings), *notes))]
    if not findings.rows:
        return [*found, *more]
    found.append(Section("levels", "How good", (_LEVELS,), (_levels(findings),)))
    compared = [_against(findings, name) for name in findings.against]
    tables = tuple(table for table in compared if table.rows)
    if tables:
        found.append(Section("differences", "Differences", (_READING, _VERDICT), tables))
    found += more
    detail = (_members(findings), _seeds(findings), *_domains(findings))
    found.append(Section("details", "In detail", (), tuple(t for t in detail if t.rows)))
    found.append(Section("used", "What it took", (), (_used(findings), _learned(findings))))
    return found


def _scope(findings: Findings) -> list[str]:
    """Items, seeds, and what has no place in the tables."""
    if not findings.rows:
        lines = ["No run is finished."]
    else:
        same = "the same in all seeds" if findings.fixed_items else "others in each seed"
        lines = [
            *_untrained(findings),
            f"{plural(len(findings.rows), 'way')}; seeds {', '.join(map(str, findings.seeds))}; "
            f"{findings.num_dev:,} dev and {findings.num_test:,} test items"
            + (f", {same}." if len(findings.seeds) > 1 else "."),
        ]
    if findings.rows and len(findings.seeds) < 3:
        lines.append(
            "With fewer than three seeds nearly nothing is known of other pools: read the "
            "intervals over seeds, where there are some."
        )
    absent = [name for name in findings.against if name not in {r.name for r in findings.rows}]
    if findings.rows and absent:
        lines.append(f"Nothing can be compared with {', '.join(absent)} yet.")
    for row in findings.rows:
        if row.off_budget:
            used = ", ".join(
                f"{100 * share:.0f} % (seed {seed})" for seed, share in row.off_budget.items()
            )
            lines.append(f"{row.name}{OFF} used {used} of the budget: it is not on equal terms.")
    lines += [
        f"{row.name}, seed {seed}: {warning}."
        for row in findings.rows
        for seed, warnings in row.warnings.items()
        for warning in warnings
    ]
    lines += [
        f"Left out: {one.name}, seed {one.seed}: {one.why.rstrip('.')}." for one in findings.missing
    ]
    return lines


def _untrained(findings: Findings) -> list[str]:
    """For the top of all: nothing below says anything of learning."""
    if not findings.untrained:
        return []
    if any(row.trained for row in findings.rows):
        where = f"in the runs of {', '.join(findings.untrained)}, which say"
    else:
        where = "in any run: this says"
    return [f"No member was trained {where} nothing about learning."]


def _levels(findings: Findings) -> TableView:
    rows = []
    for row in findings.rows:
        seeds = f"{len(row.seeds)} of {len(findings.seeds)}"
        level = [percent(row.level), _ends(row.mean), _ends(row.vote)]
        rows.append((_short(row), KIND_WORDS[row.kind], seeds, *level))
    headers = ("way", "learns", "seeds", "right", "mean", "vote")
    return TableView("% right on test items", headers, tuple(rows))


def _ends(change: Change | None) -> str:
    if change is None:
        return NONE
    start, end = percent(change.start), percent(change.end)
    return start if change.difference.alike and start == end else f"{start}→{end}"


def _against(findings: Findings, name: str) -> TableView:
    rows = [
        (_short(row), *_difference(row.differences[name]))
        for row in findings.rows
        if name in row.differences
    ]
    title = "Against the best initial member" if name == FROZEN else f"Against {name}"
    headers = ("way", "points", "items", "seeds", "p", "verdict", "finds")
    return TableView(title, headers, tuple(rows), left=(0,))


def _difference(one: Difference) -> tuple[str, ...]:
    return (
        points(one.value),
        NONE if one.items is None else points_span(one.items, 0),
        NONE if one.seeds is None else points_span(one.seeds, 0),
        NONE if one.adjusted_items is None else p_value(one.adjusted_items),
        verdict(one),
        NONE if one.finds is None or one.direction else percent(one.finds),
    )


def verdict(one: Difference) -> str:
    """``better``, ``worse*`` (for these seeds), ``unclear``, or ``same``."""
    if one.alike:
        return "same"
    if not one.direction:
        return "unclear"
    word = "better" if one.direction > 0 else "worse"
    return word if one.over_seeds_too else f"{word}*"


def _members(findings: Findings) -> TableView:
    """From the start of the runs to their end: mean over members and their vote."""
    rows = []
    for row in findings.rows:
        for what, change in (("mean", row.mean), ("vote", row.vote)):
            if change is not None and row.kind != "none":
                ends = (percent(change.start), percent(change.end))
                rows.append((row.name, what, *ends, *_difference(change.difference)[:3]))
    headers = ("way", "of the members", "start", "end", "points", "items", "seeds")
    note = "From each way's own start; not adjusted for their number."
    return TableView("The members", headers, tuple(rows), note, detail=True)


def _seeds(findings: Findings) -> TableView:
    rows = [
        (row.name, str(seed), who, percent(level), *_by_seed(row, seed, findings.against))
        for row in findings.rows
        for seed, who, level in zip(row.seeds, row.whose, row.by_seed, strict=True)
    ]
    headers = ("way", "seed", "who", "% right", *(f"minus {name}" for name in findings.against))
    return TableView("By seed", headers, tuple(rows), left=(0, 2), detail=True)


def _by_seed(row: Row, seed: int, against: Sequence[str]) -> list[str]:
    """The differences of one seed, where both sides have it."""
    found = [row.differences[name].by_seed if name in row.differences else {} for name in against]
    return [points(one[seed]) if seed in one else NONE for one in found]


def _domains(findings: Findings) -> list[TableView]:
    if len(findings.domains) < 2:
        return []
    names = sorted({domain for row in findings.rows for domain in row.domains})
    rows = [
        (row.name, *(percent(row.domains[name]) if name in row.domains else NONE for name in names))
        for row in findings.rows
    ]
    return [TableView("By domain", ("way", *names), tuple(rows), left=(0,), detail=True)]


def _used(findings: Findings) -> TableView:
    """What counts for a budget, and the time."""
    headers = ["way", "responses", "judgments", "steps", "tokens"]
    headers += ["budget"] if findings.budget else []
    headers += ["shared", "min"]
    priced = any(row.used["money"] for row in findings.rows)
    rows = []
    for row in findings.rows:
        cells = [_amount(row.used[name]) for name in ("responses", "judgments", "steps", "tokens")]
        if findings.budget:
            share = findings.share(row)
            cells.append(NONE if share is None else f"{100 * share:.0f} %")
        asked = row.used["requests"]
        cells.append(f"{100 * row.used['shared_in_all'] / asked:.0f} %" if asked else NONE)
        cells.append(f"{row.used['seconds'] / 60:.1f}")
        rows.append((_short(row), *cells, *((money(row.used["money"]),) if priced else ())))
    headers += ["money"] if priced else []
    note = (
        "Of the mean seed, by the ledgers, without recruiting; responses to tokens without the "
        "members' measurement, too. “shared”: of all requests, those that another way had asked "
        "already; they count as used, and took no time here. “min”: minutes of the run's phases."
    )
    return TableView("Used", tuple(headers), tuple(rows), note, left=(0,))


def _learned(findings: Findings) -> TableView:
    rows = []
    for row in findings.rows:
        names = ("pairs", "demonstrations", "tokens_read", "tokens_written")
        rows.append((row.name, *(_amount(row.used[name]) for name in names), _labels(row.used)))
    headers = ("way", "pairs", "demonstrations", "tokens read", "written", "labels right")
    note = (
        "Of the mean seed, measurement included. “labels right”: of the pairs with exactly one "
        "right response, where answers are known, those that prefer it; no method sees answers."
    )
    return TableView("Learned and read", headers, tuple(rows), note, left=(0,), detail=True)


def _amount(value: float) -> str:
    """Three digits and a letter: 950, 12.3k, 4.56M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def _labels(used: Mapping[str, float]) -> str:
    decidable = used["labels_decidable"]
    return f"{100 * used['labels_right'] / decidable:.0f} %" if decidable else NONE


def _short(row: Row) -> str:
    """The name of a way as far as there is room, marked where it is not on equal terms."""
    mark = OFF if row.off_budget else ""
    room = _WIDE - len(mark)
    return (row.name if len(row.name) <= room else f"{row.name[: room - 1]}…") + mark
