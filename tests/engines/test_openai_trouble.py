"""Servers that limit, refuse, err and reason: what the HTTP engine makes of them."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from phalanx.engines import http_endpoint, http_talk
from phalanx.engines.http_reading import Completion, Reading
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError
from phalanx.types import Member
from tests.engines.behind import CHAT, SCORES, Make, facts_of, many, request, serve
from tests.server import Abilities, Faults, Raw, TestServer
from tests.server.texts import ApiError

LIST = "1. **Accuracy** is good. " + '{"score": 7}'
SCRIPT = {
    "sampling": [{"when": "score", "reply": LIST}, {"when": ".", "reply": "yes"}],
    "options": [{"when": "score", "weights": {"7": 3, "8": 1}}],
}


class Special(TestServer):
    """Answers with an error what ``errs(body)`` says."""

    def __init__(self, errs: Any, **options: Any) -> None:
        served = {"m": Member("m", "script:t", engine="scripted")}
        super().__init__(ScriptedEngine({"script:t": SCRIPT}), served, **options)
        self.errs = errs

    def answer(self, method: str, target: str, body: Any, empty: bool) -> Any:
        status = self.errs(body) if target == CHAT else 0
        if status:
            raise ApiError(status, "no")
        return super().answer(method, target, body, empty)


def scored(number: int) -> Any:
    return request(number, SCORES, f"Give a score {number}")


def raw(tokens: list[tuple[str, dict[str, float]]], finish: str = "stop", **message: Any) -> Raw:
    """A reply with these tokens, and what may stand in the place of each."""
    content = [
        {
            "token": text,
            "logprob": math.log(shares.get(text, 1.0)),
            "top_logprobs": [{"token": t, "logprob": math.log(p)} for t, p in shares.items()],
        }
        for text, shares in tokens
    ]
    said = {"role": "assistant", "content": "".join(text for text, _ in tokens)} | message
    choice = {"finish_reason": finish, "message": said, "logprobs": {"content": content}}
    return Raw(200, {}, {"choices": [choice]})


# Busy servers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_limit_without_retry_after_outlasts_the_tries_and_fails_nothing(
    engine_for: Make, status: int
) -> None:
    first: list[float] = []

    def limited(body: Any) -> int:
        first.append(time.monotonic())
        return status if time.monotonic() < first[0] + 1.0 else 0

    with Special(limited) as server:
        engine = engine_for(server, tries=2)
        replies = engine.respond(many(12))
        assert [reply.error for reply in replies] == [None] * 12
        refused = facts_of(engine)["retries"][f"status {status}"]
        assert 2 < refused < 60  # more than the tries of one request, and yet no storm


def test_a_server_that_is_busy_for_ever_fails_the_request_in_the_end(engine_for: Make) -> None:
    with serve(faults=Faults(unavailable=1.0, most=10**6)) as server:
        started = time.monotonic()
        (reply,) = engine_for(server, tries=3, patience=0.5).respond(many(1))
        assert 0.5 <= time.monotonic() - started < 5
        assert reply.error.kind == "engine"
        assert "status 503: overloaded" in reply.error.message
        assert len(server.requests(CHAT)) > 3


def test_the_time_between_two_works_is_no_silence(engine_for: Make) -> None:
    with serve(faults=Faults(hang=1.0, most=1)) as server:
        engine = engine_for(server, patience=1.0, timeout=0.2, tries=1)
        (reply,) = engine.respond(many(1))
        assert reply.error.kind == "timeout"
        server.stop()
        time.sleep(1.1)
        work = engine.start([[request(2)]])
        time.sleep(0.3)
        server.faults = Faults()
        server.start()
        found = []
        while work.num_open:
            found += work.wait(0.2)
        assert found[0][1][0].text


# Refusals ----------------------------------------------------------------------------------------


def test_a_403_is_about_one_request_where_the_key_is_known_to_work(engine_for: Make) -> None:
    forbidden = Raw(403, {}, {"error": {"message": "the system message was flagged"}})
    with serve() as server:
        engine = engine_for(server, max_concurrency=1)
        server.faults.queue([forbidden])
        with pytest.raises(EngineError, match="refuses access"):
            engine.respond(many(1))
        engine.respond([request(2)])
        server.faults.queue([forbidden])
        first, second = engine.respond([request(3), request(4)])
        assert first.error.kind == "refused"
        assert "flagged" in first.error.message
        assert second.text
        before = len(server.requests(CHAT))
        server.faults.queue([forbidden])
        (judged,) = engine.respond([scored(5)])
        assert judged.error.kind == "refused"
        assert len(server.requests(CHAT)) == before + 1  # not asked again in another way
        server.faults.queue([forbidden] * 30)
        with pytest.raises(EngineError, match="refuses access"):
            engine.respond([request(number) for number in range(10, 40)])
        assert len(server.requests(CHAT)) < before + 20


def test_payment_required_stops_at_once(engine_for: Make) -> None:
    with serve() as server:
        server.faults.queue([Raw(402, {}, {"error": {"message": "add credits"}})])
        with pytest.raises(EngineError, match="is used up; it said: add credits"):
            engine_for(server).respond(many(5))
        assert len(server.requests(CHAT)) == 1


def test_a_way_that_was_refused_is_not_tried_for_every_request(engine_for: Make) -> None:
    with serve(can=Abilities(logprobs="refuse")) as server:
        engine = engine_for(server, options="logprobs")
        first, *others = engine.respond([scored(number) for number in range(5)])
        assert "logprobs are not supported" in first.error.message
        assert len(server.requests(CHAT)) == 2
        assert {reply.error.kind for reply in others} == {"refused"}
        assert "endpoints.e.options: logprobs" in others[0].error.message


def test_an_error_of_the_server_while_a_way_is_tried_leads_to_the_next_one(
    engine_for: Make,
) -> None:
    with Special(lambda body: 500 if body.get("continue_final_message") else 0) as server:
        engine = engine_for(server)
        replies = engine.respond([scored(number) for number in range(12)])
        assert [reply.probabilities["7"] for reply in replies] == pytest.approx([0.75] * 12)
        # Three errors for each of three requests; then the way is left out for good.
        assert facts_of(engine)["retries"] == {"status 500": 9}
        assert facts_of(engine)["capabilities"] == {"m": "logprobs"}
    with Special(lambda body: 0, faults=Faults(error=1.0, most=3)) as server:
        engine = engine_for(server, tries=12)
        engine.respond([scored(0)])
        server.faults = Faults()
        engine.respond([scored(1)])
        assert facts_of(engine)["capabilities"] == {"m": "prefill"}  # the errors had passed


# Options -----------------------------------------------------------------------------------------


def test_a_server_that_ignores_the_start_is_found_out(engine_for: Make) -> None:
    with Special(lambda body: 0, can=Abilities(prefill="ignore")) as server:
        engine = engine_for(server)
        (reply,) = engine.respond([scored(1)])
        assert reply.probabilities["1"] == 0
        assert reply.probabilities["7"] == pytest.approx(0.75)
        assert facts_of(engine)["capabilities"] == {"m": "logprobs"}


def test_reasoning_is_never_a_judgment(engine_for: Make) -> None:
    sure = {"3": 1.0}
    tokens = [('{"score": ', {'{"score": ': 1.0}), ("3", sure), ("?", {"?": 1.0})]
    with Special(lambda body: 0, can=Abilities(prefill="refuse")) as server:
        engine = engine_for(server, options_tokens=300)
        engine.respond([scored(0)])
        assert server.requests(CHAT)[-1].body["max_tokens"] == 300
        apart = {"content": None, "reasoning_content": "3?"}
        server.faults.queue([raw(tokens, "length", **apart)])
        (cut,) = engine.respond([scored(1)])
        assert cut.error.kind == "truncated"
        assert "all of the 300 tokens" in cut.error.message
        assert "raise judge.max_new_tokens" in cut.error.message
        server.faults.queue([raw(tokens, "content_filter")])
        (kept,) = engine.respond([scored(2)])
        assert kept.error.kind == "refused"
        answer = [('{"score": ', {'{"score": ': 1.0}), ("8", {"8": 0.5, "9": 0.5})]
        apart = {"content": '{"score": 8', "reasoning_content": "3?"}
        server.faults.queue([raw(tokens + answer, **apart)])
        (well,) = engine.respond([scored(3)])
        assert well.probabilities["8"] == pytest.approx(0.5)


def test_after_a_judgment_that_was_cut_off_no_other_way_is_tried(engine_for: Make) -> None:
    cut = raw([], "length", content=None, reasoning_content="Let me see")
    with serve(can=Abilities(prefill="refuse")) as server:
        refused = {"message": "no", "param": "continue_final_message"}
        server.faults.queue([Raw(400, {}, {"error": refused}), cut, cut])
        replies = engine_for(server).respond([scored(1), scored(2)])
        assert [reply.error.kind for reply in replies] == ["truncated", "truncated"]
        assert len(server.requests(CHAT)) == 3


def test_a_follow_up_that_fails_leaves_its_share_out(engine_for: Make) -> None:
    first = raw([("7", {"7": 0.6, "1": 0.4}), ("}", {"}": 1.0})])
    with serve() as server:
        refused = Raw(400, {}, {"error": {"message": "no"}})
        server.faults.queue([first, refused])
        (reply,) = engine_for(server).respond([scored(1)])
        assert len(server.requests(CHAT)) == 2
        assert reply.probabilities["7"] == pytest.approx(1.0)
        assert reply.probabilities["1"] == 0
        assert reply.option_mass == pytest.approx(0.6)


def test_whoever_watches_hears_once_that_a_server_is_gone_and_that_it_is_back(
    engine_for: Make,
) -> None:
    with serve(faults=Faults(latency=0.02)) as server:
        engine = engine_for(server, patience=60.0)
        assert not any(reply.error for reply in engine.respond(many(4)))
        assert engine.news() == []
        server.stop()
        work = engine.start([[request] for request in many(8)])
        heard: list[str] = []
        for _ in range(100):
            work.wait(0.1)
            heard += engine.news()
            if heard:
                break
        assert len(heard) == 1
        assert "cannot be reached; it is waited for 60 s" in heard[0]
        server.start()
        while work.num_open:
            work.wait(0.2)
        heard += engine.news()
        assert len(heard) == 2
        assert "answers again" in heard[1]


# Replies that break things -----------------------------------------------------------------------


def said(content: Any, usage: Any = None, **message: Any) -> str:
    choice = {"finish_reason": "stop", "message": {"content": content} | message}
    counted = {"prompt_tokens": 5, "completion_tokens": 3} if usage is None else usage
    return json.dumps({"choices": [choice], "usage": counted})


POISON = {
    "huge": said("hi", {"prompt_tokens": 10**30, "completion_tokens": 1}),
    "infinite": said("hi", {"prompt_tokens": 1}).replace("1}", "1e400}"),
    "negative": said("hi", {"prompt_tokens": -(10**7), "completion_tokens": -5}),
    "deep": '{"choices":' + "[" * 200_000,
    "odd code": json.dumps({"error": {"message": "x", "code": "\u00b2"}}),
    "half a pair": said(None, refusal="no \ud83d"),
}


@pytest.mark.parametrize("name", POISON)
def test_one_poisoned_reply_breaks_neither_the_run_nor_the_books(
    engine_for: Make, name: str
) -> None:
    with serve() as server:
        engine = engine_for(server, budget={"tokens": 10**6}, price_in=1.0, max_concurrency=1)
        clean = engine.respond(many(1))
        before = facts_of(engine)
        server.faults.queue([Raw(200, {}, POISON[name])])
        replies = engine.respond([request(number) for number in range(1, 4)])
        after = facts_of(engine)
    assert clean[0].text
    failed = [reply.error for reply in replies if reply.error]
    assert [failure.kind for failure in failed] == ["refused"] * (name == "half a pair")
    for reply in replies:
        json.dumps(reply.said, ensure_ascii=False).encode()
    for key in ("tokens_in", "tokens_out", "money"):
        assert before[key] <= after[key] < 10**6
        assert type(after[key]) is type(before[key])


def test_an_unexpected_fault_of_the_reading_fails_that_request_alone(
    engine_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(body: Any, *args: Any, **more: Any) -> Completion:
        text = body["choices"][0]["message"]["content"]
        if text == "break":
            raise KeyError(text)
        return Completion(text="\ud83d") if text == "store" else real(body, *args, **more)

    real = http_talk.read_completion
    monkeypatch.setattr(http_talk, "read_completion", read)
    with serve() as server:
        server.faults.queue([Raw(200, {}, said("break")), Raw(200, {}, said("store"))])
        replies = engine_for(server, max_concurrency=1).respond(many(4))
    broken, unstorable, *others = replies
    assert broken.error.kind == unstorable.error.kind == "engine"
    assert "the reply could not be read: KeyError" in broken.error.message
    assert "cannot be stored" in unstorable.error.message
    assert (broken.num_prompt_tokens, broken.num_completion_tokens) == (5, 3)
    assert all(reply.text for reply in others)


def test_an_unexpected_fault_of_a_reply_is_tried_again(
    engine_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(status: int, headers: Any, content: bytes, **more: Any) -> Reading:
        if b"break" in content:
            raise OverflowError
        return real(status, headers, content, **more)

    real = http_endpoint.read_reply
    monkeypatch.setattr(http_endpoint, "read_reply", read)
    with serve() as server:
        engine = engine_for(server)
        server.faults.queue([Raw(200, {}, said("break"))])
        (reply,) = engine.respond(many(1))
        assert reply.text
        assert facts_of(engine)["retries"] == {"unreadable": 1}


def test_a_redirect_is_not_followed_and_says_where_it_leads(engine_for: Make) -> None:
    with serve() as server, serve() as other:
        host = other.url.removesuffix("/v1")
        server.faults.queue([Raw(307, {"Location": f"{other.url}/chat/completions?a=b"}, "")])
        engine = engine_for(server, key="TEST_KEY")
        with pytest.raises(EngineError, match=r"not followed; set endpoints\.e\.url") as caught:
            engine.respond(many(1))
        assert f"redirects to {host} (status 307)" in str(caught.value)
        assert (len(server.requests()), len(other.requests())) == (1, 0)


def test_a_key_that_comes_back_as_a_parameter_is_not_kept(engine_for: Make) -> None:
    key = "sk-very-secret-0123456789"
    with serve() as server:
        refusal = {"error": {"message": "x" * 590 + key, "param": key}}
        server.faults.queue([Raw(400, {}, refusal), Raw(200, {}, said(f"Bearer {key}"))])
        first, second = engine_for(server, key="TEST_KEY", max_concurrency=1).respond(many(2))
    assert first.error.kind == "refused"
    assert "parameter [key]" in first.error.message
    assert "sk-v" not in first.error.message
    assert second.text == "Bearer [key]"
