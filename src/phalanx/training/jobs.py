"""One member's training as a small record that can travel to another process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.config.schema import OptimiserSettings, TrainSettings
from phalanx.config.schema_rivals import GrpoSettings
from phalanx.errors import LossError
from phalanx.trackers import Target
from phalanx.training.train import train_dpo, train_grpo, train_sft
from phalanx.types import Demonstration, Member, PreferencePair, Progress, TrainResult

if TYPE_CHECKING:
    from phalanx.weights.store import Weights

NOT_FINITE = "not_finite"
"""Why examples were dropped whose training came to a loss that is not finite."""


@dataclass(frozen=True)
class TrainJob:
    """Pairs are learned by the loss of their TrainSettings, rated responses by GRPO (``settings``
    is GrpoSettings), demonstrations by SFT."""

    member: Member
    examples: tuple[PreferencePair, ...] | tuple[Demonstration, ...]
    settings: OptimiserSettings
    folder: Path
    seed: int
    version: int
    initial_adapter: str | None = None
    tracked: Target | None = None
    """Where the steps are reported."""
    max_kl: float | None = None
    """Nats a token between the member and its reference at which to give up."""
    skip: bool = False
    """Whether a loss that is not finite is no error: the member then stays as it was, as with no
    example (``num_dropped`` has all of them as ``not_finite``)."""

    @property
    def num_steps(self) -> int:
        """Optimiser steps if no example is dropped."""
        batches = math.ceil(len(self.examples) / self.settings.batch_size) * self.settings.epochs
        return math.ceil(batches / self.settings.accumulate)

    @property
    def is_on_disk(self) -> bool:
        """Whether ``folder`` holds something: :meth:`run` returns or refuses it, and trains not."""
        return self.folder.is_dir() and any(self.folder.iterdir())

    def run(self, weights: Weights, progress: Progress) -> TrainResult:
        """Train with weights of this process."""
        try:
            return self._train(weights, progress)
        except LossError as error:
            if not self.skip:
                raise
            lost = {NOT_FINITE: len(self.examples)}
            return TrainResult(self.member, 0, lost, (), {}, 0.0, (str(error),))

    def _train(self, weights: Weights, progress: Progress) -> TrainResult:
        common = {"seed": self.seed, "version": self.version, "progress": progress}
        common |= {"tracked": self.tracked, "max_kl": self.max_kl}
        if isinstance(self.settings, TrainSettings):
            return train_dpo(
                weights,
                self.member,
                self.examples,
                self.settings,
                self.folder,
                initial_adapter=self.initial_adapter,
                **common,
            )
        learn = train_grpo if isinstance(self.settings, GrpoSettings) else train_sft
        return learn(weights, self.member, self.examples, self.settings, self.folder, **common)
