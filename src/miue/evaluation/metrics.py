"""Metrics of predictions, each a value or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

ECE_BINS = 15
NO_LABEL = (
    "no labelled item: give labels of bags with --labels TABLE, of instances with --instance-labels TABLE, to "
    "'miue predict', or fill the column 'label'"
)
NONE_KNOWN_IN = (
    "no item is known to be in distribution: write false into the column 'is_ood' for those that are; an empty "
    "cell is unknown"
)
NEITHER_KNOWN = (
    "no item is known to be in or out of distribution: write false or true into the column 'is_ood'; an empty "
    "cell is unknown"
)
NONE_KNOWN_OUT = "no item is known to be out of distribution (true in the column 'is_ood')"


@dataclass(frozen=True)
class Metric:
    """A value, or None and the reason.

    Attributes:
        value: the metric.
        reason: why it is undefined; empty where it is defined.
    """

    value: float | None
    reason: str = ""

    @classmethod
    def undefined(cls, reason: str) -> Metric:
        """Return a metric without a value."""
        return cls(None, reason)

    @classmethod
    def mean_of(cls, metrics: list[Metric]) -> Metric:
        """Return the mean, undefined where one of them is."""
        missing = [metric.reason for metric in metrics if metric.value is None]
        if missing or not metrics:
            return cls.undefined(missing[0] if missing else "nothing to average")
        return cls(float(np.mean([metric.value for metric in metrics])))


@dataclass(frozen=True)
class Separation:
    """How well a confidence tells the wanted items from the others, the wanted ones being positive.

    Attributes:
        auroc: chance that a wanted item has the higher confidence; ties count half.
        aupr: average precision, the wanted items positive.
        aupr_unwanted: average precision of the uncertainty, the unwanted items positive.
        fpr95: share of unwanted items accepted at the threshold that accepts at least 95 % of the wanted.
    """

    auroc: Metric
    aupr: Metric
    aupr_unwanted: Metric
    fpr95: Metric

    @classmethod
    def undefined(cls, reason: str) -> Separation:
        """Return a separation without values."""
        return cls(*[Metric.undefined(reason)] * 4)


def separation(
    uncertainty: Float64[np.ndarray, "n"], wanted: Bool[np.ndarray, "n"], *, names: tuple[str, str]
) -> Separation:
    """Return how well low uncertainty marks the wanted items.

    Args:
        uncertainty: higher where less certain.
        wanted: the items that should be certain (correct, or in distribution).
        names: what wanted and unwanted items are called, for the reason of an undefined metric.
    """
    count = int(wanted.sum())
    if count in (0, len(wanted)):
        lacking = names[0] if count == 0 else names[1]
        return Separation.undefined(f"no {lacking} item among {len(wanted)}")
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    confidence = -uncertainty
    false_rate, true_rate, _ = roc_curve(wanted, confidence, drop_intermediate=False)
    return Separation(
        auroc=Metric(float(roc_auc_score(wanted, confidence))),
        aupr=Metric(float(average_precision_score(wanted, confidence))),
        aupr_unwanted=Metric(float(average_precision_score(~wanted, uncertainty))),
        fpr95=Metric(float(false_rate[np.argmax(true_rate >= 0.95)])),
    )


def accuracy(probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"]) -> Metric:
    """Share of items whose most probable class is their label."""
    if not len(labels):
        return _no_label()
    return Metric(float((probabilities.argmax(1) == labels).mean()))


def class_auroc(probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"]) -> Metric:
    """AUROC of the class probability: of class 1 for two classes, else the mean over one-against-rest."""
    if not len(labels):
        return _no_label()
    missing = sorted(set(range(probabilities.shape[1])) - set(labels.tolist()))
    if missing:
        return Metric.undefined(f"no item of class {missing[0]} among {len(labels)}")
    from sklearn.metrics import roc_auc_score

    if probabilities.shape[1] == 2:
        return Metric(float(roc_auc_score(labels, probabilities[:, 1])))
    classes = range(probabilities.shape[1])
    return Metric(float(np.mean([roc_auc_score(labels == c, probabilities[:, c]) for c in classes])))


def expected_calibration_error(
    probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"], bins: int = ECE_BINS
) -> Metric:
    """Σ over equal-width bins of (share of items) · |accuracy − mean confidence|, of the predicted class.

    Reference: Guo et al. 2017. Differs from the published code of Liu & Ji 2024, which takes the
    unweighted mean over bins.
    """
    if not len(labels):
        return _no_label()
    confidence = probabilities.max(1)
    correct = probabilities.argmax(1) == labels
    bin_of = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    sums = [np.bincount(bin_of, weights=values, minlength=bins) for values in (correct, confidence)]
    return Metric(float(np.abs(sums[0] - sums[1]).sum() / len(labels)))


def brier_score(probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"]) -> Metric:
    """Mean over items of Σ_c (p_c − y_c)², in [0, 2].

    Reference: Brier 1950. Differs from the published code of Liu & Ji 2024, which takes the L2 norm.
    """
    if not len(labels):
        return _no_label()
    hits = np.eye(probabilities.shape[1])[labels]
    return Metric(float(((probabilities - hits) ** 2).sum(1).mean()))


def negative_log_likelihood(probabilities: Float64[np.ndarray, "n C"], labels: Int64[np.ndarray, "n"]) -> Metric:
    """Mean of −log probability of the label, in nats; undefined where a label has probability zero."""
    if not len(labels):
        return _no_label()
    of_label = probabilities[np.arange(len(labels)), labels]
    if not of_label.min() > 0:
        return Metric.undefined(f"{int((of_label <= 0).sum())} labels have probability zero")
    return Metric(float(-np.log(of_label).mean()))


def area_under_risk_coverage(uncertainty: Float64[np.ndarray, "n"], correct: Bool[np.ndarray, "n"]) -> Metric:
    """Mean over k = 1 … n of the error rate of the k most certain items; ties share their errors evenly.

    Reference: Geifman & El-Yaniv 2017; Geifman et al. 2019.
    """
    if not len(correct):
        return _no_label()
    order = np.argsort(uncertainty, kind="stable")
    _, groups = np.unique(uncertainty[order], return_inverse=True)
    wrong = (~correct[order]).astype(np.float64)
    shared = (np.bincount(groups, wrong) / np.bincount(groups))[groups]
    risk = shared.cumsum() / np.arange(1, len(correct) + 1)
    return Metric(float(risk.mean()))


def _no_label() -> Metric:
    return Metric.undefined(NO_LABEL)
