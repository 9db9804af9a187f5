"""What an HTTP reply means: pure functions from status, headers and bytes to a typed reading.

Reasoning is never an answer, an empty text is never an answer, and whatever the server counted is
kept, for a failed request costs as much as a good one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from phalanx.chat import clean_text
from phalanx.types import Failure, FinishReason

BUSY = frozenset({429, 503, 529})
"""The server is overloaded: fewer requests at once."""
PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that are worth another try."""
_THINKING = "think|thinking|reasoning"
_OPEN = re.compile(rf"\s*<({_THINKING})>", re.IGNORECASE)
_CLOSE = re.compile(rf"</({_THINKING})>", re.IGNORECASE)
_CLOSE_LINE = re.compile(rf"</({_THINKING})>[ \t]*(?:\n|\Z)", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|max_model_len|(?:prompt|input) is too long|"
    r"too many (?:input |prompt )?tokens|maximum (?:input|prompt) length|"
    r"(?:exceeds?|longer than) the (?:maximum|available) (?:model length|context|number of tokens)",
    re.IGNORECASE,
)

Verdict = Literal["ok", "retry", "denied", "unknown", "wrong"]


@dataclass(frozen=True, slots=True)
class Token:
    """One written token: its text, its log-probability, and the likeliest tokens in its place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion as read: a text, or the failure that it amounts to.

    ``num_*`` is None where the server counts nothing. ``tokens`` is empty without
    log-probabilities; joined they are the whole content, reasoning included.
    """

    text: str = ""
    finish_reason: FinishReason = ""
    failure: Failure | None = None
    flags: tuple[str, ...] = ()
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What to do with a reply.

    ``ok`` has the JSON ``body``, with a list of choices; ``retry`` may pass, after ``wait``
    seconds where the server said so; ``denied`` is 401 or 403; ``unknown`` is 404; ``wrong`` is a
    request that the server will not take as it is. ``message`` is the server's own word, ``param``
    the parameter it names.
    """

    verdict: Verdict
    message: str = ""
    cause: str = ""
    wait: float | None = None
    busy: bool = False
    param: str = ""
    too_long: bool = False
    spent_up: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)


def read_reply(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    now: datetime | None = None,
) -> Reading:
    """Read one reply of a completions endpoint. ``headers`` have lower-case names.

    ``now`` is the time that a Retry-After date is compared with; default: the clock.
    """
    body = _json(content)
    if status == 200:
        if isinstance(body, dict) and isinstance(body.get("choices"), list):
            return Reading("ok", body=body)
        if isinstance(body, dict) and body.get("error"):
            return _read_error(_code_in(body) or 500, headers, body, content, now)
        kind = "cut JSON" if content.lstrip()[:1] in (b"{", b"[") else "not JSON"
        return Reading("retry", f"the reply is {kind}: {_short(content)}", cause=kind)
    return _read_error(status, headers, body, content, now)


def _json(content: bytes) -> Any:
    """The value, or None where it is no JSON."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def _short(content: bytes) -> str:
    return repr(content[:120].decode("utf-8", "replace"))


def _code_in(body: Mapping[str, Any]) -> int | None:
    """The HTTP status inside an error that came with status 200, as routers send it."""
    error = body["error"]
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    return int(code) if str(code).isdigit() and 400 <= int(code) < 600 else None


def _read_error(
    status: int, headers: Mapping[str, str], body: Any, content: bytes, now: datetime | None
) -> Reading:
    error = body.get("error", body) if isinstance(body, dict) else None
    details = error if isinstance(error, dict) else {}
    words = details.get("message") or details.get("detail")
    if not isinstance(words, str):
        words = json.dumps(words) if words else (error if isinstance(error, str) else "")
    message = clean_text(words or _short(content))[0][:600]
    param = details.get("param") if isinstance(details.get("param"), str) else ""
    code = str(details.get("code") or details.get("type") or "")
    if status in (401, 403):
        return Reading("denied", message, cause=str(status))
    if status == 404:
        return Reading("unknown", message, cause=str(status))
    if status in PASSING or status >= 500:
        spent_up = code in ("insufficient_quota", "billing_hard_limit_reached")
        wait = retry_after(headers, now)
        cause = f"status {status}"
        return Reading("retry", message, cause, wait, status in BUSY, spent_up=spent_up)
    too_long = code == "context_length_exceeded" or bool(_TOO_LONG.search(message))
    return Reading("wrong", message, str(status), param=param, too_long=too_long)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from retry-after-ms or Retry-After (seconds or a date); else None."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after", "")
        if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", value):
            return float(value)
        when = parsedate_to_datetime(value) if value else None
    except ValueError:
        return None  # the server's words mean nothing; the backoff of our own applies
    if when is None:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def read_completion(body: Mapping[str, Any], max_new_tokens: int) -> Completion:
    """The first choice of a chat completion. ``max_new_tokens`` is named where it was too small."""
    prompt, written = _usage(body.get("usage"))
    choices = [choice for choice in body["choices"] if isinstance(choice, dict)]
    if not choices:
        failure = Failure("empty", "the server's reply has no choices")
        return Completion(failure=failure, num_prompt_tokens=prompt, num_completion_tokens=written)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice.get("message"), dict) else {}
    finish = str(choice.get("finish_reason") or "stop")
    text, flags = clean_text(_content(message.get("content")))
    answer, reasoned = split_reasoning(text)
    reasoned = reasoned or bool(message.get("reasoning_content") or message.get("reasoning"))
    failure = _failure(message, answer, finish, reasoned, max_new_tokens)
    return Completion(
        text="" if failure else answer,
        finish_reason="length" if finish == "length" else "stop",
        failure=failure,
        flags=flags,
        num_prompt_tokens=prompt,
        num_completion_tokens=written,
        tokens=_tokens(choice.get("logprobs")),
    )


def _failure(
    message: Mapping[str, Any], answer: str, finish: str, reasoned: bool, max_new_tokens: int
) -> Failure | None:
    if finish == "content_filter":
        return Failure("refused", "the server's content filter withheld the reply")
    if answer.strip():
        return None
    if message.get("refusal"):
        return Failure("refused", f"the model refused: {str(message['refusal'])[:300]}")
    if finish == "length":
        spent = "reasoning took" if reasoned else "nothing was written in"
        return Failure(
            "truncated",
            f"{spent} all of the {max_new_tokens} tokens before an answer began; "
            "raise max_new_tokens",
        )
    after = " after its reasoning" if reasoned else ""
    return Failure("empty", f"the model ended without an answer{after}")


def split_reasoning(text: str) -> tuple[str, bool]:
    """(the answer without its reasoning, whether there was any). Unclosed reasoning: no answer.

    >>> split_reasoning("<think>France, so</think>\\n\\nParis.")
    ('Paris.', True)
    """
    if opened := _OPEN.match(text):
        closed = [
            m for m in _CLOSE.finditer(text, opened.end()) if m[1].lower() == opened[1].lower()
        ]
        return (text[closed[0].end() :].lstrip(), True) if closed else ("", True)
    closed = list(_CLOSE_LINE.finditer(text))
    if closed:  # the chat template opened it, so the reply holds the end alone
        return text[closed[-1].end() :].lstrip(), True
    return text, False


def _content(content: Any) -> str:
    """The text of a message; some servers send a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _usage(usage: Any) -> tuple[int | None, int | None]:
    def count(key: str) -> int | None:
        value = usage.get(key) if isinstance(usage, dict) else None
        return value if isinstance(value, int) and value >= 0 else None

    return count("prompt_tokens"), count("completion_tokens")


def _tokens(logprobs: Any) -> tuple[Token, ...]:
    """The written tokens with their alternatives; empty where the server gave none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    found = []
    for item in content:
        if not isinstance(item, dict) or not isinstance(item.get("token"), str):
            return ()
        top = tuple(
            (other["token"], float(other["logprob"]))
            for other in item.get("top_logprobs") or ()
            if isinstance(other.get("token"), str) and other.get("logprob") is not None
        )
        logprob = item.get("logprob")
        found.append(Token(item["token"], float(-100.0 if logprob is None else logprob), top))
    return tuple(found)
