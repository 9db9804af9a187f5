"""What an HTTP reply means: pure functions from status, headers and bytes to a typed reading.

Reasoning is never an answer, an empty text is never an answer, and whatever the server counted is
kept, for a failed request costs as much as a good one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from phalanx.chat import clean_text
from phalanx.collective.ownwords import split_reasoning
from phalanx.engines.http_secret import NO_SECRET, Secret
from phalanx.types import Failure, FinishReason

BUSY = frozenset({429, 503, 529})
"""The server is overloaded: fewer requests at once."""
PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that are worth another try."""
ENDED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "stop_token"})
"""What servers call an end that the model wrote itself."""
CUT = frozenset({"length", "max_tokens", "max_length", "model_length", "repetition"})
"""What they call an end that the model did not write."""
FILTERED = frozenset({"content_filter", "safety", "refusal"})
BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "error"})
"""The server gave up in the middle, so another try may do better."""
UNCLEAR_END = "unclear_end"
"""Flag of a response whose finish_reason says nothing that is known."""
# What stands for a log-probability that a server leaves out.
_NO_LOGPROB = -100.0
# Above this a logarithm is none of a probability; rounding stays far below it.
_MOST_LOGPROB = 1e-3
# Probabilities of what may stand at one place sum to no more.
_MOST_SHARE = 1.01
# More tokens than this were never read or written for one request.
_MOST_TOKENS = 10**9
# Of a reply that is no JSON so much is looked at; a small part of it is shown.
_LOOKED_AT = 1 << 16
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|max_model_len|(?:prompt|input) is too long|"
    r"too many (?:input |prompt )?tokens|maximum (?:input|prompt) length|"
    r"(?:exceeds?|longer than) the (?:maximum|available) (?:model length|context|number of tokens)",
    re.IGNORECASE,
)

Verdict = Literal["ok", "retry", "denied", "unknown", "moved", "wrong"]


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
    log-probabilities; those of the reasoning are left out. ``reasoned``: there was some.
    """

    text: str = ""
    finish_reason: FinishReason = ""
    failure: Failure | None = None
    flags: tuple[str, ...] = ()
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None
    tokens: tuple[Token, ...] = ()
    reasoned: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What to do with a reply.

    ``ok`` has the JSON ``body``, with a list of choices; ``retry`` may pass, after ``wait``
    seconds where the server said so, unless the account is ``spent_up``; where it has a ``body``,
    something was written before the server broke off. ``denied`` is 401 or 403; ``unknown`` is
    404; ``moved`` is a redirect, with the place in ``message``; ``wrong`` is a request that the
    server will not take as it is. ``message`` is the server's own word, ``param`` the parameter it
    names.
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
    secret: Secret = NO_SECRET,
) -> Reading:
    """Read one reply of a completions endpoint. ``headers`` have lower-case names.

    ``now`` is the time that a Retry-After date is compared with; default: the clock. Texts of the
    reading can be stored, and ``secret`` is not in them.
    """
    body = _json(content)
    reply = _Reply(headers, body, content, now, secret)
    if 200 <= status < 300:
        choices = body.get("choices") if isinstance(body, dict) else None
        if isinstance(body, dict) and body.get("error") and not choices:
            return _read_error(_code_in(body) or 500, reply)
        if isinstance(choices, list):
            if (finish := _finish(choices)) in BROKEN_OFF:
                said = f"the server broke off (finish_reason {finish})"
                return Reading("retry", said, cause="broken off", body=body)
            return Reading("ok", body=body)
        kind = "cut JSON" if content.lstrip()[:1] in (b"{", b"[") else "not JSON"
        return Reading("retry", f"the reply is {kind}: {reply.short()}", cause=kind)
    if 300 <= status < 400:
        return Reading("moved", reply.leads_to(), cause=str(status))
    return _read_error(status, reply)


@dataclass(frozen=True, slots=True)
class _Reply:
    """What came, and how its words are shown."""

    headers: Mapping[str, str]
    body: Any
    content: bytes
    now: datetime | None
    secret: Secret

    def words(self, text: str, most: int) -> str:
        """Words of the server as they may be kept; cut only when no secret is in them."""
        return clean_text(self.secret.hide(text))[0][:most]

    def short(self) -> str:
        text = self.content[:_LOOKED_AT].decode("utf-8", "replace")
        return repr(self.words(text, 120))

    def leads_to(self) -> str:
        """Where a redirect leads to, without path and query; "" where that cannot be told."""
        try:
            parts = urlsplit(self.secret.hide(self.headers.get("location", "")))
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return ""
        host = clean_text(host)[0][:200]
        return f"{parts.scheme or 'http'}://{host}{f':{port}' if port else ''}" if host else ""


def _json(content: bytes) -> Any:
    """The value, or None where it is no JSON, or is nested as no reply is."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _finish(choices: Sequence[Any]) -> str:
    """The first choice's finish_reason in lower case; "" where there is none."""
    first = choices[0] if choices and isinstance(choices[0], dict) else {}
    return str(first.get("finish_reason") or "").lower()


def _code_in(body: Mapping[str, Any]) -> int | None:
    """The HTTP status inside an error that came with status 200, as routers send it."""
    error = body["error"]
    given = (error.get("code"), error.get("status")) if isinstance(error, dict) else ()
    codes = [int(str(code)) for code in given if re.fullmatch("[45][0-9][0-9]", str(code))]
    return codes[0] if codes else None


def _read_error(status: int, reply: _Reply) -> Reading:
    body = reply.body
    error = body.get("error", body) if isinstance(body, dict) else None
    details = error if isinstance(error, dict) else {}
    words = details.get("message") or details.get("detail")
    if not isinstance(words, str):
        words = json.dumps(words) if words else (error if isinstance(error, str) else "")
    message = reply.words(words, 600) if words else reply.short()
    param = details.get("param") if isinstance(details.get("param"), str) else ""
    code = str(details.get("code") or details.get("type") or "")
    if status in (401, 403):
        return Reading("denied", message, cause=str(status))
    if status == 404:
        return Reading("unknown", message, cause=str(status))
    if status == 402:
        return Reading("retry", message, cause=str(status), spent_up=True)
    if status in PASSING or status >= 500:
        spent_up = code in ("insufficient_quota", "billing_hard_limit_reached")
        wait = retry_after(reply.headers, reply.now)
        cause = f"status {status}"
        return Reading("retry", message, cause, wait, status in BUSY, spent_up=spent_up)
    too_long = code == "context_length_exceeded" or bool(_TOO_LONG.search(message))
    param = reply.words(param, 100)
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
    except (ValueError, OverflowError):
        return None  # the server's words mean nothing; the backoff of our own applies
    if when is None:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def read_completion(
    body: Mapping[str, Any],
    max_new_tokens: int,
    setting: str = "max_new_tokens",
    secret: Secret = NO_SECRET,
) -> Completion:
    """The first choice of a chat completion.

    ``max_new_tokens`` is named where it was too small, as is the ``setting`` that it comes from. An
    unknown finish_reason counts as cut off, with the flag ``unclear_end``: an end token that the
    model may not have written is never trained. ``secret`` is taken out of every text.
    """
    prompt, written = read_usage(body)
    choices = [choice for choice in body["choices"] if isinstance(choice, dict)]
    if not choices:
        failure = Failure("empty", "the server's reply has no choices")
        return Completion(failure=failure, num_prompt_tokens=prompt, num_completion_tokens=written)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice.get("message"), dict) else {}
    finish = str(choice.get("finish_reason") or "").lower()
    said = _content(message.get("content"))
    text, flags = clean_text(hidden := secret.hide_long(said))
    flags = flags if hidden == said else ("cleaned_text",)
    tokens = _tokens(choice.get("logprobs"))
    if secret.hide_long(joined := "".join(token.text for token in tokens)) != joined:
        tokens = ()
    answer, reasoned = split_reasoning(text)
    reasoned = reasoned or bool(message.get("reasoning_content") or message.get("reasoning"))
    cut = f"{max_new_tokens} tokens before an answer began; raise {setting}"
    refusal = clean_text(secret.hide(str(message.get("refusal") or "")))[0][:300]
    failure = _failure(refusal, answer, finish, reasoned, cut)
    if finish not in ENDED | CUT | FILTERED:
        flags = (*flags, UNCLEAR_END)
    return Completion(
        text="" if failure else answer,
        finish_reason="stop" if finish in ENDED else "length",
        failure=failure,
        flags=flags,
        num_prompt_tokens=prompt,
        num_completion_tokens=written,
        tokens=_answering(tokens, answer, reasoned),
        reasoned=reasoned,
    )


def _failure(refusal: str, answer: str, finish: str, reasoned: bool, cut: str) -> Failure | None:
    if finish in FILTERED:
        return Failure("refused", "the server's content filter withheld the reply")
    if answer.strip():
        return None
    if refusal:
        return Failure("refused", f"the model refused: {refusal}")
    if finish in CUT:
        spent = "reasoning took" if reasoned else "nothing was written in"
        return Failure("truncated", f"{spent} all of the {cut}")
    after = " after its reasoning" if reasoned else ""
    return Failure("empty", f"the model ended without an answer{after}")


def _content(content: Any) -> str:
    """The text of a message; some servers send a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def read_usage(body: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens (read, written) as the server counted them; None for what is no possible count.

    >>> read_usage({"usage": {"prompt_tokens": 7, "completion_tokens": -7}})
    (7, None)
    """
    usage = body.get("usage")

    def count(key: str) -> int | None:
        value = usage.get(key) if isinstance(usage, dict) else None
        counted = isinstance(value, int) and not isinstance(value, bool)
        return value if counted and 0 <= value <= _MOST_TOKENS else None

    return count("prompt_tokens"), count("completion_tokens")


def _tokens(logprobs: Any) -> tuple[Token, ...]:
    """The written tokens with their alternatives; empty where anything in them is malformed."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    found = []
    for item in content:
        own = _entry(item)
        others = (item.get("top_logprobs") or []) if own else None
        if own is None or not isinstance(others, list):
            return ()
        top = [_entry(other) for other in others]
        if None in top or _share(entry for entry in top if entry) > _MOST_SHARE:
            return ()
        found.append(Token(*own, tuple(entry for entry in top if entry)))
    return tuple(found)


def _share(entries: Iterable[tuple[str, float]]) -> float:
    """The sum of the probabilities; what a server lists twice counts once."""
    return math.fsum(math.exp(min(logprob, 0.0)) for _, logprob in set(entries))


def _entry(item: Any) -> tuple[str, float] | None:
    """(token, log-probability), very small where the server gave none; None where malformed."""
    if not isinstance(item, dict) or not isinstance(item.get("token"), str):
        return None
    logprob = item.get("logprob")
    if logprob is None:
        return item["token"], _NO_LOGPROB
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    if not logprob <= _MOST_LOGPROB:  # no number, or the logarithm of more than one
        return None
    # Whole numbers of JSON have any size.
    return item["token"], float(logprob) if logprob > -1e300 else -math.inf


def _answering(tokens: Sequence[Token], answer: str, reasoned: bool) -> tuple[Token, ...]:
    """The tokens from the one on that the answer begins in; none where that cannot be told.

    A server that takes the reasoning out of the text may leave it in the log-probabilities.
    """
    joined = "".join(token.text for token in tokens)
    if not (reasoned or split_reasoning(joined)[1]):
        return tuple(tokens)
    at = joined.rfind(answer) if answer.strip() else -1
    if at < 0:
        return ()
    start = 0
    for number, token in enumerate(tokens):
        start += len(token.text)
        if start > at:
            return tuple(tokens[number:])
    return ()
