"""Evaluate predictions as the paper does, and as the field does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from miue.distributions import Dirichlet
from miue.evaluation.decisions import DecisionEvaluation, evaluate_decisions
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    Metric,
    Separation,
    accuracy,
    area_under_risk_coverage,
    brier_score,
    class_auroc,
    expected_calibration_error,
    negative_log_likelihood,
    separation,
)
from miue.predictions.table import PredictionTable
from miue.predictions.folder import Predictions

if TYPE_CHECKING:
    from miue.evaluation.table import ResultTable

CORRECTNESS = ("correct", "misclassified")
DISTRIBUTION = ("in-distribution", "out-of-distribution")


@dataclass(frozen=True)
class Separations:
    """How well one measure or score tells items apart.

    Attributes:
        confidence: correct from misclassified ones.
        ood: items known to be in distribution from each out-of-distribution set.
    """

    confidence: Separation
    ood: Mapping[str, Separation]


@dataclass(frozen=True)
class LevelEvaluation:
    """Evaluation of one level, bags or instances.

    Attributes:
        count: items.
        labelled: items with a label that are not known to be out of distribution; the class metrics are of these.
        in_distribution: items known to be in distribution; ``ood`` is of these and of the next.
        out_of_distribution: items known to be out of distribution; of the others it is unknown.
        metrics: accuracy, auroc, ece, brier, nll, aurc, and ue, the mean AUROC of ``confidence`` and all ``ood``.
        confidence_measure: the uncertainty behind ``confidence`` and ``aurc``.
        confidence: how well it tells correct from misclassified items (the paper's Conf.).
        ood_measure: the uncertainty behind ``ood``.
        ood: how well it tells items known to be in distribution from each out-of-distribution set.
        by_measure: the same for every measure and extra score.
    """

    count: int
    labelled: int
    in_distribution: int
    out_of_distribution: int
    metrics: Mapping[str, Metric]
    confidence_measure: str
    confidence: Separation
    ood_measure: str
    ood: Mapping[str, Separation]
    by_measure: Mapping[str, Separations]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Evaluation of bags and, where they were predicted, of instances; of decisions and patients, if any.

    It prints as a table, in a notebook as one of HTML.

    Attributes:
        bags: metrics of bags.
        instances: metrics of instances; None where they were not predicted.
        decisions: how the decisions came out; None where there are none.
        patients: metrics of patients with several bags; None where patients are not told.
        about: what made the predictions, for a reader.
    """

    bags: LevelEvaluation
    instances: LevelEvaluation | None
    decisions: DecisionEvaluation | None = None
    patients: LevelEvaluation | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n\n".join(table.as_text() for table in self._tables())

    def _repr_html_(self) -> str:
        return "".join(table.as_html() for table in self._tables())

    def _tables(self) -> Iterator[ResultTable]:
        from miue.evaluation.table import decision_table, evaluation_table

        yield evaluation_table(self)
        if self.decisions is not None:
            yield decision_table(self.decisions)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; an undefined metric is null with its reason beside it."""
        return {
            "about": dict(self.about),
            "bags": _plain(asdict(self.bags)),
            "instances": self.instances and _plain(asdict(self.instances)),
            "decisions": self.decisions and _plain(asdict(self.decisions)),
            "patients": self.patients and _plain(asdict(self.patients)),
        }


def evaluate(predictions: Predictions) -> Evaluation:
    """Return the metrics of ``predictions`` at both levels.

    Conf. is the AUROC of the confidence for "prediction correct" over labelled items that are not known to be
    out of distribution; OOD is the AUROC for "known to be in distribution" against each out-of-distribution set;
    UE is the mean of these. An item of which neither is known counts for no OOD.
    A Dirichlet's confidence is max alpha for Conf. and the strength α0 for OOD; any other distribution's
    is its max probability. Instances of all bags are pooled.

    Reference: Liu & Ji 2024, Section sec-exp-setup, "Evaluation".
    """
    instances, decisions = predictions.instances, predictions.bags.decisions
    patients = predictions.by_patient()
    return Evaluation(
        evaluate_level(predictions.bags),
        evaluate_level(instances) if instances else None,
        evaluate_decisions(predictions.bags, decisions) if decisions else None,
        evaluate_level(patients) if patients else None,
        predictions.about,
    )


def evaluate_level(table: PredictionTable) -> LevelEvaluation:
    """Return the metrics of one table."""
    inside, is_in, is_out = table.judged, table.is_ood.in_distribution, table.is_ood.out_of_distribution
    labels, probabilities = table.labels.values[inside], table.probabilities[inside]
    correct = probabilities.argmax(1) == labels
    uncertainties = table.uncertainties()
    confidence_measure, ood_measure = default_measures(table)
    sets = sorted({str(name) for name in table.ood_sets if name})

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
        measure: Separations(conf(measure), {name: ood(measure, name) for name in sets})
        for measure in uncertainties
    }
    confidence, detection = by_measure[confidence_measure].confidence, by_measure[ood_measure].ood
    metrics = {
        "accuracy": accuracy(probabilities, labels),
        "auroc": class_auroc(probabilities, labels),
        "ece": expected_calibration_error(probabilities, labels),
        "brier": brier_score(probabilities, labels),
        "nll": negative_log_likelihood(probabilities, labels),
        "aurc": area_under_risk_coverage(uncertainties[confidence_measure][inside], correct),
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


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"value", "reason"}:
            return value["value"] if value["value"] is not None else {"value": None, "reason": value["reason"]}
        return {key: _plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value
