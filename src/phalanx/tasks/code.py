"""Answers that are programs: find the function in a response and run the tests on it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from phalanx.tasks.code_runner import Program, run
from phalanx.tasks.scoring import Score

LONGEST = 100_000  # characters; a longer answer is not run
_STATEMENT = re.compile(
    r"(?:from|import|def|class|async|if|elif|else|for|while|try|except|finally|with|assert|return|"
    r"print|del|global|raise|pass)\b|[#@)\]}'\"]|\w[\w.]*\s*(?:\[[^\]]*\])?\s*(?::[^=]+)?[-+*/|&]?="
)
_FIRST = re.compile(r"^(?:from\s+\S+\s+import\b|import\s|def\s|class\s|async\s+def\s|@\w)", re.M)


def score(text: str, meta: Mapping[str, str]) -> Score:
    """Run the response's function against tests.

    ``meta``: ``prompt``, the imports, helpers and header given; ``entry_point``, the name of the
    function to write; ``test``, which defines ``check(candidate)`` or asserts at once.
    Not readable: too long, or no such function in it (nothing is run). Else ``reason``
    is "" or what ended the tests: "AssertionError", "time", "ended", "SyntaxError".
    Raises SandboxError where code cannot be run safely.
    """
    name = meta["entry_point"]
    if len(text) > LONGEST:
        return Score(False, False, "too long")
    code = extract(text, meta["prompt"], name)
    if code is None:
        return Score(False, False, "no code")
    # The prompt alone must run too: it is a header with a docstring, so it is a whole function.
    outcome = run(Program(meta["prompt"], code, name, meta["test"]))
    return Score(outcome.passed, True, outcome.reason)


def extract(text: str, prompt: str, name: str) -> str | None:
    """The program in a response: what defines ``name``, or continues ``prompt``; None if neither.

    Of several fences the last that defines the function counts, whatever other functions there
    are. Without a fence, the text from the first import or definition up to the first line that is
    no code. A fence or text that only has indented lines is the function's body, cut at the first
    line that is not indented.
    """
    fences = _fences(text)
    for fence in reversed(fences):
        if _defines(fence, name):
            return textwrap.dedent(fence)
    if fences:
        return _continued(fences[-1], prompt)
    if _defines(text, name):
        first = _FIRST.search(textwrap.dedent(text))
        return _without_prose(textwrap.dedent(text)[first.start() :]) if first else None
    return _continued(text, prompt)


def _fences(text: str) -> list[str]:
    """The insides of the fences; one that is never closed goes to the end."""
    found: list[str] = []
    inside: list[str] = []
    mark = ""
    for line in text.split("\n"):
        bare = line.strip()
        if not mark and bare.startswith(("```", "~~~")):
            mark, inside = bare[:3], []
        elif mark and bare.startswith(mark) and not bare.strip(mark[0]):
            found.append("\n".join(inside))
            mark = ""
        elif mark:
            inside.append(line)
    return [*found, "\n".join(inside)] if mark else found


def _defines(code: str, name: str) -> bool:
    pattern = rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b|^{re.escape(name)}[ \t]*=(?!=)"
    return re.search(pattern, code, re.MULTILINE) is not None


def _continued(body: str, prompt: str) -> str | None:
    """The prompt and a body: the indented lines that the text begins with."""
    kept: list[str] = []
    for line in body.split("\n"):
        if line.strip() and not line[0].isspace():
            break
        kept.append(line)
    if not "".join(kept).strip():
        return None
    return prompt.rstrip() + "\n" + "\n".join(kept) + "\n"


def _without_prose(code: str) -> str:
    """Up to the first line at the margin that does not look like a statement."""
    kept: list[str] = []
    for line in code.split("\n"):
        if line.strip() and not line[0].isspace() and not _STATEMENT.match(line):
            break
        kept.append(line)
    return "\n".join(kept)
