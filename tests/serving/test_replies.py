"""Shapes of replies that no client of the other tests comes across, and bytes of tokens."""

from __future__ import annotations

import json
import math

import pytest

from phalanx.engines.orders import Order, Token, Written, cut_at, open_end
from phalanx.engines.token_pieces import Offsets, Pieces, piece_of
from phalanx.serving.bodies import read_text
from phalanx.serving.replies import LEAST, Replies, dumped, event
from phalanx.types import Member, Sampling
from tests.tiny import make_tokenizer


def token(text: bytes, logprob: float, *top: tuple[bytes, float]) -> Token:
    return Token(1, piece_of(text), logprob, tuple((piece_of(one), value) for one, value in top))


def test_a_probability_of_nothing_has_a_number_in_json():
    replies = Replies(read_text({"model": "ada", "prompt": "x", "logprobs": 2}))
    written = Written(
        "né",
        "stop",
        (token(b"n", -math.inf, (b"m", -0.1), (b"o", -math.inf)), token(b"\xc3", -1.0),
                       token(b"\xa9", -2.0)),
    )  # fmt: skip
    (choice,) = json.loads(dumped(replies.whole([written])))["choices"]
    found = choice["logprobs"]
    assert found["token_logprobs"] == [LEAST, -1.0, -2.0]
    assert found["top_logprobs"][0] == {"m": -0.1, "n": LEAST, "o": LEAST}
    assert found["tokens"][1:] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert found["text_offset"] == [0, 1, 1]


def test_no_text_breaks_a_line_of_a_stream():
    replies = Replies(read_text({"model": "ada", "prompt": "x", "stream": True}))
    sent = event(replies.piece(0, "a\n\ndata: [DONE]\r\u2028\u0085 ", ()))
    assert sent.count(b"\n") == 2
    assert sent.isascii()
    assert json.loads(sent[len("data: ") :])["choices"][0]["text"].startswith("a\n\ndata")


@pytest.mark.parametrize("text", ["the cat – naïve, 42 🙂", " two  blanks\n\tand more"])
def test_bytes_of_tokens_joined_are_those_of_the_text(text):
    for tokenizer in (make_tokenizer(), sentences()):
        pieces = Pieces(tokenizer)
        ids = tokenizer(text)["input_ids"]
        joined = b"".join(pieces(id_).bytes for id_ in ids).decode()
        assert joined.strip(" ") == text.strip(" ")  # a leading blank is SentencePiece's own
        places = Offsets()([pieces(id_) for id_ in ids])
        parts = Offsets()
        assert [place for id_ in ids for place in parts([pieces(id_)])] == places
        assert places == sorted(places)
        assert places[-1] < len(joined)


def sentences():
    """A tokenizer after SentencePiece's manner: a mark for blanks, tokens for single bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    letters = "\u2581abcdefghijklmnopqrstuvwxyz,"
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
    vocabulary |= {letter: 257 + at for at, letter in enumerate(letters)}
    vocabulary["\u2581the"] = len(vocabulary)
    made = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def test_a_string_that_ends_a_text_is_held_back_until_it_is_whole():
    text, stop = "one END two <|x|> three", ("END", "<|x|>")
    assert cut_at(text, stop) == 4
    shown = ""
    for size in range(len(text) + 1):
        if cut_at(text[:size], stop) is not None:
            break
        shown = text[: size - open_end(text[:size], stop)]
        assert "one END".startswith(shown)
        assert "E" not in shown
    assert shown == "one "


def test_what_an_order_holds_tells_a_conversation_from_a_prompt():
    member = Member("ada", "base")
    assert not Order(member, "text", Sampling()).is_chat
    assert not Order(member, (5, 6), Sampling()).is_chat
