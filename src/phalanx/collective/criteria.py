"""Criteria by which responses are compared, and the few that are chosen for an instruction.

MoAA (arXiv 2505.03059) lets a model pick the three most relevant of a given list before two
responses are compared. The paper's list is not public; ``criteria.yaml`` is our own, and
``reward.criteria`` names another. The choice is made once for an instruction, however many
responses to it are compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from phalanx.collective import ownwords as own
from phalanx.collective.conversation import earlier_answers
from phalanx.collective.templates import QUESTION, fence, fill, load_template
from phalanx.config.schema import RewardSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derive_seed
from phalanx.types import (
    Ask,
    Instruction,
    Member,
    Message,
    Options,
    Request,
    Response,
    Sampling,
)

BUILTIN = "builtin"
DEFAULT_CRITERIA = "default_criteria"
"""The flag of a judgment for which no choice of criteria could be read."""

_WRITE = (
    "Reply with nothing but the numbers of the {count} criteria on one line, separated by commas, "
    "the most important one first."
)
_OPTION = (
    'Reply with nothing but a JSON object that has the single key "criterion". Its value is the '
    "number of the most important criterion."
)
_FORM = 'expected a mapping, name: one line that explains it, such as "accuracy: Facts are true."'
_LABEL = re.compile(
    r"(?i:criteria|criterion|numbers|answer|choice)(?:[ \t](?i:are|is))?[*_\"' \t]{0,4}:"
)
_BEFORE_NUMBER = re.compile(
    r"\b(?i:(?:the[ ])?(?:criteria|criterion|numbers?)[ \t]{1,4}(?:(?:are|is)[ \t]{1,4})?)(?=#?\d)"
)
_BULLET = re.compile(r"^[ \t]{0,8}[-+*•–—][ \t]{1,4}", re.MULTILINE)
_SEPARATOR = re.compile(r"([,;\n]|[ \t]and[ \t]|[ \t]+(?=\d))")
_ITEM = re.compile(r"(?:#|no\.[ ]?)?(\d{1,4})(?:[.):]?[ \t]{1,4}|[.):-]?$|[ \t]?[-:.)][ \t]?)(.*)")
_ROUND = " \t\r*_`\"'“”()[]{}.#"


@dataclass(frozen=True, slots=True)
class Criterion:
    """``name`` is short and unique, ``line`` says in one line what it means."""

    name: str
    line: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The criteria of one instruction, and the request that chose them ("" where none did).

    ``response`` is its reply. ``reason`` says why it could not be read; then ``criteria`` are the
    first of the list.
    """

    criteria: tuple[Criterion, ...]
    request: str = ""
    response: Response | None = None
    reason: str = ""


# The list ----------------------------------------------------------------------------------------


def load_criteria(source: str = BUILTIN) -> tuple[Criterion, ...]:
    """The list that ships (``builtin``), or that of a YAML file, in the file's order.

    Raises ConfigError that lists every fault.
    """
    if source == BUILTIN:
        text = (resources.files("phalanx.collective") / "criteria.yaml").read_text("utf-8")
    else:
        try:
            text = Path(source).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the criteria {source!r} ({error}); give the path of a UTF-8 YAML "
                f"file, or {BUILTIN}"
            ) from error
    return _parsed(text, source)


@lru_cache(maxsize=8)
def _parsed(text: str, source: str) -> tuple[Criterion, ...]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    where = f"criteria {source}"
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ConfigError(f"is not YAML: {error}", where=where) from None
    if not isinstance(data, dict) or not data:
        got = "nothing" if not data else f"a {type(data).__name__}"
        raise ConfigError(f"{_FORM}, got {got}", where=where)
    faults = [fault for name, line in data.items() for fault in _faults(name, line)]
    names = [str(name).strip().lower() for name in data]
    faults += [f"{name}: given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if faults:
        raise ConfigError(faults, where=where)
    return tuple(Criterion(name.strip(), line.strip()) for name, line in data.items())


def _faults(name: Any, line: Any) -> list[str]:
    """What is wrong with one entry. A name that is a number would be taken for a place."""
    faults = []
    if not isinstance(name, str) or not re.search(r"[^\W\d]", name) or "\n" in name.strip():
        faults.append(f"{name!r}: a name is text of one line with at least one letter")
    elif len(name) > 60:
        faults.append(f"{name!r}: a name has at most 60 characters")
    if not isinstance(line, str) or not line.strip():
        faults.append(f"{name!r}: its line must be text, got {line!r}")
    elif "\n" in line.strip():
        faults.append(f"{name!r}: must be explained in one line, got {line.strip()!r}")
    return faults


def numbered(criteria: Sequence[Criterion]) -> str:
    """The list as models see it, numbered from 1."""
    lines = enumerate(criteria, start=1)
    return "\n".join(f"{number}. {item.name}: {item.line}" for number, item in lines)


# The choice --------------------------------------------------------------------------------------


def choose_criteria(
    instructions: Sequence[Instruction],
    criteria: Sequence[Criterion],
    selector: Member,
    settings: RewardSettings,
    ask: Ask,
    *,
    place: tuple[Any, ...],
) -> dict[str, Choice]:
    """The choice for each instruction, by its id. An instruction is asked about once.

    Nothing is asked where the whole list is shown: ``num_criteria`` 0, or no shorter list wanted.
    """
    unique = {instruction.id: instruction for instruction in instructions}
    count = settings.num_criteria
    if count == 0 or count >= len(criteria):
        return {key: Choice(tuple(criteria)) for key in unique}
    requests = [
        _request(item, criteria, selector, settings, place=place) for item in unique.values()
    ]
    replies = ask("criteria", requests) if requests else []
    return {
        key: _choice(reply, criteria, count) for key, reply in zip(unique, replies, strict=True)
    }


def _request(
    instruction: Instruction,
    criteria: Sequence[Criterion],
    selector: Member,
    settings: RewardSettings,
    *,
    place: tuple[Any, ...],
) -> Request:
    here = (*place, instruction.id, selector.key)
    written = settings.verdict == "written"
    values = {
        "count": str(settings.num_criteria),
        "instruction": fence(instruction.text, derive_seed("criteria", *here), QUESTION)[0],
        "criteria": numbered(criteria),
        "reply": fill(_WRITE, {"count": str(settings.num_criteria)}) if written else _OPTION,
    }
    template = load_template("criteria", values)
    messages = (Message("user", fill(template, values)),)
    want: Sampling | Options
    if written:
        want = Sampling(0.0, 1.0, 0, settings.verdict_tokens)
    else:
        numbers = tuple(str(number) for number in range(1, len(criteria) + 1))
        want = Options('{"criterion": ', numbers)
    return Request(
        id=content_id("criteria", *here, messages, want),
        member=selector,
        messages=messages,
        want=want,
        purpose="criteria",
        seed=derive_seed("criteria", *here),
        shortenable=earlier_answers(instruction),
    )


def _choice(response: Response, criteria: Sequence[Criterion], count: int) -> Choice:
    numbers, reason = _numbers(response, criteria, count)
    chosen = numbers or tuple(range(1, count + 1))
    picked = tuple(criteria[number - 1] for number in chosen)
    return Choice(picked, response.request_id, response, reason)


def _numbers(
    response: Response, criteria: Sequence[Criterion], count: int
) -> tuple[tuple[int, ...], str]:
    if response.error is not None:
        return (), f"{response.error.kind}: {response.error.message}"
    if response.probabilities is not None:
        chances = {int(option): chance for option, chance in response.probabilities.items()}
        likeliest = sorted(chances, key=lambda number: (-chances[number], number))
        return tuple(likeliest[:count]), ""
    return read_choice(response.text or "", criteria, count, truncated=response.truncated)


def read_choice(
    text: str, criteria: Sequence[Criterion], count: int, *, truncated: bool = False
) -> tuple[tuple[int, ...], str]:
    """Numbers (from 1) of the first ``count`` criteria that a selector states, or () and why not.

    Read strictly: the whole text, or its last line, or what follows its last ``Criteria:``, must be
    nothing but numbers of the list and names beside them, with bullets or without. A name counts
    before a number that stands beside it, which may be that of the selector's own list, and is
    looked for before a text is cut at its commas and "and". Anything else is unreadable.

    >>> three = [Criterion(name, "...") for name in ("accuracy", "depth", "tone")]
    >>> read_choice("Criteria: 3, 1", three, 2)
    ((3, 1), '')
    >>> read_choice("They all matter.", three, 2)
    ((), 'no list of numbers')
    """
    plain, reason = own.without_reasoning(own.normalise(text))
    if reason or not plain.strip():
        return (), reason or "empty"
    if truncated:
        return (), "truncated at the token limit"
    labels = list(_LABEL.finditer(plain))
    attempts = [plain, plain[labels[-1].end() :] if labels else "", plain.splitlines()[-1]]
    why = "no list of numbers"
    for attempt in attempts:
        numbers, fault = _list_of(attempt, criteria)
        if len(numbers) >= count:
            return tuple(numbers[:count]), ""
        why = fault or why
    return (), why


def _list_of(text: str, criteria: Sequence[Criterion]) -> tuple[list[int], str]:
    """Distinct numbers in a text that is nothing but a list of them; [] and why otherwise."""
    names = {item.name.lower(): number for number, item in enumerate(criteria, start=1)}
    longest = 1 + max(len(_SEPARATOR.findall(name)) for name in names)
    # Pieces, and between them what separates them: a name may hold separators of its own.
    parts = _SEPARATOR.split(_BULLET.sub("", _BEFORE_NUMBER.sub("", text)))
    found: list[int] = []
    at = 0
    while at < len(parts):
        for end in range(min(at + 2 * longest - 1, len(parts)), at, -2):
            bare = "".join(parts[at:end]).strip(_ROUND)
            number = _number_of(bare, names)
            if number is not None or not bare:
                break
        else:
            return [], ""
        at = end + 1
        if number is None:
            continue
        if not 1 <= number <= len(criteria):
            return [], f"there is no criterion {number}"
        if number not in found:
            found.append(number)
    return found, f"{len(found)} criteria are too few" if found else ""


def _number_of(bare: str, names: Mapping[str, int]) -> int | None:
    """What one entry of a list means: a name of the list, or a number where no name is."""
    match = _ITEM.fullmatch(bare)
    name = (match[2] if match else bare).strip(_ROUND + ":-").lower()
    return names.get(name) if name else int(match[1]) if match else None
