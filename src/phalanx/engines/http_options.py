"""Probabilities of options from a chat endpoint: four ways to ask, and how each reply is read.

``prefill``: the reply is made to begin with the prefix (vLLM and relatives) and log-probabilities
are read where the option starts. ``logprobs``: the model writes the prefix itself. A structured
choice (``structured_outputs``, ``guided_choice``, ``json_schema``) and ``written`` give the one
option that was written, with probability 1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.engines.http_reading import Completion, Token
from phalanx.types import Message, Options

MODES = {
    "logprobs": ("prefill", "logprobs"),
    "choice": ("structured_outputs", "guided_choice", "json_schema"),
    "written": ("written",),
}
MODES["auto"] = (*MODES["logprobs"], *MODES["choice"], *MODES["written"])
IN_WORDS = {
    "prefill": "log-probabilities after a given start",
    "logprobs": "log-probabilities of a written start",
    "structured_outputs": "structured choice (structured_outputs)",
    "guided_choice": "structured choice (guided_choice)",
    "json_schema": "structured choice (json_schema)",
    "written": "the option that is written",
}
NUM_TOP = 20
LEAST_MASS = 0.001
"""Below this share of probability on all options together nothing is said about them; nor is a
share of less worth another request."""

Candidates = Sequence[tuple[str, float]]
"""Tokens that may stand at one place, with their probabilities."""


@dataclass(frozen=True, slots=True)
class OptionReading:
    """Probabilities that sum to one, the probability seen on options, and flags.

    ``open`` lists beginnings of several options ("1" of "1" and "10") after which the model has
    yet to be asked; their probability is left out.
    """

    probabilities: dict[str, float]
    mass: float
    flags: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def asking(
    mode: str, want: Options, messages: Sequence[Message], limit: int, start: str = ""
) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """(messages, fields of the body) of an options request.

    ``limit`` is the most tokens where the model writes by itself, reasoning included, but never
    too few for the longest option. ``start`` follows the prefix.
    """
    spelt = [want.prefix + option for option in want.options]
    longest = max(len(text) for text in spelt)
    fields: dict[str, Any] = {"temperature": 0.0, "max_tokens": max(longest + 16, limit)}
    if mode in ("prefill", "logprobs"):
        fields |= {"logprobs": True, "top_logprobs": NUM_TOP}
    if mode == "prefill":
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
        fields["max_tokens"] = max(len(option) for option in want.options) + 2
        return (*messages, Message("assistant", want.prefix + start)), fields
    if mode == "structured_outputs":
        fields["structured_outputs"] = {"choice": spelt}
    elif mode == "guided_choice":
        fields["guided_choice"] = spelt
    elif mode == "json_schema":
        fields["response_format"] = _schema(want)
    return tuple(messages), fields


def _key(want: Options) -> str:
    """The key of a prefix that opens a JSON object, such as ``{"score": ``."""
    match = re.fullmatch(r'\s*\{\s*"([^"\\]+)"\s*:\s*"?', want.prefix)
    return match[1] if match else "choice"


def _schema(want: Options) -> dict[str, Any]:
    numbers = all(re.fullmatch(r"-?\d+", option) for option in want.options)
    values = [int(option) for option in want.options] if numbers else list(want.options)
    kind = "integer" if numbers else "string"
    schema = {
        "type": "object",
        "properties": {_key(want): {"type": kind, "enum": values}},
        "required": [_key(want)],
        "additionalProperties": False,
    }
    named = {"name": "choice", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def needs(mode: str) -> tuple[str, ...]:
    """Fields without which the mode is no more: a server that refuses one has not got it."""
    return {
        "prefill": ("continue_final_message", "add_generation_prompt", "logprobs", "top_logprobs"),
        "logprobs": ("logprobs", "top_logprobs"),
        "json_schema": ("response_format",),
        "written": (),
    }.get(mode, (mode,))


def read_options(
    mode: str,
    want: Options,
    completion: Completion,
    known: Mapping[str, Candidates] | None = None,
    proven: bool = False,
) -> OptionReading | str:
    """The reading, or why there is none. ``known`` has what follows each open beginning.

    ``proven``: the server is known to go on from a given start, so that the option's place is the
    start of the reply even where something else was written there. A reading with less than
    :data:`LEAST_MASS` on the options is none, unless beginnings are open.
    """
    if mode in ("prefill", "logprobs") or completion.tokens:
        place = places(want, completion.tokens, mode == "prefill", proven)
        if not place and mode in ("prefill", "logprobs"):
            if not completion.tokens:
                return "the server gives no log-probabilities"
            return f"no option was found in the reply {_joined(completion.tokens)!r:.120}"
        if place:
            reading = distribution(want.options, {**place, **(known or {})})
            if reading and (reading.open or reading.mass >= LEAST_MASS):
                return reading
            if mode in ("prefill", "logprobs"):
                return "no option is among the likeliest tokens"
    text = completion.text.strip()
    if mode == "json_schema":
        text = _schema_value(want, text)
    exact = [o for o in want.options if text in (o, (want.prefix + o).strip())]
    if exact and mode != "written":
        return OptionReading(_certain(want, exact[0]), 1.0, ("written_score",))
    if mode == "written" and (found := written_option(want, completion.text)):
        return OptionReading(_certain(want, found), 1.0, ("written_score",))
    return f"no option can be read from the reply {completion.text!r:.120}"


def _certain(want: Options, chosen: str) -> dict[str, float]:
    return {option: float(option == chosen) for option in want.options}


def _schema_value(want: Options, text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    return str(value.get(_key(want), "")) if isinstance(value, dict) else ""


def _joined(tokens: Sequence[Token]) -> str:
    return "".join(token.text for token in tokens)


def written_option(want: Options, text: str) -> str:
    """The option that follows the prefix, or stands alone; "" where none or several do."""
    bare = text.strip().strip("\"'`*.").strip()
    if bare in want.options:
        return bare
    pattern = _prefix_pattern(want) + r'"?(' + _alternatives(want) + r")(?![\w]|\.\d)"
    found = {match[1] for match in re.finditer(pattern, text)}
    return found.pop() if len(found) == 1 else ""


def _prefix_pattern(want: Options) -> str:
    """The prefix with any amount of space between its words and signs."""
    return r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", want.prefix))) + r"\s*"


def _alternatives(want: Options) -> str:
    return "|".join(map(re.escape, sorted(want.options, key=len, reverse=True)))


def places(
    want: Options, tokens: Sequence[Token], prefilled: bool, proven: bool = False
) -> dict[str, Candidates]:
    """What may stand where the option starts ("") and after what was written of it ("1").

    Empty where the place cannot be found. After a given start the option opens the reply;
    otherwise the prefix is looked for in the tokens.
    """
    text = _joined(tokens)
    at = _start(want, text, proven) if prefilled or not want.prefix else _after_prefix(want, text)
    if at is None:
        return {}
    known: dict[str, Candidates] = {}
    start = 0
    for token in tokens:
        end = start + len(token.text)
        if end > at:
            if not token.top:
                return known
            lead = text[start:at] if start < at else ""
            written = text[at : max(start, at)]
            known[written] = following(token) if written else _candidates(token, lead)
            longer = [o for o in want.options if o.startswith(text[at:end]) and o != text[at:end]]
            if not longer:
                return known
        start = end
    return known


def _after_prefix(want: Options, text: str) -> int | None:
    pattern = _prefix_pattern(want) + f"(?={_alternatives(want)})"
    return max((match.end() for match in re.finditer(pattern, text)), default=None)


def _start(want: Options, text: str, proven: bool) -> int | None:
    """Where a reply that goes on from a given start has its option; None where it does not.

    A server that left the start out may write it again, or open with what only looks like an
    option: "1. First" of a list, or "A word". Neither proves anything.
    """
    repeated = want.prefix and re.search(_prefix_pattern(want), text)
    opened = re.match(rf"\s*(?:{_alternatives(want)})(?![\w.])", text)
    if proven or (opened and not repeated):
        return len(text) - len(text.lstrip()) if opened else 0
    return None


def following(token: Token) -> Candidates:
    """Tokens that may stand in the place of this one, and their probabilities."""
    tokens = dict(token.top)
    tokens.setdefault(token.text, token.logprob)
    return [(text, math.exp(min(logprob, 0.0))) for text, logprob in tokens.items()]


def _candidates(token: Token, lead: str) -> Candidates:
    """The same where the option starts, without the part that belongs to the prefix."""
    kept: dict[str, float] = {}
    for text, share in following(token):
        if not lead.strip():
            text = text.lstrip()
        elif text.startswith(lead):
            text = text[len(lead) :]
        else:
            continue
        if text:
            kept[text] = kept.get(text, 0.0) + share
    return list(kept.items())


def distribution(options: Sequence[str], known: Mapping[str, Candidates]) -> OptionReading | None:
    """Probabilities of the options from what may stand at each place; None where none is seen.

    Works for both tokenisations: where "10" is a token, "1" is final; where digits are split, what
    follows "1" decides, and "1" gets what its continuations leave.
    """
    found = dict.fromkeys(options, 0.0)
    unknown: dict[str, float] = {}
    _walk(options, known, "", 1.0, found, unknown)
    mass = math.fsum(found.values())
    if mass <= 0 and not unknown:
        return None
    total = mass or 1.0
    shares = {option: value / total for option, value in found.items()}
    waiting = tuple(text for text, share in unknown.items() if share > LEAST_MASS)
    return OptionReading(shares, min(mass, 1.0), open=waiting)


def _walk(
    options: Sequence[str],
    known: Mapping[str, Candidates],
    done: str,
    mass: float,
    found: dict[str, float],
    unknown: dict[str, float],
) -> None:
    going_on = 0.0
    texts = [(done + token, share) for token, share in known[done]]
    for text, share in texts:
        longer = [o for o in options if o.startswith(text) and o != text]
        ended = max((o for o in options if _ends_in(text, o)), key=len, default="")
        if done and (longer or (ended and ended != done)):
            going_on += share
        if longer and not (ended and _has_joint_token(longer, text, texts)):
            if text in known and text != done:
                _walk(options, known, text, mass * share, found, unknown)
            elif len(longer) == 1 and not ended:
                found[longer[0]] += mass * share
            else:
                unknown[text] = unknown.get(text, 0.0) + mass * share
        elif ended and ended != done:
            found[ended] += mass * share
    if done in found:
        found[done] += mass * max(0.0, 1.0 - going_on)


def _ends_in(text: str, option: str) -> bool:
    """Whether the text begins with the whole option and something else follows it."""
    rest = text[len(option) :]
    return text.startswith(option) and not re.match(r"\w|\.\d", rest)


def _has_joint_token(longer: Sequence[str], text: str, texts: Sequence[tuple[str, float]]) -> bool:
    """Whether a token that goes beyond ``text`` into a longer option stands at the same place."""
    return any(other != text and other.startswith(tuple(longer)) for other, _ in texts)
