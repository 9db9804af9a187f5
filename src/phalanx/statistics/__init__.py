"""Intervals, tests, agreement and fits: numbers in, numbers out.

=============  ====================================================================================
file           what it holds
=============  ====================================================================================
shares         Wilson, exact McNemar, sign test, Holm, what n items can show, pass@k
paired         two scores of the same items: the test, and what so many items could have shown
resampling     bootstraps: paired items, clusters, ratios; the sign-flip test
means          the mean of clustered rows, and of strata; seeds apart from items
scores         intervals of scores and of their differences, and of means over tasks
agreement      Cohen's kappa, Krippendorff's alpha, how many independent judges a panel is worth
calibration    Brier score, reliability table, expected calibration error
pairwise       Bradley-Terry with ties, weights and covariates
biases         first place and length
=============  ====================================================================================

A quantity that does not exist for the rows at hand (0/0) is None, never 0 and never NaN.

scipy takes most of a second to load, and most verbs never come to need it: the functions that do
import it, and not their files.
"""

from __future__ import annotations

from phalanx.statistics.agreement import (
    Level,
    PanelWorth,
    cohen_kappa,
    effective_judges,
    krippendorff_alpha,
)
from phalanx.statistics.base import Interval
from phalanx.statistics.biases import (
    LengthPreference,
    PositionBias,
    Slot,
    length_preference,
    position_bias,
)
from phalanx.statistics.calibration import Bin, brier, expected_calibration_error, reliability
from phalanx.statistics.means import (
    Mean,
    SeedsAndItems,
    clustered_mean,
    seeds_apart_from_items,
    stratified_mean,
)
from phalanx.statistics.paired import (
    PairedTest,
    detectable,
    detectable_mean,
    found_with,
    least_pvalue,
    mean_test,
    paired_test,
)
from phalanx.statistics.pairwise import Battle, BradleyTerry, bradley_terry
from phalanx.statistics.resampling import (
    bootstrap,
    by_cluster,
    paired_bootstrap,
    percentiles,
    resampled_counts,
    resampled_ratios,
    sign_flip_test,
)
from phalanx.statistics.scores import (
    difference_interval,
    mean_of_parts,
    score_interval,
    tango,
)
from phalanx.statistics.shares import (
    holm,
    mcnemar_exact,
    minimum_detectable,
    pass_at_k,
    sign_test,
    wilson,
)

__all__ = [
    "Battle",
    "Bin",
    "BradleyTerry",
    "Interval",
    "LengthPreference",
    "Level",
    "Mean",
    "PairedTest",
    "PanelWorth",
    "PositionBias",
    "SeedsAndItems",
    "Slot",
    "bootstrap",
    "bradley_terry",
    "brier",
    "by_cluster",
    "clustered_mean",
    "cohen_kappa",
    "detectable",
    "detectable_mean",
    "difference_interval",
    "effective_judges",
    "expected_calibration_error",
    "found_with",
    "holm",
    "krippendorff_alpha",
    "least_pvalue",
    "length_preference",
    "mcnemar_exact",
    "mean_of_parts",
    "mean_test",
    "minimum_detectable",
    "paired_bootstrap",
    "paired_test",
    "pass_at_k",
    "percentiles",
    "position_bias",
    "reliability",
    "resampled_counts",
    "resampled_ratios",
    "score_interval",
    "seeds_apart_from_items",
    "sign_flip_test",
    "sign_test",
    "stratified_mean",
    "tango",
    "wilson",
]
