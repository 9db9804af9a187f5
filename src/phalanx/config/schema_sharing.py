"""The section ``share``: what may leave this machine with ``phalanx push`` (``docs/share.md``)."""

from __future__ import annotations

from typing import Literal

from phalanx.config.base import Section

Thing = Literal["instructions", "preferences", "demonstrations", "system", "config", "metrics"]


class ShareSettings(Section):
    private: list[Thing] = []
    """What is never sent: `instructions` (their texts, and so every data set and example),
    `preferences`, `demonstrations`, `system` (the members' system prompts), `config` (settings in
    cards), `metrics` (scores in cards)."""
    members: list[str] = []
    """Members whose weights and system prompts are never sent."""
    domains: list[str] = []
    """Rows whose instruction is of these domains are left out of data sets."""
    sources: list[str] = []
    """Files with texts that must not leave (any that instructions can be read from, or a plain text
    file, one text a line): rows that quote one are left out, and a card that does is refused."""
    bases: dict[str, str] = {}
    """Public names of bases that are folders here: `{weights/mine: org/mine}`. Cards and adapters
    then name that, and who pulls them finds it."""
