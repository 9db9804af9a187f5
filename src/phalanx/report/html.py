"""One self-contained HTML page of a run: no script, no request, everything escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from phalanx.config.schema import Config
from phalanx.placing import placed
from phalanx.report import plots, views, words
from phalanx.report.measured_page import measured_headline, measured_notes
from phalanx.report.moaa_page import moaa_finding, moaa_headline, moaa_notes
from phalanx.report.moaa_views import mixture_examples
from phalanx.report.moaa_words import Section
from phalanx.report.records import Change, RunFacts
from phalanx.report.rivals_views import rival_headline, rival_notes
from phalanx.report.sections import own_sections
from phalanx.report.servers import endpoint_lines, repeatability
from phalanx.report.warnings import warnings

_HERE = Path(__file__).parent
_SECTIONS = (
    ("accuracy", "Accuracy"),
    ("reputation", "Reputations"),
    ("judges", "Judges"),
    ("pairs", "Pairs"),
    ("training", "Training"),
    ("time", "Time"),
    ("examples", "Examples"),
    ("notes", "Notes"),
)
_COMMAND_SECTIONS = (("requests", "Requests"), ("time", "Time"), ("notes", "Members"))
_MOAA_SECTIONS = (
    ("requests", "Requests"),
    ("training", "Training"),
    ("time", "Time"),
    ("examples", "Examples"),
    ("notes", "Notes"),
)


def write_html(facts: RunFacts, path: Path | str) -> None:
    """Write the page to ``path``; a reader never sees half of it."""
    write_whole(path, render(facts))


def write_whole(path: Path | str, text: str) -> None:
    """Write a text file beside its place, then move it there."""
    with placed(path) as place:
        place.write_text(text, encoding="utf-8", errors="replace")


def render(facts: RunFacts) -> str:
    """The page as text. Every text of a run goes through jinja2's autoescape."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    css = Markup((_HERE / "report.css").read_text(encoding="utf-8"))
    return environment.get_template("report.html.j2").render(w=words, css=css, **_context(facts))


def _context(facts: RunFacts) -> dict[str, Any]:
    heat_names, heat = views.heat(facts)
    own = own_sections(facts)
    colours = plots.colours(facts)
    return {
        "facts": facts,
        "name": words.run_name(facts),
        "subtitle": _subtitle(facts),
        "state_note": _state_note(facts),
        "warnings": warnings(facts),
        "sections": _contents(facts, own),
        "moaa_sections": own,
        "measured_plot": plots.measured_plot(facts.measured) if facts.measured else None,
        "students_plot": plots.students_plot(facts, facts.moaa) if facts.moaa else None,
        "mixture_examples": mixture_examples(facts.moaa) if facts.moaa else [],
        "compared": _compared(facts),
        "headline": headline(facts),
        "finding": finding(facts),
        **_accuracy(facts),
        "reputation_plot": plots.reputation_plot(facts),
        "reputations": views.reputations(facts),
        "heat": heat if facts.encounters else [],
        "heat_names": heat_names,
        "judges": views.judges(facts),
        "unreadable": words.counted(facts.accounting.unreadable)
        if facts.accounting.unreadable
        else "",
        "labels": views.labels(facts),
        "flow": plots.flow_plot(facts),
        "failures": _failures(facts),
        "endpoints": endpoint_lines(facts),
        "panels": plots.training_panels(facts),
        "legend": [(name, colour % 10) for name, colour in colours.items()],
        "trainings": views.trainings(facts),
        "no_training": facts.config["train"]["method"] == "none",
        "times": plots.time_plot(facts),
        "total_time": words.duration(words.total_seconds(facts)),
        "examples": views.examples(facts),
        "notes": notes(facts),
        "config": _configuration(facts),
        "made_by": f"Made by phalanx {facts.version} from {facts.folder}/ledger.sqlite"
        + (f", code {facts.code}." if facts.code else "."),
    }


def _configuration(facts: RunFacts) -> list[tuple[str, str]]:
    """All settings of a run; of a command, which uses few, those that are not the defaults."""
    if not facts.command:
        return words.flat(facts.config)
    config = Config.model_validate(facts.config)
    return words.flat(config.model_dump(mode="json", exclude_defaults=True))


def _contents(facts: RunFacts, own: Sequence[Section]) -> list[tuple[str, str]]:
    """What the page links to, in its order. Accuracy comes first where there is any."""
    if facts.moaa or facts.rival:
        titles = [(section.id, section.title) for section in own]
        left_out = () if facts.trains else ("training", "examples")
        last = [one for one in _MOAA_SECTIONS if one[0] not in left_out]
        first = [_SECTIONS[0]] if facts.rival and _compared(facts) else []
        return [*first, *titles, *last]
    if facts.command:
        return [*((section.id, section.title) for section in own), *_COMMAND_SECTIONS]
    contents = list(_SECTIONS)
    if not _compared(facts):
        contents.insert(-3, contents.pop(0))
    return contents


def _compared(facts: RunFacts) -> bool:
    """Whether there is a before and an after."""
    return len(facts.evaluation.iterations) > 1 and bool(facts.evaluation.changes)


def _accuracy(facts: RunFacts) -> dict[str, Any]:
    compared = _compared(facts)
    return {
        "domain_plot": plots.domain_plot(facts) if compared else None,
        "member_plot": plots.member_plot(facts) if compared else None,
        "matrix": views.matrix(facts) if compared else [],
        "trajectory": plots.trajectory_plot(facts),
        "tests_note": views.TESTS,
        "selection": views.selection(facts) if compared else [],
        "selection_note": views.selection_note(facts),
    }


def _failures(facts: RunFacts) -> str:
    """Kinds of failed requests over the whole run; "" where nothing failed."""
    sums: Counter[str] = Counter()
    for phase in facts.accounting.phases:
        sums.update(phase.failed)
    return words.counted(dict(sums.most_common())) if sums else ""


def _subtitle(facts: RunFacts) -> str:
    kind = "Mixture of Agents Alignment" if facts.moaa else f"{facts.method.capitalize()} alignment"
    if facts.rival:
        kind = facts.method.replace("_", " ").capitalize()
    rounds = words.plural(facts.progress.num_iterations, "stage" if facts.moaa else "iteration")
    parts = [
        f"phalanx {facts.command}" if facts.command else kind,
        words.who(facts),
        rounds if facts.progress.num_iterations and not facts.command else "",
        f"seed {facts.seed}",
        f"started {facts.created_at[:16].replace('T', ' ')} UTC" if facts.created_at else "",
    ]
    return " · ".join(part for part in parts if part)


def _state_note(facts: RunFacts) -> str:
    state = facts.progress
    if state.finished:
        return ""
    place = words.words_of_place(state)
    if not state.num_iterations and not facts.rival:
        return "This is not finished. The command that started it goes on from here."
    if state.stop_reason:
        return f"This run stopped in {place}: {state.stop_reason}"
    if state.stage:
        place += f" ({state.stage})"
    doing = words.doing(state.phase)
    return f"This run is not finished: {place}, {doing}. The numbers below are those so far."


def headline(facts: RunFacts) -> list[dict[str, str]]:
    """At most four numbers; those that exist."""
    if facts.moaa:
        return moaa_headline(facts, facts.moaa)
    if facts.rival:
        return [*_changes(facts), *rival_headline(facts, facts.rival)]
    if facts.command:
        return _command_headline(facts)
    account = facts.accounting
    return [
        *_changes(facts),
        {
            "name": "Preference pairs kept",
            "value": f"{account.pairs_kept:,}",
            "note": f"of {words.plural(account.num_duels, 'duel')}; "
            f"{account.judgments_asked - account.judgments_readable:,} of "
            f"{words.plural(account.judgments_asked, 'judgment')} unreadable",
        },
    ]


def _changes(facts: RunFacts) -> list[dict[str, str]]:
    """Before and after: of the members, of their vote, of the best of them."""
    measured = facts.evaluation
    items: list[dict[str, str]] = []
    mean = measured.change()
    together = next((c for c in measured.collective if not c.domain), None)
    if len(measured.iterations) > 1:
        for name, change in (("Mean of the members", mean), ("All members voting", together)):
            if change:
                items.append(_headline_change(name, change))
        initial, aligned = measured.best_initial, measured.best_aligned
        if initial and aligned and measured.aligned_over_initial:
            change = measured.aligned_over_initial
            items.append(
                {
                    "name": "Best single member",
                    "value": f"{words.percent(initial.test)} → {words.percent(aligned.test)} %",
                    "note": f"{initial.member} → {aligned.member}; "
                    f"{words.points(change.difference)} points "
                    f"[{words.points_span(change.interval, 0)}]",
                }
            )
    return items


def _command_headline(facts: RunFacts) -> list[dict[str, str]]:
    phases = facts.accounting.phases
    failed = sum(sum(phase.failed.values()) for phase in phases)
    written = sum(phase.num_completion_tokens for phase in phases)
    asked = {
        "name": "Requests",
        "value": f"{sum(phase.asked for phase in phases):,}",
        "note": f"{failed:,} failed; {written:,} tokens written",
    }
    account = facts.accounting
    if facts.measured:
        return [*measured_headline(facts.measured), asked]
    if not account.num_duels:
        return [asked]
    judged = {
        "name": "Pairs judged",
        "value": f"{account.num_duels:,}",
        "note": words.counted(account.outcomes, words.STATUS_WORDS),
    }
    return [judged, asked]


def _headline_change(name: str, change: Change) -> dict[str, str]:
    return {
        "name": name,
        "value": f"{words.percent(change.before)} → {words.percent(change.after)} %",
        "note": f"{words.points(change.difference)} points "
        f"[{words.points_span(change.interval, 0)}], {change.n} items",
    }


def finding(facts: RunFacts) -> str:
    """The title of the accuracy section: a count, not a claim."""
    if facts.moaa:
        return moaa_finding(facts.moaa)
    if facts.rival and facts.rival.levels:
        return "Result"
    measured = facts.evaluation
    changes = [c for d in measured.domains if (c := measured.change("", d))]
    if len(measured.iterations) < 2 or not changes:
        return "Accuracy"
    up, down = (sum(c.direction == sign for c in changes) for sign in (1, -1))
    same = len(changes) - up - down
    parts = [f"higher in {up}", f"lower in {down}", f"no clear change in {same}"]
    shown = [part for part, count in zip(parts, (up, down, same), strict=True) if count]
    return f"Mean accuracy: {', '.join(shown)} of {words.plural(len(changes), 'domain')}"


def notes(facts: RunFacts) -> list[str]:
    """What the numbers do and do not say."""
    sums = (one.lines()[0] for one in facts.overlaps)
    return [*(f"{line[:1].upper()}{line[1:]}." for line in sums), *_notes(facts)]


def _notes(facts: RunFacts) -> list[str]:
    if facts.moaa:
        return moaa_notes(facts, facts.moaa)
    if facts.rival:
        return rival_notes(facts, facts.rival)
    if facts.command:
        lines = measured_notes(facts.measured, facts.seed) if facts.measured else []
        return [*lines, line] if (line := repeatability(facts)) else lines
    measured = facts.evaluation
    lines = []
    if facts.accounting.num_duels and not facts.accounting.pairs_kept:
        lines.append(f"{words.NO_PAIRS}.")
    if measured.num_test:
        lines += [
            f"n: {measured.num_test} test items and {measured.num_dev} dev items over "
            f"{words.plural(len(measured.domains), 'domain')}. Every member answers every item, "
            "greedily.",
            "Intervals are 95 %. Single cells use Wilson's, their changes Tango's; means of the "
            "members resample items; means of domains are made of the domains' intervals. They say "
            "what another draw of items could change. They do not cover another seed, another "
            "pool, or sampling noise in answering and judging.",
            "“Higher” means that the paired interval excludes 0. With many cells, about one in "
            "twenty excludes 0 by chance alone; the means are the safer reading.",
        ]
        failed = measured.unreadable or {}
        if any(failed.values()):
            counts = ", ".join(f"{count:,} {words.when(n)}" for n, count in failed.items())
            lines.append(
                f"Responses without a readable answer count as wrong: {counts} (dev and test)."
            )
    if remote := repeatability(facts):
        lines.append(remote)
    lines.append(
        f"This is one run with one seed ({facts.seed}). Before concluding anything, repeat it with "
        "other seeds and beside the random-winner control (train.label_noise=0.5)."
    )
    lines.append(
        "No label was used for the alignment: reference answers, where instructions have them, "
        "serve this report alone."
    )
    return lines
