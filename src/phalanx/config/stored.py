"""A configuration that a ledger has, read by another version of Phalanx than wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from phalanx.config.schema import Config
from phalanx.errors import LedgerError

_UNKNOWN = "extra_forbidden"


def readable(stored: str | None, folder: Path) -> Config:
    """For looking at what is recorded: settings that this version does not know are left out.

    Raises LedgerError where the others cannot be read. Work that goes on needs all of them, and
    does not read them here.
    """
    settings = json.loads(stored or "{}")
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        faults = error.errors()
    for fault in faults:
        if fault["type"] == _UNKNOWN:
            _without(settings, fault["loc"])
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        places = sorted({".".join(map(str, fault["loc"])) for fault in error.errors()})
        raise LedgerError(
            f"{folder}: its configuration was written by a version of phalanx that this one cannot "
            f"read ({', '.join(places)}); look at it with that version"
        ) from None


def _without(settings: Any, place: tuple[int | str, ...]) -> None:
    """Takes the setting out; places in kinds of sections have the kind's name between."""
    *above, last = place
    for part in above:
        if isinstance(settings, list) or (isinstance(settings, dict) and part in settings):
            settings = settings[part]
    if isinstance(settings, dict):
        settings.pop(last, None)
