"""Rules of endpoints, of members behind them, and of the budget; keys are never repeated."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from phalanx.config import Config, rules
from phalanx.config.schema import EndpointSettings
from phalanx.engines.openai import OpenAIEngine
from phalanx.errors import EngineError

ENDPOINT = {"name": "here", "url": "http://127.0.0.1:8000/v1"}
SECRET = "sk-proj-abcdefghijklmnop0123456789"


def served(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "model": "m", "engine": "openai"} | changes


def config_of(*members: dict[str, Any], endpoints: Any = (ENDPOINT,), **more: Any) -> Config:
    data = {
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": "ada"}, {"name": "bob"}, *members],
        },
        "endpoints": list(endpoints),
        "instructions": {"source": "builtin:skills"},
    }
    return Config.model_validate(data | more)


def test_a_sound_one_has_no_fault_and_says_who_is_not_trained() -> None:
    config = config_of(served("cora"))
    assert rules.faults(config) == []
    (note,) = rules.notes(config)
    assert "cora is not trained" in note
    assert rules.notes(config_of(served("cora", roles=["contest", "judge"]))) == []


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ({"model": None}, "cora has no model"),
        ({"endpoint": "heer"}, "there is no endpoint 'heer'; did you mean here?"),
        ({"adapter": "some/folder"}, "about weights here"),
        ({"dtype": "float16"}, "dtype: is about weights here"),
        ({"trust_remote_code": True}, "trust_remote_code: is about weights here"),
    ],
)
def test_a_member_behind_an_endpoint(member: dict[str, Any], words: str) -> None:
    (fault,) = rules.faults(config_of(served("cora", **member)))
    assert words in fault


def test_one_of_several_endpoints_must_be_named() -> None:
    two = (ENDPOINT, ENDPOINT | {"name": "there"})
    (fault,) = rules.faults(config_of(served("cora"), endpoints=two))
    assert "names no endpoint; expected one of here, there" in fault
    assert rules.faults(config_of(served("cora", endpoint="there"), endpoints=two)) == []
    (fault,) = rules.faults(config_of(served("cora"), endpoints=()))
    assert "there are none" in fault


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ({"url": "127.0.0.1:8000/v1"}, "expected http://HOST/... or https://HOST/..."),
        ({"url": "ftp://host/v1"}, "expected http://HOST"),
        ({"url": "http:///v1"}, "expected http://HOST"),
        ({"url": "http://host/v1?api-version=2"}, "query or fragment"),
        ({"url": "http://host/v1#top"}, "query or fragment"),
        ({"url": "http://host/v1?"}, "query or fragment"),
        ({"url": "http://127.0.0.1 /v1"}, "with a valid host"),
        ({"url": "http://host/v 1"}, "with a valid host"),
        ({"url": "http://exa..com/v1"}, "with a valid host"),
        ({"url": "http://ho,st/v1"}, "with a valid host"),
        ({"url": "http://[::g]/v1"}, "http://HOST"),
        ({"url": "http://127.0.0.1:99999/v1"}, "from 1 to 65535"),
        ({"url": "http://host:0/v1"}, "from 1 to 65535"),
        ({"url": "http://host:x/v1"}, "from 1 to 65535"),
        ({"requests_per_minute": 5e-324}, "at least 0.001 a minute"),
        ({"tokens_per_minute": 1e-9}, "at least 0.001 a minute"),
        ({"price_in": 1e308}, "at most 1,000,000"),
        ({"price_out": 1.1e6}, "at most 1,000,000"),
        ({"extra": {"max_tokens": "lots"}}, "max_tokens must be a whole number from 1"),
        ({"extra": {"max_tokens": -5}}, "got -5"),
        ({"extra": {"max_tokens": None}}, "got None"),
        ({"extra": {"max_completion_tokens": [1]}}, "got list"),
        ({"extra": {"max_completion_tokens": 1.5}}, "must be a whole number"),
        ({"extra": {"temperature": True}}, "temperature must be a number"),
        ({"extra": {"temperature": float("nan")}}, "cannot be sent as JSON"),
        ({"extra": {"user": date(2020, 1, 1)}}, "cannot be sent as JSON"),
        ({"extra": {"user": ["\ud83d"]}}, "half a surrogate pair"),
        ({"extra": {"model": "other"}}, "must not set model"),
        ({"extra": {"stream": True}}, "must not set stream"),
        ({"extra": {"n": 2}}, "must not set n: one reply is read"),
        ({"key": "PHALANX_NO_SUCH_KEY"}, "environment variable PHALANX_NO_SUCH_KEY is not set"),
    ],
)
def test_an_endpoint(endpoint: dict[str, Any], words: str) -> None:
    (fault,) = rules.faults(config_of(served("cora"), endpoints=[ENDPOINT | endpoint]))
    assert words in fault


@pytest.mark.parametrize("key", [SECRET, "gsk_abcdefghijklmnop1234", "abcdef0123456789abcdef01"])
def test_a_key_in_the_file_is_refused_and_not_repeated(key: str) -> None:
    (fault,) = rules.faults(config_of(served("cora"), endpoints=[ENDPOINT | {"key": key}]))
    assert "looks like a key itself" in fault
    assert key not in fault


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    endpoint = ENDPOINT | {"url": f"https://me:{SECRET}@host/v1"}
    (fault,) = rules.faults(config_of(served("cora"), endpoints=[endpoint]))
    assert "holds a user or a password" in fault
    assert SECRET not in fault


@pytest.mark.parametrize(
    "endpoint",
    [
        {"url": f"https://host/v1?version=2&api-key={SECRET}"},
        {"url": f"https://host/v1?code={SECRET}"},
        {"url": f"ftp://host/v1?token={SECRET}"},
        {"extra": {"Authorization": f"Bearer {SECRET}"}},
        {"extra": {"provider": {"routes": [{"api_key": SECRET}]}}},
        {"extra": {"note": ["x", f"use {SECRET}"]}},
    ],
)
def test_a_secret_in_the_query_or_in_extra_is_refused_and_not_repeated(
    endpoint: dict[str, Any],
) -> None:
    (fault,) = rules.faults(config_of(served("cora"), endpoints=[ENDPOINT | endpoint]))
    assert "looks like a key; keys do not belong into files" in fault
    assert SECRET not in fault


def test_settings_that_only_sound_like_secrets_are_taken() -> None:
    extra = {
        "models": ["claude-3-5-sonnet-20241022", "meta-llama/Llama-3.1-8B-Instruct"],
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens_per_key": 7,
        "key": "",
    }
    endpoint = ENDPOINT | {"extra": extra}
    assert rules.faults(config_of(served("cora"), endpoints=[endpoint])) == []


@pytest.mark.parametrize("arguments", [["--api-key", SECRET], [f"--api-key={SECRET}"]])
def test_a_key_among_the_arguments_of_vllm_is_refused(arguments: list[str]) -> None:
    (fault,) = rules.faults(config_of(served("cora"), vllm={"arguments": arguments}))
    assert "holds --api-key" in fault
    assert SECRET not in fault


def test_a_key_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TEST_KEY", SECRET)
    endpoint = ENDPOINT | {"key": "PHALANX_TEST_KEY"}
    assert rules.faults(config_of(served("cora"), endpoints=[endpoint])) == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (SECRET[:9] + "\n" + SECRET[9:], "holds white space"),
        (SECRET + "\x01" + SECRET, "holds control characters"),
        ("schlüssel-" + SECRET, "not ASCII"),
    ],
)
def test_what_can_be_no_key_is_refused_and_not_repeated(
    key: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_TEST_KEY", key)
    endpoint = ENDPOINT | {"key": "PHALANX_TEST_KEY"}
    (fault,) = rules.faults(config_of(served("cora"), endpoints=[endpoint]))
    with pytest.raises(EngineError) as caught:
        OpenAIEngine([EndpointSettings(**endpoint)], environ={"PHALANX_TEST_KEY": key})
    for told in (fault, str(caught.value)):
        assert "PHALANX_TEST_KEY" in told
        assert words in told
        assert SECRET[:9] not in told


@pytest.mark.parametrize(
    "endpoint",
    [
        {"url": "http://[::1]:8000/v1/"},
        {"url": "https://vllm_1.internal:65535"},
        {"url": "https://bücher.example/v1"},
        {"requests_per_minute": 1e-3, "price_in": 1e6},
        {"extra": {"max_tokens": 1, "temperature": 0.6, "seed": -1, "top_k": -1}},
        {"extra": {"stop": None, "logit_bias": {50256: -100}}},
    ],
)
def test_unusual_settings_that_are_sound(endpoint: dict[str, Any]) -> None:
    assert rules.faults(config_of(served("cora"), endpoints=[ENDPOINT | endpoint])) == []


def test_two_endpoints_of_one_name() -> None:
    faults = rules.faults(config_of(served("cora", endpoint="here"), endpoints=[ENDPOINT] * 2))
    assert any("the name here is given to 2 endpoints" in fault for fault in faults)


def test_likelihood_cannot_be_asked_of_an_endpoint() -> None:
    likelihood = {"protocol": "likelihood"}
    (fault,) = rules.faults(config_of(served("cora"), judge=likelihood))
    assert "likelihood cannot be asked of cora" in fault
    assert "expected, rubric or pairwise" in fault
    others = [{"name": "dora"}, served("cora", roles=["contest"])]
    assert rules.faults(config_of(*others, judge=likelihood)) == []


def test_a_pool_of_endpoints_alone_is_not_trained() -> None:
    pool = {"members": [served(name) for name in ("ada", "bob", "cora")]}
    notes = rules.notes(config_of(pool=pool))
    assert any("every learner is behind an endpoint" in note for note in notes)
    assert rules.faults(config_of(pool=pool)) == []


def test_money_without_prices() -> None:
    member = served("cora", roles=["judge"])
    (note,) = rules.notes(config_of(member, budget={"money": 1.0}))
    assert "nothing of here counts for it" in note
    priced = ENDPOINT | {"price_in": 0.1, "price_out": 0.4}
    assert rules.notes(config_of(member, endpoints=[priced], budget={"money": 1.0})) == []
