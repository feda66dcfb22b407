"""FROC: how many positive instances are found at how many false positives per negative bag."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np

from miue.calibration import applied_flags
from miue.calibration.instance_flags import PROBABILITY, instance_scores
from miue.common.values import checked
from miue.evaluation.metrics import Metric
from miue.predictions.folder import Predictions, check_predictions
from miue.predictions.provenance import Provenance

RATES = tuple(Fraction(2) ** power for power in range(-2, 4))
"""False positives per negative bag: 1/4, 1/2, 1, 2, 4, 8."""

TITLES = {"froc": "FROC score, mean of the six"} | {
    f"sensitivity_at_{float(rate):g}": f"Sensitivity at {rate} false positive{'s' * (rate != 1)} per negative bag"
    for rate in RATES
}
NO_INSTANCE_LABEL = (
    "no labeled positive instance: give labels of instances with "
    "--instance-labels TABLE, in Python instance_labels"
)
NO_NEGATIVE_BAG = "no labeled bag of the negative class, so that no false positives can be counted"


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
    check_predictions(predictions)
    table, instances = predictions.bags, predictions.instances
    negative = table.judged & (table.labels.values == negative_class)
    if instances is None or not len(instances):
        return _undefined("no instances were predicted")
    sizes = instances.bag_sizes()
    negative &= np.array([sizes.get(name, 0) > 0 for name in table.bag_ids.astype(str)], bool)
    count = int(negative.sum())
    if not count:
        return _undefined(NO_NEGATIVE_BAG)
    names, most = set(table.bag_ids[negative].astype(str).tolist()), floor(RATES[-1] * count) + 1
    false_positives, positives = np.zeros(0), [np.zeros(0)]
    for part in instances.parts():
        bags = part.rows_of_bags()
        in_negative = np.array([name in names for name in bags.names], bool)[bags.bag]
        is_positive = part.judged & (part.labels.values != negative_class)
        if (is_positive & in_negative).any():
            bag = str(part.bag_ids[(is_positive & in_negative).argmax()])
            names_of = predictions.provenance.classes
            called = f" {names_of[negative_class]!r}" if negative_class < len(names_of) else ""
            return _undefined(
                f"bag {bag!r} of the negative class{called} has an instance that is labeled positive"
            )
        scores = instance_scores(part, score, negative_class)
        positives.append(scores[is_positive])
        candidates = np.append(false_positives, scores[in_negative & ~part.is_ood.out_of_distribution])
        false_positives = np.sort(candidates)[::-1][:most]  # further ones are beyond the last rate
    found = np.concatenate(positives)
    if not len(found):
        return _undefined(NO_INSTANCE_LABEL)
    sensitivities = []
    for rate in RATES:
        allowed = floor(rate * count)
        above = found > false_positives[allowed] if len(false_positives) > allowed else np.ones(len(found), bool)
        sensitivities.append(Metric(float(above.mean())))
    return dict(zip(TITLES, (Metric.mean_of(sensitivities), *sensitivities), strict=True))


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
    return dict.fromkeys(TITLES, Metric.undefined(reason))
