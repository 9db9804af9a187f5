"""One base error, one subclass for each boundary that a failure can cross.

A message says what is wrong, what was got, and what to do. ``ConfigError`` collects every fault
of an input in one message; the command line prints these errors without a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PhalanxError(Exception):
    """Base of every error that a user can cause or mend."""

    exit_code = 1


class ConfigError(PhalanxError):
    """The configuration or the input data is wrong. ``faults`` lists each one."""

    exit_code = 2

    def __init__(self, faults: str | Sequence[str], where: str = "") -> None:
        self.faults = [faults] if isinstance(faults, str) else list(faults)
        self.where = where
        head = f"{where}: " if where else ""
        if len(self.faults) == 1:
            super().__init__(head + self.faults[0])
        else:
            lines = "\n".join(f"  - {fault}" for fault in self.faults)
            super().__init__(f"{head}{len(self.faults)} faults\n{lines}")

    def __reduce__(self):
        return (type(self), (self.faults, self.where))


class EngineError(PhalanxError):
    """A model could not be loaded or an engine is broken (not: one request failed)."""


class JudgmentError(PhalanxError):
    """Too few judgments could be read for the run to mean anything."""


class TrainingError(PhalanxError):
    """A member could not be trained: the loss is not finite, or nothing changed."""


class LossError(TrainingError):
    """A loss, a gradient or a weight of ``member`` is not finite: a guard that is always on."""

    exit_code = 5

    def __init__(self, message: str, member: str) -> None:
        super().__init__(message)
        self.member = member

    def __reduce__(self):
        return (type(self), (str(self), self.member))


class GuardError(PhalanxError):
    """A guard stopped the run (exit code 5), or paused it (6): then the same command goes on.

    ``fired`` is what it found, a :class:`phalanx.collective.alarms.Fired`.
    """

    exit_code = 5

    def __init__(self, message: str, fired: Any, paused: bool = False) -> None:
        super().__init__(message)
        self.fired, self.paused = fired, paused
        if paused:
            self.exit_code = 6

    def __reduce__(self):
        return (type(self), (str(self), self.fired, self.paused))


class UnreadableError(GuardError, JudgmentError):
    """The guard ``max_unreadable``."""


class LedgerError(PhalanxError):
    """The run folder is in use, belongs to another configuration, or is not a run."""


class BudgetError(PhalanxError):
    """The next request could exceed the budget; everything answered is recorded."""

    exit_code = 3


class HubError(PhalanxError):
    """The Hugging Face Hub cannot be reached, or refuses; the message says what stands there."""


class Interrupted(PhalanxError):
    """Ctrl-C: the batch in hand was finished and written; the same command goes on."""

    exit_code = 130


class MissingPackage(PhalanxError):
    """An optional package is not installed; the message has the install command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.args_ = (package, extra, purpose)
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed; "
            f"install it with: pip install 'phalanx[{extra}]'"
        )

    def __reduce__(self):
        return (type(self), self.args_)
