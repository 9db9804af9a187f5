"""What a client of the endpoint asks for: bodies of OpenAI's two routes, read strictly.

A field that would change the answer and is not supported is refused by name; one that changes
nothing (``user``, ``store``, a penalty of 0) is let pass.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.chat import clean_text
from phalanx.identity import derive_seed
from phalanx.types import Message, Sampling

MOST_CHOICES = 512
"""Texts of one request: prompts times ``n``."""
MOST_TOP = 20
MOST_STOPS = 16
_SHORT = 16  # tokens of a completion for which no length is given, as at OpenAI
_HARMLESS = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
     "prompt_cache_retention", "parallel_tool_calls"}
)  # fmt: skip
_BOTH = frozenset(
    {"model", "max_tokens", "temperature", "top_p", "top_k", "n", "stop", "seed", "stream",
     "stream_options", "logprobs"}
)  # fmt: skip
_CHAT = _BOTH | {"messages", "max_completion_tokens", "top_logprobs"}
_TEXT = _BOTH | {"prompt", "echo"}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "suffix": ("",),
    "best_of": (1,),
}
"""Values with which a field that is not supported changes nothing."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class Refused(Exception):
    """A request that is not served, in OpenAI's words: ``status``, ``param`` and ``code``.

    ``transient``: the same request may be served a while later.
    """

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None,
        code: str | None = None, kind: str = "invalid_request_error",
        transient: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.param, self.code, self.kind = status, param, code, kind
        self.transient = transient

    @property
    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": str(self),
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


@dataclass(frozen=True, slots=True)
class Wish:
    """A request as read. ``prompts`` are conversations, texts or lists of token ids."""

    model: str
    is_chat: bool
    prompts: tuple[tuple[Message, ...] | str | tuple[int, ...], ...]
    sampling: Sampling
    seed: int
    fits: bool = False
    n: int = 1
    stop: tuple[str, ...] = ()
    num_top: int | None = None
    echo: bool = False
    stream: bool = False
    include_usage: bool = False

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * self.n

    def seed_of(self, choice: int) -> int:
        """Every choice has noise of its own; the same request with the same seed has the same."""
        return derive_seed("serve", self.seed, choice)


class _Reader:
    """Fields of one body, with the fault of each that is wrong."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        self.faults: list[tuple[str, str, str | None]] = []

    def fault(self, name: str, text: str, code: str | None = None) -> None:
        self.faults.append((name, text, code))

    def get(self, name: str, default: Any, good: Callable[[Any], bool], expected: str) -> Any:
        value = self.body.get(name)
        if value is None:
            return default
        if not good(value):
            self.fault(name, f"{name} is {_short(value)}; expected {expected}")
            return default
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        def good(value: Any) -> bool:
            return isinstance(value, int | float) and _is_number(value) and low <= value <= high

        return self.get(name, default, good, f"a number from {low:g} to {high:g}")

    def whole(self, name: str, default: Any, low: int, high: int) -> Any:
        def good(value: Any) -> bool:
            return isinstance(value, int) and _is_number(value) and low <= value <= high

        top = f" to {high}" if high < 1 << 62 else ""
        return self.get(name, default, good, f"a whole number from {low}{top}")

    def flag(self, name: str) -> bool:
        return self.get(name, False, lambda value: isinstance(value, bool), "true or false")

    def refuse(self) -> None:
        """Raise Refused with all faults in one message, if there are any."""
        if self.faults:
            name, _, code = self.faults[0]
            raise Refused("; ".join(text for _, text, _ in self.faults), param=name, code=code)


def read_chat(body: Any, longest: int) -> Wish:
    """A body of ``/v1/chat/completions``. ``longest``: new tokens where no number is given.

    Raises Refused with every fault.
    """
    reader = _Reader(_object(body))
    _refuse_others(reader, _CHAT)
    messages = _messages(reader)
    count = reader.whole("max_completion_tokens", None, 1, 1 << 62)
    count = reader.whole("max_tokens", count, 1, 1 << 62) if count is None else count
    scored = reader.flag("logprobs")
    num_top = reader.whole("top_logprobs", None, 0, MOST_TOP)
    if num_top is not None and not scored:
        reader.fault("top_logprobs", "top_logprobs goes with logprobs: true")
    return _wish(
        reader,
        is_chat=True,
        prompts=(messages,),
        count=count,
        longest=longest,
        num_top=(num_top or 0) if scored else None,
    )


def read_text(body: Any) -> Wish:
    """A body of ``/v1/completions``. Raises Refused with every fault."""
    reader = _Reader(_object(body))
    _refuse_others(reader, _TEXT)
    return _wish(
        reader,
        is_chat=False,
        prompts=_prompts(reader),
        count=reader.whole("max_tokens", _SHORT, 0, 1 << 62),
        longest=_SHORT,
        num_top=reader.whole("logprobs", None, 0, MOST_TOP),
        echo=reader.flag("echo"),
    )


def _wish(
    reader: _Reader, *, prompts: tuple[Any, ...], count: int | None, longest: int, **more: Any
) -> Wish:
    """What both routes share."""
    model = reader.get("model", "", lambda name: isinstance(name, str), "a text")
    if not model and reader.body.get("model") is None:
        reader.fault("model", "model is missing; GET /v1/models lists the names")
    sampling = Sampling(
        temperature=reader.number("temperature", 1.0, 0, 2),
        top_p=reader.number("top_p", 1.0, 0, 1),
        top_k=max(0, reader.whole("top_k", 0, -1, 1 << 31)),
        max_new_tokens=longest if count is None else count,
    )
    n = reader.whole("n", 1, 1, MOST_CHOICES)
    if len(prompts) * n > MOST_CHOICES:
        texts = f"{len(prompts)} prompts with n {n} are {len(prompts) * n} texts"
        reader.fault("n", f"{texts}; at most {MOST_CHOICES} in one request")
    stream = reader.flag("stream")
    options = reader.get("stream_options", {}, lambda value: isinstance(value, dict), "an object")
    if options and not stream:
        reader.fault("stream_options", "stream_options goes with stream: true")
    seed = reader.whole("seed", None, -(1 << 63), (1 << 63) - 1)
    wish = Wish(
        model=model,
        prompts=prompts,
        sampling=sampling,
        seed=secrets.randbits(62) if seed is None else seed,
        fits=count is None,
        n=n,
        stop=_stop(reader),
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        **more,
    )
    reader.refuse()
    return wish


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise Refused(f"the body is {_short(body)}; expected a JSON object")
    return body


def _refuse_others(reader: _Reader, known: frozenset[str]) -> None:
    for name, value in reader.body.items():
        if name in known or name in _HARMLESS or value is None:
            continue
        if name in _NEUTRAL and value in _NEUTRAL[name]:
            continue
        reader.fault(
            name,
            f"{name[:60]} is not supported here (it is {_short(value)}); leave it out",
            "unsupported_parameter",
        )


def _messages(reader: _Reader) -> tuple[Message, ...]:
    given = reader.body.get("messages")
    if not isinstance(given, list) or not given:
        reader.fault("messages", f"messages is {_short(given)}; expected a list of messages")
        return ()
    found = []
    for at, message in enumerate(given):
        read = _message(message)
        if isinstance(read, str):
            reader.fault("messages", f"messages[{at}]: {read}")
        else:
            found.append(read)
    if len(found) == len(given) and found[-1].role != "user":
        reader.fault(
            "messages",
            f"the last message is the {found[-1].role}'s; a conversation ends with the user's turn "
            "(an answer that is begun already is not supported; /v1/completions goes on from text)",
        )
    return tuple(found)


def _message(given: Any) -> Message | str:
    """The message, or what is wrong with it."""
    if not isinstance(given, dict):
        return f"it is {_short(given)}; expected an object with role and content"
    role = given.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        return f"role is {_short(role)}; expected {', '.join(_ROLES)} (there are no tools here)"
    for name in ("tool_calls", "function_call", "audio"):
        if given.get(name):
            return f"{name} is not supported"
    content = given.get("content")
    if isinstance(content, list):
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind != "text" or not isinstance(part.get("text"), str):
                return f"a part is of type {_short(kind)}; only parts of type text are read"
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        return f"content is {_short(content)}; expected a text, or parts of type text"
    return Message(_ROLES[role], clean_text(content)[0])  # type: ignore[arg-type]


def _prompts(reader: _Reader) -> tuple[str | tuple[int, ...], ...]:
    given = reader.body.get("prompt")
    if isinstance(given, str) or _are_ids(given):
        given = [given]
    if not isinstance(given, list) or not given:
        expected = "a text, a list of texts, token ids, or lists of those"
        reader.fault("prompt", f"prompt is {_short(given)}; expected {expected}")
        return ()
    found: list[str | tuple[int, ...]] = []
    for at, one in enumerate(given):
        if isinstance(one, str):
            found.append(clean_text(one)[0])
        elif _are_ids(one):
            found.append(tuple(one))
        else:
            reader.fault("prompt", f"prompt[{at}] is {_short(one)}; expected a text or token ids")
    return tuple(found)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(part, int) and not isinstance(part, bool) for part in value
    )  # fmt: skip


def _stop(reader: _Reader) -> tuple[str, ...]:
    given = reader.body.get("stop")
    if given is None:
        return ()
    listed = [one for one in given if one is not None] if isinstance(given, list) else [given]
    good = all(isinstance(one, str) and one for one in listed)
    wanted = tuple(dict.fromkeys(listed)) if good else ()
    if not good or len(wanted) > MOST_STOPS:
        expected = f"a text, or at most {MOST_STOPS} texts, none of them empty"
        reader.fault("stop", f"stop is {_short(given)}; expected {expected}")
        return ()
    return wanted


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and value == value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
