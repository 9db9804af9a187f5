"""Configuration: one typed tree, read from YAML, with presets and overrides."""

from __future__ import annotations

from phalanx.config.compare import RESUME_FREE, differences
from phalanx.config.loading import from_yaml, load, preset_names, to_yaml
from phalanx.config.schema import Config

__all__ = [
    "RESUME_FREE",
    "Config",
    "differences",
    "from_yaml",
    "load",
    "preset_names",
    "to_yaml",
]
