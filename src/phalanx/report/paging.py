"""The sections of a run's page, each a fragment of HTML of its own.

The report file shows them one after another; the live page puts each in the place of the one with
its id. No fragment has a script or a style of its own (classes only: ``report.css``), and every
text of a run goes through jinja2's autoescape.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from phalanx.config.schema import Config
from phalanx.report import headlines, plots, views, words
from phalanx.report.charts import key
from phalanx.report.health import signs
from phalanx.report.moaa_views import mixture_examples
from phalanx.report.moaa_words import Section
from phalanx.report.pace_views import (
    cost_views,
    event_lines,
    health_view,
    left_line,
    phases_view,
    working_line,
)
from phalanx.report.records import RunFacts
from phalanx.report.sections import own_sections
from phalanx.report.servers import endpoint_lines
from phalanx.report.warnings import warnings
from phalanx.thresholds import MIN_STEPS

_HERE = Path(__file__).parent
_FIRST: tuple[tuple[str, str, Section | None], ...] = (
    ("overview", "Overview", None),
    ("progress", "Progress", None),
)
_MAX_SETTINGS = 600
MAX_SIGNS = 40
_SECTIONS = (
    ("accuracy", "Accuracy"),
    ("reputation", "Reputations"),
    ("judges", "Judges"),
    ("pairs", "Pairs"),
    ("training", "Training"),
    ("time", "Time and cost"),
    ("examples", "Examples"),
    ("notes", "Notes"),
)
_COMMAND_SECTIONS = (("requests", "Requests"), ("time", "Time and cost"), ("notes", "Members"))
_MOAA_SECTIONS = (
    ("requests", "Requests"),
    ("training", "Training"),
    ("time", "Time and cost"),
    ("examples", "Examples"),
    ("notes", "Notes"),
)


class PageSection(NamedTuple):
    """``html`` is the whole element ``<section id=...>``; ``title`` is for the list of contents."""

    id: str
    title: str
    html: Markup


def sections(facts: RunFacts) -> list[PageSection]:
    """All that the page of this run shows, in its order."""
    environment, context = environment_of_page(), _context(facts)
    return [
        PageSection(id_, title, _fragment(environment, own, id_, context))
        for id_, title, own in _contents(facts)
    ]


def _fragment(
    environment: Environment, own: Section | None, id_: str, context: dict[str, Any]
) -> Markup:
    template = environment.get_template(f"{'own' if own else id_}.html.j2")
    return Markup(template.render(w=words, own=own, **context))


@cache
def environment_of_page() -> Environment:
    """Where the page's templates are; everything is escaped, and nothing may be missing."""
    environment = Environment(
        loader=FileSystemLoader([_HERE / "page", _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return environment


def _context(facts: RunFacts) -> dict[str, Any]:
    heat_names, heat = views.heat(facts)
    learners = plots.shown_learners(facts)
    trainings, trainings_left = views.cut(views.trainings(facts))
    config, config_left = views.cut(_configuration(facts), _MAX_SETTINGS)
    return {
        "facts": facts,
        "name": words.run_name(facts),
        "subtitle": headlines.subtitle(facts),
        "state_note": headlines.state_note(facts),
        "warnings": warnings(facts),
        "measured_plot": plots.measured_plot(facts.measured) if facts.measured else None,
        "students_plot": plots.students_plot(facts, facts.moaa) if facts.moaa else None,
        "mixture_examples": mixture_examples(facts.moaa) if facts.moaa else [],
        "compared": _compared(facts),
        "headline": headlines.headline(facts),
        "finding": headlines.finding(facts),
        **_accuracy(facts),
        **_progress(facts),
        "reputation_plot": plots.reputation_plot(facts),
        "banded": any(any(line.deviations) for line in facts.reputations),
        "reputations": views.reputations(facts),
        "reputations_left": max(0, len(facts.reputations) - plots.MAX_NAMED),
        "heat": heat if facts.encounters else [],
        "heat_names": heat_names,
        "judges": views.judges(facts),
        "leanings": {
            "own": any(judge.own for judge in facts.judges),
            "family": any(judge.family for judge in facts.judges),
        },
        "flipped": words.flipped(facts.config),
        "unreadable": words.counted(facts.accounting.unreadable)
        if facts.accounting.unreadable
        else "",
        "labels": views.labels(facts),
        "flow": plots.flow_plot(facts),
        "failures": _failures(facts),
        "endpoints": endpoint_lines(facts),
        "panels": plots.training_panels(facts),
        "legend": [
            (name, key(colour)) for name, colour in plots.colours(facts).items() if name in learners
        ],
        "learners_left": len({t.member for t in facts.trainings if t.iteration}) - len(learners),
        "least_steps": MIN_STEPS,
        "long_enough": any(len(one.steps) >= MIN_STEPS for one in facts.trainings),
        "health": health_view(signs(facts)[:MAX_SIGNS]),
        "length_plot": plots.length_plot(facts),
        "trainings": trainings,
        "trainings_left": trainings_left,
        "no_training": facts.config["train"]["method"] == "none",
        "times": plots.time_plot(facts),
        "costs": cost_views(facts),
        "total_time": words.duration(words.total_seconds(facts)),
        "examples": views.examples(facts),
        "notes": headlines.notes(facts),
        "config": config,
        "config_left": config_left,
        "made_by": f"Made by phalanx {facts.version} from {facts.folder}/ledger.sqlite"
        + (f", code {facts.code}." if facts.code else "."),
    }


def _progress(facts: RunFacts) -> dict[str, Any]:
    over = bool(facts.progress.finished or facts.progress.stop_reason)
    lines = [working_line(facts), left_line(facts)]
    if facts.progress.finished:
        lines = [f"Finished {facts.progress.finished[:19].replace('T', ' ')} UTC"]
    lines += [f"Guards: {facts.guards.words}"] if facts.guards else []
    return {
        "over": over,
        "progress_lines": [line for line in lines if line],
        "phases": phases_view(facts),
        "events": event_lines(facts.pace.events),
    }


def _configuration(facts: RunFacts) -> list[tuple[str, str]]:
    """All settings of a run; of a command, which uses few, those that are not the defaults."""
    if not facts.command:
        return words.flat(facts.config)
    config = Config.model_validate(facts.config)
    return words.flat(config.model_dump(mode="json", exclude_defaults=True))


def _contents(facts: RunFacts) -> list[tuple[str, str, Section | None]]:
    """(id, title, section of words and tables or None) in order. Accuracy first where there is
    any."""
    own = [(section.id, section.title, section) for section in own_sections(facts)]
    if facts.moaa or facts.rival:
        left_out = () if facts.trains else ("training", "examples")
        last = [(*one, None) for one in _MOAA_SECTIONS if one[0] not in left_out]
        first = [(*_SECTIONS[0], None)] if facts.rival and _compared(facts) else []
        return [*_FIRST, *first, *own, *last]
    if facts.command:
        return [*_FIRST, *own, *((*one, None) for one in _COMMAND_SECTIONS)]
    contents = list(_SECTIONS)
    if not _compared(facts):
        contents.insert(-3, contents.pop(0))
    place = contents.index(("pairs", "Pairs"))
    before, after = (((*one, None) for one in part) for part in
                     (contents[:place], contents[place:]))  # fmt: skip
    return [*_FIRST, *before, *own, *after]


def _compared(facts: RunFacts) -> bool:
    """Whether there is a before and an after."""
    return len(facts.evaluation.iterations) > 1 and bool(facts.evaluation.changes)


def _accuracy(facts: RunFacts) -> dict[str, Any]:
    compared = _compared(facts)
    matrix = views.matrix(facts) if compared else []
    return {
        "domain_plot": plots.domain_plot(facts) if compared else None,
        "member_plot": plots.member_plot(facts) if compared else None,
        "matrix": matrix[-views.MAX_ROWS :],
        "matrix_left": max(0, len(matrix) - views.MAX_ROWS),
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
