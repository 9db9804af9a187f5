"""Act in the middle of a phase."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.progress import Silent


class Watching(Silent):
    """Calls ``act(phase)`` once in each phase, when the first of its work has ended."""

    def __init__(self, act: Callable[[str], None]) -> None:
        self._act, self._phase = act, ""

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self._phase = phase

    def advance(self, amount: int = 1) -> None:
        if amount and self._phase:
            phase, self._phase = self._phase, ""
            self._act(phase)
