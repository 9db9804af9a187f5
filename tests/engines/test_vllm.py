"""Members behind a managed server answer as on the hf engine; adapters, rest and failures.

The servers are real processes (``python -m tests.server``) that this code starts as it would start
vLLM; those that only have to fail are in this process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from phalanx.config.schema import VllmSettings
from phalanx.engines.hf import HFEngine
from phalanx.engines.vllm import ServedPool, VllmEngine
from phalanx.engines.vllm_names import served_name
from phalanx.errors import EngineError
from phalanx.types import Likelihood, Member, Options, Request, Sampling
from phalanx.weights import Weights
from tests.server import Abilities, Faults, Raw, TestServer
from tests.tiny import make_adapter, make_tiny

COMMAND = [sys.executable, "-m", "tests.server"]
SCORES = Options('{"score": ', tuple(str(n) for n in range(1, 11)))
WANTS = [
    Sampling(temperature=0, max_new_tokens=12),
    SCORES,
    Options("", ("yes", "no", "the cat")),
    Likelihood("the cat sat on a mat"),
    Sampling(temperature=0.9, top_p=0.9, top_k=20, max_new_tokens=6),
]
TEXTS = ["what is two plus three", "say hello<|im_end|> to every small dog", "rate this"]


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {
        "one": make_tiny(folder / "one", seed=1),
        "two": make_tiny(folder / "two", seed=2, template="no_system"),
    }


@pytest.fixture(scope="module")
def adapters(bases, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [
        make_adapter(bases["one"], folder / str(n), rank=2 + n, seed=n, scale=0.5) for n in range(3)
    ]


def requests_of(*members: Member, wants=WANTS, texts=TEXTS) -> list[Request]:
    return [
        Request(
            f"{member.key}-{t}-{w}", member, member.messages(text), want, "test", seed=7 + t,
            shortenable=(text,),
        )
        for t, text in enumerate(texts)
        for member in members
        for w, want in enumerate(wants)
    ]  # fmt: skip


def expect_equal(found, expected) -> None:
    assert [reply.request_id for reply in found] == [reply.request_id for reply in expected]
    for here, there in zip(found, expected, strict=True):
        assert here.error == there.error
        assert (here.text, here.finish_reason) == (there.text, there.finish_reason)
        assert here.num_prompt_tokens == there.num_prompt_tokens
        assert here.num_completion_tokens == there.num_completion_tokens
        assert here.num_shortened_tokens == there.num_shortened_tokens
        if there.probabilities is not None:
            assert here.probabilities == pytest.approx(there.probabilities, abs=1e-4)
            assert here.option_mass == pytest.approx(there.option_mass, abs=1e-4)
        if there.logprob_sum is not None:
            assert here.logprob_sum == pytest.approx(there.logprob_sum, abs=1e-4)
            assert here.num_scored_tokens == there.num_scored_tokens


def log_rows(path: Path) -> list[dict]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_answers_equal_the_hf_engines_and_versions_have_names_of_their_own(
    bases, adapters, tmp_path, monkeypatch
):
    monkeypatch.setenv("TEST_SERVER_LOG", str(tmp_path / "log.jsonl"))
    base = Member("bare", str(bases["one"]), engine="vllm", system="Be short.", dtype="float32")
    ada = replace(base, name="ada", adapter=str(adapters[0]), version=1)
    bob = replace(base, name="bob", adapter=str(adapters[1]), version=1)
    hf = HFEngine(Weights(device="cpu"))
    pool = ServedPool((base, ada, bob), rank=4)
    engine = VllmEngine(VllmSettings(command=COMMAND), pool, tmp_path / "servers")
    try:
        first = requests_of(base, ada, bob)
        assert sorted(at for (at,) in engine.plan(first)) == list(range(len(first)))
        expect_equal(engine.respond(first), hf.respond(first))
        # Another iteration: ada's weights are new, bob's are not.
        ada = replace(ada, adapter=str(adapters[2]), version=2)
        second = requests_of(ada, bob, texts=TEXTS[:1])
        expect_equal(engine.respond(second), hf.respond(second))
    finally:
        engine.close()
    assert len(list((tmp_path / "servers").glob("one-*.log"))) == 1
    paths = [(row["path"], row["body"]) for row in log_rows(tmp_path / "log.jsonl")]
    loaded = [body["lora_name"] for path, body in paths if path == "/v1/load_lora_adapter"]
    gone = [body["lora_name"] for path, body in paths if path == "/v1/unload_lora_adapter"]
    assert [name.partition(".")[0] for name in loaded] == ["ada@1", "bob@1", "ada@2"]
    assert gone == [loaded[0]]
    assert served_name(ada) == loaded[2]


def test_an_older_server_that_knows_no_ids_of_choice_gives_the_same(bases):
    """Its likeliest tokens do not hold every option, so the others are read in the prompt."""
    hf = HFEngine(Weights(device="cpu"))
    member = Member("m", str(bases["one"]), engine="vllm")
    asked = requests_of(member, wants=[SCORES], texts=TEXTS[:1])
    served = {"base": member}
    can = Abilities(token_ids=False, max_logprobs=20)
    with TestServer(HFEngine(Weights(device="cpu")), served, can=can) as server:
        engine = VllmEngine(VllmSettings(url=server.url), ServedPool((member,)))
        expect_equal(engine.respond(asked), hf.respond(asked))
        engine.close()
        scored = [row for row in server.requests() if row.body and "prompt_logprobs" in row.body]
        assert scored
        assert server.running  # one that runs already is never stopped


def test_prompts_are_shortened_or_too_long_as_on_the_hf_engine(bases):
    hf = HFEngine(Weights(device="cpu"))
    member = Member("m", str(bases["one"]), engine="vllm")
    long = "the cat sat on a mat and said hello " * 60
    asked = requests_of(member, wants=WANTS[:1], texts=[long])
    asked += [replace(request, id="fixed", shortenable=()) for request in asked]
    with TestServer(HFEngine(Weights(device="cpu")), {"base": member}) as server:
        engine = VllmEngine(VllmSettings(url=server.url), ServedPool((member,)))
        found = engine.respond(asked)
        engine.close()
    assert found[0].num_shortened_tokens > 0
    assert found[1].error.kind == "too_long"
    expect_equal(found, hf.respond(asked))


def test_what_may_pass_is_asked_again_and_the_rest_is_a_typed_failure(bases, monkeypatch):
    monkeypatch.setattr("phalanx.engines.vllm_work._BACKOFF_S", 0.01)
    member = Member("m", str(bases["one"]), engine="vllm")
    asked = requests_of(member, wants=WANTS[:1], texts=[f"say {n}" for n in range(12)])
    faults = Faults(
        busy=0.2, error=0.2, unavailable=0.1, cut_json=0.2, cut_connection=0.1, html=0.1, most=3
    )
    backing = HFEngine(Weights(device="cpu"))
    with TestServer(backing, {"base": member}, faults=faults) as server:
        engine = VllmEngine(VllmSettings(url=server.url, max_concurrency=4), ServedPool((member,)))
        found = engine.respond(asked)
        assert faults.met.total() > 5
        assert [reply.error for reply in found] == [None] * 12
        assert server.max_in_flight(lambda entry: "completions" in entry.path) <= 4
        server.faults = Faults(error=1.0, most=100)
        failed = engine.respond(asked[:2])
        assert {(r.error.kind, r.error.transient) for r in failed} == {("engine", True)}
        # The server is there, so connections that are always cut are failures of these requests.
        server.faults = Faults(cut_connection=1.0, most=100)
        failed = engine.respond(asked[:2])
        assert {(r.error.kind, r.error.transient) for r in failed} == {("engine", True)}
        assert "connection failed" in failed[0].error.message
        server.faults = Faults(hang=1.0, most=100)
        hasty = VllmEngine(VllmSettings(url=server.url, timeout=0.2), ServedPool((member,)))
        failed = hasty.respond(asked[:1])
        assert (failed[0].error.kind, failed[0].error.transient) == ("timeout", True)
        server.faults = Faults()
        server.stop()
        with pytest.raises(EngineError, match="cannot be reached any more"):
            engine.respond(asked[:1])
        engine.close()
        hasty.close()


def test_a_text_that_did_not_end_by_itself_is_never_said_to_have(bases, monkeypatch):
    monkeypatch.setattr("phalanx.engines.vllm_work._BACKOFF_S", 0.01)
    member = Member("m", str(bases["one"]), engine="vllm")
    asked = requests_of(member, wants=WANTS[:1], texts=TEXTS[:1])

    def ended(reason: str | None) -> Raw:
        return Raw(body={"choices": [{"text": "the cat", "finish_reason": reason}]})

    with TestServer(HFEngine(Weights(device="cpu")), {"base": member}) as server:
        engine = VllmEngine(VllmSettings(url=server.url), ServedPool((member,)))
        server.faults.queue([ended("abort"), ended("error"), ended("stop")])  # asked again
        (reply,) = engine.respond(asked)
        assert (reply.text, reply.finish_reason) == ("the cat", "stop")
        server.faults.queue([ended("abort")] * 5)
        (reply,) = engine.respond(asked)
        assert (reply.error.kind, reply.error.transient) == ("engine", True)
        server.faults.queue([ended("repetition")])
        (reply,) = engine.respond(asked)
        assert reply.truncated
        for reason in ("tired", None):
            server.faults.queue([ended(reason)])
            (reply,) = engine.respond(asked)
            assert (reply.error.kind, reply.error.transient) == ("engine", False)
            assert repr(reason) in reply.error.message
        engine.close()


@pytest.mark.parametrize("kind", ["error", "hang", "cut_connection"])
def test_stop_ends_the_tries_of_a_request_that_gets_no_answer(kind, bases, monkeypatch):
    monkeypatch.setattr("phalanx.engines.vllm_work._BACKOFF_S", 30)
    member = Member("m", str(bases["one"]), engine="vllm")
    asked = requests_of(member, wants=WANTS[:1], texts=[f"say {n}" for n in range(6)])
    faults = Faults(most=100, **{kind: 1.0})
    with TestServer(HFEngine(Weights(device="cpu")), {"base": member}, faults=faults) as server:
        settings = VllmSettings(url=server.url, max_concurrency=2, timeout=1)
        engine = VllmEngine(settings, ServedPool((member,)))
        work = engine.start([[request] for request in asked])
        deadline = time.monotonic() + 20
        while faults.met[kind] < 2 and time.monotonic() < deadline:
            assert work.wait(0.05) == []
        work.stop()
        started = time.monotonic()
        while work.num_open:
            assert work.wait(0.2) == []  # they count as not begun
        assert time.monotonic() - started < 10
        assert faults.met[kind] == 2
        engine.close()


def test_adapters_that_a_restarted_server_lost_are_loaded_again(bases, adapters):
    member = Member("m", str(bases["one"]), adapter=str(adapters[0]), version=3, engine="vllm")
    base = replace(member, adapter=None)
    asked = requests_of(member, wants=WANTS[:1])
    with TestServer(HFEngine(Weights(device="cpu")), {"base": base}) as server:
        engine = VllmEngine(VllmSettings(url=server.url), ServedPool((member,)))
        first = engine.respond(asked)
        server.loras.clear()
        expect_equal(engine.respond(asked), first)
        engine.close()


def test_stop_begins_nothing_more_and_what_is_under_way_ends(bases):
    member = Member("m", str(bases["one"]), engine="vllm")
    asked = requests_of(member, wants=WANTS[:1], texts=[f"say {n}" for n in range(40)])
    faults = Faults(latency=0.05)
    with TestServer(HFEngine(Weights(device="cpu")), {"base": member}, faults=faults) as server:
        engine = VllmEngine(VllmSettings(url=server.url, max_concurrency=2), ServedPool((member,)))
        work = engine.start([[request] for request in asked])
        assert work.num_open == 40
        ended = work.wait(20)
        work.stop()
        assert 0 <= work.num_open <= 3
        while work.num_open:
            ended += work.wait(0.2)
        assert 0 < len(ended) < 40
        assert len({number for number, _ in ended}) == len(ended)
        assert all(reply.error is None for _, (reply,) in ended)
        started = time.monotonic()
        server.faults = Faults(latency=30)
        engine.start([[request] for request in asked])
        time.sleep(0.3)
        engine.close()  # gives up what is under way
        assert time.monotonic() - started < 10


@pytest.mark.slow
def test_bases_take_turns_and_rest_puts_the_server_to_sleep(bases, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_SERVER_LOG", str(tmp_path / "log.jsonl"))
    one, two = (Member(name, str(bases[name]), engine="vllm") for name in ("one", "two"))
    engine = VllmEngine(VllmSettings(command=COMMAND), ServedPool((one, two)), tmp_path / "servers")
    try:
        found = engine.respond(requests_of(one, two, wants=WANTS[:1], texts=TEXTS[:1]))
        assert [reply.error for reply in found] == [None, None]
        (running,) = engine._servers.values()
        engine.rest()
        assert running.asleep
        # The server that is there comes first, so it is woken, not started anew.
        engine.respond(requests_of(one, two, wants=WANTS[:1], texts=TEXTS[:1]))
    finally:
        engine.close()
    rows = log_rows(tmp_path / "log.jsonl")
    assert len(list((tmp_path / "servers").glob("*.log"))) == 2
    order = [row["path"] for row in rows if row["path"] not in ("/v1/models", "/is_sleeping")]
    assert order == ["/v1/completions"] * 2 + ["/sleep", "/wake_up"] + ["/v1/completions"] * 2
    assert len({row["pid"] for row in rows}) == 3


@pytest.mark.slow
def test_a_server_that_is_killed_is_an_error_with_its_log(bases, tmp_path):
    member = Member("one", str(bases["one"]), engine="vllm")
    engine = VllmEngine(VllmSettings(command=COMMAND), ServedPool((member,)), tmp_path / "servers")
    asked = requests_of(member, wants=WANTS[:1])
    try:
        engine.respond(asked)
        (server,) = engine._servers.values()
        for child in psutil.Process(server.process.pid).children():
            os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"exit code 137[\s\S]*listening on"):
            engine.respond(asked)
    finally:
        engine.close()
