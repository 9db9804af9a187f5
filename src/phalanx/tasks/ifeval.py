"""IFEval (Zhou et al. 2023): whether a response keeps the instructions that a program can check.

Four numbers: {prompt, instruction} x {strict, loose}. Strict looks at the response as it is, loose
passes an instruction if any of eight versions keeps it: with and without the first and the last
line, with and without stars. A prompt passes if all of its instructions do. Name the one reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from phalanx.errors import ConfigError
from phalanx.rows import read_rows
from phalanx.tasks.ifeval_checks import AT_LEAST, LESS, RULES
from phalanx.tasks.scoring import Score

Mode = Literal["strict", "loose"]
_THINKING = "</think>"


@dataclass(frozen=True, slots=True)
class Instructed:
    """A prompt and its instructions: names and arguments, in order."""

    id: str
    prompt: str
    instructions: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def meta(self) -> tuple[tuple[str, str], ...]:
        """What a task item keeps for :func:`score`: the names and the arguments, as JSON."""
        names = [name for name, _ in self.instructions]
        arguments = [dict(args) for _, args in self.instructions]
        return (("instruction_id_list", json.dumps(names)), ("kwargs", json.dumps(arguments)))


@dataclass(frozen=True, slots=True)
class Followed:
    """One verdict an instruction, in order."""

    names: tuple[str, ...]
    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


def read(source: str) -> tuple[Instructed, ...]:
    """The prompts of a file.

    Rows have the published columns (``key``, ``prompt``, ``instruction_id_list``, ``kwargs``) or
    ``id``, ``prompt`` and a ``meta`` with the latter two. Raises :class:`ConfigError` that lists
    all rows that cannot be used; an instruction that cannot be checked here is named.
    """
    table = read_rows(source)
    faults = [f"line {bad.line}: {bad.reason}" for bad in table.bad]
    found: list[Instructed] = []
    for row in table.rows:
        item = instructed(row.fields)
        if isinstance(item, str):
            faults.append(f"line {row.line}: {item}")
        else:
            found.append(item)
    if faults:
        raise ConfigError(faults, source)
    if not found:
        raise ConfigError("there are no rows; give a file with prompts", source)
    return tuple(found)


def instructed(fields: Mapping[str, Any]) -> Instructed | str:
    """One row, or what is wrong with it."""
    meta = fields.get("meta")
    every = {**fields, **meta} if isinstance(meta, dict) else dict(fields)
    key, prompt = every.get("key", every.get("id")), every.get("prompt")
    names, arguments = every.get("instruction_id_list"), every.get("kwargs")
    if key is None or not str(key).strip():
        return "key (or id) is missing; give each prompt its own"
    if not isinstance(prompt, str) or not prompt.strip():
        return f"prompt must be a text that is not empty, got {prompt!r:.60}"
    if not isinstance(names, list) or not names or not isinstance(arguments, list):
        return "instruction_id_list and kwargs must be lists, the first not empty"
    if len(names) != len(arguments):
        return f"{len(names)} instructions but {len(arguments)} kwargs; give one for each"
    kept = []
    for name, given in zip(names, arguments, strict=True):
        checked = _arguments(name, given)
        if isinstance(checked, str):
            return checked
        kept.append((name, checked))
    return Instructed(str(key), prompt, tuple(kept))


def _arguments(name: object, given: object) -> dict[str, Any] | str:
    """The arguments that the check needs, or what is wrong with them. Null ones are absent."""
    rule = RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        return (
            f"the instruction {name!r} cannot be checked here; leave the row out, or use one of "
            f"{', '.join(sorted(RULES))}"
        )
    present = given if isinstance(given, dict) else {}
    for key, kind in rule.needs.items():
        value = present.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or value in ("", []):
            return f"{name} needs {key} as {kind.__name__}, got {value!r:.60}"
        if isinstance(value, list) and not all(
            isinstance(word, str) and word.strip() for word in value
        ):
            return f"{name} needs {key} as a list of texts that are not empty, got {value!r:.60}"
        if key.endswith("relation") and value not in (LESS, AT_LEAST):
            return f"{name} needs {key} as {LESS!r} or {AT_LEAST!r}, got {value!r:.60}"
    return {key: present[key] for key in rule.needs}


def follow(text: str, instructions: Sequence[tuple[str, Mapping[str, Any]]]) -> Followed:
    """Check a response; what stands before a closing thinking mark is passed over.

    An empty version of a response keeps no instruction.
    """
    shown = text.rsplit(_THINKING, 1)[-1]
    versions = _loosened(shown)
    strict = tuple(_keeps(shown, name, args) for name, args in instructions)
    loose = tuple(
        kept or any(_keeps(version, name, args) for version in versions)
        for kept, (name, args) in zip(strict, instructions, strict=True)
    )
    return Followed(tuple(name for name, _ in instructions), strict, loose)


def _keeps(text: str, name: str, args: Mapping[str, Any]) -> bool:
    return bool(text.strip()) and RULES[name].check(text, args)


def _loosened(text: str) -> list[str]:
    """The seven other versions."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return [*cut, *(version.replace("*", "") for version in (text, *cut))]


def score(text: str, meta: Mapping[str, str], mode: Mode = "strict") -> Score:
    """Whether the response keeps all instructions; ``reason`` names the first that it does not."""
    if not text.rsplit(_THINKING, 1)[-1].strip():
        return Score(False, False, "empty")
    names, arguments = json.loads(meta["instruction_id_list"]), json.loads(meta["kwargs"])
    followed = follow(text, list(zip(names, arguments, strict=True)))
    kept = followed.strict if mode == "strict" else followed.loose
    broken = [name for name, well in zip(names, kept, strict=True) if not well]
    return Score(not broken, True, broken[0] if broken else "")


def shares(followed: Sequence[Followed]) -> dict[str, float]:
    """The four numbers, each in [0, 1]: ``prompt_strict``, ``instruction_strict``, and loose.

    Raises :class:`ValueError` for no responses.
    """
    if not followed:
        raise ValueError("there are no responses to count; check at least one")
    found: dict[str, float] = {}
    for mode in ("strict", "loose"):
        verdicts = [getattr(each, mode) for each in followed]
        single = [verdict for each in verdicts for verdict in each]
        found[f"prompt_{mode}"] = sum(all(each) for each in verdicts) / len(verdicts)
        found[f"instruction_{mode}"] = sum(single) / len(single)
    return found
