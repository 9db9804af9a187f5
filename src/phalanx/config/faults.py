"""pydantic's complaints in the project's own words, with a place, a value and a way out."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from phalanx.config.base import Section
from phalanx.config.keys import (
    Path,
    Shape,
    alternatives,
    choices,
    describe,
    in_words,
    known_keys,
    sections_with,
    shape_at,
    value_at,
)
from phalanx.config.schema import Config


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong (or, as a ``note``, worth knowing) at one place.

    ``unused`` is a note, too: a setting that the method does not read.
    """

    path: Path
    text: str
    level: Literal["fault", "note", "unused"] = "fault"


def closest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Sequence[str], what: str = "known") -> str:
    """``did you mean learning_rate?`` or, with nothing close, the whole list."""
    match = closest(word, known)
    return f"did you mean {match}?" if match else f"{what}: {', '.join(known) or '(none)'}"


def from_pydantic(error: ValidationError, data: Any, root: type[Section] = Config) -> list[Fault]:
    """One fault for each place of a ``root`` that pydantic complains about, in its order."""
    found: dict[Path, Fault] = {}
    for entry in error.errors(include_url=False, include_context=False):
        path = _real_path(entry["loc"], data, entry["type"])
        if entry["type"] == "union_tag_invalid":
            path = (*path, "rule")
        if path not in found:
            own = entry["type"] == "value_error"  # a rule of ours, in words of ours
            words = entry["msg"].removeprefix("Value error, ")
            found[path] = Fault(path, words if own else _text(entry["type"], path, data, root))
    return list(found.values())


def _real_path(loc: tuple[str | int, ...], data: Any, kind: str) -> Path:
    """Without the parts that only name a member of a union."""
    path: list[str | int] = []
    for position, part in enumerate(loc):
        here = value_at(tuple(path), data)
        last_and_absent = kind == "missing" and position == len(loc) - 1
        is_key = isinstance(here, dict) and part in here
        is_item = isinstance(here, list) and isinstance(part, int)
        if is_key or is_item or last_and_absent:
            path.append(part)
    return tuple(path)


def _text(kind: str, path: Path, data: Any, root: type[Section]) -> str:
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(path, data, root)
    shape = shape_at(path, data, root)
    if kind == "missing":
        return f"this key is missing; expected {in_words(shape or Shape(str))}"
    value = value_at(path, data)
    if shape is None:
        return f"cannot be read, got {describe(value)}"
    words = choices(shape.annotation)
    if kind == "union_tag_invalid":
        words = _rules(path, data)
    if words and isinstance(value, str):
        hint = closest(value, words)
        known = f"the text {value!r} is not known here; expected one of {', '.join(words)}"
        return f"{known}; did you mean {hint}?" if hint else known
    return f"expected {in_words(shape)}, got {describe(value)}"


def _unknown_key(path: Path, data: Any, root: type[Section]) -> str:
    key = str(path[-1])
    known = known_keys(path[:-1], data, root)
    if match := closest(key, known):
        return f"unknown key; did you mean {match}?"
    if root is Config and (elsewhere := sections_with(key)):
        return f"unknown key here; it exists as {', '.join(elsewhere)}"
    return f"unknown key; known keys here: {', '.join(known)}"


def _rules(path: Path, data: dict[str, Any]) -> list[str]:
    """The rules among which a section's ``rule`` chooses."""
    shape = shape_at(path[:-1], data)
    options = alternatives(shape.annotation) if shape else []
    return [str(option.model_fields["rule"].default) for option in options]
