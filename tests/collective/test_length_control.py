"""Which of a member's own responses are chosen and rejected, by scores and by length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.collective.length_control import best_and_worst, length_controlled

GROUPS = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        st.lists(
            st.one_of(st.none(), st.integers(0, 55).map(lambda s: s / 11)), min_size=n, max_size=n
        ),
        st.lists(st.integers(0, 400), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


def test_the_first_of_several_that_are_alike():
    assert best_and_worst([2.0, 5.0, 5.0, 1.0, 1.0], [True] * 5) == (1, 3)


def test_none_where_nothing_is_better():
    assert best_and_worst([3.0, 3.0, None], [True] * 3) is None
    assert best_and_worst([None, None], [True] * 2) is None
    assert best_and_worst([1.0, 4.0], [True, False]) is None  # the better one may not be chosen


def test_the_published_example_of_a_window():
    """rho 0.32 over 0..5: good from 3.4 on, poor up to 1.6."""
    scores = [5.0, 3.4, 3.39, 1.6, 1.61, 0.0]
    lengths = [900, 100, 5, 800, 5000, 700]
    assert length_controlled(scores, lengths, 0.32, [True] * 6) == (1, 3)


def test_with_rho_0_length_decides_ties_alone():
    scores, lengths = [5.0, 5.0, 4.9, 1.0, 1.0], [30, 20, 1, 40, 50]
    assert length_controlled(scores, lengths, 0.0, [True] * 5) == (1, 4)


def test_from_a_half_on_no_pair_goes_against_the_scores():
    """The shortest is the worst, the longest the best: rho 1 would turn them round."""
    assert length_controlled([5.0, 1.0], [100, 10], 1.0, [True] * 2) is None
    assert length_controlled([5.0, 1.0], [10, 100], 1.0, [True] * 2) == (0, 1)


@given(GROUPS, st.floats(0, 1))
def test_length_control_keeps_its_promises(group, rho):
    scores, lengths, choosable = group
    found = length_controlled(scores, lengths, rho, choosable)
    ends = best_and_worst(scores, choosable)
    if ends is None:
        assert found is None
        return
    high, low = scores[ends[0]], scores[ends[1]]
    assert high == max(s for s, may in zip(scores, choosable, strict=True) if may and s is not None)
    assert low == min(s for s in scores if s is not None)
    if found is None:
        assert rho >= 0.5 - 1e-9
        return
    chosen, rejected = found
    assert choosable[chosen]
    assert scores[chosen] > scores[rejected]
    slack = 1e-9
    assert scores[chosen] >= (1 - rho) * high + rho * low - slack
    assert scores[rejected] <= (1 - rho) * low + rho * high + slack
    for at, score in enumerate(scores):
        if score is None:
            continue
        if choosable[at] and score >= (1 - rho) * high + rho * low + slack:
            assert lengths[chosen] <= lengths[at]
        if score <= (1 - rho) * low + rho * high - slack:
            assert lengths[rejected] >= lengths[at]


@given(GROUPS)
def test_more_control_never_chooses_a_longer_response(group):
    scores, lengths, choosable = group
    found = [length_controlled(scores, lengths, rho / 10, choosable) for rho in range(5)]
    if found[0] is not None:
        chosen = [lengths[pair[0]] for pair in found]
        rejected = [lengths[pair[1]] for pair in found]
        assert chosen == sorted(chosen, reverse=True)
        assert rejected == sorted(rejected)
