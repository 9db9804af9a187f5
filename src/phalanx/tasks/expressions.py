"""Find the expression that a response states as its answer, as LaTeX."""

from __future__ import annotations

import re
import unicodedata

from phalanx.tasks.reading import STATED, ascii_digit, boxes

_MATHS = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_LONGEST = 2_000
"""Characters; a longer answer is noise, and slow to parse."""


def read_expression(text: str) -> str:
    """The last ``\\boxed{}``, ``#### x`` or "the answer is x"; else a text that is one short line.

    "" where there is none, or where it is longer than any answer. A box that is never closed, and a
    ``\\box{}``, state nothing.
    """
    text = "".join(map(_plain, text))
    found = [(start, content.strip()) for start, content in boxes(text)]
    found += [(match.start(), match[1].strip()) for match in re.finditer(r"#{4,}([^\n#]*)", text)]
    for match in STATED.finditer(text):
        rest = text[match.end() : match.end() + _LONGEST].lstrip("*_").lstrip()
        line = re.split(r"\n|[.!?](?:\s|$)", rest, maxsplit=1)[0]
        if "\\boxed" not in line and (stated := _inside(line)):
            found.append((match.start(), stated))
    found = [one for one in found if one[1]]
    if found:
        last = max(found)[1]
    elif "\\boxed" not in text and "\n" not in text.strip() and len(text.strip()) <= 100:
        last = _inside(text)
    else:
        last = ""
    return last if len(last) <= _LONGEST else ""


def _plain(character: str) -> str:
    """Digits of any script as 0 to 9, and raised ones as a power."""
    raised = unicodedata.decomposition(character).startswith("<super>")
    power = unicodedata.digit(character, None) if raised else None
    return ascii_digit(character) if power is None else f"^{{{power}}}"


def _inside(line: str) -> str:
    """The mathematics of a line, its last where it has several; else the line."""
    marked = _MATHS.findall(line)
    return "".join(marked[-1]).strip() if marked else line.strip(" .*_$")
