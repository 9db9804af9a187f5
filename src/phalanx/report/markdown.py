"""A short Markdown summary of a run, for a pull request or a model card."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from phalanx.report.html import finding, headline, notes, write_whole
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.records import Change, RunFacts
from phalanx.report.sections import own_sections
from phalanx.report.servers import endpoint_lines
from phalanx.report.views import collective_notes, paired_tests
from phalanx.report.warnings import warnings
from phalanx.report.words import (
    DROP_WORDS,
    STATUS_WORDS,
    choice_line,
    counted,
    duration,
    percent,
    plural,
    points,
    points_span,
    run_name,
    span,
    total_seconds,
)


def write_markdown(facts: RunFacts, path: Path | str) -> None:
    """Write the summary to ``path``."""
    write_whole(path, render(facts))


def render(facts: RunFacts) -> str:
    """Headline, accuracy by domain and by member, reputations, pairs, and how to read them."""
    measured = facts.evaluation
    parts = [f"# {run_name(facts)}", ""]
    parts += [line for one in warnings(facts) for line in (f"> {_safe(one)}", "")]
    parts += [f"- {i['name']}: **{i['value']}** ({i['note']})" for i in headline(facts)]
    if facts.sectioned:
        own = own_sections(facts)
        parts += [line for section in own for line in _section(section)]
        if facts.command:
            return "\n".join(parts) + "\n"
        parts += ["", *_accounting(facts), "", *_reading(facts)]
        return "\n".join(parts) + "\n"
    parts += ["", f"## {finding(facts)}", ""]
    if measured.note:
        parts += [f"{measured.note[:1].upper()}{measured.note[1:]}.", ""]
    if len(measured.iterations) > 1 and measured.changes:
        rows = [(d or "all domains", measured.change("", d)) for d in (*measured.domains, "")]
        parts += [*_table("mean of the members", rows), ""]
        rows = [(c.member, c) for c in measured.changes if c.member and not c.domain]
        rows += [(name, changes.get("")) for name, changes in measured.together.items()]
        parts += [*_table("mean of the domains", rows), ""]
        if notes := collective_notes(measured):
            parts += [" ".join(notes), ""]
        if tests := paired_tests(measured):
            parts += [*_view(tests), ""]
        for name, choice in (
            ("Best initial", measured.best_initial),
            ("Best aligned", measured.best_aligned),
        ):
            if choice:
                parts.append(f"- {name}: {choice_line(choice)}")
    if facts.reputations:
        ranked = sorted(facts.reputations, key=lambda line: -line.value)
        parts += ["", "## Reputations", ""]
        parts += [f"- {line.member}: {line.value:.2f} (from {line.start:.2f})" for line in ranked]
    parts += [line for section in own_sections(facts) for line in _section(section)]
    parts += ["", *_accounting(facts), "", *_reading(facts)]
    return "\n".join(parts) + "\n"


def _accounting(facts: RunFacts) -> list[str]:
    account = facts.accounting
    shown = []
    if account.num_demonstrations:
        shown.append(
            f"- {plural(account.num_demonstrations, 'demonstration')}: "
            f"{account.demonstrations_kept:,} kept; "
            f"dropped: {counted(account.demonstrations_dropped, DROP_WORDS)}"
        )
    return [
        "## Accounting",
        "",
        *shown,
        *_judged(facts),
        *[f"- endpoint {line}" for line in endpoint_lines(facts)],
        f"- time: {duration(total_seconds(facts))}",
    ]


def _judged(facts: RunFacts) -> list[str]:
    """Duels, judgments and pairs; of a method that has none of them, nothing."""
    account, lines = facts.accounting, list[str]()
    if account.num_duels or not facts.rival:
        what = "comparison" if facts.rival else "duel"
        lines += [
            f"- {plural(account.num_duels, what)}: {counted(account.outcomes, STATUS_WORDS)}",
            f"- {plural(account.judgments_asked, 'judgment')}; "
            f"unreadable: {counted(account.unreadable)}",
        ]
    if account.num_pairs or not facts.rival:
        lines.append(
            f"- {plural(account.pairs_kept, 'pair')} kept; "
            f"dropped: {counted(account.dropped, DROP_WORDS)}"
        )
    return lines


def _reading(facts: RunFacts) -> list[str]:
    return ["## How to read this", "", *[f"- {note}" for note in notes(facts)]]


def sections_text(title: str, found: Sequence[Section]) -> str:
    """Sections of words and tables under a title, details included."""
    lines = [f"# {_safe(title)}", *(line for section in found for line in _section(section))]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = ["", f"## {section.title}", ""]
    lines += [f"- {_safe(line)}" for line in section.lines]
    for view in section.tables:
        lines += ["", f"### {_safe(view.title)}", "", *_view(view)]
    return lines


def _view(view: TableView) -> list[str]:
    sides = "|".join("---" if n in view.left else "---:" for n in range(len(view.headers)))
    lines = [f"| {' | '.join(map(_safe, view.headers))} |", f"|{sides}|"]
    lines += [f"| {' | '.join(map(_safe, row))} |" for row in view.rows]
    return [*lines, "", _safe(view.note)] if view.note else lines


def _safe(text: str) -> str:
    """A text that closes no cell and begins no tag."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")


def _table(first: str, rows: list[tuple[str, Change | None]]) -> list[str]:
    lines = [f"| {first} | before % | after % | change, points | 95 % |", "|---|---|---|---|---|"]
    for name, change in rows:
        if change:
            lines.append(
                f"| {name} | {percent(change.before)} [{span(change.before_interval)}] "
                f"| {percent(change.after)} [{span(change.after_interval)}] "
                f"| {points(change.difference)} | {points_span(change.interval, 0)} |"
            )
    return lines
