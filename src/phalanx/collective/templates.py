"""Prompt templates: filling, fencing off judged text, and spotting text that plays the judge.

A placeholder is a name in single braces, ``{response}``. Nothing else in a template is special: a
JSON example, ``{}``, ``{0}`` and ``{{}}`` stay as they are, and what is filled in is never read
again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path

from phalanx.errors import ConfigError
from phalanx.identity import derived_random

SHIPPED = (
    "additive",
    "aggregate",
    "arena",
    "assess",
    "criteria",
    "debate",
    "fit",
    "grade",
    "meta_judge",
    "pairwise",
    "prefer",
    "rate",
    "rate_answer",
    "rewrite",
    "rubric",
    "summarise",
    "verdict",
    "vote",
)
"""Names of the templates that come with the package (``prompts/*.txt``)."""

USER, QUESTION, INSTRUCTION = ASKED = ("user", "question", "instruction")
"""What marks around the words of whoever asks are called (see :func:`fence`)."""

_PLACEHOLDER = re.compile(r"(?<!\{)\{([^\W\d]\w*)\}(?!\})")
_BRACKETED = re.compile(
    r"\[\[[ \t]{0,4}(?:[A-D]|tie|[AB][ ]?[<>=]{1,3}[ ]?[AB]|[0-9]{1,3}(?:[.,/][0-9]{1,3})?)"
    r"[ \t]{0,4}\]\]",
    re.IGNORECASE,
)
_OBJECT = re.compile(
    r"\{\s{0,20}[\"'“]?(?:(?:final|overall)[_ ])?(?:score|rating|winner|verdict)[\"'”]?\s{0,20}:",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    r"^[ \t>*_#-]{0,12}(?:(?:my|the)[ ])?(?:final[ ]|overall[ ])?(?:verdict|score|rating)"
    r"[*_ \t]{0,6}:[*_ \t]{0,6}(?:\[|[0-9]|(?:response[ ]|answer[ ])?[ABC](?!\w)|tie\b)",
    re.IGNORECASE | re.MULTILINE,
)


@lru_cache(maxsize=64)
def _cut(template: str) -> tuple[str, ...]:
    """Literal text and placeholder names in turn, beginning and ending with literal text."""
    return tuple(_PLACEHOLDER.split(template))


def placeholders(template: str) -> list[str]:
    """The names in single braces, each once, in the order of their first appearance."""
    return list(dict.fromkeys(_cut(template)[1::2]))


def faults_of(template: str, known: Iterable[str], required: Iterable[str]) -> list[str]:
    """What is wrong with a template: unknown names (with the closest known one), missing ones."""
    known_names, present = sorted(set(known)), placeholders(template)
    faults = []
    for name in present:
        if name not in known_names:
            close = difflib.get_close_matches(name.lower(), known_names, n=1, cutoff=0.5)
            hint = f"did you mean {{{close[0]}}}?" if close else "remove it."
            names = ", ".join(f"{{{known_name}}}" for known_name in known_names) or "none"
            faults.append(f"unknown placeholder {{{name}}}; {hint} Known here: {names}")
    missing = [f"{{{name}}}" for name in dict.fromkeys(required) if name not in present]
    if missing:
        faults.append(f"the template lacks {', '.join(missing)}; add each where its text belongs")
    return faults


def fill(template: str, values: dict[str, str], required: Iterable[str] = ()) -> str:
    """Put ``values`` in place of their placeholders, in one pass.

    Every other brace stays, and inserted text is never filled again. Raises ConfigError for a
    placeholder that is not in ``values``, and for a required one that the template lacks.

    >>> fill('{question} Answer as {"score": 1}.', {"question": "Is {question} a set?"})
    'Is {question} a set? Answer as {"score": 1}.'
    """
    pieces = list(_cut(template))
    names = pieces[1::2]
    if not values.keys() >= {*names} or not {*names}.issuperset(required):
        raise ConfigError(faults_of(template, values, required), where="template")
    pieces[1::2] = [values[name] for name in names]
    return "".join(pieces)


def fill_around(template: str, gap: str, values: dict[str, str]) -> tuple[str, ...]:
    """:func:`fill` but for the placeholder ``gap``: the texts between which its value goes.

    >>> "Yes.".join(fill_around("{q}: {a}", "a", {"q": "Is it"}))
    'Is it: Yes.'
    """
    pieces = _cut(template)
    if not values.keys() >= {*pieces[1::2]} - {gap}:
        raise ConfigError(faults_of(template, {*values, gap}, ()), where="template")
    parts = [""]
    for place, piece in enumerate(pieces):
        if place % 2 and piece == gap:
            parts.append("")
        else:
            parts[-1] += values[piece] if place % 2 else piece
    return tuple(parts)


@cache
def _shipped(name: str) -> str:
    folder = resources.files("phalanx.collective") / "prompts"
    return (folder / f"{name}.txt").read_text(encoding="utf-8").strip()


def load_template(
    name_or_path: str, required: Iterable[str] = (), optional: Iterable[str] = ()
) -> str:
    """A shipped template by name, or the text of a file.

    The template must hold all ``required`` placeholders and may hold the ``optional`` ones.
    Raises ConfigError when the file cannot be read or a placeholder is missing or unknown.
    """
    required = list(required)
    if name_or_path in SHIPPED:
        text = _shipped(name_or_path)
    else:
        try:
            path = Path(name_or_path).expanduser()
            state = path.stat()
            text = _file_text(path, state.st_mtime_ns, state.st_size)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the template {name_or_path!r} ({error}); give the path of a UTF-8 "
                f"text file, or one of {', '.join(SHIPPED)}"
            ) from error
    faults = _faults_of_file(text, (*required, *optional), tuple(required))
    if faults:
        raise ConfigError(faults, where=f"template {name_or_path}")
    return text


@lru_cache(maxsize=16)
def _file_text(path: Path, changed_ns: int, size: int) -> str:
    """The text of a file as it was at its last change: read once, not for every prompt."""
    return path.read_text(encoding="utf-8").strip()


@lru_cache(maxsize=64)
def _faults_of_file(text: str, known: tuple[str, ...], required: tuple[str, ...]) -> list[str]:
    return faults_of(text, known, required)


def fence(text: str, seed: int, name: str = "response") -> tuple[str, str]:
    """Judged text between a pair of marks that nobody could foresee, and the token of the marks.

    The token is drawn from ``seed`` alone, and drawn again while it occurs in the text.

    >>> fenced, token = fence("Paris.", seed=1)
    >>> fenced == f"<<<response {token}>>>\\nParis.\\n<<<end {token}>>>"
    True
    """
    token = _first_token(seed)
    if token in text:
        random = derived_random("fence", seed)
        while token in text:
            token = f"{random.getrandbits(64):016x}"
    return f"<<<{name} {token}>>>\n{text}\n<<<end {token}>>>", token


def fenced(text: str) -> re.Pattern[str]:
    """What :func:`fence` makes of the text: groups are the marks' name, their token, the text."""
    return re.compile(rf"<<<([^<>\n]+) ([0-9a-f]{{16}})>>>\n({re.escape(text)})\n<<<end \2>>>")


@lru_cache(maxsize=256)
def _first_token(seed: int) -> str:
    return f"{derived_random('fence', seed).getrandbits(64):016x}"


@lru_cache(maxsize=64)  # every judge of a duel sees the same two texts, one after another
def imitates_verdict(text: str) -> bool:
    """True when a response holds text shaped like a judge's verdict or score.

    Such a response is flagged and judged like any other: the shape can be honest.
    """
    return any(shape.search(text) for shape in (_BRACKETED, _OBJECT, _LABELLED))
