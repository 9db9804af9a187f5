from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import brier, expected_calibration_error, reliability, wilson

ROWS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def test_brier_by_hand() -> None:
    assert brier([1, 0, 0.5], [True, False, True]) == pytest.approx(0.25 / 3)
    assert brier([0.5] * 4, [1, 0, 0, 0]) == 0.25
    assert brier([0, 1], [1, 0]) == 1


def test_reliability_by_hand() -> None:
    said = [0.9, 0.1, 0.2, 0.8, 0.3, 0.6]
    came = [True, False, False, True, True, False]
    low, high = reliability(said, came, bins=2)
    assert low[:3] == (0.1, 0.3, 3)
    assert low.predicted == pytest.approx(0.2)
    assert low.observed == pytest.approx(1 / 3)
    assert low.interval == wilson(1, 3)
    assert high[:3] == (0.6, 0.9, 3)
    # |1/3 - 0.2| and |2/3 - 0.7667|, half of each.
    ece = expected_calibration_error(said, came, bins=2)
    assert ece == pytest.approx((1 / 3 - 0.2 + 2.3 / 3 - 2 / 3) / 2)


def test_bins_hold_equal_numbers() -> None:
    said = np.random.default_rng(0).random(1003) ** 4  # crowded near 0
    table = reliability(said.tolist(), [0] * 1003, bins=10)
    assert [row.n for row in table] == pytest.approx([100.3] * 10, abs=1)
    assert all(row.high <= after.low for row, after in itertools.pairwise(table))


@given(rows=ROWS, bins=st.integers(1, 15), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_equal_probabilities_share_a_bin_in_any_order(rows, bins: int, seed: int) -> None:
    said, came = zip(*rows, strict=True)
    table = reliability(said, came, bins)
    assert len(table) <= bins
    assert sum(row.n for row in table) == len(rows)
    assert all(row.high < after.low for row, after in itertools.pairwise(table))
    mixed = random.Random(seed).sample(rows, len(rows))
    again = reliability(*zip(*mixed, strict=True), bins)
    assert [row[:3] for row in again] == [row[:3] for row in table]
    assert 0 <= expected_calibration_error(said, came, bins) <= 1
    # Jensen: within one bin the mean squared error is at least the squared mean error.
    assert expected_calibration_error(said, came, 1) ** 2 <= brier(said, came) + 1e-12


def test_a_forecaster_who_knows_and_one_who_boasts() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random(50_000)
    came = (rng.random(50_000) < truth).tolist()
    assert expected_calibration_error(truth.tolist(), came) < 0.015
    boasts = np.where(truth > 0.5, 1.0, 0.0)
    assert expected_calibration_error(boasts.tolist(), came) == pytest.approx(0.25, abs=0.01)
    assert brier(truth.tolist(), came) == pytest.approx(1 / 6, abs=0.005)


def test_chance_alone_makes_the_error_that_the_text_says() -> None:
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(60):
        said = np.clip(rng.normal(0.5, 0.01, 400), 0, 1)
        came = rng.random(400) < said
        errors.append(expected_calibration_error(said.tolist(), came.tolist()))
    assert np.mean(errors) == pytest.approx(0.8 * math.sqrt(0.25 * 10 / 400), rel=0.1)


@pytest.mark.parametrize(
    ("said", "came", "bins", "message"),
    [
        ([], [], 10, "empty"),
        ([0.5], [1, 0], 10, "1 probabilities, but 2"),
        ([70.0], [1], 10, "must lie in \\[0, 1\\]"),
        ([0.5], [0.5], 10, "0 or 1"),
        ([math.nan], [1], 10, "nan at place 0"),
        ([0.5], [1], 0, "bins must be"),
    ],
)
def test_calibration_refuses(said, came, bins, message) -> None:
    with pytest.raises(ValueError, match=message):
        expected_calibration_error(said, came, bins)
