"""The test server itself: replies in OpenAI's shape, exact values, faults, and its log."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.engines.hf import HFEngine
from phalanx.engines.scripted import ScriptedEngine
from phalanx.types import Likelihood, Member, Message, Options, Request, Sampling
from phalanx.weights import Weights
from tests.server import Abilities, Faults, Raw, TestServer
from tests.tiny import make_adapter, make_tiny

SCRIPT = {
    "sampling": [
        {"when": "score", "reply": '{"score": 7}'},
        {"when": "city", "reply": "Lima is a city."},
    ],
    "options": [{"when": "score", "weights": {"7": 3, "10": 1}}],
}
MEMBER = Member("m", "inline", engine="scripted")


def scripted(**options: Any) -> TestServer:
    return TestServer(ScriptedEngine({"inline": SCRIPT}), {"m": MEMBER}, **options)


def post(
    server: TestServer, path: str, body: Any, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, path, json.dumps(body), headers or {})
        reply = connection.getresponse()
        text = reply.read().decode("utf-8")
    finally:
        connection.close()
    try:
        return reply.status, json.loads(text)
    except ValueError:
        return reply.status, text


def chat(server: TestServer, text: str, **more: Any) -> tuple[int, Any]:
    messages = [{"role": "user", "content": text}]
    return post(server, "/v1/chat/completions", {"model": "m", "messages": messages, **more})


def test_chat_of_the_scripted_engine() -> None:
    with scripted() as server:
        status, reply = chat(server, "a city", max_tokens=50)
        assert (status, reply["choices"][0]["message"]["content"]) == (200, "Lima is a city.")
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert reply["usage"]["completion_tokens"] == 8
        cut = chat(server, "a city", max_tokens=3)[1]["choices"][0]
        assert (cut["message"]["content"], cut["finish_reason"]) == ("Lima is", "length")
        assert post(server, "/v1/models", None)[1]["data"][0]["id"] == "m"
        assert post(server, "/health", None) == (200, "")
        assert post(server, "/v1/chat/completions", {"model": "x"})[0] == 404


def test_scripted_weights_are_log_probabilities_of_the_written_score() -> None:
    with scripted() as server:
        choice = chat(server, "score", logprobs=True, top_logprobs=5)[1]["choices"][0]
        content = choice["logprobs"]["content"]
        assert "".join(token["token"] for token in content) == '{"score": 7}'
        number = next(token for token in content if token["token"] == "7")
        found = {token["token"]: token["logprob"] for token in number["top_logprobs"]}
        assert found == pytest.approx({"7": math.log(0.75), "10": math.log(0.25)})
        picked = chat(server, "score", temperature=0, structured_outputs={"choice": ["7", "10"]})
        assert picked[1]["choices"][0]["message"]["content"] == "7"


@pytest.mark.parametrize(
    ("can", "more", "param"),
    [
        (Abilities(logprobs="refuse"), {"logprobs": True}, "logprobs"),
        (Abilities(choice="refuse"), {"guided_choice": ["a"]}, "structured_outputs"),
        (Abilities(max_tokens=False), {"max_tokens": 5}, "max_tokens"),
        (Abilities(temperature=False), {"temperature": 0.5}, "temperature"),
    ],
)
def test_what_a_server_cannot_do_is_refused(can: Abilities, more: dict, param: str) -> None:
    with scripted(can=can) as server:
        status, reply = chat(server, "a city", **more)
        assert (status, reply["error"]["param"]) == (400, param)
        assert chat(server, "a city")[0] == 200


def test_logprobs_are_ignored_and_a_key_is_asked_for() -> None:
    with scripted(can=Abilities(logprobs="ignore"), key="s3cret") as server:
        assert chat(server, "a city", logprobs=True)[0] == 401
        body = {"model": "m", "messages": [{"role": "user", "content": "score"}], "logprobs": True}
        known = {"Authorization": "Bearer s3cret"}
        status, reply = post(server, "/v1/chat/completions", body, known)
        assert (status, reply["choices"][0]["logprobs"]) == (200, None)


def test_faults_follow_the_seed_and_end() -> None:
    def statuses(seed: int) -> list[int]:
        with scripted(faults=Faults(seed, busy=0.4, error=0.3, most=2)) as server:
            return [chat(server, "a city", seed=n % 5)[0] for n in range(25)]

    first = statuses(1)
    assert first == statuses(1)
    assert first != statuses(2)
    assert {200, 429, 500} == set(first)
    assert sum(status != 200 for status in first) <= 10


def test_cut_replies_pages_raw_replies_and_hanging() -> None:
    with scripted(faults=Faults(cut_json=1.0, most=1)) as server:
        status, text = chat(server, "a city")
        assert status == 200
        assert isinstance(text, str)
        assert chat(server, "a city")[0] == 200
        server.faults.queue([Raw(503, {"Retry-After": "2"}, {"error": {"message": "raw"}})])
        assert chat(server, "a city") == (503, {"error": {"message": "raw"}})
    with (
        scripted(faults=Faults(cut_connection=1.0)) as server,
        pytest.raises(http.client.IncompleteRead),
    ):
        chat(server, "a city")
    with scripted(faults=Faults(hang=1.0)) as server:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=0.3)
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        deadline = time.monotonic() + 5
        while not server.log[0].end and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.log[0].status == -1


def test_log_overlap_pause_and_restart_on_the_same_port() -> None:
    with scripted(faults=Faults(latency=0.1)) as server:
        threads = [threading.Thread(target=chat, args=(server, "a city")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.max_in_flight() >= 2
        assert server.max_in_flight(lambda entry: entry.path == "/health") == 0
        port = server.port
        server.stop()
        with pytest.raises(ConnectionError):
            chat(server, "a city")
        server.start()
        assert server.port == port
        assert chat(server, "a city")[0] == 200
        server.pause()
        late = threading.Thread(target=chat, args=(server, "a city"))
        late.start()
        late.join(0.3)
        assert late.is_alive()
        server.resume()
        late.join(5)
        assert not late.is_alive()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestServer, Path]]:
    folder = make_tiny(tmp_path_factory.mktemp("tiny"))
    engine = HFEngine(Weights(device="cpu"))
    with TestServer(engine, {"m": Member("m", str(folder))}, max_lora_rank=8) as server:
        yield server, folder


def test_greedy_completion_options_and_likelihood_are_the_engines_own(tiny) -> None:
    server, folder = tiny
    engine = server.engine
    member = Member("m", str(folder))
    messages = (Message("user", "what is two plus three"),)
    wants = [
        Sampling(temperature=0, max_new_tokens=12),
        Options("score ", ("1", "2", "yes")),
        Likelihood("the cat sat"),
    ]
    asked = [Request(str(n), member, messages, want, "t") for n, want in enumerate(wants)]
    greedy, options, likelihood = engine.respond(asked)
    format_ = engine.weights.chat(member)
    prompt = format_.prompt_ids(messages)
    body = {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 12}
    choice = post(server, "/v1/completions", {**body, "return_token_ids": True})[1]["choices"][0]
    assert choice["text"] == greedy.text
    assert choice["finish_reason"] == greedy.finish_reason
    assert choice["prompt_token_ids"] == prompt

    tree_ids = [format_.option_ids("score ", option)[-1] for option in ("1", "2")]
    shared = format_.option_ids("score ", "1")[:-1]
    body = {"model": "m", "prompt": prompt + shared, "max_tokens": 1, "logprobs": 1,
            "logprob_token_ids": tree_ids, "return_tokens_as_token_ids": True}  # fmt: skip
    choice = post(server, "/v1/completions", body)[1]["choices"][0]
    top = choice["logprobs"]["top_logprobs"][0]
    one, two = (top[f"token_id:{token}"] for token in tree_ids)
    wanted = math.log(options.probabilities["1"] / options.probabilities["2"])
    assert one - two == pytest.approx(wanted, abs=1e-4)

    ids = format_.completion_ids("the cat sat", ended=False)
    body = {"model": "m", "prompt": prompt + ids, "max_tokens": 1, "prompt_logprobs": 0}
    listed = post(server, "/v1/completions", body)[1]["choices"][0]["prompt_logprobs"]
    assert listed[0] is None
    total = sum(
        entry[str(token)]["logprob"] for entry, token in zip(listed[-len(ids) :], ids, strict=True)
    )
    assert total == pytest.approx(likelihood.logprob_sum, abs=1e-4)


def test_structured_choice_and_echo(tiny) -> None:
    server, _ = tiny
    messages = [{"role": "user", "content": "rate"}]
    body = {"model": "m", "messages": messages, "structured_outputs": {"choice": ["1", "10"]}}
    for seed in range(4):
        reply = post(server, "/v1/chat/completions", {**body, "seed": seed, "logprobs": True})[1]
        assert reply["choices"][0]["message"]["content"] in ("1", "10")
        assert reply["choices"][0]["logprobs"]["content"]
    body = {"model": "m", "prompt": "the cat", "echo": True, "max_tokens": 0, "logprobs": 2}
    choice = post(server, "/v1/completions", body)[1]["choices"][0]
    assert choice["text"] == "the cat"
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert len(choice["logprobs"]["tokens"]) == 2
    assert len(choice["logprobs"]["top_logprobs"][1]) in (2, 3)


def test_adapters_are_served_and_sleep_is_kept(tiny, tmp_path: Path) -> None:
    server, folder = tiny
    adapter = make_adapter(folder, tmp_path / "a", rank=4)
    body = {"lora_name": "a@1", "lora_path": str(adapter)}
    assert post(server, "/v1/load_lora_adapter", body)[0] == 200
    assert post(server, "/v1/load_lora_adapter", body)[0] == 400
    asked = {"prompt": "the cat sat on", "temperature": 0, "max_tokens": 8, "logprobs": 0}
    with_, without = (
        post(server, "/v1/completions", {**asked, "model": name})[1]["choices"][0]
        for name in ("a@1", "m")
    )
    assert with_["logprobs"]["token_logprobs"] != without["logprobs"]["token_logprobs"]
    assert post(server, "/v1/unload_lora_adapter", {"lora_name": "a@1"})[0] == 200
    assert post(server, "/v1/completions", {**asked, "model": "a@1"})[0] == 404
    big = make_adapter(folder, tmp_path / "big", rank=16)
    refused = post(server, "/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(big)})
    assert refused[0] == 400
    assert post(server, "/sleep?level=1", {})[0] == 200
    assert post(server, "/is_sleeping", None)[1] == {"is_sleeping": True}
    assert post(server, "/v1/completions", {**asked, "model": "m"})[0] == 500
    assert post(server, "/wake_up", {})[0] == 200
    assert post(server, "/v1/completions", {**asked, "model": "m"})[0] == 200
