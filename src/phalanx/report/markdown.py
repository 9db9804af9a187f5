"""A short Markdown summary of a run, for a pull request or a model card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from phalanx.report.headlines import verdict
from phalanx.report.health import by_name, signs
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
    harmless,
    percent,
    plural,
    points,
    points_span,
    run_name,
    span,
    total_seconds,
)

_MARKS = re.compile(r"[\\`*|]|~(?=~)|\](?=[(\[])|(?<!\w)_|_(?!\w)|^[#>+\[-]")
_NAMES = re.compile(r"(?<!\w)@(?=\w)")  # of people, whom a mention would call
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)


def write_markdown(facts: RunFacts, path: Path | str) -> None:
    """Write the summary to ``path``."""
    write_whole(path, render(facts))


def render(facts: RunFacts) -> str:
    """Headline, accuracy by domain and by member, reputations, pairs, and how to read them."""
    measured = facts.evaluation
    parts = [f"# {_safe(run_name(facts))}", "", f"**{_safe(verdict(facts))}**", ""]
    parts += [line for one in warnings(facts) for line in (f"> {_safe(one)}", "")]
    parts += _signs(facts)
    parts += [
        f"- {_safe(i['name'])}: **{_safe(i['value'])}** ({_safe(i['note'])})"
        for i in headline(facts)
    ]
    if facts.sectioned:
        own = own_sections(facts)
        parts += [line for section in own for line in _section(section)]
        if facts.command:
            return "\n".join([*parts, *_more(facts)]) + "\n"
        parts += ["", *_accounting(facts), *_more(facts), "", *_reading(facts)]
        return "\n".join(parts) + "\n"
    parts += ["", f"## {_safe(finding(facts))}", ""]
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
        parts += [
            f"- {_safe(line.member)}: {line.value:.2f} (from {line.start:.2f})" for line in ranked
        ]
    parts += [line for section in own_sections(facts) for line in _section(section)]
    parts += ["", *_accounting(facts), *_more(facts), "", *_reading(facts)]
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
        *[f"- endpoint {_safe(line)}" for line in endpoint_lines(facts)],
        *_cost(facts),
    ]


def _cost(facts: RunFacts) -> list[str]:
    """Time, and tokens where engines count them; money stands with the endpoints."""
    lines = [f"- time: {duration(total_seconds(facts))}"]
    read = sum(one.tokens_in for one in facts.spending)
    written = sum(one.tokens_out for one in facts.spending)
    asked = sum(one.requests for one in facts.spending)
    if read or written:
        lines.append(f"- {plural(asked, 'request')}: {read:,} tokens read, {written:,} written")
    return lines


def _signs(facts: RunFacts) -> list[str]:
    """What fired, a line for each rule: the first place of it, and how many more there are."""
    lines = []
    for name, found in by_name(signs(facts)).items():
        more = f" and {len(found) - 1:,} more like it" if len(found) > 1 else ""
        lines.append(
            f"> - `{name}`: {_safe(found[0].sentence)}{more}. To do: {_safe(found[0].advice)}."
        )
    return ["> Signs to look into:", *lines, ""] if lines else []


def _more(facts: RunFacts) -> list[str]:
    """The commands that show the rest, for whoever has the run."""
    # Relative to where this was made, as it was typed; other places say nothing to a reader.
    folder = Path(facts.folder)
    here = not folder.is_absolute() and all(map(_PLAIN.fullmatch, folder.parts))
    run = folder.as_posix() if here and ".." not in folder.parts else "RUN"
    where = "" if run != "RUN" else f"With the folder of {_safe(run_name(facts))} as RUN: "
    return ["", "## See more", "", f"{where}`phalanx report {run}` writes the whole page, "
            f"`phalanx serve {run}` shows it in a browser; `phalanx export {run} WHAT --out FILE` "
            "writes rows."]  # fmt: skip


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
    return ["## How to read this", "", *[f"- {_safe(note)}" for note in notes(facts)]]


def sections_text(title: str, found: Sequence[Section]) -> str:
    """Sections of words and tables under a title, details included."""
    lines = [f"# {_safe(title)}", *(line for section in found for line in _section(section))]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = ["", f"## {_safe(section.title)}", ""]
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
    """A text that is only read: it closes no cell, begins no tag, link or list, and names nobody.

    Control characters and marks that turn the direction of what follows are replaced.
    """
    plain = harmless(" ".join(text.split("\n")))
    plain = _NAMES.sub("\\g<0>\N{ZERO WIDTH SPACE}", plain)
    return _MARKS.sub(r"\\\g<0>", escape(plain, quote=False))


def _table(first: str, rows: list[tuple[str, Change | None]]) -> list[str]:
    lines = [f"| {first} | before % | after % | change, points | 95 % |", "|---|---|---|---|---|"]
    for name, change in rows:
        if change:
            lines.append(
                f"| {_safe(name)} | {percent(change.before)} [{span(change.before_interval)}] "
                f"| {percent(change.after)} [{span(change.after_interval)}] "
                f"| {points(change.difference)} | {points_span(change.interval, 0)} |"
            )
    return lines
