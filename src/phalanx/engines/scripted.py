"""A strict fake: answers what its script provides for, and raises on anything else.

It runs every method end to end in milliseconds. A script is a YAML file (``model: script:PATH``;
without a model the script that ships, ``script:default``), one list of rules for each kind of
request; the first rule whose pattern is found in the last message is used:

    sampling:
      - when: capital of Peru           # a regular expression; `member`, `purpose` test too
        reply: [Lima., I think Lima.]   # one is drawn by the request's seed (see docs/engines.md)
      - when: loops for ever
        reply: and on and on
        finish: length                  # a truncated response
      - when: breaks
        fail: {kind: engine, message: provoked, transient: true, times: 2}
    options:
      - {when: ., weights: {"7": 3, "8": 1}}   # others get 0; normalised
    likelihood:
      - {when: ., logprob_per_token: [-1.5, -0.5]}
    user_turn:                          # without messages the pattern meets the empty text
      - {when: "", reply: [Name a prime., What is the capital of Peru?]}
    reward:                             # the pattern is looked for in the response
      - {when: Lima, reward: 2.5}       # with a rival: its own reward is taken off
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from phalanx.errors import ConfigError, EngineError
from phalanx.identity import derived_random
from phalanx.types import (
    Failure,
    FailureKind,
    Likelihood,
    Options,
    Request,
    Response,
    Reward,
    Sampling,
    UserTurn,
)

PREFIX = "script:"
_KINDS = ("sampling", "options", "likelihood", "user_turn", "reward")
_RULE_KEYS = {
    "when",
    "member",
    "purpose",
    "reply",
    "finish",
    "fail",
    "weights",
    "logprob_per_token",
    "reward",
}


def load_script(source: str) -> dict[str, list[dict[str, Any]]]:
    """Read ``script:default`` or ``script:PATH``: not to be changed, since whoever reads the same
    text has the same object. Raises ConfigError that lists every fault."""
    name = source.removeprefix(PREFIX)
    path = resources.files("phalanx.engines") / "scripts" / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    if not path.is_file():
        raise ConfigError(f"script {name!r} is neither a file nor one that ships: default")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not YAML: {error}", where=str(path)) from None
    return _read_script(text, str(path))


@lru_cache(maxsize=64)  # a plan reads the script of every member, and a comparison plans often
def _read_script(text: str, where: str) -> dict[str, list[dict[str, Any]]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        script = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ConfigError(f"is not YAML: {error}", where=where) from None
    lists = isinstance(script, dict) and all(isinstance(r, list) for r in script.values())
    if not lists or not set(script) <= set(_KINDS):
        raise ConfigError(f"expected lists of rules under {', '.join(_KINDS)}", where=where)
    faults = []
    for kind, rules in script.items():
        faults += [
            f"{kind}[{number}]: {fault}"
            for number, rule in enumerate(rules)
            for fault in [_rule_fault(kind, rule)]
            if fault
        ]
    if faults:
        raise ConfigError(faults, where=where)
    return script


def _rule_fault(kind: str, rule: Any) -> str:
    """What is wrong with a rule, or ""."""
    if not isinstance(rule, dict) or "when" not in rule:
        return "a rule is a mapping with the key `when`"
    if unknown := set(rule) - _RULE_KEYS:
        return f"unknown keys {sorted(map(str, unknown))}"
    try:
        re.compile(str(rule["when"]))
    except re.error as error:
        return f"`when` is no regular expression: {error}"
    for key in ("member", "purpose"):
        if key in rule and not isinstance(rule[key], str):
            return f"`{key}` is {rule[key]!r}; expected a text"
    if "fail" in rule and (fault := _fail_fault(rule["fail"])):
        return fault
    if "fail" in rule and "times" not in rule["fail"]:
        return ""  # it never comes to an answer
    return _answer_fault(kind, rule)


def _fail_fault(fail: Any) -> str:
    kinds = get_args(FailureKind)
    if not isinstance(fail, dict) or not {"kind", "message"} <= set(fail):
        return f"`fail` is {fail!r}; expected {{kind: ..., message: ...}}"
    if unknown := set(fail) - {"kind", "message", "transient", "times"}:
        return f"`fail` has unknown keys {sorted(map(str, unknown))}"
    if fail["kind"] not in kinds:
        return f"`fail.kind` is {fail['kind']!r}; expected one of {', '.join(kinds)}"
    if not isinstance(fail["message"], str):
        return f"`fail.message` is {fail['message']!r}; expected a text"
    if not isinstance(fail.get("transient", False), bool):
        return f"`fail.transient` is {fail['transient']!r}; expected true or false"
    times = fail.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        return f"`fail.times` is {times!r}; expected a whole number from 1"
    return ""


def _answer_fault(kind: str, rule: dict[str, Any]) -> str:
    """What is wrong with the answer that a rule gives to requests of its kind."""
    if kind in ("sampling", "user_turn"):
        if not _one_or_several(rule.get("reply", ""), _is_text):
            return f"`reply` is {rule['reply']!r}; expected a text (in quotes), or a list of texts"
        if rule.get("finish", "stop") not in ("stop", "length"):
            return f"`finish` is {rule['finish']!r}; expected stop or length"
        return ""
    if kind == "options":
        weights = rule.get("weights")
        good = isinstance(weights, dict) and all(
            _is_text(option) and _is_number(weight) and weight >= 0
            for option, weight in weights.items()
        )
        if not good or not any(weights.values()):
            return (
                f"`weights` is {weights!r}; expected a number for each option, such as "
                "{'7': 3, '8': 1}: options in quotes, numbers from 0, one of them above"
            )
        return ""
    key = {"likelihood": "logprob_per_token", "reward": "reward"}[kind]
    if not _one_or_several(rule.get(key), _is_number):
        return f"`{key}` is {rule.get(key)!r}; expected a number, or a list of numbers"
    return ""


def _one_or_several(value: Any, good: Callable[[Any], bool]) -> bool:
    return bool(value) and all(map(good, value)) if isinstance(value, list) else good(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


class ScriptedEngine:
    """Implements :class:`phalanx.types.StreamingEngine`.

    ``calls`` has all requests with ``keep_calls``.
    """

    def __init__(
        self, scripts: dict[str, dict[str, list[dict[str, Any]]]] | None = None, *,
        batch_size: int = 64, keep_calls: bool = False,
    ) -> None:  # fmt: skip
        self._scripts = dict(scripts or {})
        self._compiled: dict[tuple[str, str], list[tuple[int, re.Pattern[str], dict]]] = {}
        self._shares: dict[tuple[int, tuple[str, ...]], dict[str, float]] = {}
        self._batch_size = batch_size
        self._failures: dict[tuple[str, int], int] = {}
        self._keep_calls = keep_calls
        self.calls: list[Request] = []

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        positions = range(len(requests))
        return [
            list(positions[start : start + self._batch_size])
            for start in range(0, len(requests), self._batch_size)
        ]

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        return [self._one(request) for request in requests]

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """The response of :meth:`respond`, shown word by word."""
        response = self._one(request)
        for piece in re.findall(r"\s*\S+|\s+", response.text or ""):
            show(piece)
        return response

    def close(self) -> None:
        self._scripts.clear()
        self._compiled.clear()
        self._shares.clear()

    def _one(self, request: Request) -> Response:
        if self._keep_calls:
            self.calls.append(request)
        number, rule = self._rule(request)
        prompt = sum([message.content.count(" ") + 1 for message in request.messages])
        fail = rule.get("fail")
        if fail:
            done = self._failures.get((request.id, number), 0)
            if done < fail.get("times", 1 << 30):
                self._failures[request.id, number] = done + 1
                failure = Failure(fail["kind"], fail["message"], fail.get("transient", False))
                return Response(request.id, num_prompt_tokens=prompt, error=failure)
        want = request.want
        if isinstance(want, Sampling | UserTurn):
            text = _drawn(rule.get("reply", ""), request)
            return Response(
                request.id,
                text=text,
                finish_reason=rule.get("finish", "stop"),
                num_prompt_tokens=prompt,
                num_completion_tokens=len(text.split()),
            )
        if isinstance(want, Options):
            return Response(
                request.id,
                probabilities=self._chances(rule["weights"], request),
                option_mass=1.0,
                num_prompt_tokens=prompt,
            )
        if isinstance(want, Reward):
            reward = float(_drawn(rule["reward"], request))
            if want.rival is not None:
                _, other = self._rule(request, want.rival)
                reward -= float(_drawn(other["reward"], request))
            return Response(request.id, reward=reward, num_prompt_tokens=prompt)
        assert isinstance(want, Likelihood)
        tokens = len(want.completion.split())
        per_token = float(_drawn(rule["logprob_per_token"], request))
        return Response(
            request.id,
            logprob_sum=per_token * tokens,
            num_scored_tokens=tokens,
            num_prompt_tokens=prompt,
        )

    def _rule(self, request: Request, text: str | None = None) -> tuple[int, dict[str, Any]]:
        """The first rule that fits ``text``: by default the last message, or the response that a
        reward is wanted for.
        """
        base, last = request.member.base, text
        if last is None and isinstance(request.want, Reward):
            last = request.want.response
        if last is None:
            last = request.messages[-1].content if request.messages else ""
        for number, pattern, rule in self._patterns(base, request.want.kind):
            if rule.get("member", request.member.name) != request.member.name:
                continue
            if rule.get("purpose", request.purpose) != request.purpose:
                continue
            if pattern.search(last):
                return number, rule
        raise EngineError(
            f"the script of {request.member.name} ({base}) has no {request.want.kind} rule for a "
            f"request with purpose {request.purpose!r}: {last[:200]!r}"
        )

    def _patterns(self, base: str, kind: str) -> list[tuple[int, re.Pattern[str], dict[str, Any]]]:
        """The rules of one kind, with their patterns compiled once."""
        if (base, kind) not in self._compiled:
            if base not in self._scripts:
                self._scripts[base] = load_script(base)
            self._compiled[base, kind] = [
                (number, re.compile(str(rule["when"]), re.DOTALL), rule)
                for number, rule in enumerate(self._scripts[base].get(kind, []))
            ]
        return self._compiled[base, kind]

    def _chances(self, weights: dict[str, Any], request: Request) -> dict[str, float]:
        """Every answer gets a dictionary of its own; the arithmetic is done once for each rule."""
        options = request.want.options
        place = (id(weights), options)  # the scripts live as long as this engine
        if place not in self._shares:
            self._shares[place] = _shares(weights, request)
        return self._shares[place].copy()


def _shares(given: dict[str, Any], request: Request) -> dict[str, float]:
    weights = {option: float(given.get(option, 0)) for option in request.want.options}
    total = sum(weights.values())
    if total <= 0:
        last = request.messages[-1].content if request.messages else ""
        raise EngineError(
            f"the script of {request.member.name} ({request.member.base}) gives no weight to any "
            f"of {', '.join(weights)} for a request with purpose {request.purpose!r}: "
            f"{last[:200]!r}; its rule weighs {', '.join(map(repr, given))}: add an options rule "
            f"with purpose: {request.purpose} before it"
        )
    return {option: weight / total for option, weight in weights.items()}


def _drawn(choices: Any, request: Request) -> Any:
    """One of a list, by the request's seed and its member."""
    if not isinstance(choices, list):
        return choices
    return derived_random("scripted", request.seed, request.member.key).choice(choices)
