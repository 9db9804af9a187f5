"""What is watched while a member trains: one dict of signals a step, and what stops it at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.collective.alarms import too_far
from phalanx.errors import GuardError, LossError, TrainingError
from phalanx.types import Progress

if TYPE_CHECKING:
    from transformers import TrainerCallback

SIGNALS = (
    "loss",
    "learning_rate",
    "grad_norm",
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "logps/chosen",
    "logps/rejected",
    "kl/chosen",
    "kl",
    "clip_ratio/region_mean",
    "length/chosen",
    "length/rejected",
    "length/completion",
    "mean_token_accuracy",
)
"""Signals recorded a step, where the trainer has them. ``kl/chosen`` estimates the distance to the
reference: the mean of log policy - log reference a token of the chosen responses, in nats.
Rewards are TRL's: beta times the same difference, summed over a response. SimPO and ORPO have no
reference: their ``logps`` are means a token, and rewards are beta times these. Of GRPO: ``kl``,
an estimate of the distance to the start a token, and the share of tokens whose ratio is clipped."""

MAX_START_KL = 0.05
"""Nats a token that policy and reference may differ before the first step (rounding only)."""


class Watch:
    """Collects the signals and names the examples of the step in hand when something breaks."""

    def __init__(
        self,
        member: str,
        ids: Sequence[str],
        progress: Progress | None = None,
        starts_at_reference: bool = False,
        max_kl: float | None = None,
    ) -> None:
        self.steps: list[dict[str, float]] = []
        self._member = member
        self._ids = ids
        self._progress = progress
        self._starts_at_reference = starts_at_reference
        self._max_kl = max_kl
        self._rows: list[int] = []
        self._batches: list[list[int]] = []

    def begin_step(self) -> None:
        self._batches = []

    def batch(self, rows: list[int]) -> None:
        """The row positions that the next loss is computed on."""
        self._rows = rows
        self._batches.append(rows)

    def check_loss(self, loss: float) -> None:
        """Raise :class:`LossError` with the ids of the batch when the loss is not finite."""
        if not math.isfinite(loss):
            raise self._broken("loss", loss, self._rows)

    def end_step(self, logs: dict[str, Any]) -> None:
        """Record the step.

        Raises :class:`LossError` when its gradient is not finite, and :class:`GuardError` where
        the member is farther from its reference than ``max_kl``.
        """
        norm = float(logs.get("grad_norm", 0.0))
        if not math.isfinite(norm):
            raise self._broken("gradient norm", norm, [i for rows in self._batches for i in rows])
        signals = {name: float(logs[name]) for name in SIGNALS if name in logs}
        self._check_start(signals)
        self.steps.append({"step": float(len(self.steps) + 1), **signals})
        fired = self._max_kl and too_far(self._member, self.steps, self._max_kl)
        if fired:
            raise GuardError(fired.says, fired)
        if self._progress is not None:
            self._progress.advance()

    def _check_start(self, signals: dict[str, float]) -> None:
        if self.steps or not self._starts_at_reference:
            return
        kl = signals["kl/chosen"]
        if abs(kl) > MAX_START_KL:
            raise TrainingError(
                f"{self._member}: before the first step, policy and reference differ by {kl:.3f} "
                f"nats a token (at most {MAX_START_KL} is rounding), so the reference is not the "
                "member at the start of the iteration; a model whose forward pass is random "
                "(dropout that cannot be switched off) gives this too"
            )

    def _broken(self, what: str, value: float, rows: Sequence[int]) -> LossError:
        ids = [self._ids[row] for row in rows]
        shown = ", ".join(ids[:32]) + (f" and {len(ids) - 32} more" if len(ids) > 32 else "")
        return LossError(
            f"{self._member}: the {what} is {value} in step {len(self.steps) + 1}; training "
            f"stopped and the member stays as it was. Examples of the batch: {shown}. "
            "Look at these examples, or lower the learning rate",
            self._member,
        )


def watching(watch: Watch) -> TrainerCallback:
    """The transformers callback that feeds a :class:`Watch`."""
    from transformers import TrainerCallback

    class Watching(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.begin_step()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any
        ) -> None:
            if "grad_norm" in logs:  # the closing summary has none
                watch.end_step(logs)

    return Watching()
