"""What the tests of the HTTP engine share: a scripted server, requests, and the books."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from phalanx.engines.openai import OpenAIEngine
from phalanx.engines.scripted import ScriptedEngine
from phalanx.types import Member, Options, Request, Sampling
from tests.server import TestServer

CHAT = "/v1/chat/completions"
Make = Callable[..., OpenAIEngine]
SCRIPT = {
    "sampling": [
        {"when": "score", "reply": '{"score": 7}'},
        {"when": "in words", "reply": "rather good"},
        {"when": ".", "reply": ["yes it is", "no", "perhaps"]},
    ],
    "options": [{"when": "score", "weights": {"7": 3, "8": 1}}],
}
SCORES = Options('{"score": ', tuple(str(score) for score in range(1, 11)))
ADA = Member("ada", "m", engine="openai", endpoint="e")


def serve(**options: Any) -> TestServer:
    served = {"m": Member("m", "script:t", engine="scripted")}
    return TestServer(ScriptedEngine({"script:t": SCRIPT}), served, **options)


def request(number: int, want: Any = None, text: str = "", member: Member = ADA) -> Request:
    messages = member.messages(text or f"Say {number}")
    want = want or Sampling(max_new_tokens=16)
    return Request(f"r{number}", member, messages, want, "answer", seed=number)


def many(count: int) -> list[Request]:
    return [request(number) for number in range(count)]


def facts_of(engine: OpenAIEngine) -> dict[str, Any]:
    return json.loads(engine.facts()["openai:e"])
