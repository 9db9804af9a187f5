"""The HTTP engine over real sockets: nothing lost, sent twice, or beyond the budget."""

from __future__ import annotations

import itertools
import json
import sys
import time
import traceback
from collections import defaultdict
from typing import Any

import pytest

from phalanx.engines.openai import OpenAIEngine
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import BudgetError, EngineError, MissingPackage
from phalanx.types import Likelihood, Member, Message, Request, Response, Sampling
from tests.engines.behind import ADA, CHAT, SCORES, SCRIPT, Make, facts_of, many, request, serve
from tests.server import Abilities, Faults, Raw, TestServer


def collect(engine: OpenAIEngine, requests: list[Request], until: int = 10**9) -> dict[str, Any]:
    """Responses by request id as the dispatcher takes them; stops the work after ``until``."""
    work = engine.start([[requests[at] for at in batch] for batch in engine.plan(requests)])
    found: dict[str, Response] = {}
    try:
        while work.num_open:
            for number, (reply,) in work.wait(0.2):
                assert reply.request_id == requests[number].id
                found[reply.request_id] = reply
            if len(found) >= until:
                work.stop()
    except BudgetError as error:
        return {"found": found, "error": error}
    return {"found": found, "error": None}


def overlaps(server: TestServer) -> int:
    """How often one body was in flight while it already was.

    The server notices only after a while that a client has hung up.
    """
    spans = defaultdict(list)
    for entry in server.requests(CHAT):
        late = 0.5 if entry.status == -1 else 0.0
        body = json.dumps(entry.body, sort_keys=True)
        spans[body].append((entry.start, max(entry.start, entry.end - late)))
    return sum(
        one[1] > other[0]
        for times in spans.values()
        for one, other in itertools.pairwise(sorted(times))
    )


def test_a_good_server_answers_everything_in_order(engine_for: Make) -> None:
    with serve() as server:
        engine = engine_for(server)
        replies = engine.respond(many(40))
        assert [reply.request_id for reply in replies] == [f"r{n}" for n in range(40)]
        assert {reply.text for reply in replies} == {"yes it is", "no", "perhaps"}
        assert all(r.num_prompt_tokens and r.num_completion_tokens for r in replies)
        counted = facts_of(engine)
        assert counted["requests"] == 40 == len(server.requests(CHAT))
        assert counted["tokens_in"] == sum(reply.num_prompt_tokens for reply in replies)
        assert counted["retries"] == {}
        bodies = [entry.body for entry in server.requests(CHAT)]
        assert {body["seed"] for body in bodies} == set(range(40))
        assert {body["top_k"] for body in bodies} == {50}
        assert {body["max_tokens"] for body in bodies} == {16}
        assert "authorization" not in {name.lower() for name in server.requests()[0].headers}


def test_a_third_of_faults_costs_no_request_and_sends_nothing_twice_at_once(
    engine_for: Make,
) -> None:
    faults = Faults(
        busy=0.06, error=0.08, hang=0.03, cut_json=0.05, cut_connection=0.03, html=0.02,
        empty=0.03, jitter=0.01,
    )  # fmt: skip
    with serve(faults=faults) as server:
        engine = engine_for(server, timeout=1.0)
        replies = engine.respond(many(300))
        assert [reply.request_id for reply in replies] == [f"r{n}" for n in range(300)]
        failed = [reply for reply in replies if reply.error]
        assert {reply.error.kind for reply in failed} == {"empty"}
        assert all(reply.text for reply in replies if not reply.error)
        retries = facts_of(engine)["retries"]
        # On a busy machine a reply may come when the client has hung up: a timeout like a hang.
        late = retries["timeout"] - faults.met["hang"]
        heard = {
            "empty": len(failed),
            "busy": retries["status 429"],
            "error": retries["status 500"],
            "cut_json": retries["cut JSON"],
            "html": retries["not JSON"],
            "cut_connection": retries["cut"],
        }
        unheard = [faults.met[kind] - count for kind, count in heard.items()]
        assert min(unheard) >= 0
        assert sum(unheard) <= late
        assert min(heard.values()) > 0
        assert faults.met["hang"] > 0
        sent = len(server.requests(CHAT))
        assert facts_of(engine)["requests"] == 300 + sum(retries.values())
        assert 0 <= facts_of(engine)["requests"] - sent <= late
        assert overlaps(server) == 0


def test_tries_have_an_end_and_the_failure_says_what_happened(engine_for: Make) -> None:
    with serve(faults=Faults(error=1.0, most=99)) as server:
        (reply,) = engine_for(server, tries=3).respond(many(1))
        assert reply.error.kind == "engine"
        assert not reply.error.transient
        assert "in 3 tries; the last: status 500: internal error" in reply.error.message
        assert len(server.requests(CHAT)) == 3
    with serve(faults=Faults(hang=1.0, most=99)) as server:
        (reply,) = engine_for(server, tries=2, timeout=0.2).respond(many(1))
        assert reply.error.kind == "timeout"
        assert "no reply within 0.2 s" in reply.error.message


def test_retry_after_pauses_the_whole_endpoint(engine_for: Make) -> None:
    with serve(faults=Faults(latency=0.02)) as server:
        server.faults.queue([Raw(429, {"Retry-After": "1"}, {"error": {"message": "slow down"}})])
        replies = engine_for(server).respond(many(20))
        assert not any(reply.error for reply in replies)
        entries = server.requests(CHAT)
        told = next(entry.end for entry in entries if entry.status == 429)
        after = [entry.start for entry in entries if entry.start > told]
        assert len(after) >= 16
        assert min(after) >= told + 1.0


def test_a_missing_package_is_named(engine_for: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingPackage, match=r"pip install 'phalanx\[openai\]'"):
        engine_for("http://127.0.0.1:1/v1").respond(many(3))


def test_concurrency_grows_while_it_goes_well(engine_for: Make) -> None:
    with serve(faults=Faults(latency=0.2)) as server:
        engine_for(server, max_concurrency=16).respond(many(90))
        starts = sorted(entry.start for entry in server.requests(CHAT))
        assert starts[1] >= starts[0] + 0.2  # a model's first request is sent alone
        assert starts[5] >= starts[1] + 0.2  # then four
        assert 10 <= server.max_in_flight() <= 16


class Narrow(TestServer):
    """Answers 503 to whatever comes while six requests are being answered."""

    def answer(self, *args: Any) -> Any:
        from tests.server.texts import ApiError

        with self._lock:
            busy = sum(not entry.status and not entry.end for entry in self.log)
        if busy > 6:
            raise ApiError(503, "overloaded")
        time.sleep(0.03)
        return super().answer(*args)


def test_concurrency_falls_where_the_server_is_busy(engine_for: Make) -> None:
    served = {"m": Member("m", "script:t", engine="scripted")}
    with Narrow(ScriptedEngine({"script:t": SCRIPT}), served) as server:
        engine = engine_for(server)
        replies = engine.respond(many(300))
        assert not any(reply.error for reply in replies)
        # Six fit; without narrowing the window would be as wide as there were good replies.
        assert engine._endpoints["e"].gate.window <= 24


def test_a_budget_of_requests_and_tokens_is_never_exceeded(engine_for: Make) -> None:
    with serve(faults=Faults(error=0.1)) as server:
        engine = engine_for(server, {"requests": 30})
        first = collect(engine, many(60))
        assert "30 of 30 requests" in str(first["error"])
        assert "Raise budget.requests" in str(first["error"])
        assert len(server.requests(CHAT)) == 30
        assert len(first["found"]) == 30 - sum(facts_of(engine)["retries"].values())
        raised = engine_for(server, {"requests": 200})
        raised.restore(engine.facts())
        owed = [r for r in many(60) if r.id not in first["found"]]
        rest = collect(raised, owed)
        assert rest["error"] is None
        assert set(first["found"]) | set(rest["found"]) == {f"r{n}" for n in range(60)}
        assert facts_of(raised)["requests"] == len(server.requests(CHAT))
    with serve() as server:
        engine = engine_for(server, {"tokens": 400}, max_concurrency=3)
        first = collect(engine, many(500))
        counted = facts_of(engine)
        assert 200 < counted["tokens_in"] + counted["tokens_out"] <= 400
        assert "tokens" in str(first["error"])
        assert len(first["found"]) == counted["requests"]
        assert len(server.requests(CHAT)) == counted["requests"]


def test_a_budget_of_money(engine_for: Make) -> None:
    with serve() as server:
        engine = engine_for(server, {"money": 0.002}, price_in=10.0, price_out=10.0)
        first = collect(engine, many(200))
        assert isinstance(first["error"], BudgetError)
        assert 0 < facts_of(engine)["money"] <= 0.002


def test_what_is_answered_when_the_work_is_stopped_is_returned_and_nothing_else_is_sent(
    engine_for: Make,
) -> None:
    with serve(faults=Faults(latency=0.02, error=0.2)) as server:
        first = collect(engine_for(server), many(200), until=20)["found"]
        assert 20 <= len(first) < 100
        well = [e for e in server.requests(CHAT) if e.status == 200]
        assert len(well) == len(first)
        rest = [r for r in many(200) if r.id not in first]
        second = collect(engine_for(server), rest)["found"]
        assert len(first) + len(second) == 200
        assert len([e for e in server.requests(CHAT) if e.status == 200]) == 200


def test_close_gives_up_whatever_is_under_way(engine_for: Make) -> None:
    with serve(faults=Faults(hang=1.0, most=99)) as server:
        engine = engine_for(server)
        engine.start([[r] for r in many(5)])
        time.sleep(0.3)
        started = time.monotonic()
        engine.close()
        assert time.monotonic() - started < 2


def test_a_stopped_server_is_waited_for(engine_for: Make) -> None:
    with serve(faults=Faults(latency=0.01)) as server:
        engine = engine_for(server, patience=20, tries=2)
        work = engine.start([[r] for r in many(80)])
        found = []
        while len(found) < 15:
            found += work.wait(0.2)
        server.stop()
        time.sleep(0.5)
        server.start()
        while work.num_open:
            found += work.wait(0.2)
        assert len(found) == 80
        assert not any(reply.error for _, (reply,) in found)


def test_a_silent_server_ends_the_work_with_a_way_on(engine_for: Make) -> None:
    server = serve()
    with server:
        url = server.url
    engine = engine_for(url, patience=0.5)
    with pytest.raises(EngineError, match="has not answered for") as caught:
        engine.respond(many(10))
    assert url in str(caught.value)
    assert "start it and run the same command again" in str(caught.value)
    with serve() as paused:
        paused.pause()
        engine = engine_for(paused, patience=0.5, timeout=0.3)
        with pytest.raises(EngineError, match="has not answered for"):
            engine.respond(many(10))
        paused.resume()


def test_one_request_that_hangs_does_not_end_the_run(engine_for: Make) -> None:
    with serve(faults=Faults(hang=1.0, most=99)) as server:
        engine = engine_for(server, patience=0.1, timeout=0.2, tries=3)
        (reply,) = engine.respond(many(1))  # the server still lists its models
        assert reply.error.kind == "timeout"


def test_a_refused_key_stops_at_once_and_is_never_shown(engine_for: Make) -> None:
    with serve(key="another") as server:
        engine = engine_for(server, key="TEST_KEY")
        with pytest.raises(EngineError, match="TEST_KEY") as caught:
            engine.respond(many(10))
        assert "sk-very-secret" not in str(caught.value)
        assert len(server.requests(CHAT)) <= 4
        server.faults.queue([Raw(401, {}, {"error": {"message": "bad sk-very-secret-0123456789"}})])
        with pytest.raises(EngineError, match=r"bad \[key\]") as caught:
            engine.respond(many(1))
        told = "".join(traceback.format_exception(caught.value))
        assert "bad [key]" in told
        assert "sk-very-secret" not in told + json.dumps(engine.facts())
        log = [(entry.path, entry.body) for entry in server.requests()]
        assert "sk-very-secret" not in json.dumps(log)
    with pytest.raises(EngineError, match="environment variable NO_KEY is not set"):
        engine_for("http://127.0.0.1:1/v1", key="NO_KEY")


def test_the_right_key_is_sent(engine_for: Make) -> None:
    with serve(key="sk-very-secret-0123456789") as server:
        (reply,) = engine_for(server, key="TEST_KEY").respond(many(1))
        assert reply.text


def test_an_unknown_model_and_an_unknown_endpoint(engine_for: Make) -> None:
    with serve() as server:
        engine = engine_for(server)
        stranger = Member("bob", "other", engine="openai", endpoint="e")
        with pytest.raises(EngineError, match="does not know the model 'other'"):
            engine.respond([request(1, member=stranger)])
        nowhere = Member("bob", "m", engine="openai", endpoint="elsewhere")
        with pytest.raises(EngineError, match="not among endpoints"):
            engine.respond([request(1, member=nowhere)])


def test_an_account_that_is_used_up_stops_at_once(engine_for: Make) -> None:
    with serve() as server:
        error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
        server.faults.queue([Raw(429, {}, {"error": error})])
        with pytest.raises(EngineError, match="is used up"):
            engine_for(server).respond(many(1))


def test_refused_parts_are_left_out_once_and_for_all(engine_for: Make) -> None:
    can = Abilities(max_tokens=False, temperature=False, system=False)
    briefly = Member("ada", "m", engine="openai", endpoint="e", system="Be brief.")
    with serve(can=can) as server:
        engine = engine_for(server)
        replies = engine.respond([request(n, member=briefly) for n in range(30)])
        assert not any(reply.error for reply in replies)
        entries = server.requests(CHAT)
        refused = [json.dumps(e.body, sort_keys=True) for e in entries if e.status == 400]
        assert len(refused) == len(set(refused))
        assert len(refused) == 3  # a model's first request is sent alone
        last = entries[-1].body
        assert last["max_completion_tokens"] == 16
        assert "temperature" not in last
        assert last["messages"] == [{"role": "user", "content": last["messages"][0]["content"]}]
        assert last["messages"][0]["content"].startswith("Be brief.\n\nSay ")
        notes = facts_of(engine)["notes"]
        assert len(notes) == 3
        again = engine_for(server)
        again.restore(engine.facts())
        before = len(server.requests(CHAT))
        again.respond([request(100, member=briefly)])
        assert len(server.requests(CHAT)) == before + 1  # what was learnt is not learnt again


def test_a_refusal_that_nothing_mends_is_a_failure_and_is_not_repeated(engine_for: Make) -> None:
    with serve() as server:
        replies = [
            ({"message": "I do not like it", "param": "logit_bias"}, "refused"),
            ({"message": "This model's maximum context length is 512 tokens"}, "too_long"),
        ]
        engine = engine_for(server)
        for error, kind in replies:
            server.faults.queue([Raw(400, {}, {"error": error})])
            (reply,) = engine.respond(many(1))
            assert reply.error.kind == kind
            assert error["message"] in reply.error.message
            assert "m" in reply.error.message
        assert len(server.requests(CHAT)) == 2


def test_a_reasoning_model_has_no_answer_until_it_gives_one(engine_for: Make) -> None:
    with serve(can=Abilities(reasoning="The user wants")) as server:
        usage = {"prompt_tokens": 9, "completion_tokens": 16}
        message = {"role": "assistant", "content": "", "reasoning_content": "The user wants"}
        choice = {"index": 0, "finish_reason": "length", "message": message}
        server.faults.queue([Raw(200, {}, {"choices": [choice], "usage": usage})])
        engine = engine_for(server)
        (cut,) = engine.respond(many(1))
        assert (cut.text, cut.error.kind) == (None, "truncated")
        assert (cut.num_prompt_tokens, cut.num_completion_tokens) == (9, 16)
        (well,) = engine.respond([request(2)])
        assert well.text in ("yes it is", "no", "perhaps")


def test_no_likelihood(engine_for: Make) -> None:
    with serve() as server:
        (reply,) = engine_for(server).respond([request(1, Likelihood("Paris."))])
        assert reply.error.kind == "refused"
        assert "gives no likelihood" in reply.error.message
        assert server.requests(CHAT) == []


ABILITIES = {
    "prefill": Abilities(),
    "logprobs": Abilities(prefill="refuse"),
    "structured_outputs": Abilities(logprobs="refuse"),
    "written": Abilities(logprobs="ignore", choice="refuse"),
}


@pytest.mark.parametrize("mode", ABILITIES)
def test_the_way_of_asking_for_options_is_found_out_once(engine_for: Make, mode: str) -> None:
    with serve(can=ABILITIES[mode]) as server:
        server.engine._scripts["script:t"]["sampling"][0]["reply"] = "Sure: " + '{"score": 7} .'
        engine = engine_for(server)
        wanted = [request(n, SCORES, f"Give a score {n}") for n in range(6)]
        replies = engine.respond(wanted)
        assert not any(reply.error for reply in replies), replies[0].error
        assert facts_of(engine)["capabilities"] == {"m": mode}
        exact = mode in ("prefill", "logprobs")
        share = 0.75 if exact else 1.0
        for reply in replies:
            assert reply.probabilities["7"] == pytest.approx(share)
            assert sum(reply.probabilities.values()) == pytest.approx(1)
            assert ("written_score" in reply.flags) is not exact
        before = len(server.requests(CHAT))
        engine.respond([request(99, SCORES, "Give a score, once more")])
        assert len(server.requests(CHAT)) == before + 1
        again = engine_for(server)
        again.restore(engine.facts())
        again.respond([request(98, SCORES, "Give a score, at last")])
        assert len(server.requests(CHAT)) == before + 2


def test_options_that_cannot_be_read_are_unreadable(engine_for: Make) -> None:
    with serve() as server:
        engine = engine_for(server, options="written")
        (reply,) = engine.respond([request(1, SCORES, "Say it in words")])
        assert reply.error.kind == "unreadable"
        assert "rather good" in reply.error.message
        assert reply.num_completion_tokens
    with serve(can=Abilities(logprobs="refuse")) as server:
        engine = engine_for(server, options="logprobs")
        (reply,) = engine.respond([request(1, SCORES, "Give a score")])
        assert reply.error.kind == "refused"
        assert "logprobs are not supported" in reply.error.message


def test_extra_fields_reach_the_server(engine_for: Make) -> None:
    with serve() as server:
        extra = {"chat_template_kwargs": {"enable_thinking": False}}
        engine_for(server, extra=extra).respond(many(1))
        assert server.requests(CHAT)[0].body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_conversation_reaches_the_server_as_it_is(engine_for: Make) -> None:
    asked = Request(
        "r", ADA, (Message("system", "s"), Message("user", "u")), Sampling(), "answer", seed=1
    )
    with serve() as server:
        engine_for(server).respond([asked])
        assert [turn["role"] for turn in server.requests(CHAT)[0].body["messages"]] == [
            "system",
            "user",
        ]
