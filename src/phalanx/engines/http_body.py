"""Bodies of chat requests, and what is changed where a server refuses a part of one.

What a server refuses is learnt once for each model: the adaptations are a small set of words
(``max_completion_tokens``, ``fold_system``, ``without temperature`` ...) that the body is built
with, so that no body is ever sent twice after a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from phalanx.chat import neutralise_known
from phalanx.engines.http_reading import Reading
from phalanx.types import Message, Sampling

FOLD = "fold_system"
RENAME = "max_completion_tokens"
FEWER = "top_logprobs 5"
WITHOUT = "without "
# Parts that an answer can do without; the server's own default then applies.
_SPARE = ("temperature", "top_p", "top_k", "seed", "stream_options", "stream")
# Servers accept at least 31 bits.
_SEED_MASK = 0x7FFFFFFF
_SYSTEM = re.compile(
    r"\b(?:system|developer)\b.{0,60}\b(?:role|message|prompt|instruction|supported)|"
    r"\brole\b.{0,40}\bsystem\b|must alternate",
    re.IGNORECASE | re.DOTALL,
)


def messages_of(messages: Sequence[Message], adaptations: Collection[str]) -> list[dict[str, str]]:
    """The conversation as the server takes it: a refused system text opens the first user turn.

    Many servers make control tokens of their markers wherever they stand, so those of the known
    chat formats are broken up: a judged response cannot close the user's turn.
    """
    turns = [{"role": m.role, "content": neutralise_known(m.content)} for m in messages]
    if FOLD not in adaptations:
        return turns
    system = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
    turns = [turn for turn in turns if turn["role"] != "system"]
    for turn in turns:
        if system and turn["role"] == "user":
            turn["content"] = f"{system}\n\n{turn['content']}"
            return turns
    return [{"role": "user", "content": system}, *turns] if system else turns


def sampling_fields(want: Sampling, seed: int) -> dict[str, Any]:
    """The fields that a :class:`Sampling` asks for; switched-off ones are not sent."""
    fields: dict[str, Any] = {"max_tokens": want.max_new_tokens, "temperature": want.temperature}
    if want.temperature > 0:
        fields["seed"] = seed & _SEED_MASK
        if want.top_p < 1:
            fields["top_p"] = want.top_p
        if want.top_k > 0:
            fields["top_k"] = want.top_k
    return fields


def build(
    model: str,
    messages: Sequence[Message],
    fields: Mapping[str, Any],
    adaptations: Collection[str],
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole body. ``extra`` is the user's and comes last."""
    body: dict[str, Any] = {"model": model, "messages": messages_of(messages, adaptations)}
    for key, value in fields.items():
        if WITHOUT + key in adaptations:
            continue
        if key == "max_tokens" and RENAME in adaptations:
            key = RENAME
        if key == "top_logprobs" and FEWER in adaptations:
            value = min(value, 5)
        body[key] = value
    return body | dict(extra)


def named_in(reading: Reading, body: Mapping[str, Any]) -> str:
    """The field of the body that a refusal names, or ""."""
    if reading.param.split(".")[0] in body:
        return reading.param.split(".")[0]
    words = re.findall(r"\w+", reading.message)
    fields = [field for field in body if field not in ("model", "messages") and field in words]
    return fields[0] if fields else ""


def adaptation(reading: Reading, body: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """What to change after a refusal so that the server may take the request; "" is nothing.

    >>> adaptation(Reading("wrong", "unsupported", param="max_tokens"), {"max_tokens": 9}, {})
    'max_completion_tokens'
    """
    name = named_in(reading, body)
    if name in extra:
        return ""
    if name == "max_tokens":
        return RENAME if not re.search(r"too large|at most|less than", reading.message) else ""
    if name == "top_logprobs" and body["top_logprobs"] > 5:
        return FEWER
    if name in _SPARE:
        return WITHOUT + name
    has_system = any(turn["role"] == "system" for turn in body["messages"])
    if has_system and name in ("", "messages") and _SYSTEM.search(reading.message):
        return FOLD
    return ""


def in_words(change: str) -> str:
    """An adaptation as a note."""
    if change == RENAME:
        return "max_tokens is sent as max_completion_tokens"
    if change == FOLD:
        return "the system message opens the first user message"
    if change == FEWER:
        return "5 top_logprobs are asked for, not 20"
    return f"{change.removeprefix(WITHOUT)} is left out; the server's own default applies"
