"""Stage 2 of MoAA: the students' responses, ranked by a reward, become preference pairs."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.config.schema import Config, StudentSettings
from phalanx.types import Ask, Iteration, IterationResult, Member


def compare(
    iteration: Iteration,
    students: Sequence[StudentSettings],
    members: Sequence[Member],
    joined: Sequence[str],
    ask: Ask,
    config: Config,
) -> IterationResult:
    raise NotImplementedError
