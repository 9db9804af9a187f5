"""Sections of words and tables that only some reports have: of commands, moaa, and other rivals."""

from __future__ import annotations

from phalanx.report.commands import command_sections
from phalanx.report.moaa_views import sections as moaa_sections
from phalanx.report.moaa_words import Section
from phalanx.report.people_views import people_sections
from phalanx.report.records import RunFacts
from phalanx.report.rivals_views import rival_sections


def own_sections(facts: RunFacts) -> list[Section]:
    """Those of this run. A run of duels, whose tables every renderer lays out itself, has none but
    what people said of them."""
    people = people_sections(facts.people)
    if facts.command:
        return [*command_sections(facts), *people]
    if facts.rival is not None:
        return [*rival_sections(facts, facts.rival), *people]
    return [*moaa_sections(facts), *people]
