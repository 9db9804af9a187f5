"""HumanEval (Chen et al. 2021): 164 functions to write, each with its tests."""

from __future__ import annotations

from phalanx.tasks import fields as of
from phalanx.tasks.items import TaskItem


def read(fields: of.Fields, task: str) -> TaskItem:
    """An item of match ``code``. Raises BadItem for a row that is no problem with tests.

    Columns: ``task_id``, ``prompt``, ``entry_point`` and ``test``, or ``id``, ``prompt`` and a
    ``meta`` with the latter two.
    """
    every = {**fields, **of.about(fields)}
    prompt, name, tests = (of.raw(every, key) for key in ("prompt", "entry_point", "test"))
    if not name.isidentifier():
        raise of.BadItem(f"entry_point must be the name of a function, got {name!r}")
    for key, code in (("prompt", prompt), ("test", tests)):
        try:
            compile(code, key, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise of.BadItem(
                f"{key} is not Python: {error}; give the header with its docstring and the tests"
            ) from error
    asked = (
        "Complete the following Python function. Answer with the whole function, with the imports "
        "that it needs, in one fenced block of Python code. Use the standard library only.\n\n"
        f"```python\n{prompt.rstrip()}\n```"
    )
    known = (("prompt", prompt), ("entry_point", name), ("test", tests))
    key = of.identity(every, "humaneval", prompt, names=("task_id", "id"))
    return TaskItem(key, asked, "", "", task, "code", meta=known, question=prompt)
