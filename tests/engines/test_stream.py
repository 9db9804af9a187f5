"""Streaming: the pieces joined are the response's text, on every engine and whatever goes wrong."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.schema import VllmSettings
from phalanx.engines.hf import HFEngine
from phalanx.engines.http_secret import NO_SECRET, Secret
from phalanx.engines.http_stream import Lines, Listener, Pieces, settled
from phalanx.engines.pooled import PooledEngine
from phalanx.engines.scripted import ScriptedEngine
from phalanx.engines.streaming import Shown, TokenStream
from phalanx.engines.vllm import ServedPool, VllmEngine
from phalanx.errors import BudgetError, EngineError
from phalanx.types import Likelihood, Member, Message, Request, Sampling, UserTurn
from phalanx.weights import Weights
from tests.engines.behind import CHAT, facts_of, request
from tests.server import Abilities, Faults, Raw, TestServer
from tests.tiny import make_adapter, make_tiny

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def member(tmp_path_factory) -> Member:
    home = tmp_path_factory.mktemp("stream")
    base = make_tiny(home / "base")
    adapter = make_adapter(base, home / "adapter")
    return Member("ada", str(base), str(adapter), dtype="float32")


@pytest.fixture(scope="module")
def engine() -> HFEngine:
    return HFEngine(Weights(device="cpu"))


def ask(member: Member, seed: int = 0, text: str = "say hello", **more) -> Request:
    want = Sampling(**{"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 24, **more})
    return Request(f"s{seed}", member, (Message("user", text),), want, "answer", seed=seed)


# In this process


def test_hf_streams_what_it_would_have_answered(engine, member):
    """Random tokens of a byte-level vocabulary: most of them are halves of characters."""
    several = 0
    for seed in range(8):
        pieces: list[str] = []
        response = engine.stream(ask(member, seed), pieces.append)
        assert response == engine.respond([ask(member, seed)])[0]
        assert "".join(pieces) == response.text
        assert "" not in pieces
        several += len(pieces) > 3
    assert several > 4


def test_hf_stream_that_does_not_fit_is_a_failure_and_shows_nothing(engine, member):
    pieces: list[str] = []
    response = engine.stream(ask(member, text="the cat " * 600), pieces.append)
    assert response.error.kind == "too_long"
    assert pieces == []


def test_only_sampling_is_streamed(engine, member):
    with pytest.raises(ValueError, match="likelihood"):
        engine.stream(replace(ask(member), want=Likelihood("x")), print)


class Bytes:
    """A chat format whose tokens are bytes, decoded as byte fallback does: all of a run or none."""

    def __init__(self) -> None:
        self.tokenizer = self

    def convert_ids_to_tokens(self, token: int) -> str:
        return f"<0x{token:02X}>" if token >= 128 else chr(token)

    def decode(self, ids) -> str:
        text, run = "", []
        for token in [*ids, None]:
            if token is not None and token >= 128:
                run.append(token)
                continue
            try:
                text += bytes(run).decode()
            except UnicodeDecodeError:
                text += "\ufffd" * len(run)
            run = []
            text += "" if token is None else chr(token)
        return text


@given(st.text(max_size=12), st.integers(0, 3))
@settings(deadline=None)
def test_characters_of_several_tokens_are_never_shown_in_halves(text, cut):
    """Any text in bytes, cut off anywhere at its end."""
    data = list(text.replace("\x00", "0").encode())
    data = data[: len(data) - cut] if cut else data
    pieces: list[str] = []
    stream = TokenStream(Bytes(), [], pieces.append)
    for count in range(1, len(data) + 1):
        stream(data[:count])
    final = Bytes().decode(data)
    stream.finish(final)
    assert "".join(pieces) == final


def test_shown_never_takes_back():
    pieces: list[str] = []
    shown = Shown(pieces.append)
    for text in ("a", "ab", "x", "ab", "abc"):
        shown.up_to(text)
    assert pieces == ["a", "b", "c"]


def test_scripted_streams_word_by_word():
    script = {"sampling": [{"when": ".", "reply": "  one two\n\nthree "}]}
    engine = ScriptedEngine({"script:t": script})
    pieces: list[str] = []
    asked = ask(Member("s", "script:t", engine="scripted"))
    response = engine.stream(asked, pieces.append)
    assert "".join(pieces) == response.text == "  one two\n\nthree "
    assert len(pieces) == 4


def test_pooled_streams_in_this_process(engine, member):
    pooled = PooledEngine(engine, None, None, None)
    pieces: list[str] = []
    response = pooled.stream(ask(member, 3), pieces.append)
    assert "".join(pieces) == response.text == engine.respond([ask(member, 3)])[0].text


# Endpoints

LONG = "Lima is the capital of Peru, née «Ciudad de los Reyes» 🦙, since 1535.\nIt is large. "


def served(reply: str, **options) -> TestServer:
    script = {"sampling": [{"when": ".", "reply": reply}]}
    served_by = {"m": Member("m", "script:t", engine="scripted")}
    return TestServer(ScriptedEngine({"script:t": script}), served_by, **options)


def streamed(engine, number: int = 1):
    pieces: list[str] = []
    return engine.stream(request(number, Sampling(max_new_tokens=200)), pieces.append), pieces


def test_an_endpoint_streams_and_is_counted(engine_for):
    with served(LONG) as server:
        engine = engine_for(server)
        response, pieces = streamed(engine)
        assert "".join(pieces) == response.text == LONG
        assert len(pieces) > 5
        assert (response.finish_reason, response.flags) == ("stop", ())
        facts = facts_of(engine)
        assert response.num_completion_tokens > 5
        assert facts["tokens_out"] == response.num_completion_tokens
        whole = engine.respond([request(1, Sampling(max_new_tokens=200))])[0]
        assert whole == response
        body = server.requests(CHAT)[0].body
        assert body["stream"] is True
        assert "stream" not in server.requests(CHAT)[1].body


@pytest.mark.parametrize(
    "can", [Abilities(stream_options=False), Abilities(stream=False, stream_options=False)]
)
def test_a_server_that_does_not_stream_is_asked_without(can, engine_for):
    with served(LONG, can=can) as server:
        engine = engine_for(server)
        for _ in range(2):
            response, pieces = streamed(engine)
            assert "".join(pieces) == response.text == LONG
        sent = server.requests(CHAT)
        assert [entry.status for entry in sent].count(200) == 2
        assert sent[-1].status == sent[-2].status == 200  # learnt once


def test_reasoning_is_not_shown(engine_for):
    for reply, can in (
        (f"<think>First, {LONG}</think>\n\n{LONG}", Abilities()),
        (LONG, Abilities(reasoning="I think of Lima")),
    ):
        with served(reply, can=can) as server:
            response, pieces = streamed(engine_for(server))
            assert "".join(pieces) == response.text == LONG
            assert response.flags == ()


def test_reasoning_without_a_beginning_is_flagged_and_then_known(engine_for):
    with served("Let me see.\n</think>\n\nLima it is.") as server:
        engine = engine_for(server)
        response, pieces = streamed(engine)
        assert response.text == "Lima it is."
        assert "shown_otherwise" in response.flags
        assert pieces
        response, pieces = streamed(engine, 2)
        assert "".join(pieces) == response.text == "Lima it is."
        assert response.flags == ()


def test_a_key_is_never_shown(engine_for):
    with served(f"My key is {KEY}, they say, {KEY[:10]} or so.", key=KEY) as server:
        response, pieces = streamed(engine_for(server, key="TEST_KEY"))
        assert "".join(pieces) == response.text == f"My key is [key], they say, {KEY[:10]} or so."


@given(st.lists(st.sampled_from([*"ab <>/\n", "think", KEY, KEY[:9], "🦙", "é", "</think>"])))
@settings(deadline=None)
def test_what_is_shown_begins_the_text_wherever_it_is_cut(parts):
    """One character at a time; with a key in it, and marks that are no reasoning."""
    from phalanx.collective.ownwords import split_reasoning

    text = "x" + "".join(parts)
    secret = Secret(KEY)
    pieces: list[str] = []
    listener = Listener(pieces.append, secret)
    for character in text:
        listener.hear(character)
    assert KEY not in "".join(pieces)
    final, reasoned = split_reasoning(secret.hide_long(text))
    flags = listener.finish(final)
    assert ("".join(pieces) == final) == (flags == ())
    assert reasoned or not flags


def test_a_stream_that_breaks_off_before_a_word_is_asked_again(engine_for):
    with served("Lima.", faults=Faults(cut_connection=1.0, most=1)) as server:
        response, pieces = streamed(engine_for(server, tries=3))
        assert "".join(pieces) == response.text == "Lima."
        assert len(server.requests(CHAT)) == 2


def test_a_stream_that_breaks_off_in_the_middle_is_a_failure(engine_for):
    with served(LONG * 3, faults=Faults(cut_connection=1.0, most=1)) as server:
        engine = engine_for(server, tries=3)
        response, pieces = streamed(engine)
        assert response.text is None
        assert response.error.kind == "engine"
        assert LONG.startswith("".join(pieces)[:20])
        assert pieces
        assert len(server.requests(CHAT)) == 1  # nothing is shown twice
        assert facts_of(engine)["tokens_out"] > 0  # the server may have done all the work


def test_a_busy_server_is_asked_again_before_the_first_piece(engine_for):
    with served("Lima.", faults=Faults(busy=1.0, retry_after=0.01, most=2)) as server:
        response, pieces = streamed(engine_for(server))
        assert "".join(pieces) == response.text == "Lima."


def test_an_error_among_the_events_is_that_error(engine_for):
    event = 'data: {"error": {"message": "out of cards", "code": 500}}\n\ndata: [DONE]\n\n'
    faults = Faults()
    faults.queue([Raw(200, {"Content-Type": "text/event-stream"}, event)] * 2)
    with served("Lima.", faults=faults) as server:
        response, pieces = streamed(engine_for(server, tries=2))
        assert "out of cards" in response.error.message
        assert pieces == []


def test_a_budget_and_a_refused_key_hold_for_streams(engine_for):
    with served(LONG) as server:
        engine = engine_for(server, budget={"tokens": 100})
        with pytest.raises(BudgetError):
            streamed(engine)
        assert server.requests(CHAT) == []
    with served(LONG, key="another-key-0123456789") as server, pytest.raises(EngineError):
        streamed(engine_for(server, key="TEST_KEY"))


def test_who_stops_listening_gives_the_request_up(engine_for):
    class Stop(BaseException):
        pass

    def show(piece: str) -> None:
        raise Stop

    with served(LONG) as server:
        engine = engine_for(server)
        with pytest.raises(Stop):
            engine.stream(request(1, Sampling(max_new_tokens=200)), show)
        spent = facts_of(engine)  # at once: nobody waits for the loop after this
        assert spent["requests"] == 1
        assert spent["tokens_out"] > 0  # the server may have done all the work
        response, pieces = streamed(engine, 2)
        assert "".join(pieces) == response.text


@given(
    st.text(st.sampled_from("a~! \n\x7fé\u3000😀\ud83d\ude00\udbff"), max_size=12)
    | st.text(st.characters(), max_size=12)
)
def test_a_word_or_character_that_has_not_ended_waits(raw):
    assert settled(raw) == re.sub(r"(?:[!-~]+|[\ud800-\udbff])\Z", "", raw)


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_lines_are_the_same_however_they_come(data, cuts):
    lines, places = Lines(), [0, *sorted(cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    found = [line for chunk in (*chunks, Lines.END) for line in lines.take(chunk)]
    assert found == [line.decode("utf-8", "replace") for line in data.split(b"\n")]


def test_events_are_put_together_as_one_body():
    heard: list[str] = []
    pieces = Pieces(heard.append)
    for line in (
        ": a comment",
        'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}',
        'data: {"choices": [{"delta": {"content": "Li"}}]}',
        "data: {broken",
        'data: {"choices": [{"delta": {"content": "ma", "reasoning_content": "hm"}}]}',
        'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}',
        'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}',
    ):
        pieces.take(line)
    assert pieces.whole
    assert heard == ["", "Li", "ma"]
    assert pieces.body() == (
        b'{"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "choices": [{"index": 0, '
        b'"message": {"role": "assistant", "content": "Lima", "reasoning_content": "hm"}, '
        b'"finish_reason": "stop"}]}'
    )
    assert Listener(print, NO_SECRET).began is False


# vLLM


def test_vllm_streams_as_hf_answers(engine, member):
    served_by = {"base": replace(member, name="base", adapter=None, engine="hf")}
    with TestServer(HFEngine(Weights(device="cpu")), served_by) as server:
        settings = VllmSettings(url=server.url)
        here = replace(member, engine="vllm")
        vllm = VllmEngine(settings, ServedPool((here,)))
        for seed in range(3):
            pieces: list[str] = []
            asked = replace(ask(here, seed), want=Sampling(temperature=0, max_new_tokens=12))
            response = vllm.stream(asked, pieces.append)
            expected = engine.respond([replace(asked, member=member)])[0]
            assert response == expected
            assert "".join(pieces) == response.text
        turns = [
            Request(f"u{n}", here, talk, UserTurn(temperature=0, max_new_tokens=9), "user_turn")
            for n, talk in enumerate([(), (Message("user", "a"), Message("assistant", "b"))])
        ]
        expected_turns = engine.respond([replace(turn, member=member) for turn in turns])
        assert vllm.respond(turns) == expected_turns
        assert all(turn.text for turn in expected_turns)
        server.loras.clear()  # somebody started it anew
        assert vllm.stream(asked, lambda _: None) == expected
        too_long = vllm.stream(ask(here, text="the cat " * 600), lambda _: None)
        assert too_long.error.kind == "too_long"
        choices = ({"text": "the cat"}, {"text": " sat", "finish_reason": "stop"})
        events = [f"data: {json.dumps({'choices': [choice]})}" for choice in choices]
        server.faults.queue([Raw(200, {}, "\n\n".join(events))])  # no line feed at the end
        pieces = []
        assert vllm.stream(asked, pieces.append).text == "".join(pieces) == "the cat sat"
        server.faults.queue([Raw(500, {}, {"error": {"message": "out of cards"}})])
        broken = vllm.stream(asked, lambda _: None)
        assert broken.error.transient
        assert "out of cards" in broken.error.message
        vllm.close()
