"""A run's configuration as a card may show it: without what is private, and without places."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from phalanx.config.schema import Config
from phalanx.handing.private import REMOVED, Marks

_NEVER = ("share", "output", "vllm", "resources", "budget", "guard", "track")
"""Sections that say where and when work was done, not what was computed."""
_OF_ENDPOINT = ("name", "options")


def shown_settings(config: Config, marks: Marks) -> str:
    """What was set, as YAML; defaults are left out. "" where the settings are private."""
    if "config" in marks.things:
        return ""
    data = config.model_dump(mode="json", exclude_defaults=True)
    for name in _NEVER:
        data.pop(name, None)
    if "reputation" in data:
        data["reputation"] = {"rule": config.reputation.rule, **data["reputation"]}
    data["endpoints"] = [
        {key: one[key] for key in _OF_ENDPOINT if key in one} for one in data.get("endpoints", ())
    ]
    if not data["endpoints"]:
        del data["endpoints"]
    stream = io.StringIO()
    yaml = YAML()
    yaml.width = 100
    yaml.dump(_cleaned(data, marks), stream)
    return stream.getvalue()


def _cleaned(value: Any, marks: Marks) -> Any:
    if isinstance(value, str):
        return marks.cleaned(value)
    if isinstance(value, dict):
        hidden = value.get("system") and _is_private(value["system"], marks)
        parts = {**value, "system": REMOVED} if hidden else value
        return {marks.cleaned(key): _cleaned(part, marks) for key, part in parts.items()}
    if isinstance(value, list):
        return [_cleaned(part, marks) for part in value]
    return value


def _is_private(system: str, marks: Marks) -> bool:
    """Whether a system prompt is kept back, however short it is."""
    return "system" in marks.things or system in marks.systems.values()
