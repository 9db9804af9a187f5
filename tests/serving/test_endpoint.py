"""The endpoint as the official client sees it, over a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request

import openai
import pytest

from phalanx.serving.bodies import Refused, read_chat, read_text
from phalanx.serving.desk import open_desk
from tests.scripts import write_pool
from tests.serving.conftest import RULES, client, endpoint

ASKED = [{"role": "user", "content": "What is the capital of Peru?"}]
HELLO = [{"role": "user", "content": "hello dog"}]


def streamed(chunks) -> tuple[str, list, str | None]:
    """(text, log-probabilities, the end) of a chat's stream."""
    text, scored, end = "", [], None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            scored += choice.logprobs.content if choice.logprobs else []
            end = choice.finish_reason or end
    return text, scored, end


# A scripted pool ---------------------------------------------------------------------------------


def test_a_client_sees_the_members_and_the_collective(scripted):
    with client(scripted) as talk:
        assert [model.id for model in talk.models.list()] == ["ada", "bob", "cleo", "collective"]
        assert talk.models.retrieve("bob").id == "bob"
        made = talk.chat.completions.create(model="ada", messages=ASKED)
    assert made.choices[0].message.content == "Lima is the capital."
    assert made.choices[0].finish_reason == "stop"
    assert made.id.startswith("chatcmpl-")
    assert made.usage.prompt_tokens == 6
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens


def test_a_text_that_hit_the_limit_says_so(scripted):
    with client(scripted) as talk:
        made = talk.chat.completions.create(
            model="bob", messages=[{"role": "user", "content": "a long one"}], n=2, stop="four"
        )
        whole = talk.completions.create(model="bob", prompt=["a long one", "short"])
    assert [choice.message.content for choice in made.choices] == ["one two three "] * 2
    assert made.choices[0].finish_reason == "stop"
    assert [choice.finish_reason for choice in whole.choices] == ["length", "stop"]
    assert whole.choices[1].text == "I think it is Lima."


def test_judges_who_write_nothing_are_asked_for_no_votes(tmp_path):
    pool = write_pool(tmp_path, ["ada", "bob", "cleo"], RULES)
    pool.write_text(pool.read_text() + "judge: {protocol: likelihood}\nbest_of_n: {member: bob}\n")
    with open_desk(pool) as desk:
        assert desk.about("collective").startswith("best_of_n: ")


def test_a_council_without_a_vote_names_another_collective(tmp_path):
    lost = RULES.replace("reply: '[[1]]'", "reply: none").replace("reply: '[[2]]'", "reply: none")
    pool = write_pool(tmp_path, ["ada", "bob", "cleo"], lost)
    with (
        endpoint(pool) as place,
        client(place) as talk,
        pytest.raises(openai.APIStatusError, match=r"no vote.*--collective best_of_n"),
    ):
        talk.chat.completions.create(model="collective", messages=ASKED)


def test_the_collective_answers_by_its_council(scripted):
    assert scripted.desk.about("collective") == "council: ada, bob, cleo"
    with client(scripted) as talk:
        made = talk.chat.completions.create(model="collective", messages=ASKED)
        chunks = talk.chat.completions.create(model="collective", messages=ASKED, stream=True)
        assert streamed(chunks)[0] == made.choices[0].message.content
    assert made.choices[0].message.content == "Lima, of course."
    assert made.usage.prompt_tokens > 500  # those of the votes, too


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({"model": "eve"}, 404, "model_not_found", "there are ada, bob, cleo, collective"),
        ({"model": "ada@9"}, 404, "model_not_found", "NAME@ITERATION"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, 400, None, "role is ['user']"),
        ({"stop": [["x"]]}, 400, None, "stop is [['x']]; expected a text"),
        ({"stop": {"x": 1}}, 400, None, "stop is {'x': 1}; expected a text"),
        ({"messages": []}, 400, None, "expected a list of messages"),
        ({"tools": [{"type": "function"}]}, 400, "unsupported_parameter", "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, 400, "unsupported_parameter", "leave it"),
        ({"temperature": 3, "n": 0}, 400, None, "n is 0; expected a whole number from 1"),
        ({"logprobs": True}, 400, None, "gives no log-probabilities"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400, None, "only parts of type text",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, None, "there are no tools here"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "x"}]}, 400, None, "user's turn"),
        ({"messages": [{"role": "user", "content": "broken"}]}, 500, "engine", "breaks here"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_in_openais_words(scripted, body, status, code, said):
    with client(scripted) as talk:
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError) as caught:
                talk.post(
                    "/chat/completions", cast_to=object,
                    body={"model": "ada", "messages": ASKED, "stream": stream} | body,
                )  # fmt: skip
            assert caught.value.status_code == status
            assert caught.value.code == code
            # What fails again however often it is sent is not to be sent again.
            retried = caught.value.response.headers.get("x-should-retry")
            assert retried == ("false" if status == 500 else None)
            assert said in str(caught.value)


def test_every_fault_of_a_body_is_in_one_message():
    with pytest.raises(Refused) as caught:
        read_chat({"model": 3, "messages": ASKED, "temperature": "hot", "n": True, "tools": [1],
                   "stream_options": {"include_usage": True}}, 8)  # fmt: skip
    for said in ("model is 3", "temperature is 'hot'", "n is True", "tools", "goes with stream"):
        assert said in str(caught.value)


def test_fields_that_change_nothing_are_let_pass():
    wish = read_chat(
        {"model": "ada", "user": "me", "store": True, "frequency_penalty": 0, "tools": [],
         "response_format": {"type": "text"}, "logit_bias": {}, "max_tokens": None,
         "messages": [{"role": "developer", "content": [{"type": "text", "text": "Be"},
                                                        {"type": "text", "text": " brief."}]},
                      {"role": "user", "content": "half \ud800 a pair", "name": "me"}]}, 8,
    )  # fmt: skip
    assert [(turn.role, turn.content) for turn in wish.prompts[0]] == [
        ("system", "Be brief."), ("user", "half \ufffd a pair"),
    ]  # fmt: skip
    assert wish.fits
    assert wish.sampling.max_new_tokens == 8


def test_prompts_come_in_four_forms():
    forms = ["one", ["one", "two"], [5, 6], [[5, 6], [7]]]
    read = [read_text({"model": "ada", "prompt": form}).prompts for form in forms]
    assert read == [("one",), ("one", "two"), ((5, 6),), ((5, 6), (7,))]
    for wrong in (None, [], [[]], 5, ["one", 2], [True]):
        with pytest.raises(Refused, match="prompt"):
            read_text({"model": "ada", "prompt": wrong})


def raw(url: str, body: bytes | None = None, **headers: str) -> tuple[int, dict]:
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        content = error.read()
        return error.code, json.loads(content) if content.startswith(b"{") else {}


def test_a_body_that_is_none_and_a_place_that_is_none(scripted):
    assert raw(f"{scripted.root}health") == (200, {"status": "ok"})
    assert raw(scripted.root)[1]["base_url"] == "/v1"
    for body in (b"{", b"[]", b"\xff", b'{"model": NaN}'):
        status, found = raw(f"{scripted.url}/chat/completions", body)
        assert (status, found["error"]["type"]) == (400, "invalid_request_error")
    status, found = raw(f"{scripted.url}/embeddings", b"{}")
    assert status == 404
    assert "/v1/chat/completions" in found["error"]["message"]
    assert raw(f"{scripted.url}/models", host="evil.example")[0] == 421


def test_a_key_is_wanted_where_one_was_given(tmp_path):
    pool = write_pool(tmp_path, ["ada", "bob"], RULES)
    with endpoint(pool, api_key="s3cret", collective="none") as place:
        with client(place, "wrong") as talk, pytest.raises(openai.AuthenticationError) as caught:
            talk.models.list()
        assert caught.value.code == "invalid_api_key"
        assert "s3cret" not in str(caught.value)
        with client(place, "s3cret") as talk:
            assert [model.id for model in talk.models.list()] == ["ada", "bob"]
        assert raw(f"{place.url}/models")[0] == 401
        assert raw(f"{place.root}health")[0] == 200


# Real, tiny models -------------------------------------------------------------------------------


def test_ten_at_once_get_what_each_would_get_alone(tiny):
    wishes = [(name, seed) for seed in range(4) for name in ("ada", "bob", "collective")][:10]

    def asked(name: str, seed: int) -> dict:
        return {"model": name, "messages": HELLO, "seed": seed, "max_tokens": 12}

    with client(tiny) as talk:
        alone = [talk.chat.completions.create(**asked(*wish)) for wish in wishes]

    async def crowd() -> list[str]:
        async with openai.AsyncOpenAI(base_url=tiny.url, api_key="none", max_retries=0) as many:

            async def one(name: str, seed: int) -> str:
                chunks = await many.chat.completions.create(**asked(name, seed), stream=True)
                return streamed([chunk async for chunk in chunks])[0]

            return await asyncio.gather(*(one(*wish) for wish in wishes))

    assert asyncio.run(crowd()) == [made.choices[0].message.content for made in alone]
    assert len({made.choices[0].message.content for made in alone}) > 5


def test_a_stream_is_the_text_in_pieces(tiny):
    wish = {"model": "bob", "messages": HELLO, "seed": 5, "max_tokens": 24, "logprobs": True,
            "top_logprobs": 2}  # fmt: skip
    with client(tiny) as talk:
        whole = talk.chat.completions.create(**wish)
        chunks = list(
            talk.chat.completions.create(
                **wish, stream=True, stream_options={"include_usage": True}
            )
        )
    text, scored, end = streamed(chunks)
    choice = whole.choices[0]
    assert len(chunks) > 4
    assert (text, end) == (choice.message.content, choice.finish_reason)
    assert [token.token for token in scored] == [one.token for one in choice.logprobs.content]
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []


def test_two_choices_of_a_stream_are_told_apart(tiny):
    wish = {"model": "ada", "prompt": ["the cat", "a dog"], "n": 2, "seed": 1, "max_tokens": 6}
    with client(tiny) as talk:
        whole = talk.completions.create(**wish)
        texts: dict[int, str] = {}
        for chunk in talk.completions.create(**wish, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert [texts[at] for at in range(4)] == [choice.text for choice in whole.choices]
    assert len(set(texts.values())) == 4


def test_a_text_ends_before_a_string_that_ends_it(tiny):
    wish = {"model": "ada", "prompt": "the cat sat", "temperature": 0, "max_tokens": 20}
    with client(tiny) as talk:
        text = talk.completions.create(**wish).choices[0].text
        stop = text[6:9]
        cut = talk.completions.create(**wish, stop=[stop, "zzzz"], logprobs=0).choices[0]
        pieces = talk.completions.create(**wish, stop=stop, stream=True)
        shown = "".join(chunk.choices[0].text for chunk in pieces)
    assert cut.text == shown == text[: text.index(stop)]
    assert cut.finish_reason == "stop"
    assert len("".join(cut.logprobs.tokens)) < len(text)


def test_what_does_not_fit_is_refused_with_numbers(tiny):
    with client(tiny) as talk:
        with pytest.raises(openai.BadRequestError, match="the context holds 1024") as caught:
            talk.chat.completions.create(model="ada", messages=HELLO, max_tokens=1020)
        assert caught.value.code == "context_length_exceeded"
        # Without a number as much is written as has room.
        made = talk.chat.completions.create(
            model="ada", messages=[{"role": "user", "content": "0" * 1005}], seed=2
        )
        assert made.usage.total_tokens <= 1024
        with pytest.raises(openai.BadRequestError, match="knows 0 to"):
            talk.completions.create(model="ada", prompt=[5, 99999])
        with pytest.raises(openai.BadRequestError, match="reads no prompt as it is"):
            talk.completions.create(model="collective", prompt="the cat")


@pytest.fixture
def watched(tiny):
    """Batches of orders that were fulfilled: whether each was given up, and what it holds."""
    engine = tiny.desk._workshop.engine("hf")
    write = engine.fulfil
    done: list[list[tuple[bool, int]]] = []

    def fulfil(orders):
        made = write(orders)
        both = zip(orders, made, strict=True)
        done.append([(order.given_up(), one.num_completion_tokens) for order, one in both])
        return made

    engine.fulfil = fulfil
    yield done
    del engine.fulfil


def until(true, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_client_that_leaves_frees_its_place(tiny, watched):
    # 512 texts of 900 tokens would take minutes.
    wish = {"model": "ada", "prompt": [[5, 6, 7]] * 64, "n": 8, "max_tokens": 900}
    with client(tiny, timeout=0.3) as talk, pytest.raises(openai.APITimeoutError):
        talk.completions.create(**wish)
    with client(tiny, timeout=60) as talk:
        talk.completions.create(model="bob", prompt="the cat", max_tokens=2)
    until(lambda: sum(map(len, watched)) == 513)
    every = [one for batch in watched for one in batch]
    assert sum(given_up and not count for given_up, count in every) > 256


def test_a_client_that_leaves_a_stream_frees_its_place(tiny, watched):
    wish = {"model": "ada", "prompt": [[5, 6, 7]] * 16, "max_tokens": 1000, "temperature": 2}
    with client(tiny) as talk:
        stream = talk.completions.create(**wish, stream=True)
        next(iter(stream))
        stream.close()
    # Some may have ended by themselves before; who went on was stopped.
    until(lambda: sum(map(len, watched)) == 16)
    assert any(given_up and not count for batch in watched for given_up, count in batch)
