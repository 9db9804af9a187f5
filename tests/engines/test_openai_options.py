"""Options from log-probabilities, whichever way the server's model cuts its text into tokens."""

from __future__ import annotations

import math

import pytest

from phalanx.engines.http_options import asking, read_options, written_option
from phalanx.engines.http_reading import Completion, Token
from phalanx.types import Message, Options

SCORES = Options('{"score": ', tuple(str(n) for n in range(1, 11)))
LETTERS = Options("The better one is ", ("A", "B"))


def token(text: str) -> Token:
    """A token that nothing else could stand for."""
    return place(text, {text: 1.0})


def place(text: str, shares: dict[str, float]) -> Token:
    return Token(text, math.log(shares[text]), tuple((t, math.log(p)) for t, p in shares.items()))


def read(mode: str, tokens: list[Token], want: Options = SCORES, known=None):
    text = "".join(t.text for t in tokens)
    return read_options(mode, want, Completion(text=text, tokens=tuple(tokens)), known)


PREFIX = [token("{"), token('"'), token("score"), token('"'), token(":")]


def test_joint_tokens_after_a_written_prefix() -> None:
    shares = {" 10": 0.5, " 1": 0.2, " 7": 0.2, " seven": 0.1}
    found = read("logprobs", [*PREFIX, place(" 10", shares), token("}")])
    assert found.probabilities["10"] == pytest.approx(0.5 / 0.9)
    assert found.probabilities["1"] == pytest.approx(0.2 / 0.9)
    assert found.mass == pytest.approx(0.9)
    assert found.open == ()


def test_split_digits_where_the_written_token_decides() -> None:
    first = place("1", {"1": 0.6, "7": 0.4})
    second = place("0", {"0": 0.75, "}": 0.25})
    found = read("prefill", [first, second])
    assert found.probabilities["10"] == pytest.approx(0.45)
    assert found.probabilities["1"] == pytest.approx(0.15)
    assert found.probabilities["7"] == pytest.approx(0.4)
    assert sum(found.probabilities.values()) == pytest.approx(1)


def test_split_digits_where_another_token_was_written_ask_once_more() -> None:
    tokens = [place("7", {"7": 0.6, "1": 0.4}), token("}")]
    found = read("prefill", tokens)
    assert found.open == ("1",)
    assert found.probabilities["7"] == 1.0
    assert found.mass == pytest.approx(0.6)
    again = read("prefill", tokens, known={"1": [("0", 0.5), ("}", 0.5)]})
    assert again.open == ()
    assert again.probabilities["10"] == pytest.approx(0.2)
    assert again.probabilities["1"] == pytest.approx(0.2)
    assert again.mass == pytest.approx(1.0)


def test_tokens_that_hold_more_than_the_option() -> None:
    shares = {"7}": 0.5, "7": 0.2, "70": 0.2, "7.5": 0.1}
    found = read("prefill", [place("7}", shares)])
    assert found.probabilities["7"] == 1.0
    assert found.mass == pytest.approx(0.7)


def test_words_with_a_leading_space() -> None:
    shares = {" A": 0.7, " B": 0.2, "A": 0.1}
    found = read("prefill", [place(" A", shares)], LETTERS)
    assert found.probabilities["A"] == pytest.approx(0.8)
    written = [token("The"), token(" better"), token(" one"), token(" is"), place(" A", shares)]
    assert read("logprobs", written, LETTERS).probabilities["B"] == pytest.approx(0.2)


def test_a_place_that_cannot_be_found_has_no_reading() -> None:
    assert "no option was found" in read("logprobs", [token("I"), token(" think"), token(" so")])
    assert "no log-probabilities" in read("logprobs", [])
    bare = [Token("7", 0.0)]
    assert isinstance(read("prefill", bare), str)


def test_after_a_start_that_is_known_to_work_the_place_is_the_start_of_the_reply() -> None:
    tokens = (place("The", {"The": 0.6, "A": 0.3, "B": 0.1}),)
    completion = Completion(text="The", tokens=tokens)
    assert isinstance(read_options("prefill", LETTERS, completion), str)
    found = read_options("prefill", LETTERS, completion, proven=True)
    assert found.probabilities["A"] == pytest.approx(0.75)
    assert found.mass == pytest.approx(0.4)


@pytest.mark.parametrize(
    "written",
    [
        [*PREFIX, token(" "), place("7", {"7": 1.0}), token("}")],
        [place("1", {"1": 0.9, "2": 0.1}), token("."), token(" **")],
        [place("1", {"1": 1.0}), token("st")],
    ],
)
def test_a_reply_that_only_looks_like_an_option_proves_no_start(written: list[Token]) -> None:
    """The start is written again, a list is opened, or a word goes on."""
    assert "no option was found" in read("prefill", written)


def test_options_that_are_hardly_seen_are_not_made_a_score() -> None:
    tokens = (place("The", {"The": 0.9996, "7": 0.0003, "8": 0.0001}),)
    completion = Completion(text="The", tokens=tokens)
    found = read_options("prefill", SCORES, completion, proven=True)
    assert found == "no option is among the likeliest tokens"


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('{"score": 7}', "7"),
        ('{"score":10}', "10"),
        ('Sure! {"score": "8"} is fair.', "8"),
        (" 9. ", "9"),
        ("**3**", "3"),
        ("I give it 7 of 10", ""),
        ('{"score": 7.5}', ""),
        ('{"score": 11}', ""),
        ('{"score": 7} or {"score": 8}', ""),
        ("", ""),
    ],
)
def test_a_written_option(text: str, option: str) -> None:
    assert written_option(SCORES, text) == option


def test_a_written_score_is_flagged_and_an_unreadable_one_is_none() -> None:
    found = read_options("written", SCORES, Completion(text='{"score": 7}'))
    assert found.probabilities == {o: float(o == "7") for o in SCORES.options}
    assert found.flags == ("written_score",)
    assert isinstance(read_options("written", SCORES, Completion(text="rather good")), str)


def test_the_bodies_of_structured_choices() -> None:
    user = (Message("user", "Rate it."),)
    _, fields = asking("structured_outputs", SCORES, user, 300)
    assert fields["max_tokens"] == 300
    assert fields["structured_outputs"]["choice"][-1] == '{"score": 10'
    _, fields = asking("json_schema", SCORES, user, 1)
    assert fields["max_tokens"] > len('{"score": 10}')
    schema = fields["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["score"] == {"type": "integer", "enum": list(range(1, 11))}
    messages, fields = asking("prefill", SCORES, user, 300)
    assert fields["max_tokens"] == 4
    assert messages[-1] == Message("assistant", '{"score": ')
    assert fields["continue_final_message"] is True
    assert fields["add_generation_prompt"] is False
    found = read_options("json_schema", SCORES, Completion(text='{"score": 10}'))
    assert found.probabilities["10"] == 1.0
