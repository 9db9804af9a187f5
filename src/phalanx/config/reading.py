"""YAML text to plain data, and the line on which every key stands.

YAML 1.2 through ruamel.yaml: ``1e-6`` is a number, ``no`` is a word. Only plain data is built,
never an object. Keys given twice are refused, all of them in one message.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from phalanx.config.keys import Path, describe
from phalanx.errors import ConfigError

DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Source:
    """Raw data and, for each path in it, where it was written ("FILE:LINE"; the root: "FILE")."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, str] = field(default_factory=dict)


def read_file(path: FilePath, name: str = "") -> Source:
    """Read one YAML file. ``name`` is what messages call it.

    Raises ConfigError: no such file, not UTF-8, not YAML, keys given twice, not a mapping.
    """
    name = name or str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(_absent(path, name)) from None
    except IsADirectoryError:
        raise ConfigError(f"{name}: is a folder, not a YAML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name[:80]}: cannot be read: {error}") from None
    return read_text(text, name)


def _absent(path: FilePath, name: str) -> str:
    folder = path.parent
    near = sorted(p.name for p in folder.glob("*.y*ml"))[:8] if folder.is_dir() else []
    here = f"; YAML files in {folder}: {', '.join(near)}" if near else ""
    return f"{name}: no such file{here}; a preset is written preset:NAME"


def read_text(text: str, name: str) -> Source:
    """The same for text in memory."""
    source = _read_text(text, name)
    return Source(copy.deepcopy(source.data), dict(source.places))


@lru_cache(maxsize=64)  # presets, and the configurations of a comparison, are read again and again
def _read_text(text: str, name: str) -> Source:
    try:
        yaml = _yaml()
        node = yaml.compose(text)
        places, faults = _places(node, name)
        data = None if node is None else yaml.constructor.construct_document(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = error.problem or error.context or "not YAML"
        raise ConfigError(f"{where}: this is not valid YAML: {problem}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: this is not valid YAML: {error}") from None
    if faults:
        raise ConfigError(faults)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: expected a mapping of keys, got {describe(data)}")
    odd = [key for key in _all_keys(data) if not isinstance(key, str)]
    if odd:
        raise ConfigError(f"{name}: keys must be text, got {', '.join(map(repr, odd[:5]))}")
    return Source(data, places)


def _all_keys(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        yield from data
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from _all_keys(item)


def read_value(text: str) -> Any:
    """One value as YAML reads it: ``1e-6`` a number, ``[a, b]`` a list. Raises YAMLError."""
    return _yaml().load(text)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # found by _places, so that all of them are listed
    return yaml


def _places(root: Node | None, name: str) -> tuple[dict[Path, str], list[str]]:
    places: dict[Path, str] = {(): name}
    faults: list[str] = []

    def visit(node: Node, path: Path) -> None:
        if len(path) > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        if isinstance(node, SequenceNode):
            for position, item in enumerate(node.value):
                places[(*path, position)] = f"{name}:{item.start_mark.line + 1}"
                visit(item, (*path, position))
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                below = (*path, str(key.value))
                place = f"{name}:{key.start_mark.line + 1}"
                if below in places:
                    first = places[below].rsplit(":", 1)[-1]
                    words = ".".join(str(part) for part in below)
                    faults.append(f"{place}: {words}: this key is given twice (also line {first})")
                else:
                    places[below] = place
                visit(value, below)

    if root is not None:
        visit(root, ())
    return places, faults
