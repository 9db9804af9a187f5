"""Writes ``docs/configuration.md`` from the schema and the presets.

``python -m phalanx.config.document > docs/configuration.md``; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from phalanx.config.compare import RESUME_FREE
from phalanx.config.keys import Shape, alternatives, in_words, is_section, section_of, shape_at
from phalanx.config.loading import PRESETS, load, preset_names
from phalanx.config.reading import read_file
from phalanx.config.schema import Config, Section

HEAD = """# Configuration

A configuration is one YAML file. Values come from three layers, later ones win:

1. a preset: the key `preset` at the top of the file, or `preset:NAME` in place of a file;
2. the file itself. Mappings merge key by key, a list replaces the whole list. Another
   `reputation.rule` replaces the whole section, because each rule has its own keys;
3. overrides on the command line, `match.duels=200`. For a section, or a list of sections, the value
   may be the name of a YAML file that holds it: `pool=pool.yaml`; a list stands under its key:
   `endpoints=endpoints.yaml`, and in the file `endpoints: [...]`.

Relative paths are looked up beside the file that names them, then in the working directory. YAML is
read by the rules of version 1.2: `1e-6` is a number, `no` is a word. Unknown keys, keys given twice
and values of another type are refused; all faults come in one message, each with its file and line.
`phalanx check FILE` shows the plan without loading a model.
"""
TAIL = """
## Where this page comes from

From `src/phalanx/config/schema.py`: change the text there, then run
`python -m phalanx.config.document > docs/configuration.md`.
"""


def document() -> str:
    """The whole page as Markdown."""
    parts = [HEAD, "## Top level\n", *_table(Config, "")]
    for heading, section in _sections(Config, ""):
        parts += [f"\n## `{heading}`\n", *_table(section, heading)]
    parts += _presets()
    free = ", ".join(f"`{key}`" for key in RESUME_FREE)
    parts.append(f"\n## What may change when a run is resumed\n\n{free}.\n")
    parts.append(TAIL.strip("\n") + "\n")
    return "\n".join(parts)


def _sections(section: type[Section], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    """Every section below, with the path of its keys, in schema order."""
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        options = alternatives(info.annotation)
        for option in options:
            listed = get_origin(option) is list
            inner = get_args(option)[0] if listed else option
            if not is_section(inner):
                continue
            heading = f"{path}[]" if listed else path
            if len(options) > 1:
                heading = f"{path} (rule: {inner.model_fields['rule'].default})"
            yield heading, inner
            yield from _sections(inner, f"{heading}.")


def _table(section: type[Section], heading: str) -> list[str]:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, info in section.model_fields.items():
        shape = Shape(info.annotation, tuple(info.metadata))
        meaning = " ".join((info.description or _usual_meaning(name, info, heading)).split())
        cells = [f"`{name}`", _type(shape), _default(info), meaning]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def _type(shape: Shape) -> str:
    sections = [option for option in alternatives(shape.annotation) if is_section(option)]
    if len(sections) > 1:
        return "a mapping, by its `rule`"
    return in_words(shape)


def _usual_meaning(name: str, info: FieldInfo, heading: str) -> str:
    """For keys that need no words of their own in the schema."""
    if name == "rule":
        return "Chooses this rule."
    if any(is_section(option) for option in alternatives(info.annotation)):
        return f"See `{heading}.{name}`." if heading else f"See `{name}`."
    return ""


def _default(info: FieldInfo) -> str:
    value: Any = info.default
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, Section):
        return "its defaults"
    return f"`{_yaml(value)}`" if value not in (None, "") else "none"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _presets() -> list[str]:
    names = preset_names()
    parts = [
        "\n## Presets\n",
        "The values that each preset sets; comments in the files give the reasons",
        "(`src/phalanx/config/presets`). A dash: the default.\n",
        "| key | " + " | ".join(f"`{name}`" for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    columns = {name: _flat(read_file(PRESETS / f"{name}.yaml").data) for name in names}
    for name in names:
        load(f"preset:{name}")  # a preset that does not parse must not be documented
    order = [key for key in _order(Config, "") if any(key in column for column in columns.values())]
    for key in order:
        cells = [_yaml(columns[name][key]) if key in columns[name] else "–" for name in names]
        parts.append(f"| `{key}` | " + " | ".join(cells) + " |")
    return parts


def _order(section: type[Section], prefix: str) -> Iterator[str]:
    """Dotted keys in schema order, each once."""
    seen: dict[str, None] = {}
    for name, info in section.model_fields.items():
        path = f"{prefix}{name}"
        seen[path] = None
        for option in alternatives(info.annotation):
            if is_section(option):
                seen.update(dict.fromkeys(_order(option, f"{path}.")))
    yield from seen


def _holds_keys(path: str) -> bool:
    shape = shape_at(tuple(path.split(".")), {})
    return shape is not None and section_of(shape.annotation) is not None


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and _holds_keys(path):
            flat.update(_flat(value, f"{path}."))
        else:
            flat[path] = value
    return flat


if __name__ == "__main__":
    sys.stdout.write(document())
