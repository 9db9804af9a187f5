"""A walk over the schema: what keys a section has, and what a key expects, in words.

Messages, the generated documentation and the comparison of two configurations all ask the same
questions of :mod:`phalanx.config.schema`; the answers are here once.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from phalanx.config.schema import Config, Section

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands at one place of the schema: an annotation and its bounds."""

    annotation: Any
    bounds: tuple[Any, ...] = ()


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without None: ``int | None`` gives ``[int]``."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [arg for arg in get_args(annotation) if arg is not type(None)]
    return [annotation]


def optional(annotation: Any) -> bool:
    """Whether None is allowed."""
    return type(None) in get_args(annotation)


def is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def section_of(annotation: Any, value: Any = None) -> type[Section] | None:
    """The section that an annotation means; ``value`` (raw data) chooses by its ``rule``."""
    sections = [option for option in alternatives(annotation) if is_section(option)]
    if len(sections) > 1 and isinstance(value, dict) and "rule" in value:
        for option in sections:
            if option.model_fields["rule"].default == value["rule"]:
                return option
    return sections[0] if sections else None


def shape_at(path: Path, data: Any, root: type[Section] = Config) -> Shape | None:
    """The shape at ``path``; ``data`` is the whole raw tree, of a ``root``. None where the schema
    has nothing."""
    shape, value = Shape(root), data
    for part in path:
        shape_below = _below(shape, part, value)
        if shape_below is None:
            return None
        shape, value = shape_below, value_at((part,), value)
    return shape


def _below(shape: Shape, part: str | int, value: Any) -> Shape | None:
    section = section_of(shape.annotation, value)
    if section is not None and isinstance(part, str):
        info = section.model_fields.get(part)
        return Shape(info.annotation, tuple(info.metadata)) if info else None
    for option in alternatives(shape.annotation):
        if get_origin(option) is list and isinstance(part, int):
            return Shape(get_args(option)[0])
        if get_origin(option) is dict:
            return Shape(get_args(option)[1])
    return None


def value_at(path: Path, data: Any) -> Any:
    """The raw value at ``path``, or None."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def known_keys(path: Path, data: Any, root: type[Section] = Config) -> list[str]:
    """The keys of the section at ``path``, in schema order."""
    shape = shape_at(path, data, root)
    section = section_of(shape.annotation, value_at(path, data)) if shape else None
    return list(section.model_fields) if section else []


def sections_with(key: str) -> list[str]:
    """Dotted paths of every place of the schema that has a key of this name."""
    return [dotted for dotted in _dotted(Config, "") if dotted.rsplit(".", 1)[-1] == key]


def _dotted(section: type[Section], prefix: str) -> Iterator[str]:
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        yield path
        for option in alternatives(info.annotation):
            inner = get_args(option)[-1] if get_origin(option) in (list, dict) else option
            if is_section(inner):
                yield from _dotted(inner, f"{path}.")


def choices(annotation: Any) -> list[str]:
    """The literal words that an annotation accepts."""
    words: list[str] = []
    for option in alternatives(annotation):
        if get_origin(option) is Literal:
            words.extend(str(word) for word in get_args(option))
    return words


def in_words(shape: Shape) -> str:
    """What a key expects: "a number from 0 to 1", "one of hf, scripted", "a list".

    >>> in_words(Shape(int | None))
    'a whole number'
    """
    parts: list[str] = []
    for option in alternatives(shape.annotation):
        words = _option_in_words(option, shape.bounds)
        if words not in parts:
            parts.append(words)
    return " or ".join(parts)


def _option_in_words(option: Any, bounds: tuple[Any, ...]) -> str:
    origin = get_origin(option)
    if origin in (list, dict) and any(getattr(bound, "min_length", None) for bound in bounds):
        return f"{_option_in_words(option, ())} that is not empty"
    if origin is Literal:
        words = [str(word) for word in get_args(option)]
        return f"one of {', '.join(words)}" if len(words) > 1 else words[0]
    if origin is list:
        inner = get_args(option)[0]
        if is_section(inner):
            return "a list"
        if get_origin(inner) is Literal:
            return f"a list of: {', '.join(get_args(inner))}"
        if get_origin(inner) is list:
            return f"a list of lists of {_PLURALS[get_args(inner)[0]]}"
        return f"a list of {_PLURALS[inner]}"
    if origin is dict:
        return "a mapping"
    if is_section(option):
        return "a mapping of keys"
    if option is str and any(getattr(bound, "pattern", None) for bound in bounds):
        return "a short name of letters, digits, dot, dash and underscore"
    if option in (int, float):
        return " ".join(filter(None, [_WORDS[option], _range_in_words(bounds)]))
    return _WORDS[option]


_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}


def _range_in_words(bounds: tuple[Any, ...]) -> str:
    limits: dict[str, Any] = {}
    for bound in bounds:
        for name in ("ge", "gt", "le", "lt"):
            if getattr(bound, name, None) is not None:
                limits[name] = getattr(bound, name)
    low = f"above {limits['gt']:g}" if "gt" in limits else ""
    if "ge" in limits and "le" in limits:
        return f"from {limits['ge']:g} to {_number(limits['le'])}"
    if "ge" in limits:
        low = f"of at least {limits['ge']:g}"
    high = f"at most {limits['le']:g}" if "le" in limits else ""
    return " and ".join(filter(None, [low, high]))


def _number(value: float) -> str:
    """Whole numbers in full, however large."""
    return f"{value:,}" if isinstance(value, int) and value >= 10**6 else f"{value:g}"


def describe(value: Any) -> str:
    """A raw value in words, with its kind: "the text 'lucky'", "a list of 2 items"."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the truth value {'true' if value else 'false'}"
    if isinstance(value, int | float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    if isinstance(value, list):
        return f"a list of {len(value)} item{'' if len(value) == 1 else 's'}"
    if isinstance(value, dict):
        names = ", ".join(str(key) for key in list(value)[:8]) or "(none)"
        return f"a mapping with the keys {names}"
    return f"{value} (a {type(value).__name__}; put it in quotes if it is meant as text)"


def dotted(path: Path, data: Any) -> str:
    """``pool.members.bob.adapter``: items of a list by their ``name``, else by number from 1."""
    words: list[str] = []
    for position, part in enumerate(path):
        if isinstance(part, int):
            name = value_at((*path[: position + 1], "name"), data)
            words.append(name if isinstance(name, str) and name else str(part + 1))
        else:
            words.append(str(part))
    return ".".join(words)
