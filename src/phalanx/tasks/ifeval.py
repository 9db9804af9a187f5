"""IFEval (Zhou et al. 2023): whether a response keeps the instructions that a program can check.

A response is right if it keeps all of its instructions as it stands: the benchmark's prompt-level
strict accuracy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from phalanx.tasks import fields as of
from phalanx.tasks.ifeval_checks import AT_LEAST, LESS, RULES
from phalanx.tasks.items import TaskItem
from phalanx.tasks.scoring import Score


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``ifeval``. Raises BadItem for an instruction that cannot be checked.

    Columns: ``key``, ``prompt``, ``instruction_id_list`` and ``kwargs``, or ``id``, ``prompt`` and
    a ``meta`` with the latter two.
    """
    every = {**fields, **of.about(fields)}
    prompt = of.raw(every, "prompt")
    names, given = of.nested(every, "instruction_id_list"), of.nested(every, "kwargs")
    if not isinstance(names, list) or not names or not isinstance(given, list):
        raise of.BadItem("instruction_id_list and kwargs must be lists, the first not empty")
    if len(names) != len(given):
        raise of.BadItem(f"{len(names)} instructions but {len(given)} kwargs; give one for each")
    kept = [_arguments(name, one) for name, one in zip(names, given, strict=True)]
    known = (("instruction_id_list", json.dumps(names)), ("kwargs", json.dumps(kept)))
    key = of.identity(every, "ifeval", prompt, *known, names=("key", "id"))
    return TaskItem(key, prompt, "", "", task, "ifeval", meta=known)


def _arguments(name: object, given: object) -> dict[str, Any]:
    """The arguments that the check needs. Null ones are absent. Raises BadItem."""
    rule = RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise of.BadItem(
            f"the instruction {name!r} cannot be checked here; leave the row out, or use one of "
            f"{', '.join(sorted(RULES))}"
        )
    present = given if isinstance(given, dict) else {}
    for key, kind in rule.needs.items():
        value = present.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or value in ("", []):
            raise of.BadItem(f"{name} needs {key} as {kind.__name__}, got {value!r:.60}")
        if isinstance(value, list) and not all(
            isinstance(word, str) and word.strip() for word in value
        ):
            raise of.BadItem(
                f"{name} needs {key} as a list of texts that are not empty, got {value!r:.60}"
            )
        if key.endswith("relation") and value not in (LESS, AT_LEAST):
            raise of.BadItem(f"{name} needs {key} as {LESS!r} or {AT_LEAST!r}, got {value!r:.60}")
    return {key: present[key] for key in rule.needs}


def score(text: str, meta: Mapping[str, str]) -> Score:
    """Whether the response keeps all instructions; ``reason`` names the first that it does not."""
    names, arguments = json.loads(meta["instruction_id_list"]), json.loads(meta["kwargs"])
    for name, given in zip(names, arguments, strict=True):
        if not RULES[name].check(text, given):
            return Score(False, True, name)
    return Score(True, True)
