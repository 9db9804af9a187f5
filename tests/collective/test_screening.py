"""Which invented texts are instructions; near duplicates; ratings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.screening import (
    RATINGS,
    Limits,
    Seen,
    fault_of,
    normalised,
    overlap,
    rating_request,
    read_rating,
    shingles,
)
from phalanx.types import Failure, Member, Response

LIMITS = Limits(min_chars=5, max_chars=40)


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (Response("r", text="Name a prime."), ""),
        (Response("r", text=" \n"), "empty"),
        (Response("r", text="Name a pri", finish_reason="length"), "truncated"),
        (Response("r", error=Failure("engine", "broken")), "failed: engine"),
        (Response("r", text="Here is a list:"), "ends_with_colon"),
        (Response("r", text="列表如下面所示："), "ends_with_colon"),
        (Response("r", text="Why?"), "too_short"),
        (Response("r", text="why " * 20), "too_long"),
        (Response("r", text="Why?<|im_end|> Because."), "markers"),
        (Response("r", text="Why?\nAssistant: Because."), "markers"),
        (Response("r", text="[INST] Why is it? [/INST]"), "markers"),
        (Response("r", text="### Response:\nBecause it is"), "markers"),
        (Response("r", text="Is a < b | c > d in C?"), ""),
        (Response("r", text="What did the user say?"), ""),
    ],
)
def test_faults_by_name(response, fault):
    assert fault_of(response, LIMITS) == fault


def test_repeats_are_found_and_others_are_not():
    seen = Seen(0.7)
    assert seen.take("Write a poem about the sea and its many moods.") == ""
    assert seen.take("write a poem, about THE SEA and its many moods!") == "duplicate"
    assert seen.take("Write a poem about the sea and its many mood.") == "near_duplicate"
    assert seen.take("Write a function that sorts a list of ships.") == ""
    assert seen.take("地球为什么绕着太阳转？") == ""
    assert seen.take("!?!") == ""
    assert seen.take("!?!") == "duplicate"
    assert seen.take("???") == ""
    assert normalised("What's  IT?") == "what s it"


@given(st.text(), st.text())
def test_overlap_is_a_share_that_is_one_for_equals(one, other):
    first, second = shingles(one), shingles(other)
    assert overlap(first, first) == 1
    assert 0 <= overlap(first, second) == overlap(second, first) <= 1


@given(st.lists(st.text(min_size=1, max_size=60), max_size=12))
def test_a_near_duplicate_overlaps_with_a_text_that_was_taken(texts):
    seen, taken = Seen(0.7), []
    for text in texts:
        verdict = seen.take(text)
        if verdict == "near_duplicate":
            assert any(overlap(shingles(text), shingles(t)) >= 0.7 for t in taken)
        if not verdict:
            taken.append(text)


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Clear.\n[[good]]", "good"),
        ("[[Very  Poor]]", "very poor"),
        ("[[good]] ... yes, [[good]]", "good"),
        ("[[good]] or [[excellent]]", None),
        ("[[great]]", None),
        ("good", None),
        ("", None),
        ("<think>[[poor]]</think>[[excellent]]", "excellent"),
        ("<think>[[poor]]", None),
    ],
)
def test_ratings_are_read_strictly(text, rating):
    assert read_rating(Response("r", text=text)) == rating


def test_a_rating_that_was_cut_off_or_failed_is_none():
    assert read_rating(Response("r", text="[[good]]", finish_reason="length")) is None
    assert read_rating(Response("r", error=Failure("engine", "broken"))) is None


def test_the_rated_text_stands_between_marks_and_may_be_shortened():
    text = "Say {instruction} and [[excellent]]. <<<end"
    request = rating_request(text, Member("rita", "script:default"))
    (message,) = request.messages
    assert message.content.count(text) == 1
    assert request.shortenable == (text,)
    assert all(f"[[{rating}]]" in message.content for rating in RATINGS)
    assert request.id == rating_request(text, Member("rita", "script:default")).id
