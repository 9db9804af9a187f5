"""The pages around a run's sections: the list of runs side by side, and one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from phalanx.live.watching import Shown, Watched
from phalanx.report import headlines, words
from phalanx.report.health import signs
from phalanx.report.html import PageSection
from phalanx.report.records import RunFacts
from phalanx.report.warnings import warnings

_MOST_SIGNS = 3
_MOST_STATE = 200  # characters of a state in the list
_EARLY = " Ended early: "
STATIC = Path(__file__).parent / "static"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(STATIC),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def run_page(run: Watched, shown: Shown, *, alone: bool) -> str:
    """One run; ``alone``: it is the only one, so there is no list to go back to."""
    name = words.run_name(shown.facts) if shown.facts else run.name
    return _environment().get_template("page.html.j2").render(
        title=name,
        heading=name,
        subtitle=headlines.subtitle(shown.facts) if shown.facts else "",
        state=state_line(shown),
        sections=shown.sections,
        events=f"/run/{run.key}/events",
        browse=run.key,
        back=not alone,
    )  # fmt: skip


def index_page(runs: Sequence[tuple[Watched, Shown]]) -> str:
    """All runs side by side."""
    return _environment().get_template("page.html.j2").render(
        title="Runs",
        heading=words.plural(len(runs), "run"),
        subtitle="",
        state="",
        sections=[side_by_side(runs)],
        events="/events",
        browse="",
        back=False,
    )  # fmt: skip


def side_by_side(runs: Sequence[tuple[Watched, Shown]]) -> PageSection:
    """One column a run: how far it is, its headline, what is wrong with it."""
    columns = [
        {
            "name": run.name,
            "key": run.key,
            "state": brief(state_line(shown)),
            "whole": state_line(shown),
            "share": done_share(shown.facts) if shown.facts else None,
            "numbers": _numbers(shown.facts),
            "warnings": [*warnings(shown.facts), *_signs(shown.facts)] if shown.facts else [],
        }
        for run, shown in runs
    ]
    # What most runs have comes first, so that runs of different methods can be compared.
    having = Counter(name for column in columns for name in column["numbers"])
    names = [name for name, _ in having.most_common()]
    html = _environment().get_template("runs.html.j2").render(columns=columns, names=names)
    return PageSection("runs", "Runs", Markup(html))


def _numbers(facts: RunFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    numbers: dict[str, Any] = {
        "Method": {"value": facts.command or facts.method, "note": f"seed {facts.seed}"},
        "Members": {"value": f"{len(facts.members)}", "note": ""},
    }
    for item in headlines.headline(facts):
        # "Together: debate" is the same line as "Together: mixture" of another run.
        name, _, whose = item["name"].partition(": ")
        note = f"{whose}; {item['note']}" if whose else item["note"]
        numbers[name] = {"value": item["value"], "note": note}
    if facts.times:
        numbers["Time"] = {"value": words.duration(words.total_seconds(facts)), "note": ""}
    return numbers


def _signs(facts: RunFacts) -> list[str]:
    """One line of the first signs that something goes wrong; the run's own page has all of them."""
    found = signs(facts)
    if not found:
        return []
    first = ", ".join(f"{one.name} ({one.where})" for one in found[:_MOST_SIGNS])
    more = f" and {len(found) - _MOST_SIGNS} more" if len(found) > _MOST_SIGNS else ""
    return [f"{words.plural(len(found), 'sign')} that something goes wrong: {first}{more}."]


def state_line(shown: Shown) -> str:
    """How a run stands, in one sentence that is short enough to be read out."""
    if shown.facts is None:
        return shown.trouble or "Reading the ledger."
    state = shown.facts.progress
    if shown.trouble:
        return shown.trouble
    if state.finished:
        return "Finished."
    if state.stop_reason:
        return f"Stopped in {words.words_of_place(state)}: {state.stop_reason}"
    place = words.words_of_place(state)
    line = f"{place[0].upper()}{place[1:]}, {words.doing(state.phase)}"
    if state.known and state.asked:
        line += f": {state.asked - state.owed:,} of {state.asked:,} {state.unit}"
    elif state.asked:
        line += f": {state.asked:,} {state.unit}"
    return f"{line}.{_EARLY}{state.last_error}" if state.last_error else f"{line}."


def brief(line: str) -> str:
    """A state that fits a cell: what an error says first, for its run's page has all of it."""
    place, early, error = line.partition(_EARLY)
    first = error.partition(", for example")[0].partition(". ")[0]
    return shorten(f"{place}{early}{first}", _MOST_STATE, placeholder=" …")


def done_share(facts: RunFacts) -> float | None:
    """Share of the iterations that are done, with the part of the step under way; None where a
    run has no iterations."""
    state = facts.progress
    if state.finished:
        return 1.0
    if not state.num_iterations:
        return None
    # An iteration has answering, judging and training; each step counts as much as another.
    steps = {"answer": 0, "judge": 1, "train": 2, "evaluate": 3}
    part = 1 - state.owed / state.asked if state.known and state.asked else 0.0
    inside = (steps.get(state.phase, 1) + part) / 4
    return min(1.0, max(0.0, (state.iteration + inside) / (state.num_iterations + 1)))
