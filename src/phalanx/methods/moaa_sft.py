"""Stage 1 of MoAA: the mixture, and the baselines of the paper, write demonstrations."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.config.schema import Config, StudentSettings
from phalanx.types import Ask, Iteration, IterationResult, Member


def demonstrate(
    iteration: Iteration,
    students: Sequence[StudentSettings],
    members: Sequence[Member],
    joined: Sequence[str],
    ask: Ask,
    config: Config,
) -> IterationResult:
    raise NotImplementedError
