"""Evaluate predictions as the paper does, and as the field does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int16, Int64

from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.distributions import Dirichlet
from miue.evaluation.decisions import evaluate_decisions
from miue.evaluation.evaluation import Evaluation, LevelEvaluation, Separations
from miue.evaluation.flags import evaluate_flags
from miue.evaluation.froc import evaluate_froc
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    Judged,
    Metric,
    Owners,
    Separation,
    WeightedMetric,
    accuracy,
    brier_score,
    expected_calibration_error,
    mean_confidence,
    negative_log_likelihood,
    overconfidence,
)
from miue.evaluation.ranking import Ranking, area_under_risk_coverage, auroc, class_auroc
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
    of_instances = evaluate_level(instances) if instances else None
    return Evaluation(
        evaluate_level(predictions.bags),
        of_instances,
        evaluate_decisions(predictions.bags, decisions) if decisions else None,
        evaluate_level(patients) if patients else None,
        predictions.provenance,
        evaluate_froc(predictions) if of_instances and of_instances.labelled else None,
        evaluate_flags(predictions),
    )


@dataclass(frozen=True)
class Items:
    """What is known of the n items of a level, and what their labels say of the m that are judged.

    Attributes:
        judged: the items whose class can be judged.
        is_in: those known to be in distribution.
        is_out: those known to be out of distribution.
        ood_set: number of each item's set among ``ood_sets``, −1 for none.
        ood_sets: names of the out-of-distribution sets, in order.
        labels: of the judged items.
        results: of the judged items.
    """

    judged: Bool[np.ndarray, "n"]
    is_in: Bool[np.ndarray, "n"]
    is_out: Bool[np.ndarray, "n"]
    ood_set: Int16[np.ndarray, "n"]
    ood_sets: tuple[str, ...]
    labels: Int64[np.ndarray, "m"]
    results: Judged

    @classmethod
    def of(cls, table: PredictionTable) -> Items:
        """Return what is known of a table, which is read part by part."""
        judged, is_in, is_out, sets, labels, results = [], [], [], [], [], []
        names: dict[str, int] = {}
        for part in table.parts():
            inside = part.judged
            judged.append(inside)
            is_in.append(part.is_ood.in_distribution)
            is_out.append(part.is_ood.out_of_distribution)
            sets.append(np.full(len(part), -1, np.int16))
            for name in {str(name) for name in set(part.ood_sets) if name}:
                sets[-1][part.ood_sets == name] = names.setdefault(name, len(names))
            labels.append(part.labels.values[inside])
            results.append(Judged.of(part.probabilities[inside], labels[-1]))
        order = sorted(names)
        number = np.array([*(order.index(name) for name in names), -1], np.int16)
        return cls(
            judged=np.concatenate(judged),
            is_in=np.concatenate(is_in),
            is_out=np.concatenate(is_out),
            ood_set=number[np.concatenate(sets)],
            ood_sets=tuple(order),
            labels=np.concatenate(labels),
            results=Judged.concatenate(results),
        )

    def compared(self, name: str) -> Bool[np.ndarray, "n"]:
        """Return the items known to be in distribution and those of an out-of-distribution set."""
        return self.is_in | (self.is_out & self.of_set(name))

    def of_set(self, name: str) -> Bool[np.ndarray, "n"]:
        """Return the items of an out-of-distribution set."""
        return self.ood_set == self.ood_sets.index(name)


def evaluate_level(table: PredictionTable) -> LevelEvaluation:
    """Return the metrics of one table, of which one uncertainty of all items is held at a time."""
    items = Items.of(table)
    confidence_measure, ood_measure = default_measures(table)
    correct = np.zeros(len(table), bool)
    correct[items.judged] = items.results.correct

    def separations(measure: str) -> Separations:
        ranking = Ranking.of(table.uncertainty(measure))
        undefined = None if items.is_in.any() else Separation.undefined(NONE_KNOWN_IN)
        return Separations(
            ranking.separation(correct, items.judged, names=CORRECTNESS)
            if len(items.labels)
            else Separation.undefined(NO_LABEL),
            {
                name: undefined or ranking.separation(items.is_in, items.compared(name), names=DISTRIBUTION)
                for name in items.ood_sets
            },
        )

    by_measure = {measure: separations(measure) for measure in table.uncertainty_names}
    confidence, detection = by_measure[confidence_measure].confidence, by_measure[ood_measure].ood
    class_metrics = _class_metrics(table, items, Owners.one(len(items.labels)))
    metrics = {
        **{name: metric.plain for name, metric in class_metrics.items()},
        "ue": Metric.mean_of([confidence.auroc, *(one.auroc for one in detection.values())])
        if detection
        else Metric.undefined(NONE_KNOWN_OUT if items.is_in.any() else NEITHER_KNOWN),
    }
    return LevelEvaluation(
        len(table),
        len(items.labels),
        int(items.is_in.sum()),
        int(items.is_out.sum()),
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
    items = Items.of(table)
    confidence, ood = default_measures(table)
    of_judged = owners[items.judged]
    metrics = _class_metrics(table, items, of_judged)
    metrics["mean_confidence"] = mean_confidence(items.results, of_judged)
    metrics["overconfidence"] = overconfidence(items.results, of_judged)
    metrics["confidence"] = auroc(-table.uncertainty(confidence)[items.judged], items.results.correct, of_judged)
    measures = {"ood": ood, "detection": detection_score(table)} if items.ood_sets else {}
    values = {prefix: -table.uncertainty(measure) for prefix, measure in measures.items()}
    for name in items.ood_sets:
        compared = items.compared(name)
        for prefix, of_all in values.items():
            metrics[f"{prefix} {name}"] = auroc(of_all[compared], items.is_in[compared], owners[compared])
    return metrics


def _class_metrics(table: PredictionTable, items: Items, owners: Owners) -> dict[str, WeightedMetric]:
    """Return the class metrics of the judged items, which belong to these owners."""

    def probabilities(number: int) -> Float64[np.ndarray, "m"]:
        return np.concatenate([part.probabilities[part.judged, number] for part in table.parts()])

    uncertainty = table.uncertainty(default_measures(table)[0])[items.judged]
    return {
        "accuracy": accuracy(items.results, owners),
        "auroc": class_auroc(probabilities, items.labels, table.head.distribution.num_classes, owners),
        "ece": expected_calibration_error(items.results, owners),
        "brier": brier_score(items.results, owners),
        "nll": negative_log_likelihood(items.results, owners),
        "aurc": area_under_risk_coverage(uncertainty, items.results.correct, owners),
    }


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.head.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def detection_score(table: PredictionTable) -> str:
    """Return the score that ``calibrate`` flags bags by unless another is chosen: the distance where there is one.

    The instances' distance "knn" corresponds to the bags' "knn_mean".
    """
    known = table.uncertainty_names
    names = (name for preferred in PREFERRED_SCORES for name in (preferred, preferred.removesuffix("_mean")))
    return next(name for name in names if name in known)
