"""Bootstrap intervals of the metrics: whole patients, or bags, are drawn again with all that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float64, Int64

from miue.common.errors import out_of_range
from miue.common.values import checked
from miue.evaluation.intervals import Interval, metric_intervals
from miue.evaluation.level import default_metrics
from miue.evaluation.metrics import Owners, WeightedMetric
from miue.evaluation.ranking import BINS, CELLS_AT_ONCE, EXACT_ITEMS
from miue.predictions import PredictionTable

Step = Callable[[int], None]


@checked()
def bootstrap_intervals(
    table: PredictionTable,
    patients: Mapping[str, str],
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    step: Step = lambda done: None,
) -> dict[str, Interval]:
    """Return the intervals of ``default_metrics`` and ue, as ``metric_intervals`` computes them of resamples.

    As many patients as there are are drawn with replacement, each with all its bags, or bags where no patient is
    known; each metric is that of ``evaluate_level`` on what is so drawn. The same seed draws the same at bag and
    instance level and for every method. Of more than ``EXACT_ITEMS`` items, rank metrics are resampled by
    ``BINS`` quantiles of their values (``miue.evaluation.ranking``).

    Reference: Efron & Tibshirani 1993, chapter 13; for clustered items Davison & Hinkley 1997, section 3.8.

    Args:
        table: predictions of bags or of instances.
        patients: that of each bag by its id, as `patients_by_bag` gives them; other bags are drawn by themselves.
        resamples: how often is drawn.
        seed: of the draws.
        level: of the intervals.
        step: called with the number of resamples done since the last call.

    Raises:
        ConfigError: no resample, a level outside (0, 1), or an argument of another type.
    """
    if resamples < 1:
        raise out_of_range("resamples", "at least 1", resamples)
    if not 0 < level < 1:
        raise out_of_range("the level of the intervals", "between 0 and 1", level)
    owners = owners_of_items(table, patients)
    metrics = default_metrics(table, owners)
    draws = resample(metrics, owners, resamples=resamples, seed=seed, step=step)
    return metric_intervals(metrics, draws, owners=owners.count, level=level)


def paired_differences(
    method: Sequence[Mapping[str, Float64[np.ndarray, "resamples"]]],
    reference: Sequence[Mapping[str, Float64[np.ndarray, "resamples"]]],
) -> dict[str, Float64[np.ndarray, "resamples"]]:
    """Return method − reference of every metric that both have, resample by resample; over seeds, of the means.

    Both are resampled with the same seed from predictions of the same bags, so that resample i draws the same bags
    for both and what makes a bag hard for both cancels.

    Reference: Efron & Tibshirani 1993, chapter 13.

    Args:
        method: resampled metrics of each seed of a method.
        reference: those of each seed of the method that it is compared with.
    """
    common = [name for name in method[0] if all(name in one for one in (*method, *reference))]
    return {
        name: np.mean([one[name] for one in method], axis=0) - np.mean([one[name] for one in reference], axis=0)
        for name in common
    }


def owners_of_items(table: PredictionTable, patients: Mapping[str, str]) -> Owners:
    """Return what the items are drawn with: patients, or bags where no patient is known."""
    rows = table.rows_of_bags()
    names, of_bag = np.unique(
        [f"\n{patients[bag]}" if bag in patients else bag for bag in rows.names], return_inverse=True
    )
    return Owners(of_bag[rows.bag], len(names))


def resampled_metrics(
    table: PredictionTable,
    patients: Mapping[str, str],
    *,
    resamples: int,
    seed: int,
    step: Step = lambda done: None,
) -> dict[str, Float64[np.ndarray, "resamples"]]:
    """Return every metric in every resample; NaN where it is undefined there."""
    owners = owners_of_items(table, patients)
    return resample(default_metrics(table, owners), owners, resamples=resamples, seed=seed, step=step)


def resample(
    metrics: Mapping[str, WeightedMetric], owners: Owners, *, resamples: int, seed: int, step: Step
) -> dict[str, Float64[np.ndarray, "resamples"]]:
    """Return every one of ``default_metrics``, and ue, in every resample of the owners."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in metrics}
    for weights in _drawn_weights(owners.count, len(owners.index), resamples, seed):
        for name, metric in metrics.items():
            parts[name].append(metric(weights))
        step(len(weights))
    drawn = {name: np.concatenate(values) for name, values in parts.items()}
    detections = [values for name, values in drawn.items() if name.startswith("ood ")]
    if "confidence" in drawn:
        both = [drawn["confidence"], *detections]
        drawn["ue"] = np.mean(both, axis=0) if detections else np.full(resamples, np.nan)
    return drawn


def patients_by_bag(bags: PredictionTable) -> dict[str, str]:
    """Return the patient of each bag by the bag's id; nothing of bags whose patient is not known."""
    if bags.patients is None:
        return {}
    return {str(bag): str(of) for bag, of in zip(bags.bag_ids, bags.patients, strict=True) if of}


def _drawn_weights(bags: int, items: int, resamples: int, seed: int) -> Iterator[Int64[np.ndarray, "chunk bags"]]:
    """Yield how often each bag was drawn, some resamples at a time; each depends on seed and number alone."""
    chunk = max(1, CELLS_AT_ONCE // max(items if items <= EXACT_ITEMS else BINS, bags))
    for first in range(0, resamples, chunk):
        numbers = range(first, min(first + chunk, resamples))
        drawn = [np.random.default_rng([seed, number]).integers(bags, size=bags) for number in numbers]
        yield np.stack([np.bincount(one, minlength=bags) for one in drawn])
