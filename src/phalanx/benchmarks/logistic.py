"""A logistic fit of a few weights on soft labels, with an L1 penalty: exact, in plain numpy.

The objective is that of scikit-learn's and LIBLINEAR's L1-regularised logistic regression without
an intercept: ``sum |b| + C * sum_i weight_i * loss_i``. It is solved by proximal Newton steps down
to rounding, where LIBLINEAR stops early at its tolerance of 1e-4.
"""

from __future__ import annotations

import math

import numpy as np

PENALTIES = tuple(float(value) for value in np.logspace(-4, 4, 10))
"""The values of C that scikit-learn's LogisticRegressionCV tries by default."""
_STEPS = 100
_CLOSE = 1e-11


def losses(features: np.ndarray, shares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Log loss of each row against its soft label, shape [rows], in nats."""
    logits = features @ weights
    return np.logaddexp(0.0, logits) - shares * logits


def fit(
    features: np.ndarray,
    shares: np.ndarray,
    row_weights: np.ndarray,
    penalty: float,
    start: np.ndarray | None = None,
    *,
    close: float = _CLOSE,
) -> np.ndarray:
    """The weights, shape [columns], for features [rows, columns] and soft labels in [0, 1].

    ``penalty`` is C: the larger, the weaker the penalty. ``start`` speeds up a fit whose solution
    is nearly known; steps below ``close`` end it. Raises ArithmeticError where they do not settle.
    """
    weights = np.zeros(features.shape[1]) if start is None else start.astype(float)
    best = _objective(features, shares, row_weights, penalty, weights)
    for _ in range(_STEPS):
        slope, curve = _parabola(features, shares, row_weights, penalty, weights)
        target = _lowest(slope, curve, weights, close / 10)
        step = 1.0
        while True:
            tried = weights + step * (target - weights)
            value = _objective(features, shares, row_weights, penalty, tried)
            if value <= best + 1e-12 * abs(best) or step < 1e-9:
                break
            step /= 2
        change = float(np.abs(tried - weights).max())
        weights, best = tried, value
        if change < close:
            return weights
    raise ArithmeticError(
        f"the logistic fit did not settle in {_STEPS} steps (last change {change:.2g}); "
        "look for columns that are copies of each other"
    )


def _objective(
    features: np.ndarray,
    shares: np.ndarray,
    row_weights: np.ndarray,
    penalty: float,
    weights: np.ndarray,
) -> float:
    loss = float(row_weights @ losses(features, shares, weights))
    return float(np.abs(weights).sum()) + penalty * loss


def _parabola(
    features: np.ndarray,
    shares: np.ndarray,
    row_weights: np.ndarray,
    penalty: float,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Slope [columns] and curvature [columns, columns] of the loss at ``weights``."""
    from scipy.special import expit

    chances = expit(features @ weights)
    slope = penalty * (features.T @ (row_weights * (chances - shares)))
    bend = row_weights * chances * (1 - chances)
    curve = penalty * ((features * bend[:, None]).T @ features)
    return slope, curve + 1e-12 * np.eye(len(weights))


def _lowest(slope: np.ndarray, curve: np.ndarray, weights: np.ndarray, close: float) -> np.ndarray:
    """The lowest point of the parabola plus the L1 term, by coordinate descent."""
    # Plain numbers: with three columns they are many times faster than arrays.
    here, point, slopes = weights.tolist(), weights.tolist(), slope.tolist()
    rows = curve.tolist()
    for _ in range(1000):
        moved = 0.0
        for j, row in enumerate(rows):
            pull = slopes[j] + sum(c * (p - h) for c, p, h in zip(row, point, here, strict=True))
            pull -= row[j] * point[j]
            value = -math.copysign(max(abs(pull) - 1.0, 0.0), pull) / row[j]
            moved = max(moved, abs(value - point[j]))
            point[j] = value
        if moved < close:
            break
    return np.asarray(point)


def choose_penalty(
    features: np.ndarray, shares: np.ndarray, row_weights: np.ndarray, *, num_folds: int = 5
) -> float:
    """The C of :data:`PENALTIES` with the least weighted log loss on held-out rows.

    Rows are dealt to the folds in turn from the last one; equal losses take the smaller C. Raises
    ValueError for fewer rows than folds.
    """
    if len(shares) < num_folds:
        raise ValueError(f"{num_folds} folds need as many rows, got {len(shares)}")
    fold = np.arange(len(shares))[::-1] % num_folds
    sums = np.zeros(len(PENALTIES))
    for number in range(num_folds):
        out = fold == number
        kept = (features[~out], shares[~out], row_weights[~out])
        weights = None
        for place, penalty in enumerate(PENALTIES):
            weights = fit(*kept, penalty, start=weights, close=1e-6)
            sums[place] += (row_weights[out] * losses(features[out], shares[out], weights)).mean()
    return PENALTIES[int(np.argmin(sums))]
