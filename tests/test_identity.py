"""Ids are the same however they are made, and differ where anything differs."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from phalanx.identity import (
    canonical_json,
    content_id,
    derive_seed,
    joined_id,
    joined_seed,
    messages_json,
    quoted,
)
from phalanx.types import Message, Options, Sampling

PARTS = st.lists(
    st.one_of(
        st.text(st.characters()), st.integers(), st.floats(allow_nan=False), st.none(),
        st.lists(st.text(max_size=5), max_size=3),
        st.dictionaries(st.text(max_size=5), st.integers(), max_size=4),
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@given(PARTS)
def test_canonical_json_is_what_the_standard_library_writes(parts):
    expected = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_json(parts) == expected
    assert canonical_json(tuple(parts)) == expected


@given(PARTS)
def test_joined_texts_give_the_ids_and_seeds_of_their_parts(parts):
    texts = [canonical_json(part) for part in parts]
    assert joined_id(*texts) == content_id(*parts)
    assert joined_seed(*texts) == derive_seed(*parts)


@given(PARTS, PARTS)
def test_other_parts_have_other_ids(one, other):
    same = canonical_json(one) == canonical_json(other)
    assert (content_id(*one) == content_id(*other)) == same


@given(st.lists(st.builds(Message, st.sampled_from(["system", "user"]), st.text())))
def test_messages_have_one_json(messages):
    assert messages_json(messages) == canonical_json(messages)


def test_records_and_equal_numbers_that_are_written_differently():
    assert canonical_json(Options("a", ("1", "2"))) == (
        '{"kind":"options","options":["1","2"],"prefix":"a"}'
    )
    assert quoted('say "é"\n') == canonical_json('say "é"\n')
    # 0 == 0.0, yet they are written differently: nothing may remember JSON by equality.
    assert Sampling(temperature=0) == Sampling(temperature=0.0)
    assert canonical_json(Sampling(temperature=0)) != canonical_json(Sampling(temperature=0.0))


def test_lone_surrogates_have_ids():
    assert content_id("\ud800") != content_id("\ud801")
