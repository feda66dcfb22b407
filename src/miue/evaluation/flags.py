"""What flags of instances came to, beside what was promised of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from miue.bags.drawing import group_by_patient
from miue.calibration import InstanceFlags, applied_flags
from miue.evaluation.metrics import Metric
from miue.predictions.folder import Predictions

TITLES = {
    "loss": "controlled risk",
    "negative_bags_with_a_flag": "negative bags with a flag",
    "false_positives": "flags of a negative bag, mean",
    "positive_bags_with_a_flag": "positive bags with a flag",
    "sensitivity": "labeled positive instances that are flagged",
    "precision": "labeled flagged instances that are positive",
}
IN_PERCENT = {"negative_bags_with_a_flag", "positive_bags_with_a_flag", "sensitivity", "precision"}


@dataclass(frozen=True)
class FlagEvaluation:
    """Evaluation of flagged instances, of labeled bags that are not known to be out of distribution.

    Attributes:
        rule: which instances are flagged, in words.
        promise: what was promised, in words.
        level: the bound of ``loss``.
        metrics: loss, of the promise; negative_bags_with_a_flag, false_positives (mean flags of a negative bag),
            positive_bags_with_a_flag, and of labeled instances sensitivity and precision.
    """

    rule: str
    promise: str
    level: float
    metrics: Mapping[str, Metric]


def evaluate_flags(predictions: Predictions) -> FlagEvaluation | None:
    """Return what the flags came to; None without flags, or where their rule is not known."""
    rule, instances = applied_flags(predictions.provenance), predictions.instances
    if rule is None or instances is None or not len(instances) or next(instances.parts()).flagged is None:
        return None
    return FlagEvaluation(rule.rule, rule.promise, rule.level, flag_metrics(predictions, rule))


def flag_metrics(predictions: Predictions, rule: InstanceFlags) -> dict[str, Metric]:
    """Return the metrics of flagged instances, which are read part by part.

    Args:
        predictions: with instances that have flags.
        rule: that made the flags.
    """
    assert predictions.instances is not None
    table = predictions.bags
    row_of = {name: row for row, name in enumerate(table.bag_ids.astype(str).tolist())}
    names = ("instances", "labeled", "flags", "positive", "found", "labeled_flags")
    counts = {name: np.zeros(len(table)) for name in names}
    for part in predictions.instances.parts():
        assert part.flagged is not None
        rows = part.rows_of_bags().places(row_of)
        positive = part.judged & (part.labels.values != rule.negative_class)
        columns = (None, part.judged, part.flagged, positive, positive & part.flagged, part.judged & part.flagged)
        for name, column in zip(names, columns, strict=True):
            counts[name] += np.bincount(rows, column, minlength=len(table))
    there = table.judged & (counts["instances"] > 0)
    negative = there & (table.labels.values == rule.negative_class)
    positive_bag = there & ~negative
    any_flag = (counts["flags"] > 0).astype(float)
    flagged, found, of = (float(counts[name][there].sum()) for name in ("labeled_flags", "found", "positive"))
    return {
        "loss": _loss(predictions, rule, counts, negative, positive_bag),
        "negative_bags_with_a_flag": _mean(any_flag[negative], "no labeled negative bag"),
        "false_positives": _mean(counts["flags"][negative], "no labeled negative bag"),
        "positive_bags_with_a_flag": _mean(any_flag[positive_bag], "no labeled positive bag"),
        "sensitivity": Metric(found / of) if of else Metric.undefined("no labeled positive instance"),
        "precision": Metric(found / flagged) if flagged else Metric.undefined("no labeled instance is flagged"),
    }


def _loss(
    predictions: Predictions,
    rule: InstanceFlags,
    counts: Mapping[str, Float64[np.ndarray, "B"]],
    negative: Bool[np.ndarray, "B"],
    positive: Bool[np.ndarray, "B"],
) -> Metric:
    """Return the mean over patients, where the calibration knew patients, of the mean loss of their bags."""
    flags, of = counts["flags"], counts["positive"]
    if rule.guarantee == "recall":
        chosen, loss = positive & (counts["labeled"] == counts["instances"]) & (of > 0), of - counts["found"]
        loss = loss / np.maximum(of, 1)
    elif rule.guarantee == "detection":
        chosen, loss = positive, (flags == 0).astype(float)
    elif rule.guarantee == "false-positives":
        chosen, loss = negative, np.minimum(flags, rule.cap)
    else:
        chosen, loss = negative, (flags > rule.allowed).astype(float)
    patients = predictions.bags.patients
    units = np.arange(len(chosen))
    if rule.patients is not None and patients is not None:
        units = np.unique(group_by_patient(patients).astype(str), return_inverse=True)[1]
    bags = np.bincount(units, chosen)
    mean = np.bincount(units, np.where(chosen, loss, 0.0))[bags > 0] / bags[bags > 0]
    return _mean(mean, "no labeled bag that the promise speaks of")


def _mean(values: Float64[np.ndarray, "n"], reason: str) -> Metric:
    return Metric(float(values.mean())) if len(values) else Metric.undefined(reason)
