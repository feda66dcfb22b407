"""Bootstrap intervals of the metrics: whole patients, or bags, are drawn again with all that is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.evaluation.evaluate import default_measures
from miue.evaluation.metrics import ECE_BINS
from miue.predictions.table import PredictionTable

CELLS_AT_ONCE = 2_000_000  # resamples × items held in memory together
ENOUGH = 0.5  # share of resamples in which a metric must be defined

Step = Callable[[int], None]


@dataclass(frozen=True)
class Interval:
    """The middle of the resampled values of one metric, or the reason why there is none.

    Attributes:
        low: lower end.
        high: upper end.
        defined: resamples in which the metric was defined.
        reason: why there is no interval; empty where there is one.
    """

    low: float | None
    high: float | None
    defined: int
    reason: str = ""


def bootstrap_intervals(
    table: PredictionTable,
    patients: Mapping[str, str],
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    step: Step = lambda done: None,
) -> dict[str, Interval]:
    """Return percentile intervals of accuracy, auroc, ece, brier, nll, aurc, confidence, "ood SET" and ue.

    As many patients as there are are drawn with replacement, each with all its bags, or bags where no patient is
    known; each metric is that of ``evaluate_level`` on what is so drawn. The same seed draws the same at bag and
    instance level and for every method.

    Reference: Efron & Tibshirani 1993, chapter 13; for clustered items Davison & Hinkley 1997, section 3.8.

    Args:
        table: predictions of bags or of instances.
        patients: that of each bag by its id, as `patients_by_bag` gives them; other bags are drawn by themselves.
        resamples: how often is drawn.
        seed: of the draws.
        level: share of the resampled values between both ends.
        step: called with the number of resamples done since the last call.
    """
    values = resampled_metrics(table, patients, resamples=resamples, seed=seed, step=step)
    if len(set(_owners(table, patients))) < 2:
        return {name: Interval(None, None, 0, "one patient or bag alone tells no interval") for name in values}
    return {name: _interval(of_metric, level) for name, of_metric in values.items()}


def resampled_metrics(
    table: PredictionTable,
    patients: Mapping[str, str],
    *,
    resamples: int,
    seed: int,
    step: Step = lambda done: None,
) -> dict[str, Float64[np.ndarray, "resamples"]]:
    """Return every metric in every resample; NaN where it is undefined there."""
    names, bag_of = np.unique(_owners(table, patients), return_inverse=True)
    metrics = _weighted_metrics(table, bag_of, len(names))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in metrics}
    for weights in _drawn_weights(len(names), len(table), resamples, seed):
        for name, metric in metrics.items():
            parts[name].append(metric(weights))
        step(len(weights))
    found = {name: np.concatenate(values) for name, values in parts.items()}
    detections = [found[name] for name in found if name.startswith("ood ")]
    found["ue"] = np.mean([found["confidence"], *detections], axis=0) if detections else np.full(resamples, np.nan)
    return found


def patients_by_bag(bags: PredictionTable) -> dict[str, str]:
    """Return the patient of each bag by the bag's id; nothing of bags whose patient is not known."""
    if bags.patients is None:
        return {}
    return {str(bag): str(of) for bag, of in zip(bags.bag_ids, bags.patients, strict=True) if of}


def _owners(table: PredictionTable, patients: Mapping[str, str]) -> list[str]:
    """Return what each item is drawn with: its patient, or its bag."""
    return [f"\n{patients[bag]}" if bag in patients else bag for bag in table.bag_ids.astype(str).tolist()]


def _interval(values: Float64[np.ndarray, "resamples"], level: float) -> Interval:
    kept = values[np.isfinite(values)]
    if len(kept) < max(2, ENOUGH * len(values)):
        return Interval(None, None, len(kept), f"defined in only {len(kept)} of {len(values)} resamples")
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), len(kept))


def _drawn_weights(bags: int, items: int, resamples: int, seed: int) -> Iterator[Int64[np.ndarray, "chunk bags"]]:
    """Yield how often each bag was drawn, some resamples at a time; each depends on seed and number alone."""
    chunk = max(1, CELLS_AT_ONCE // max(items, bags))
    for first in range(0, resamples, chunk):
        numbers = range(first, min(first + chunk, resamples))
        drawn = [np.random.default_rng([seed, number]).integers(bags, size=bags) for number in numbers]
        yield np.stack([np.bincount(one, minlength=bags) for one in drawn])


Weighted = Callable[[Int64[np.ndarray, "chunk bags"]], Float64[np.ndarray, "chunk"]]


def _weighted_metrics(table: PredictionTable, bag_of: Int64[np.ndarray, "n"], bags: int) -> Mapping[str, Weighted]:
    """Return each metric as a function of how often each bag was drawn."""
    inside, is_in, is_out = table.judged, table.is_ood.in_distribution, table.is_ood.out_of_distribution
    labels, probabilities, bag = table.labels.values[inside], table.probabilities[inside], bag_of[inside]
    correct = probabilities.argmax(1) == labels
    uncertainties = table.uncertainties()
    confidence_measure, ood_measure = default_measures(table)
    confidence, detection = uncertainties[confidence_measure][inside], uncertainties[ood_measure]
    hits = np.eye(probabilities.shape[1])[labels]
    with np.errstate(divide="ignore"):
        losses = -np.log(probabilities[np.arange(len(labels)), labels])
    metrics: dict[str, Weighted] = {
        "accuracy": _mean(correct.astype(np.float64), bag, bags),
        "auroc": _class_auroc(probabilities, labels, bag),
        "ece": _calibration(probabilities.max(1), correct, bag, bags),
        "brier": _mean(((probabilities - hits) ** 2).sum(1), bag, bags),
        "nll": _mean(losses, bag, bags),
        "aurc": _risk_coverage(confidence, correct, bag),
        "confidence": _auroc(confidence, ~correct, bag),
    }
    for name in sorted({str(one) for one in table.ood_sets if one}):
        compared = is_in | (is_out & (table.ood_sets == name))
        metrics[f"ood {name}"] = _auroc(detection[compared], is_out[compared], bag_of[compared])
    return metrics


def _per_bag(values: Float64[np.ndarray, "n"], bag: Int64[np.ndarray, "n"], bags: int) -> np.ndarray:
    return np.bincount(bag, values, minlength=bags)


def _mean(values: Float64[np.ndarray, "n"], bag: Int64[np.ndarray, "n"], bags: int) -> Weighted:
    """A mean over items is a ratio of two weighted sums over bags."""
    infinite = not np.isfinite(values).all()
    total, count = _per_bag(np.nan_to_num(values), bag, bags), _per_bag(np.ones(len(bag)), bag, bags)

    def metric(weights: np.ndarray) -> np.ndarray:
        return np.full(len(weights), np.nan) if infinite else _ratio(weights @ total, weights @ count)

    return metric


def _calibration(
    confidence: Float64[np.ndarray, "n"],
    correct: Bool[np.ndarray, "n"],
    bag: Int64[np.ndarray, "n"],
    bags: int,
) -> Weighted:
    bin_of = np.clip(np.ceil(confidence * ECE_BINS).astype(int) - 1, 0, ECE_BINS - 1)
    gap = np.bincount(bag * ECE_BINS + bin_of, correct - confidence, minlength=bags * ECE_BINS)
    gaps, count = gap.reshape(bags, ECE_BINS), _per_bag(np.ones(len(bag)), bag, bags)
    return lambda weights: _ratio(np.abs(weights @ gaps).sum(1), weights @ count)


def _class_auroc(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], bag: Int64[np.ndarray, "n"]
) -> Weighted:
    classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    each = [_auroc(probabilities[:, c], labels == c, bag) for c in classes]
    return lambda weights: np.mean([one(weights) for one in each], axis=0)


def _auroc(
    values: Float64[np.ndarray, "n"], positive: Bool[np.ndarray, "n"], bag: Int64[np.ndarray, "n"]
) -> Weighted:
    """Chance that a positive item has the higher value, ties counting half, items weighted as their bag."""
    if positive.sum() > len(positive) / 2:  # the rarer kind is looked up among the sorted others
        return _auroc(-values, ~positive, bag)
    order = np.argsort(values[~positive], kind="stable")
    others, bag_others, bag_positive = values[~positive][order], bag[~positive][order], bag[positive]
    below = np.searchsorted(others, values[positive], side="left")
    upto = np.searchsorted(others, values[positive], side="right")

    def metric(weights: np.ndarray) -> np.ndarray:
        running = np.zeros((len(weights), len(others) + 1))
        np.cumsum(weights[:, bag_others], axis=1, out=running[:, 1:])
        of_positive = weights[:, bag_positive]
        won = (of_positive * (running[:, below] + running[:, upto])).sum(1) / 2
        return _ratio(won, running[:, -1] * of_positive.sum(1))

    return metric


def _risk_coverage(
    uncertainty: Float64[np.ndarray, "n"], correct: Bool[np.ndarray, "n"], bag: Int64[np.ndarray, "n"]
) -> Weighted:
    """Area under risk–coverage; a group of m tied items with e errors after s items with E adds a closed form.

    Σ_{j=1}^{m} (E + e·j/m) / (s + j) = (E − e·s/m)·(H(s + m) − H(s)) + e, H the harmonic numbers.
    """
    order = np.argsort(uncertainty, kind="stable")
    bag_sorted, wrong = bag[order], ~correct[order]
    starts = np.unique(uncertainty[order], return_index=True)[1]

    def metric(weights: np.ndarray) -> np.ndarray:
        if not len(order):
            return np.full(len(weights), np.nan)
        drawn = weights[:, bag_sorted]
        size = np.add.reduceat(drawn, starts, axis=1)
        errors = np.add.reduceat(drawn * wrong, starts, axis=1)
        end, errors_before = size.cumsum(1), errors.cumsum(1) - errors
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, end.max() + 1))])
        rise = harmonic[end] - harmonic[end - size]
        share = errors * (end - size) / np.maximum(size, 1)
        return _ratio(((errors_before - share) * rise + errors).sum(1), end[:, -1])

    return metric


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(below > 0, above / below, np.nan), np.float64)
