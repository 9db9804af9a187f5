"""The small logistic fit against scikit-learn's, and against what must hold at an optimum."""

from __future__ import annotations

import numpy as np
import pytest

from phalanx.benchmarks.logistic import PENALTIES, choose_penalty, fit, losses


def made_up(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = np.stack([np.tanh(rng.normal(size=n)), rng.normal(size=n), np.ones(n)], axis=1)
    chances = 1 / (1 + np.exp(-features @ [-1.2, 0.8, rng.normal()]))
    shares = np.clip(chances + rng.normal(scale=0.2, size=n), 0, 1)
    return features, shares, rng.uniform(0.1, 1, size=n)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_agrees_with_scikit_learn(penalty):
    linear = pytest.importorskip("sklearn.linear_model")
    features, shares, weights = made_up(1)
    model = linear.LogisticRegression(
        C=penalty, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-12,
        max_iter=100_000, random_state=0,
    )  # fmt: skip
    n = len(shares)
    model.fit(
        np.vstack([features, features]),
        np.r_[np.ones(n), np.zeros(n)],
        sample_weight=np.r_[weights * shares, weights * (1 - shares)],
    )
    assert fit(features, shares, weights, penalty) == pytest.approx(model.coef_[0], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.01, 0.05, 1.0, 1e4])
def test_the_optimum_cannot_be_left(seed, penalty):
    """Where a weight is not nought its slope is that of the penalty; where it is, at most that."""
    features, shares, row_weights = made_up(seed)
    weights = fit(features, shares, row_weights, penalty)
    chances = 1 / (1 + np.exp(-features @ weights))
    slope = penalty * features.T @ (row_weights * (chances - shares))
    for value, pull in zip(weights, slope, strict=True):
        if value:
            assert pull == pytest.approx(-np.sign(value), abs=1e-5)
        else:
            assert abs(pull) <= 1 + 1e-9


def test_a_strong_penalty_leaves_nothing():
    assert not fit(*made_up(0), 1e-4).any()


def test_separable_labels_have_a_finite_fit():
    features = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    found = fit(features, np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4), 1e4)
    assert 1 < found[0] < 100


def test_a_start_changes_nothing():
    rows = made_up(2)
    assert fit(*rows, 3.0, start=np.array([5.0, -5.0, 5.0])) == pytest.approx(fit(*rows, 3.0))


def test_the_penalty_is_that_of_the_least_held_out_loss():
    features, shares, weights = made_up(3, n=60)
    fold = np.arange(60)[::-1] % 5
    sums = {}
    for penalty in PENALTIES:
        sums[penalty] = 0.0
        for k in range(5):
            out = fold == k
            found = fit(features[~out], shares[~out], weights[~out], penalty)
            sums[penalty] += float((weights[out] * losses(features[out], shares[out], found)).sum())
    assert choose_penalty(features, shares, weights) == min(sums, key=sums.get)


def test_folds_need_rows():
    with pytest.raises(ValueError, match="5 folds need as many rows, got 3"):
        choose_penalty(np.ones((3, 1)), np.ones(3), np.ones(3))
