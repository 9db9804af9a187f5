"""Conversations as data sets hold them: a list of turns in one of two widespread spellings.

``[{"role": "user", "content": "..."}, ...]`` (chat formats, TRL), or ShareGPT's
``[{"from": "human", "value": "..."}, ...]``.
"""

from __future__ import annotations

import re
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
    turns = _without_system(turns_of(value))
    _check(turns, skipped=len(_as_list(value)) - len(turns))
    if turns[-1].role == "assistant":
        turns.pop()
    return tuple(turns)


def _without_system(found: Sequence[Message]) -> list[Message]:
    """The turns with stripped texts, an empty system prompt left out."""
    turns = [replace(turn, content=turn.content.strip()) for turn in found]
    if turns and turns[0].role == "system":
        if turns[0].content:
            raise BadTurns(
                "turn 1 is a system prompt; a system prompt belongs to the member: set `system` "
                "in pool.members, and take it out of the row"
            )
        del turns[0]
    return turns


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


# Preference pairs ----------------------------------------------------------------------------


def read_preference(
    prompt: Any, chosen: Any, rejected: Any
) -> tuple[tuple[Message, ...], str, str]:
    """(the conversation up to the user turn that is answered, the better answer, the worse one).

    Each of the three is a text or a list of turns; ``prompt`` None means that the conversation
    stands within the other two: as turns, as a dialogue in one text (``Human:``, ``Assistant:``),
    or as their common beginning up to a whole word. Turns of the prompt that the other two repeat
    are taken off. Raises :class:`BadTurns` where that leaves no conversation, or not one answer
    each, or twice the same.

    >>> read_preference("Name a prime.", "Seven.", [{"role": "assistant", "content": "Nine."}])
    ((Message(role='user', content='Name a prime.'),), 'Seven.', 'Nine.')
    """
    before = [] if prompt is None else _side("prompt", prompt, "user")
    if prompt is None and isinstance(chosen, str) and isinstance(rejected, str):
        before, chosen, rejected = _within_texts(chosen, rejected)
    better, worse = _side("chosen", chosen, "assistant"), _side("rejected", rejected, "assistant")
    size = len(before)
    if size and before == better[:size] == worse[:size]:
        better, worse = better[size:], worse[size:]
    while len(better) > 1 and len(worse) > 1 and better[0] == worse[0]:
        before.append(better.pop(0))
        worse.pop(0)
    for name, turns in (("chosen", better), ("rejected", worse)):
        if len(turns) != 1:
            raise BadTurns(
                f"{name} has {len(turns)} turns of its own after those that both share; a pair is "
                "about one answer"
            )
    if not before:
        raise BadTurns("has no prompt: chosen and rejected share no beginning")
    _check([*before, better[0]], skipped=0)
    _check([*before, worse[0]], skipped=0)
    answers = (better[0].content, worse[0].content)
    for name, text in zip(("chosen", "rejected"), answers, strict=True):
        if not text:
            raise BadTurns(f"{name} is empty")
    if answers[0] == answers[1]:
        raise BadTurns("chosen and rejected are the same")
    return (tuple(before), *answers)


def _side(name: str, value: Any, role: Role) -> list[Message]:
    """A text as one turn of ``role``; turns as they are, without an empty system prompt."""
    if isinstance(value, str):
        return [Message(role, value.strip())]
    if not looks_like_turns(value):
        raise BadTurns(f"{name} is neither text nor a list of turns")
    try:
        return _without_system(turns_of(value))
    except BadTurns as fault:
        raise BadTurns(f"{name}: {fault}") from None


def _within_texts(chosen: str, rejected: str) -> tuple[list[Message], Any, Any]:
    """The prompt within two texts: a dialogue's turns, or what the two have in common."""
    dialogues = [_dialogue(text) for text in (chosen, rejected)]
    if all(dialogues):
        return [], dialogues[0], dialogues[1]
    both = zip(chosen, rejected, strict=False)
    size = next((at for at, (one, other) in enumerate(both) if one != other), None)
    shared = chosen[: min(len(chosen), len(rejected)) if size is None else size]
    end = max(shared.rfind(mark) for mark in (" ", "\n")) + 1
    if not shared[:end].strip():
        raise BadTurns("has no prompt: chosen and rejected share no beginning")
    return [Message("user", shared[:end].strip())], chosen[end:], rejected[end:]


_SPEAKER = re.compile(r"(?:\A|\n\n)(Human|Assistant):")


def _dialogue(text: str) -> list[dict[str, str]]:
    """The turns of a text such as ``"\\n\\nHuman: Hi.\\n\\nAssistant: Hello."``; [] for others."""
    start, *parts = _SPEAKER.split("\n\n" + text.strip())
    if start.strip() or not parts or parts[0] != "Human":
        return []
    roles = ["user" if speaker == "Human" else "assistant" for speaker in parts[::2]]
    return [{"role": role, "content": said} for role, said in zip(roles, parts[1::2], strict=True)]
