"""A file or a preset, plus overrides, to one checked :class:`Config`.

Three layers are merged: the preset, the file, the overrides. Mappings merge key by key, anything
else replaces. Relative paths are looked up beside the file that names them, then in the working
directory. Everything that is wrong comes out in one :class:`~phalanx.errors.ConfigError`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, get_args

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from phalanx.config import rules
from phalanx.config.faults import Fault, did_you_mean, from_pydantic
from phalanx.config.keys import Path, alternatives, dotted, section_of, shape_at, value_at
from phalanx.config.reading import Source, read_file, read_text, read_value
from phalanx.config.rules_moaa import Purpose
from phalanx.config.schema import Config
from phalanx.errors import ConfigError

PRESETS = FilePath(__file__).parent / "presets"
PREFIX = "preset:"
FRAGMENT_SUFFIXES = (".yaml", ".yml")
PATH_KEYS = (
    ("pool", "base"),
    ("pool", "members", "*", "model"),
    ("pool", "members", "*", "adapter"),
    ("pool", "recruit", "data"),
    ("instructions", "source"),
    ("judge", "template"),
    ("mixture", "template"),
    ("reward", "criteria"),
    ("self_rewarding", "template"),
    ("self_rewarding", "judge_seed"),
    ("preference_file", "source"),
    ("share", "sources", "*"),
    ("evaluate", "tasks", "*", "source"),
    ("evaluate", "tasks", "*", "baseline"),
    ("evaluate", "tasks", "*", "difficulty"),
    ("evaluate", "tasks", "*", "gamed"),
)
"""Keys whose text may name a file or a folder."""


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def preset_text(name: str) -> str:
    """The file of a preset, with its comments."""
    return (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")


def load(
    source: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    complete: bool | None = None,
    gpus: int | None = None,
    purpose: Purpose = "run",
    also: Sequence[Callable[[Config], Iterable[Fault]]] = (),
) -> Config:
    """Read, merge, check. ``load("preset:sparta", ["pool=pool.yaml", "match.duels=200"])``.

    ``overrides`` are texts ``key.path=value`` (the value is read as YAML; for a section, the
    name of a YAML file that holds it) or a mapping (dotted keys, or nested). ``complete``: a
    pool and instructions must be there; by default they must, unless a bare preset is looked at.
    ``gpus``: the GPUs to reckon with, where it is not to run on this machine.
    ``purpose``: what it is for ("run", "mix", "judge", "synthesise" or "search"); the commands
    that ask members without a run need no instructions and no duels.
    ``also``: further rules, from layers above, whose faults join the same message.

    Raises ConfigError with every fault, each with its file and line.
    """
    merged, faults = _gather(str(source), overrides)
    if complete is None:
        complete = not _is_preset(str(source)) or bool(
            {"pool", "instructions"} & merged.data.keys()
        )
    config, shape_faults = _validate(merged.data)
    hidden = [fault.path for fault in shape_faults]
    if config is not None:
        found = rules.check(config, complete, gpus, purpose)
        found += [fault for rule in also for fault in rule(config)]
        rule_faults = [fault for fault in found if fault.level == "fault"]
        shape_faults += [fault for fault in rule_faults if not _hides(hidden, fault.path)]
    faults += [_with_place(fault, merged) for fault in shape_faults]
    if faults or config is None:
        raise ConfigError(faults)
    return config


def shaped(
    source: str | os.PathLike[str] | Config | None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> Config:
    """Read and merge as :func:`load`, checked for shape only; the caller asks the rules.

    ``source`` may be a configuration, such as that of a run, or None: nothing but overrides.
    Raises ConfigError.
    """
    given = source if source is None or isinstance(source, Config) else str(source)
    merged, faults = _gather(given, overrides)
    config, shape_faults = _validate(merged.data)
    faults += [_with_place(fault, merged) for fault in shape_faults]
    if faults or config is None:
        raise ConfigError(faults)
    return config


def _is_preset(source: str) -> bool:
    return source.startswith(PREFIX) or FilePath(source).resolve().parent == PRESETS.resolve()


def from_yaml(text: str, where: str = "configuration") -> Config:
    """A configuration from text, checked for shape only: what a run folder keeps of a run.

    Raises ConfigError.
    """
    source = read_text(text, where)
    config, faults = _validate(source.data)
    if faults or config is None:
        raise ConfigError([_with_place(fault, source) for fault in faults])
    return config


def to_yaml(config: Config) -> str:
    """The whole configuration, defaults included; :func:`from_yaml` gives an equal one."""
    yaml = YAML()
    yaml.width = 4096  # never fold a long text
    stream = io.StringIO()
    yaml.dump(config.model_dump(), stream)
    return stream.getvalue()


def _gather(
    source: str | Config | None, overrides: Sequence[str] | Mapping[str, Any]
) -> tuple[Source, list[str]]:
    layers = _layers(source)
    faults: list[str] = []
    if isinstance(overrides, Mapping):
        layers += [_override(str(key).split("."), _plain(v), "") for key, v in overrides.items()]
    elif isinstance(overrides, str):
        raise TypeError("overrides is a sequence of 'key=value' texts, not one text")
    else:
        for text in overrides:
            try:
                layers.append(_read_override(text))
            except ConfigError as error:
                faults += error.faults
    merged = Source()
    for layer in layers:
        merged = _merge(merged, layer)
    reputation = merged.data.get("reputation")
    if isinstance(reputation, dict):
        reputation.setdefault("rule", "sparta")
    return merged, faults


def _layers(source: str | Config | None) -> list[Source]:
    """The preset and the file, the weaker one first."""
    if source is None:
        return []
    if isinstance(source, Config):
        return [Source(source.model_dump(mode="json"))]
    if source.startswith(PREFIX):
        return [_preset(source, source)]
    path = FilePath(source).expanduser()
    own = read_file(path, source)
    if {"base", "methods"} <= own.data.keys():
        raise ConfigError(f"{source}: is a comparison; run it with: phalanx compare {source}")
    layers = []
    if "preset" in own.data:
        layers.append(_preset(own.data.pop("preset"), f"{_place(('preset',), own)}: preset"))
    return [*layers, Source(found_paths(own.data, path.parent), own.places)]


def _preset(name: Any, where: str) -> Source:
    word = str(name).removeprefix(PREFIX)
    if not isinstance(name, str) or word not in preset_names():
        hint = did_you_mean(word, preset_names())
        listed = "" if hint.startswith("known") else f" (known: {', '.join(preset_names())})"
        raise ConfigError(f"{where}: there is no preset {word!r}; {hint}{listed}")
    return read_file(PRESETS / f"{word}.yaml", f"{PREFIX}{word}")


def _read_override(text: str) -> Source:
    key, equals, value_text = text.partition("=")
    key = key.strip()
    if not equals or not key or "" in key.split("."):
        raise ConfigError(f"override {text!r}: expected key.path=value, e.g. match.duels=200")
    parts = key.split(".")
    if parts == ["preset"]:
        raise ConfigError(f"override {text!r}: name the preset as the source, preset:NAME")
    if _names_fragment(parts, value_text):
        path = FilePath(value_text.strip()).expanduser()
        fragment = read_file(path, value_text.strip())
        return _place_fragment(parts, fragment, path.parent)
    try:
        value = read_value(value_text)
    except (YAMLError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"override {text!r}: the value is not valid YAML: {problem}") from None
    return _override(parts, value, f"override {text!r}")


def _names_fragment(parts: list[str], value_text: str) -> bool:
    """Whether the value is the file of a section, or of a list of sections."""
    shape = shape_at(tuple(parts), {})
    if shape is None or not value_text.strip().lower().endswith(FRAGMENT_SUFFIXES):
        return False
    inner = [one for option in alternatives(shape.annotation) for one in get_args(option)]
    return any(section_of(one) is not None for one in (shape.annotation, *inner))


def overridden(text: str, key: str) -> bool:
    """Whether an override sets a key, by itself or with its whole section.

    Raises ConfigError as :func:`load` does for an override.
    """
    return value_at(tuple(key.split(".")), _read_override(text).data) is not None


def moved_override(text: str, change: Callable[[str], str]) -> str:
    """An override with every file or folder in it changed, for another working directory.

    Raises ConfigError as :func:`load` does for an override.
    """
    read, (key, _, value_text) = _read_override(text), text.partition("=")
    parts = tuple(key.strip().split("."))
    if _names_fragment(list(parts), value_text):
        return f"{key}={change(str(FilePath(value_text.strip()).expanduser().absolute()))}"
    value = value_at(parts, map_paths(read.data, change))
    return text if value == read_value(value_text) else f"{key}={json.dumps(value)}"


def _place_fragment(parts: list[str], fragment: Source, folder: FilePath) -> Source:
    """A fragment is the section itself, or a file whose only key is that section (or list)."""
    data, places = fragment.data, fragment.places
    if list(data) == parts[-1:] and isinstance(data[parts[-1]], dict | list):
        data = data[parts[-1]]
        places = {path[1:]: place for path, place in places.items() if len(path) > 1}
    nested = found_paths(_nest(parts, data), folder)
    return Source(nested, {(*parts, *path): place for path, place in places.items() if path})


def _override(parts: list[str], value: Any, place: str) -> Source:
    data = found_paths(_nest(parts, value), FilePath())
    return Source(data, {tuple(parts[: n + 1]): place for n in range(len(parts))})


def _nest(parts: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(parts):
        value = {part: value}
    return value


def _plain(value: Any) -> Any:
    """Python values as YAML would give them: tuples as lists, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _merge(base: Source, over: Source) -> Source:
    replaced: list[Path] = []
    data = _merge_data(base.data, over.data, (), replaced)
    kept = {
        path: place
        for path, place in base.places.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }
    return Source(data, kept | over.places)


def _merge_data(base: Any, over: Any, path: Path, replaced: list[Path]) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict) or _other_rule(base, over, path):
        replaced.append(path)
        return over
    merged = dict(base)
    for key, value in over.items():
        below = (*path, key)
        merged[key] = _merge_data(base[key], value, below, replaced) if key in base else value
    return merged


def _other_rule(base: dict[str, Any], over: dict[str, Any], path: Path) -> bool:
    """Another reputation rule has other keys: the old rule's values mean nothing to it."""
    rule = base.get("rule", "sparta")
    return path == ("reputation",) and over.get("rule", rule) != rule


def found_paths(data: dict[str, Any], folder: FilePath) -> dict[str, Any]:
    """The data with every path that exists made absolute: beside the file, else from here."""

    def find(text: str) -> str:
        if text.startswith(("builtin:", "hub:")) or text in ("", "builtin"):
            return text
        if text.startswith("script:"):
            return f"script:{find(text.removeprefix('script:'))}"
        try:
            given = FilePath(text).expanduser()
            for candidate in (folder / given, given):
                if candidate.exists():
                    return str(candidate.absolute())
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"{text[:80]!r} cannot be a path: {error}") from None
        return text

    return map_paths(data, find)


def map_paths(data: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Raw data with every text that may name a file or a folder changed."""
    for pattern in PATH_KEYS:
        data = _map_text(data, pattern, change)
    return data


def _map_text(value: Any, pattern: tuple[str, ...], change: Callable[[str], str]) -> Any:
    if not pattern:
        return change(value) if isinstance(value, str) else value
    head, *rest = pattern
    if head == "*" and isinstance(value, list):
        return [_map_text(item, tuple(rest), change) for item in value]
    if isinstance(value, dict) and head in value:
        return {**value, head: _map_text(value[head], tuple(rest), change)}
    return value


def _validate(data: dict[str, Any]) -> tuple[Config | None, list[Fault]]:
    """The configuration and its faults. Faulty places are left out to check what remains."""
    try:
        return Config.model_validate(data), []
    except ValidationError as error:
        faults = from_pydantic(error, data)
    remains = data
    for fault in sorted(faults, key=lambda fault: _sort_key(fault.path), reverse=True):
        remains = _without(remains, fault.path)
    try:
        return Config.model_validate(remains), faults
    except ValidationError:
        return None, faults


def _sort_key(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (-1, part) for part in path)


def _without(data: Any, path: Path) -> Any:
    head, *rest = path
    if isinstance(data, dict) and head in data:
        if rest:
            return {**data, head: _without(data[head], tuple(rest))}
        return {key: value for key, value in data.items() if key != head}
    if isinstance(data, list) and isinstance(head, int) and head < len(data):
        if rest:
            return [*data[:head], _without(data[head], tuple(rest)), *data[head + 1 :]]
        return [*data[:head], *data[head + 1 :]]
    return data


def _hides(hidden: list[Path], path: Path) -> bool:
    """Whether a place was already found faulty, so that a rule about it means nothing."""
    return any(path[: len(gone)] == gone or gone[: len(path)] == path for gone in hidden)


def _place(path: Path, source: Source) -> str:
    for length in range(len(path), -1, -1):
        if (place := source.places.get(path[:length])) is not None:
            return place
    return ""


def _with_place(fault: Fault, source: Source) -> str:
    place = _place(fault.path, source)
    words = dotted(fault.path, source.data)
    return ": ".join(filter(None, [place, words, fault.text]))
