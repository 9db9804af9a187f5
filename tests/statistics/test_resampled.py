"""Resampling of prompts: sizes, the ratio's error, and the ends of the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from phalanx.statistics import percentiles, resampled_counts, resampled_ratios


def test_every_draw_has_as_many_units():
    counts = list(resampled_counts(7, seed=0, draws=50))
    assert len(counts) == 50
    assert {(len(one), int(one.sum())) for one in counts} == {(7, 7)}
    assert len({tuple(one) for one in counts}) > 40


@pytest.mark.parametrize(("confidence", "low", "high"), [(0.95, 25, 975), (0.5, 250, 750)])
def test_both_tails_are_cut_alike(confidence, low, high):
    assert percentiles(np.arange(1001.0), confidence) == pytest.approx((low, high))


def test_the_error_of_a_mean():
    values = np.random.default_rng(0).normal(size=400)
    found = resampled_ratios(values, np.ones(400), seed=1, draws=2000)
    assert found.std(ddof=1) == pytest.approx(values.std(ddof=1) / math.sqrt(400), rel=0.06)


def test_draws_without_weight_are_left_out():
    """One of two units has weight: a quarter of the draws miss it."""
    found = resampled_ratios([3.0, 0.0], [4.0, 0.0], seed=0, draws=400)
    assert set(found) == {0.75}
    assert 0.68 < len(found) / 400 < 0.82


def test_refusals():
    with pytest.raises(ValueError, match="two draws, got 3 and 1"):
        list(resampled_counts(3, seed=0, draws=1))
    with pytest.raises(ValueError, match="got 0 and 5"):
        list(resampled_counts(0, seed=0, draws=5))
    with pytest.raises(ValueError, match="no unit has weight"):
        resampled_ratios([0.0], [0.0], seed=0, draws=5)
    with pytest.raises(ValueError, match="confidence"):
        percentiles(np.ones(3), 1.0)
