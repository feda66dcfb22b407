"""How well positive instances are found: FROC, and what flags came to beside what was promised of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from jaxtyping import Bool, Float64

from miue.bags import group_by_patient
from miue.calibration import PROBABILITY, InstanceFlags, applied_flags, instance_scores
from miue.common.values import checked
from miue.evaluation.metrics import Metric
from miue.predictions import Predictions, Provenance

RATES = tuple(Fraction(2) ** power for power in range(-2, 4))
"""False positives per negative bag: 1/4, 1/2, 1, 2, 4, 8."""
FROC_TITLES = {"froc": "FROC score, mean of the six"} | {
    f"sensitivity_at_{float(rate):g}": f"Sensitivity at {rate} false positive{'s' * (rate != 1)} per negative bag"
    for rate in RATES
}
FLAG_TITLES = {
    "loss": "controlled risk",
    "negative_bags_with_a_flag": "negative bags with a flag",
    "false_positives": "flags of a negative bag, mean",
    "positive_bags_with_a_flag": "positive bags with a flag",
    "sensitivity": "labeled positive instances that are flagged",
    "precision": "labeled flagged instances that are positive",
}
FLAGS_IN_PERCENT = {"negative_bags_with_a_flag", "positive_bags_with_a_flag", "sensitivity", "precision"}


@checked()
def froc(predictions: Predictions, *, negative_class: int = 0, score: str = PROBABILITY) -> dict[str, Metric]:
    """Return the sensitivity at 1/4 to 8 false positives per negative bag, and "froc", the mean of the six.

    Every instance of a negative bag at or above a threshold is a false positive; the sensitivity is the share of
    all labeled positive instances at or above it. At each rate the lowest threshold counts whose false positives
    are at most the rate on average, so that instances that tie at a threshold pass together or not at all. Items
    known to be out of distribution are left out. Parts are read one after another.

    Reference: Bunch et al. 1978; the rates of CAMELYON16 (Ehteshami Bejnordi et al. 2017), which interpolates
    between thresholds and counts lesions instead of instances.

    Args:
        predictions: of bags and instances.
        negative_class: number of the class whose bags have negative instances only.
        score: "probability" (1 − p of the negative class), or a measure or score of the instances.

    Raises:
        ConfigError: something else than predictions, a number and a name.
        DataError: instances without this score.
    """
    table, instances = predictions.bags, predictions.instances
    negative = table.judged & (table.labels.values == negative_class)
    if instances is None or not len(instances):
        return _undefined("no instances were predicted")
    sizes = instances.bag_sizes()
    negative &= np.array([sizes.get(name, 0) > 0 for name in table.bag_ids.astype(str)], bool)
    count = int(negative.sum())
    if not count:
        return _undefined("no labeled bag of the negative class, so that no false positives can be counted")
    names, most = set(table.bag_ids[negative].astype(str).tolist()), floor(RATES[-1] * count) + 1
    false_positives, positives = np.zeros(0), [np.zeros(0)]
    for part in instances.parts():
        bags = part.rows_of_bags()
        in_negative = np.array([name in names for name in bags.names], bool)[bags.bag]
        is_positive = part.judged & (part.labels.values != negative_class)
        if (is_positive & in_negative).any():
            bag = str(part.bag_ids[(is_positive & in_negative).argmax()])
            classes = predictions.provenance.classes
            called = f" {classes[negative_class]!r}" if negative_class < len(classes) else ""
            return _undefined(
                f"bag {bag!r} of the negative class{called} has an instance that is labeled positive"
            )
        scores = instance_scores(part, score, negative_class)
        positives.append(scores[is_positive])
        candidates = np.append(false_positives, scores[in_negative & ~part.is_ood.out_of_distribution])
        false_positives = np.sort(candidates)[::-1][:most]  # further ones are beyond the last rate
    found = np.concatenate(positives)
    if not len(found):
        return _undefined("no labeled positive instance")
    sensitivities = []
    for rate in RATES:
        allowed = floor(rate * count)
        above = found > false_positives[allowed] if len(false_positives) > allowed else np.ones(len(found), bool)
        sensitivities.append(Metric(float(above.mean())))
    return dict(zip(FROC_TITLES, (Metric.mean_of(sensitivities), *sensitivities), strict=True))


def evaluate_froc(predictions: Predictions) -> dict[str, Metric]:
    """Return the FROC of the flags' score and negative class, else of the probability and the model's class.

    Where the model names no negative class, it is the first.
    """
    rule, negative_class = applied_flags(predictions.provenance), applied_negative_class(predictions.provenance)
    return froc(predictions, negative_class=negative_class, score=PROBABILITY if rule is None else rule.score)


def applied_negative_class(provenance: Provenance) -> int:
    """Return the number of the negative class of the flags, else of the model, else 0."""
    rule = applied_flags(provenance)
    return (provenance.negative_class or 0) if rule is None else rule.negative_class


def _undefined(reason: str) -> dict[str, Metric]:
    return dict.fromkeys(FROC_TITLES, Metric.undefined(reason))


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
