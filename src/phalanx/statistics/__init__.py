"""Intervals, tests, agreement and fits: numbers in, numbers out.

=============  ====================================================================================
file           what it holds
=============  ====================================================================================
shares         Wilson, exact McNemar, sign test, Holm, what n items can show, pass@k
resampling     bootstraps: paired items, clusters, strata
means          the mean of clustered rows; seeds apart from items
agreement      Cohen's kappa, Krippendorff's alpha, how many independent judges a panel is worth
calibration    Brier score, reliability table, expected calibration error
pairwise       Bradley-Terry with ties, weights and covariates
biases         first place and length
=============  ====================================================================================

A quantity that does not exist for the rows at hand (0/0) is None, never 0 and never NaN.
"""

from __future__ import annotations

from phalanx.statistics.base import Interval
from phalanx.statistics.resampling import paired_bootstrap
from phalanx.statistics.shares import holm, mcnemar_exact, minimum_detectable, wilson

__all__ = ["Interval", "holm", "mcnemar_exact", "minimum_detectable", "paired_bootstrap", "wilson"]
