"""User turns: the model goes on from the pre-query part, and ends where the user's turn does."""

from __future__ import annotations

import pytest

from phalanx.chat import ChatFormat
from phalanx.engines.hf import HFEngine
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError
from phalanx.types import Member, Message, Request, Reward, Sampling, UserTurn
from phalanx.weights import Weights
from tests.engines.behind import request as http_request
from tests.engines.behind import serve
from tests.tiny import make_tiny, make_tokenizer

TALK = (Message("user", "say hello"), Message("assistant", "hello"))
STEERED = (Message("system", "be good"),)


@pytest.fixture(scope="module")
def engine() -> HFEngine:
    return HFEngine(Weights(device="cpu", keep_all_loaded=True))


@pytest.fixture(scope="module")
def members(tmp_path_factory) -> dict[str, Member]:
    home = tmp_path_factory.mktemp("user-turn")
    return {
        template: Member(template, str(make_tiny(home / template, template=template, seed=n)),
                         dtype="float32")
        for n, template in enumerate(["chatml", "no_system", "adds_eos", "plain"])
    }  # fmt: skip


def asked(member: Member, want, messages=(), number: int = 0, **more) -> Request:
    return Request(f"u{number}", member, tuple(messages), want, "user_turn", seed=number, **more)


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        ("chatml", (), "<|im_start|>user\n"),
        (
            "chatml",
            TALK,
            "<|im_start|>user\nsay hello<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n"
            "<|im_start|>user\n",
        ),
        ("chatml", STEERED, "<|im_start|>system\nbe good<|im_end|>\n<|im_start|>user\n"),
        ("no_system", (), "<turn:user>"),
        ("no_system", STEERED, "<turn:user>be good\n\n"),
        (
            "plain",
            TALK,
            "### User:\nsay hello\n\n### Assistant:\nhello<|endoftext|>\n\n### User:\n",
        ),
    ],
)
def test_the_prompt_ends_where_the_users_words_begin(template, messages, expected):
    tokenizer = make_tokenizer(template)
    chat = ChatFormat(tokenizer, template)
    ids = [i for i in chat.user_turn_ids(messages) if i not in chat._leading_bos]
    kept = tokenizer.decode(ids)
    assert kept == expected.removeprefix("<|im_start|>") or kept == expected


def test_the_prompt_goes_on_as_if_the_user_had_been_read():
    """The ids are a beginning of those of the same conversation with the user's turn in it."""
    chat = ChatFormat(make_tokenizer("chatml"), "chatml")
    begun = chat.user_turn_ids(TALK)
    whole = chat.prompt_ids([*TALK, Message("user", "what is two")])
    assert whole[: len(begun)] == begun
    assert chat.user_stop_ids == chat.stop_ids


def test_a_user_turn_after_a_user_turn_is_refused():
    chat = ChatFormat(make_tokenizer("chatml"), "chatml")
    with pytest.raises(EngineError, match="after a user turn"):
        chat.user_turn_ids([Message("user", "hi")])


def test_every_template_writes_user_turns(engine, members):
    want = UserTurn(max_new_tokens=12, top_k=20)
    for member in members.values():
        requests = [asked(member, want, TALK * (n % 2), n) for n in range(6)]
        replies = engine.respond(requests)
        assert [reply.request_id for reply in replies] == [r.id for r in requests]
        for reply in replies:
            assert reply.error is None
            assert reply.num_prompt_tokens > 0
            assert not set(engine.weights.chat(member).markers) & set(reply.text.split())
        again = engine.respond(requests[3:4])[0]
        assert again.text == replies[3].text
        assert len({reply.text for reply in replies}) > 1


def test_it_stops_at_the_token_that_ends_a_users_turn(engine, members, monkeypatch):
    """A token that ends user turns alone ends this one and is no part of it."""
    member = members["no_system"]
    chat = engine.weights.chat(member)
    want = UserTurn(temperature=0, max_new_tokens=12)
    decode, rows = chat.decode, []
    monkeypatch.setattr(chat, "decode", lambda ids: rows.append(list(ids)) or decode(ids))
    engine.respond([asked(member, want)])
    row = rows[0]
    assert len(row) > 2
    monkeypatch.setattr(chat, "user_stop_ids", (*chat.stop_ids, row[2]))
    stopped = engine.respond([asked(member, want)])[0]
    cut = row.index(row[2])
    assert stopped.finish_reason == "stop"
    assert stopped.num_completion_tokens == cut
    assert stopped.text == decode(row[:cut])
    sampled = Sampling(temperature=0, max_new_tokens=12)
    answer = engine.respond([asked(member, sampled, [Message("user", "hi")])])[0]
    assert answer.error is None  # assistant turns have their own end tokens


def test_a_template_of_plain_text_ends_at_its_next_mark(engine, members, monkeypatch):
    member = members["plain"]
    chat = engine.weights.chat(member)
    monkeypatch.setattr(chat, "decode", lambda ids: "Name a prime.\n\n### Assistant:\nSeven")
    reply = engine.respond([asked(member, UserTurn(temperature=0, max_new_tokens=4))])[0]
    assert reply.text == "Name a prime.\n\n"
    assert reply.finish_reason == "stop"


def test_a_prompt_that_is_too_long_is_shortened_or_refused(engine, members):
    member = members["chatml"]
    long = " ".join(["the cat sat on a mat"] * 200)
    talk = (Message("user", long), Message("assistant", "hello"))
    want = UserTurn(max_new_tokens=8)
    refused, shortened = engine.respond(
        [asked(member, want, talk, 1), asked(member, want, talk, 2, shortenable=(long,))]
    )
    assert refused.error.kind == "too_long"
    assert shortened.num_shortened_tokens > 0
    assert shortened.error is None


def test_engines_without_a_template_refuse(engine_for):
    with serve() as server:
        engine = engine_for(server)
        want = UserTurn(max_new_tokens=8)
        turn, reward, fine = engine.respond(
            [http_request(1, want), http_request(2, Reward("yes")), http_request(3)]
        )
        assert turn.error.kind == "engine"
        assert "hf" in turn.error.message
        assert "reward" in reward.error.message
        assert fine.error is None
        assert len(server.requests("/v1/chat/completions")) == 1


def test_a_writer_has_no_reward_to_give(engine, members):
    reply = engine.respond([asked(members["chatml"], Reward("yes"), [Message("user", "hi")])])[0]
    assert reply.error.kind == "engine"
    assert "no reward" in reply.error.message


def test_the_script_has_rules_for_user_turns_and_rewards():
    script = {
        "user_turn": [{"when": "^$", "reply": "Begin."}, {"when": "hello", "reply": "And then?"}],
        "reward": [{"when": "Lima", "reward": 2.5}, {"when": ".", "reward": [-1.0]}],
    }
    engine = ScriptedEngine({"script:t": script})
    member = Member("s", "script:t", engine="scripted")
    asks = [
        asked(member, UserTurn()),
        asked(member, UserTurn(), TALK, 1),
        asked(member, Reward("Lima."), [Message("user", "capital of Peru")], 2),
        asked(member, Reward("Rome.", "Lima."), [Message("user", "capital of Peru")], 3),
    ]
    replies = engine.respond(asks)
    assert [reply.text for reply in replies[:2]] == ["Begin.", "And then?"]
    assert [reply.reward for reply in replies[2:]] == [2.5, -3.5]
    default = Member("d", "script:default", engine="scripted")
    invented = ScriptedEngine().respond([asked(default, UserTurn(), (), n) for n in range(8)])
    assert len({reply.text for reply in invented}) > 2
