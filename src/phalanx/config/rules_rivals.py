"""Rules about the rival methods: what each of them asks for, in a function of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config

_RULES: dict[str, Callable[[Config], Iterator[Fault]]] = {}
"""What only the method of that name asks for."""


def check_rival(config: Config) -> Iterator[Fault]:
    """Faults and notes of a run by a rival method."""
    rule = _RULES.get(config.method)
    if rule is not None:
        yield from rule(config)
