"""What is compared: the file, and the arms that come of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phalanx.config.schema import Config


@dataclass(frozen=True, slots=True)
class Arm:
    """One run of a comparison: a named way of one seed, in a folder of its own."""

    name: str
    seed: int
    folder: Path
    config: Config
