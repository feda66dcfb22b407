"""What tests of promises share: how many runs, the band of a count, and predictions from arrays."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom, binomtest

from miue.bags import Labels, OodFlags
from miue.distributions import PredictiveDistribution
from miue.predictions import Predictions, PredictionTable

RUNS = 400


def within_band(successes: int, runs: int, chance: float) -> bool:
    """Whether a count is one that ``chance`` explains: inside the central 99.9 % of the binomial."""
    return bool(binom.ppf(0.0005, runs, chance) <= successes <= binom.ppf(0.9995, runs, chance))


def exact_interval(errors: int, count: int) -> tuple[float, float]:
    """The 95 % interval of Clopper and Pearson, by scipy."""
    interval = binomtest(errors, count).proportion_ci(0.95, "exact")
    return interval.low, interval.high


def predictions_of(
    distribution: PredictiveDistribution,
    labels: np.ndarray,
    *,
    known: np.ndarray | None = None,
    is_ood: np.ndarray | None = None,
    scores: dict[str, np.ndarray] | None = None,
) -> Predictions:
    count = len(labels)
    ood = OodFlags.all_in(count) if is_ood is None else OodFlags.of(is_ood)
    table = PredictionTable(
        distribution=distribution,
        bag_ids=np.array([f"bag_{i}" for i in range(count)], object),
        labels=Labels(labels.astype(np.int64), np.ones(count, bool) if known is None else known),
        is_ood=ood,
        ood_sets=np.where(ood.values, "foreign", "").astype(object),
        scores=scores or {},
    )
    return Predictions(table, None)
