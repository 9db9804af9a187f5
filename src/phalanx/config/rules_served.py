"""Rules about members behind endpoints, the endpoints themselves, and the budget."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.keys import Path
from phalanx.config.schema import Config, EndpointSettings, MemberSettings

OWN_FIELDS = ("model", "messages", "stream")
"""Fields of a request's body that are Phalanx's own."""
_MOST_COUNT = 2**31 - 1
_WHOLE = {
    "max_tokens": (1, _MOST_COUNT),
    "max_completion_tokens": (1, _MOST_COUNT),
    "top_logprobs": (0, _MOST_COUNT),
    "top_k": (-1, _MOST_COUNT),
    "seed": (-(2**63), 2**63 - 1),
}
"""Whole numbers of a body that Phalanx would set itself: the least and the most."""
_FRACTIONS = {"temperature": (0, 100), "top_p": (0, 1)}
_LEAST_RATE = 1e-3
_MOST_PRICE = 1e6
MANY_REPLIES = ("n", "best_of")
"""Fields that ask for replies which nobody reads, and which no budget would have set aside."""
_SECRET_NAMES = frozenset(
    {"key", "apikey", "xapikey", "accesskey", "secret", "secretkey", "clientsecret", "token",
     "accesstoken", "authtoken", "authorization", "password", "subscriptionkey"}
)  # fmt: skip
_SECRET = re.compile(r"(?:sk|gsk|hf|xai|pplx|nvapi|AIza|Bearer)[-_ ]?[\w-]{16,}|sk-.*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_served(config: Config, *, duels: bool = True, judges: bool = True) -> Iterator[Fault]:
    """All faults and notes of endpoints and of the members behind them.

    ``duels``: every member learns; ``judges``: everybody with that role judges.
    """
    yield from _endpoints(config)
    for position, member in enumerate(config.pool.members):
        if member.engine == "openai":
            yield from _member(member, ("pool", "members", position), config)
    if duels:
        yield from _untrained(config)
    if judges:
        yield from _judging(config)
    yield from _budget(config)


def _endpoints(config: Config) -> Iterator[Fault]:
    for name, count in Counter(endpoint.name for endpoint in config.endpoints).items():
        if count > 1:
            yield Fault(("endpoints",), f"the name {name} is given to {count} endpoints")
    for position, endpoint in enumerate(config.endpoints):
        path: Path = ("endpoints", position)
        if problem := _url_problem(endpoint.url):
            yield Fault((*path, "url"), problem)
        if problem := _key_problem(endpoint):
            yield Fault((*path, "key"), problem)
        yield from _amounts(endpoint, path)
        yield from _extra(endpoint.extra, (*path, "extra"))
        for name in OWN_FIELDS:
            if name in endpoint.extra:
                text = f"must not set {name}, which Phalanx sets itself; remove it"
                yield Fault((*path, "extra"), text)
        for name in MANY_REPLIES:
            if name in endpoint.extra:
                text = f"must not set {name}: one reply is read, and all are paid for; remove it"
                yield Fault((*path, "extra"), text)
        if (where := _secret_in(endpoint.extra)) is not None:
            yield Fault((*path, "extra"), f"{where}{_INTO_THE_ENVIRONMENT}")
    for argument in config.vllm.arguments:
        if argument.split("=")[0].replace("_", "-") == "--api-key":
            text = (
                "holds --api-key; keys do not belong into files. Leave it out: a server that is "
                "started here listens on this machine alone"
            )
            yield Fault(("vllm", "arguments"), text)


_INTO_THE_ENVIRONMENT = (
    " looks like a key; keys do not belong into files: put it into an environment variable and "
    "name the variable in the endpoint's key"
)


def _secret_in(value: object, name: str = "") -> str | None:
    """The name of the field that holds what looks like a secret; never the secret."""
    if isinstance(value, dict):
        found = (_secret_in(part, str(key)) for key, part in value.items())
        return next((one for one in found if one is not None), None)
    if isinstance(value, list | tuple):
        found = (_secret_in(part, name) for part in value)
        return next((one for one in found if one is not None), None)
    if not isinstance(value, str) or not value.strip():
        return None
    if _names_secret(name):
        return name
    return (name or "a value") if _long_secret(value) else None


def _names_secret(name: str) -> bool:
    return re.sub(r"[^a-z]", "", name.lower()) in _SECRET_NAMES


def _long_secret(text: str) -> bool:
    """The same as :func:`looks_secret` for free text, where names of models are no secrets."""
    runs = re.findall(r"[A-Za-z0-9]{20,}", text)
    return any(_SECRET.fullmatch(word) for word in text.split()) or any(map(looks_secret, runs))


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, secret = parts.hostname, parts.password or parts.username
        query = parse_qsl(parts.query)
    except ValueError:
        return "is not a URL; expected http://HOST/... or https://HOST/..."
    if secret:
        return "holds a user or a password; put the key into an environment variable (key)"
    for name, value in query:
        if value and (_names_secret(name) or looks_secret(value)):
            return f"the query's {name!r}{_INTO_THE_ENVIRONMENT}"
    if parts.scheme not in ("http", "https") or not host:
        return f"expected http://HOST/... or https://HOST/..., got {url!r}"
    if "?" in url or "#" in url:
        return (
            "must end with its path (/v1 as a rule), since /chat/completions is appended to it; "
            "take the query or fragment away, and send what the server wants as extra"
        )
    if re.search(r"[\s\x00-\x1f\x7f\\]", url) or not _is_host(host):
        return f"expected http://HOST/... or https://HOST/... with a valid host, got {url!r}"
    return _port_problem(parts)


def _port_problem(parts: SplitResult) -> str | None:
    text = "has a port that is none; expected a number from 1 to 65535"
    try:
        return text if parts.port == 0 else None
    except ValueError:
        return text


def _is_host(host: str) -> bool:
    """Whether a name server could know it, or it is an address."""
    if ":" in host:
        try:
            return bool(ip_address(host))
        except ValueError:
            return False
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:  # an empty or overlong part
        return False
    return bool(re.fullmatch(r"[A-Za-z0-9_.-]+", name))


def _amounts(endpoint: EndpointSettings, path: Path) -> Iterator[Fault]:
    """Rates that a run could wait for, and prices that can be added up."""
    for key in ("requests_per_minute", "tokens_per_minute"):
        rate = getattr(endpoint, key)
        if rate is not None and rate < _LEAST_RATE:
            text = (
                f"expected at least {_LEAST_RATE:g} a minute, got {rate:g}; leave it out for none"
            )
            yield Fault((*path, key), text)
    for key in ("price_in", "price_out"):
        price = getattr(endpoint, key)
        if price > _MOST_PRICE:
            text = f"expected at most {_MOST_PRICE:,.0f} for a million tokens, got {price:g}"
            yield Fault((*path, key), text)


def _extra(extra: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """Values that no request can carry, and those that Phalanx must be able to count with."""
    for key, value in extra.items():
        try:
            json.dumps({key: value}, allow_nan=False, ensure_ascii=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            why = "it holds half a surrogate pair" if isinstance(error, UnicodeError) else error
            text = f"{key!r} cannot be sent as JSON ({why}); use text, numbers, lists or maps"
            yield Fault(path, text)
            continue
        if key in _WHOLE | _FRACTIONS and not _fits(key, value):
            least, most = (_WHOLE | _FRACTIONS)[key]
            number = "a whole number" if key in _WHOLE else "a number"
            text = f"{key} must be {number} from {least} to {most}, got {_shown(value)}"
            yield Fault(path, text)


def _fits(key: str, value: object) -> bool:
    least, most = (_WHOLE | _FRACTIONS)[key]
    kind = int if key in _WHOLE else int | float
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most


def _shown(value: object) -> str:
    """A number; of anything else, which might be a secret, the kind alone."""
    return repr(value) if isinstance(value, int | float | None) else type(value).__name__


def looks_secret(text: str) -> bool:
    """Whether a text looks like a key rather than the name of a variable.

    >>> looks_secret("OPENAI_API_KEY"), looks_secret("sk-abc123")
    (False, True)
    """
    mixed = len(text) >= 20 and re.search(r"[a-z]", text) and re.search(r"\d", text)
    return bool(_SECRET.fullmatch(text) or mixed)


def _key_problem(endpoint: EndpointSettings) -> str | None:
    """What is wrong with the name of the variable; a key itself is never repeated."""
    key = endpoint.key
    if not key:
        return None
    if looks_secret(key) or not _VARIABLE.fullmatch(key):
        return (
            "looks like a key itself; keys do not belong into files: put it into an environment "
            "variable and give the variable's name here, such as OPENAI_API_KEY"
        )
    if not os.environ.get(key, "").strip():
        return f"the environment variable {key} is not set; put the key of {endpoint.name} there"
    if fault := fault_in_key(os.environ[key].strip()):
        return f"the environment variable {key} {fault}, which no key does; put the key alone there"
    return None


def fault_in_key(key: str) -> str:
    """Why a key cannot be sent in a header, or ""; the key itself is not in the answer."""
    if not key.isascii():
        return "holds characters that are not ASCII"
    if re.search(r"\s", key):
        return "holds white space"
    return "" if key.isprintable() else "holds control characters"


def _member(member: MemberSettings, path: Path, config: Config) -> Iterator[Fault]:
    known = [endpoint.name for endpoint in config.endpoints]
    if not member.model:
        text = f"{member.name} has no model; expected the name that its server knows"
        yield Fault((*path, "model"), text)
    if not known:
        text = f"{member.name} is behind an endpoint, but there are none; list them as endpoints"
        yield Fault((*path, "endpoint"), text)
    elif member.endpoint is None and len(known) > 1:
        text = f"{member.name} names no endpoint; expected one of {', '.join(known)}"
        yield Fault((*path, "endpoint"), text)
    elif member.endpoint is not None and member.endpoint not in known:
        hint = did_you_mean(member.endpoint, known)
        yield Fault((*path, "endpoint"), f"there is no endpoint {member.endpoint!r}; {hint}")
    here = {
        "adapter": member.adapter is not None,
        "dtype": member.dtype != "auto",
        "trust_remote_code": member.trust_remote_code,
        "gpus": member.gpus > 0,
        "serve": member.serve != "here",
    }
    for key, given in here.items():
        if given:
            text = f"is about weights here, and {member.name} is behind an endpoint; remove it"
            yield Fault((*path, key), text)


def _untrained(config: Config) -> Iterator[Fault]:
    members = config.pool.members
    names = [m.name for m in members if m.engine == "openai" and "learn" in m.roles]
    if names and config.train.method != "none":
        is_are = "is" if len(names) == 1 else "are"
        text = f"{', '.join(names)} {is_are} not trained: the weights are not here, but on a server"
        yield Fault(("pool", "members"), text, "note")


def _judging(config: Config) -> Iterator[Fault]:
    judges = [m.name for m in config.pool.members if m.engine == "openai" and "judge" in m.roles]
    if judges and config.judge.protocol == "likelihood":
        yield Fault(
            ("judge", "protocol"),
            f"likelihood cannot be asked of {', '.join(judges)}: an endpoint gives no likelihood "
            "of a given text; use expected, rubric or pairwise, or take the role judge from them",
        )


def _budget(config: Config) -> Iterator[Fault]:
    if all(member.engine != "openai" for member in config.pool.members):
        text = "no member is behind an endpoint, and nobody else counts for it"
        given = [key for key in ("requests", "tokens") if getattr(config.budget, key) is not None]
        yield from (Fault(("budget", key), text, "note") for key in given)
    if config.budget.money is None:
        return
    free = [e.name for e in config.endpoints if not (e.price_in or e.price_out)]
    if free or not config.endpoints:
        where = f"of {', '.join(free)} " if free else ""
        text = f"nothing {where}counts for it without price_in and price_out of the endpoint"
        yield Fault(("budget", "money"), text, "note")
