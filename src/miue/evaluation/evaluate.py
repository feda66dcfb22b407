"""Evaluate predictions as the paper does, and as the field does."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.distributions import Dirichlet
from miue.evaluation.decisions import evaluate_decisions
from miue.evaluation.evaluation import Evaluation, LevelEvaluation, Separations
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    Metric,
    Owners,
    Separation,
    WeightedMetric,
    accuracy,
    area_under_risk_coverage,
    auroc,
    brier_score,
    class_auroc,
    expected_calibration_error,
    mean_confidence,
    negative_log_likelihood,
    overconfidence,
    separation,
)
from miue.predictions.folder import Predictions
from miue.predictions.table import PredictionTable
from miue.predictions.training_parts import refuse_training_bags

CORRECTNESS = ("correct", "misclassified")
DISTRIBUTION = ("in-distribution", "out-of-distribution")


def evaluate(predictions: Predictions, *, allow_training_bags: bool = False) -> Evaluation:
    """Return the metrics of ``predictions`` at both levels.

    Conf. is the AUROC of the confidence for "prediction correct" over labelled items that are not known to be
    out of distribution; OOD is the AUROC for "known to be in distribution" against each out-of-distribution set;
    UE is the mean of these. An item of which neither is known counts for no OOD.
    A Dirichlet's confidence is max alpha for Conf. and the strength α0 for OOD; any other distribution's
    is its max probability. Instances of all bags are pooled.

    Reference: Liu & Ji 2024, Section 6.1, "Evaluation".

    Args:
        predictions: of bags and, perhaps, of instances.
        allow_training_bags: evaluate although the model was trained on some of these bags, which says nothing of
            new ones.

    Raises:
        DataError: the model was trained on some of these bags, or on others of their patients.
    """
    fix = "evaluate bags of other patients, or pass allow_training_bags=True (--allow-training-bags)"
    refuse_training_bags(predictions.bags, "evaluate", fix, allowed=allow_training_bags)
    instances, decisions = predictions.instances, predictions.bags.decisions
    patients = predictions.by_patient()
    return Evaluation(
        evaluate_level(predictions.bags),
        evaluate_level(instances) if instances else None,
        evaluate_decisions(predictions.bags, decisions) if decisions else None,
        evaluate_level(patients) if patients else None,
        predictions.provenance,
    )


def evaluate_level(table: PredictionTable) -> LevelEvaluation:
    """Return the metrics of one table."""
    inside, is_in, is_out = table.judged, table.is_ood.in_distribution, table.is_ood.out_of_distribution
    correct = table.probabilities[inside].argmax(1) == table.labels.values[inside]
    uncertainties = table.uncertainties()
    confidence_measure, ood_measure = default_measures(table)

    def conf(measure: str) -> Separation:
        if not len(correct):
            return Separation.undefined(NO_LABEL)
        return separation(uncertainties[measure][inside], correct, names=CORRECTNESS)

    def ood(measure: str, name: str) -> Separation:
        if not is_in.any():
            return Separation.undefined(NONE_KNOWN_IN)
        compared = is_in | (is_out & (table.ood_sets == name))
        return separation(uncertainties[measure][compared], is_in[compared], names=DISTRIBUTION)

    by_measure = {
        measure: Separations(conf(measure), {name: ood(measure, name) for name in _ood_sets(table)})
        for measure in uncertainties
    }
    confidence, detection = by_measure[confidence_measure].confidence, by_measure[ood_measure].ood
    class_metrics = _class_metrics(table, uncertainties[confidence_measure], Owners.one(len(table)))
    metrics = {
        **{name: metric.plain for name, metric in class_metrics.items()},
        "ue": Metric.mean_of([confidence.auroc, *(one.auroc for one in detection.values())])
        if detection
        else Metric.undefined(NONE_KNOWN_OUT if is_in.any() else NEITHER_KNOWN),
    }
    return LevelEvaluation(
        len(table),
        int(inside.sum()),
        int(is_in.sum()),
        int(is_out.sum()),
        metrics,
        confidence_measure,
        confidence,
        ood_measure,
        detection,
        by_measure,
    )


def default_metrics(table: PredictionTable, owners: Owners) -> dict[str, WeightedMetric]:
    """Return the metrics that an interval is computed for, as functions of the weights of the items' owners.

    They are accuracy, auroc, ece, brier, nll, aurc, mean_confidence, overconfidence, confidence, "ood SET" by the
    paper's measure and "detection SET" by ``detection_score``.
    """
    inside, is_in, is_out = table.judged, table.is_ood.in_distribution, table.is_ood.out_of_distribution
    correct = table.probabilities[inside].argmax(1) == table.labels.values[inside]
    uncertainties = table.uncertainties()
    confidence, ood = (uncertainties[measure] for measure in default_measures(table))
    metrics = _class_metrics(table, confidence, owners)
    labels, probabilities = table.labels.values[inside], table.probabilities[inside]
    metrics["mean_confidence"] = mean_confidence(probabilities, owners[inside])
    metrics["overconfidence"] = overconfidence(probabilities, labels, owners[inside])
    metrics["confidence"] = auroc(-confidence[inside], correct, owners[inside])
    for name in _ood_sets(table):
        compared = is_in | (is_out & (table.ood_sets == name))
        for prefix, values in (("ood", ood), ("detection", uncertainties[detection_score(table)])):
            metrics[f"{prefix} {name}"] = auroc(-values[compared], is_in[compared], owners[compared])
    return metrics


def _class_metrics(
    table: PredictionTable, uncertainty: Float64[np.ndarray, "n"], owners: Owners
) -> dict[str, WeightedMetric]:
    inside = table.judged
    labels, probabilities, owners = table.labels.values[inside], table.probabilities[inside], owners[inside]
    correct = probabilities.argmax(1) == labels
    return {
        "accuracy": accuracy(probabilities, labels, owners),
        "auroc": class_auroc(probabilities, labels, owners),
        "ece": expected_calibration_error(probabilities, labels, owners),
        "brier": brier_score(probabilities, labels, owners),
        "nll": negative_log_likelihood(probabilities, labels, owners),
        "aurc": area_under_risk_coverage(uncertainty[inside], correct, owners),
    }


def _ood_sets(table: PredictionTable) -> list[str]:
    return sorted({str(name) for name in table.ood_sets if name})


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def detection_score(table: PredictionTable) -> str:
    """Return the score that ``calibrate`` flags bags by unless another is chosen: the distance where there is one.

    The instances' distance "knn" corresponds to the bags' "knn_mean".
    """
    known = table.uncertainties()
    names = (name for preferred in PREFERRED_SCORES for name in (preferred, preferred.removesuffix("_mean")))
    return next(name for name in names if name in known)
