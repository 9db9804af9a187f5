"""The paired test of scores that are shares: exact McNemar where they are right and wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from phalanx.statistics import mcnemar_exact, sign_flip_test


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=13),
)
@settings(deadline=None, max_examples=60)
def test_flipping_signs_of_right_and_wrong_is_exact_mcnemar(differences):
    expected = mcnemar_exact(differences.count(-1.0), differences.count(1.0))
    assert sign_flip_test(differences, seed=1) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-1, 1).map(lambda v: round(v, 3)), min_size=2, max_size=8))
@settings(deadline=None, max_examples=40)
def test_flipping_signs_agrees_with_scipy_on_all_patterns(differences):
    if not any(differences):
        assert sign_flip_test(differences, seed=1) == 1.0
        return
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test(differences, seed=1) == pytest.approx(theirs.pvalue, abs=1e-9)


def test_flipping_many_signs_comes_close_to_exact_mcnemar():
    differences = [1.0] * 30 + [-1.0] * 14 + [0.0] * 100
    found = sign_flip_test(differences, seed=3)
    assert found == pytest.approx(mcnemar_exact(14, 30), abs=0.006)
    assert sign_flip_test([0.5] * 40, seed=3) == 1 / 10_001
    with pytest.raises(ValueError, match="empty"):
        sign_flip_test([], seed=1)
