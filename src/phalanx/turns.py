"""Conversations as data sets hold them: a list of turns in one of two widespread spellings.

``[{"role": "user", "content": "..."}, ...]`` (chat formats, TRL), or ShareGPT's
``[{"from": "human", "value": "..."}, ...]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from phalanx.types import Message, Role

ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "system": "system",
}
_SPELLINGS = (("role", "content"), ("from", "value"))


class BadTurns(ValueError):
    """Why a value is no conversation that members could answer."""


def looks_like_turns(value: Any) -> bool:
    """Whether a field is meant as a conversation, good or bad, rather than as a text."""
    return isinstance(value, list | tuple | dict)


def turns_of(value: Any) -> list[Message]:
    """Every turn, whatever their order, with its text as it is. Raises :class:`BadTurns`."""
    return [_turn(number, one) for number, one in enumerate(_as_list(value), start=1)]


def read_turns(value: Any) -> tuple[Message, ...]:
    """The turns up to the last user turn: user, assistant, user, ... with stripped texts.

    What follows the last user turn is left out: it is what members are asked to write. An empty
    system prompt is passed over. Raises :class:`BadTurns`, naming the turn, for anything else
    that is no conversation of alternating user and assistant turns, each with text.

    >>> read_turns([{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello!"}])
    (Message(role='user', content='Hi.'),)
    """
    turns = [replace(turn, content=turn.content.strip()) for turn in turns_of(value)]
    if turns and turns[0].role == "system":
        if turns[0].content:
            raise BadTurns(
                "turn 1 is a system prompt; a system prompt belongs to the member: set `system` "
                "in pool.members, and take it out of the row"
            )
        del turns[0]
    _check(turns, skipped=len(_as_list(value)) - len(turns))
    if turns[-1].role == "assistant":
        turns.pop()
    return tuple(turns)


def _as_list(value: Any) -> Sequence[Any]:
    """The turns one by one; `datasets` gives a sequence of records as a record of lists."""
    if isinstance(value, dict):
        lengths = {len(part) if isinstance(part, list) else -1 for part in value.values()}
        if len(lengths) != 1 or -1 in lengths:
            raise BadTurns("is an object, not a list of turns")
        return [dict(zip(value, parts, strict=True)) for parts in zip(*value.values(), strict=True)]
    return value


def _turn(number: int, value: Any) -> Message:
    if not isinstance(value, Mapping):
        raise BadTurns(f"turn {number} is not an object with role and content")
    for role_key, text_key in _SPELLINGS:
        if role_key in value and text_key in value:
            break
    else:
        keys = ", ".join(map(repr, value)) or "nothing"
        raise BadTurns(
            f"turn {number} has {keys}; a turn has 'role' and 'content', or 'from' and 'value'"
        )
    role, text = value[role_key], value[text_key]
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise BadTurns(f"turn {number} has the role {role!r}; known: {', '.join(ROLES)}")
    if text is not None and not isinstance(text, str):
        raise BadTurns(f"turn {number}: its {text_key} is not text")
    return Message(ROLES[role.lower()], text or "")


def _check(turns: Sequence[Message], skipped: int) -> None:
    if not turns:
        raise BadTurns("has no turns")
    for place, turn in enumerate(turns):
        number, expected = place + 1 + skipped, ("user", "assistant")[place % 2]
        if turn.role != expected:
            got = f"turn {number} is of the {turn.role}, where the {expected}'s is due"
            why = "a conversation begins with the user" if place == 0 else "turns alternate"
            raise BadTurns(f"{got}: {why}")
        # An empty last answer is no fault: it is left out in any case.
        if not turn.content and (expected == "user" or place + 1 < len(turns)):
            raise BadTurns(f"turn {number} is empty")
