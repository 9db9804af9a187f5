"""Read the fields of benchmark rows: texts, options, the right option, and what else is known.

A row is an object as :mod:`phalanx.rows` gives it. CSV cells are text, so a list or an object in
one is read as JSON. Every function raises :class:`BadItem` with the reason.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.identity import content_id, derived_random
from phalanx.sources import clean_text

Fields = Mapping[str, Any]
Choices = tuple[tuple[str, str], ...]


class BadItem(Exception):
    """Why a row is no item. Loading collects them and lists all of them in one error."""


def text(fields: Fields, *names: str) -> str:
    """The first of the fields that has text (numbers count). Raises BadItem where none has."""
    found = maybe(fields, *names)
    if not found:
        raise BadItem(f"no {_either(names)}")
    return found


def maybe(fields: Fields, *names: str) -> str:
    """The first of the fields that has text, "" where none has. Raises BadItem for a list."""
    for name in names:
        value = fields.get(name)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadItem(f"{name} is not text")
        if isinstance(value, float) and value == value // 1:
            value = int(value)
        if found := clean_text(str(value)).strip():
            return found
    return ""


def raw(fields: Fields, name: str) -> str:
    """The text of a field as it stands, with every space. Raises BadItem where it has none."""
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadItem(f"{name} must be a text that is not empty, got {value!r:.60}")
    return value


def nested(fields: Fields, name: str) -> Any:
    """A list or an object: as it is, or as JSON in a text. None where absent or empty."""
    value = fields.get(name)
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except ValueError as error:
        raise BadItem(f"{name} is text that is no JSON ({error})") from None


def about(fields: Fields) -> dict[str, Any]:
    """The object ``meta`` of a row, empty where there is none."""
    found = nested(fields, "meta")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadItem("meta is not an object")
    return found


def plain(meta: Fields) -> tuple[tuple[str, str], ...]:
    """The short scalar values of ``meta`` as sorted (key, text)."""
    return tuple(
        (key, str(value))
        for key, value in sorted(meta.items())
        if isinstance(value, str | int | float) and len(str(value)) <= 200
    )


def options(fields: Fields, *names: str) -> Choices:
    """(label, text) of each option, from an object, a list of texts, a list of ``{key, value}``,
    or the columns A, B, C, ...

    A list gets the labels A, B, C, ... Raises BadItem for fewer than two options, more than 26, an
    empty one, or labels that repeat.
    """
    name = next((name for name in names if fields.get(name) not in (None, "")), "")
    if not name:
        columns = [key for key in string.ascii_uppercase if fields.get(key) not in (None, "")]
        found: Any = {key: fields[key] for key in columns}
        if not found:
            raise BadItem(f"no {_either(names)} and no columns A, B, C, ...")
    else:
        found = nested(fields, name)
    if isinstance(found, dict):
        return checked([(str(key).strip(), value) for key, value in found.items()])
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return checked([(str(one.get("key", "")).strip(), one.get("value")) for one in found])
    if not isinstance(found, list):
        raise BadItem(f"{name} is neither a list nor an object")
    return lettered(found)


def lettered(texts: Sequence[Any]) -> Choices:
    """Labels A, B, C, ... for texts in their order. Raises as :func:`options`."""
    if len(texts) > len(string.ascii_uppercase):
        raise BadItem(f"{len(texts)} options; at most {len(string.ascii_uppercase)} have a letter")
    return checked(list(zip(string.ascii_uppercase, texts, strict=False)))


def checked(pairs: Sequence[tuple[str, Any]]) -> Choices:
    """The options, their texts clean. Raises as :func:`options`."""
    if len(pairs) < 2:
        raise BadItem(f"{len(pairs)} options; a choice needs two")
    labels = [label for label, _ in pairs]
    if not all(labels) or len(set(labels)) < len(labels):
        raise BadItem(f"the labels of the options are not distinct: {', '.join(labels)}")
    cells = {label: maybe({"an option": value}, "an option") for label, value in pairs}
    if empty := [label for label, cell in cells.items() if not cell]:
        raise BadItem(f"option {', '.join(empty)} is empty")
    return tuple(cells.items())


def right_label(answer: str, choices: Choices) -> str:
    """The label that ``answer`` means: a label, the place from 0, or the whole text of an option.

    Raises BadItem where it means none, or a text that several options have.
    """
    labels = [label for label, _ in choices]
    if answer in labels:
        return answer
    if answer.upper() in labels:
        return answer.upper()
    if answer.isascii() and answer.isdigit() and int(answer) < len(labels):
        return labels[int(answer)]
    same = [label for label, cell in choices if cell == answer]
    if len(same) == 1:
        return same[0]
    raise BadItem(f"the answer {answer!r} is none of the options {', '.join(labels)}")


def shuffled(texts: Sequence[str], *seed: Any) -> list[str]:
    """The texts in an order that follows from ``seed`` (the item itself) alone."""
    order = list(texts)
    derived_random("options", *seed).shuffle(order)
    return order


def identity(fields: Fields, *parts: Any, names: Sequence[str] = ("id",)) -> str:
    """The id of the row, or one that follows from its content."""
    return maybe(fields, *names) or content_id(*parts)


def _either(names: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(names))
