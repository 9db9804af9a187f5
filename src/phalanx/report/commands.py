"""What the commands that ask members without a run have to show: requests, judges, trials."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.designs import Found, trial_from
from phalanx.config.schema import Config
from phalanx.ledger import Ledger
from phalanx.methods import METHODS
from phalanx.report.games_views import contest_sections
from phalanx.report.judged import judged_sections
from phalanx.report.measured_views import measured_sections
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.records import PhaseAccount, PhaseTime, RunFacts
from phalanx.report.trials import METRICS, design_rows
from phalanx.report.views import judges
from phalanx.report.words import plural

_TRIAL = re.compile(r"^trial \d+ ")
EVAL = "eval"
"""The command whose ledger has evaluations of subjects."""


def is_command(method: str) -> bool:
    """Whether this is work of a command and no run; a ledger without a method is a run's."""
    return bool(method) and method not in METHODS


def joined_phases(phases: Sequence[PhaseAccount]) -> tuple[PhaseAccount, ...]:
    """Phases of the same name as one, whatever the trial of a search that asked."""
    found: dict[str, PhaseAccount] = {}
    for phase in phases:
        name = _TRIAL.sub("", phase.phase)
        before = found.get(name)
        if before is None:
            found[name] = replace(phase, phase=name)
            continue
        found[name] = replace(
            before,
            asked=before.asked + phase.asked,
            answered=before.answered + phase.answered,
            failed=dict(Counter(before.failed) + Counter(phase.failed)),
            owed=before.owed + phase.owed,
            truncated=before.truncated + phase.truncated,
            shortened=before.shortened + phase.shortened,
            num_completion_tokens=before.num_completion_tokens + phase.num_completion_tokens,
        )
    return tuple(found.values())


def joined_times(times: Sequence[PhaseTime]) -> tuple[PhaseTime, ...]:
    """The same of the seconds."""
    sums: dict[str, float] = {}
    for time in times:
        name = _TRIAL.sub("", time.phase)
        sums[name] = sums.get(name, 0.0) + time.seconds
    return tuple(PhaseTime(0, name, seconds) for name, seconds in sums.items())


def found_in(ledger: Ledger, config: Config) -> Found | None:
    """The trials of a search as they are recorded; None where there are none."""
    rows = ledger.trials()
    if not rows:
        return None
    trials = tuple(map(trial_from, rows))
    return Found(
        trials=trials,
        metric=config.search.metric,
        num_dev_items=max(trial.num_items for trial in trials),
        calls=ledger.num_sent(),
        budget=None,
        priced=any(one.price_in or one.price_out for one in config.endpoints),
        stopped="" if ledger.get("finished") else "the same command goes on from here",
    )


def command_sections(facts: RunFacts) -> list[Section]:
    """Scores of ``eval``, trials of a search, judges of ``judge`` and ``judge-bench``; none for the
    commands that write answers."""
    found = measured_sections(facts.measured) if facts.measured else []
    found += contest_sections(facts.contests)
    if facts.found:
        headers, rows = design_rows(facts.found)
        note = (
            "Every design by its last trial, the best first; costs are of one answer. The best of "
            "many on the same few items: expect less elsewhere."
        )
        title = f"{plural(len(rows), 'design')}: {METRICS[facts.found.metric]}"
        table = TableView(title, headers, rows, note, left=(0,))
        found.append(Section("trials", "Trials", (), (table,)))
    if facts.tested:
        found += judged_sections(facts.tested)
    elif facts.judges:
        keys = ("name", "asked", "unreadable", "ties", "flipped", "mean", "longer")
        headers = ("judge", "asked", "unreadable", "ties", "flipped", "mean score",
                   "favours longer")  # fmt: skip
        rows = tuple(tuple(judge[key] for key in keys) for judge in judges(facts))
        table = TableView(plural(len(rows), "judge"), headers, rows, left=(0,))
        found.append(Section("judges", "Judges", (), (table,)))
    return found
