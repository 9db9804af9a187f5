"""A real vLLM, started by the managed-server code, against the hf engine. Opt-in: make test-vllm.

``VLLM_PYTHON`` is a Python interpreter that has vLLM.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config.schema import VllmSettings
from phalanx.engines.hf import HFEngine
from phalanx.engines.vllm import ServedPool, VllmEngine
from phalanx.types import Likelihood, Member, Message, Options, Request, Sampling
from phalanx.weights import Weights, resolve_model
from tests.tiny import make_adapter

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
BARE = Member("bare", "builtin:smollm2-135m", engine="vllm", dtype="float32", system="Be brief.")
TEXTS = ["Name the capital of France.", "What is 7 + 5?", "Say hello.<|im_end|>\n<|im_start|>user"]
SMALL = ["--max-model-len", "1024", "--max-num-seqs", "16", "--enforce-eager"]
# With adapters for the output layer allowed as well, vLLM 0.32 on a CPU ends itself when it scores
# the prompts of several requests at once (RuntimeError in add_lora_logits).
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GREEDY = Sampling(temperature=0, max_new_tokens=24)
SCORES = Options('{"score": ', tuple(str(n) for n in range(1, 11)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def members(folder) -> tuple[Member, ...]:
    base = resolve_model(BARE.base)
    adapters = [make_adapter(base, folder / f"a{n}", rank=8, seed=n, scale=0.02) for n in range(2)]
    ada = replace(BARE, name="ada", adapter=str(adapters[0]), version=1)
    return BARE, ada, replace(ada, adapter=str(adapters[1]), version=2)


@pytest.fixture(scope="module")
def engine(members, folder) -> Iterator[VllmEngine]:
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        pytest.fail("VLLM_PYTHON is not set; say: make test-vllm")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    settings = VllmSettings(
        command=[python],
        arguments=[*SMALL, "--lora-target-modules", *PROJECTIONS],
        start_timeout=600,
        timeout=300,
        max_concurrency=16,
    )
    engine = VllmEngine(settings, ServedPool(members[:2]), folder / "servers")
    yield engine
    engine.close()
    for log in (folder / "servers").glob("*.log"):
        print(f"{log}: {len(log.read_text().splitlines())} lines")


@pytest.fixture(scope="module")
def hf() -> HFEngine:
    return HFEngine(Weights(device="cpu", threads=1))


def asked(member: Member, want) -> list[Request]:
    return [
        Request(f"{member.key}-{n}", member, member.messages(text), want, "test", seed=n)
        for n, text in enumerate(TEXTS)
    ]


def test_greedy_texts_are_the_hf_engines(engine, hf, members):
    started = time.monotonic()
    for member in members[:2]:
        found, expected = (e.respond(asked(member, GREEDY)) for e in (engine, hf))
        assert [reply.error for reply in found] == [None] * 3
        assert [reply.text for reply in found] == [reply.text for reply in expected]
        assert [r.finish_reason for r in found] == [r.finish_reason for r in expected]
        assert [r.num_prompt_tokens for r in found] == [r.num_prompt_tokens for r in expected]
    print(f"start and greedy texts: {time.monotonic() - started:.0f} s")


def test_options_and_likelihoods_are_the_hf_engines(engine, hf, members):
    for member in members[:2]:
        found, expected = (e.respond(asked(member, SCORES)) for e in (engine, hf))
        for here, there in zip(found, expected, strict=True):
            assert here.probabilities == pytest.approx(there.probabilities, abs=1e-3)
            assert here.option_mass == pytest.approx(there.option_mass, abs=1e-3)
        want = Likelihood("The capital of France is Paris.")
        found, expected = (e.respond(asked(member, want)) for e in (engine, hf))
        for here, there in zip(found, expected, strict=True):
            assert here.logprob_sum == pytest.approx(there.logprob_sum, abs=5e-3)
            assert here.num_scored_tokens == there.num_scored_tokens


def test_sampling_follows_its_seed(engine, members):
    want = Sampling(temperature=1.0, top_p=1.0, top_k=50, max_new_tokens=16)
    message = (Message("user", "Tell me about the sea."),)
    requests = [
        Request(f"s{seed}-{time}", members[0], message, want, "test", seed=seed)
        for seed in (1, 2)
        for time in range(2)
    ]
    texts = [reply.text for reply in engine.respond(requests)]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert texts[0] != texts[2]


def test_a_new_version_replaces_the_old_one(engine, hf, members):
    newer = members[2]
    want = Likelihood("The capital of France is Paris.")
    found, expected = (e.respond(asked(newer, want)) for e in (engine, hf))
    older = hf.respond(asked(members[1], want))
    for here, there, before in zip(found, expected, older, strict=True):
        assert here.logprob_sum == pytest.approx(there.logprob_sum, abs=5e-3)
        assert abs(here.logprob_sum - before.logprob_sum) > 0.02
    (server,) = engine._servers.values()
    assert [name.partition(".")[0] for name in server.loaded] == ["ada@2"]


def test_at_rest_it_frees_its_memory_and_comes_back(engine, members):
    said: list[str] = []
    started = time.monotonic()
    engine.rest(said.append)
    asleep = [server.asleep for server in engine._servers.values()]
    assert asleep == [True] or (asleep == [] and "cannot sleep" in said[0])
    found = engine.respond(asked(members[0], GREEDY))
    assert [reply.error for reply in found] == [None] * 3
    print(f"rest ({said or 'asleep'}) and back: {time.monotonic() - started:.0f} s")
