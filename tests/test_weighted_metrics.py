"""Each metric, weighted, against scikit-learn's sample_weight, against items that are repeated, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from miue.evaluation import Metric, class_metrics, ranking
from miue.evaluation.metrics import NO_LABEL, Judged, Owners, WeightedMetric
from miue.evaluation.ranking import area_under_risk_coverage, auroc

CLASSES = 3
ITEMS, OWNERS, DRAWS = 101, 13, 7


def drawn(ties: bool) -> tuple[np.ndarray, np.ndarray, Owners, np.ndarray]:
    random = np.random.default_rng(7)
    probabilities = random.dirichlet(np.ones(CLASSES), ITEMS)
    if ties:
        probabilities = (np.round(5 * probabilities) + 1) / (np.round(5 * probabilities) + 1).sum(1, keepdims=True)
    labels, owners = random.integers(CLASSES, size=ITEMS), random.integers(OWNERS, size=ITEMS)
    weights = random.integers(0, 4, size=(DRAWS, OWNERS))
    return probabilities, labels, Owners(owners, OWNERS), weights


def of_judged(metric: Callable[..., WeightedMetric]) -> Callable[..., WeightedMetric]:
    """The metric as a function of probabilities, labels and owners."""
    return lambda probabilities, labels, owners=None: metric(Judged.of(probabilities, labels), owners)


accuracy, brier_score = of_judged(class_metrics.accuracy), of_judged(class_metrics.brier_score)
expected_calibration_error = of_judged(class_metrics.expected_calibration_error)
negative_log_likelihood = of_judged(class_metrics.negative_log_likelihood)


def class_auroc(probabilities: np.ndarray, labels: np.ndarray, owners: Owners | None = None) -> WeightedMetric:
    return ranking.class_auroc(lambda c: probabilities[:, c], labels, probabilities.shape[1], owners)


def aurc(probabilities: np.ndarray, labels: np.ndarray, owners: Owners | None = None) -> WeightedMetric:
    return area_under_risk_coverage(1 - probabilities.max(1), probabilities.argmax(1) == labels, owners)


def correctness(probabilities: np.ndarray, labels: np.ndarray, owners: Owners | None = None) -> WeightedMetric:
    return auroc(probabilities.max(1), probabilities.argmax(1) == labels, owners)


METRICS: tuple[Callable[..., WeightedMetric], ...] = (
    accuracy,
    class_auroc,
    expected_calibration_error,
    brier_score,
    negative_log_likelihood,
    aurc,
    correctness,
)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_a_weighted_metric_is_that_of_items_repeated_as_often(
    metric: Callable[..., WeightedMetric], ties: bool
) -> None:
    probabilities, labels, owners, weights = drawn(ties)
    values = metric(probabilities, labels, owners)(weights)
    for row, value in zip(weights, values, strict=True):
        rows = np.repeat(np.arange(ITEMS), row[owners.index])
        assert value == pytest.approx(metric(probabilities[rows], labels[rows]).plain.value, abs=1e-13)


@pytest.mark.parametrize("ties", [False, True])
def test_weighted_metrics_equal_scikit_learn_with_sample_weight(ties: bool) -> None:
    probabilities, labels, owners, weights = drawn(ties)
    predicted, correct = probabilities.argmax(1), probabilities.argmax(1) == labels
    by_hand: dict[Callable[..., WeightedMetric], Callable[[np.ndarray], float]] = {
        accuracy: lambda w: accuracy_score(labels, predicted, sample_weight=w),
        class_auroc: lambda w: np.mean(
            [roc_auc_score(labels == c, probabilities[:, c], sample_weight=w) for c in range(CLASSES)]
        ),
        brier_score: lambda w: np.average(((probabilities - np.eye(CLASSES)[labels]) ** 2).sum(1), weights=w),
        negative_log_likelihood: lambda w: log_loss(labels, probabilities, sample_weight=w, labels=range(CLASSES)),
        correctness: lambda w: roc_auc_score(correct, probabilities.max(1), sample_weight=w),
    }
    for metric, oracle in by_hand.items():
        values = metric(probabilities, labels, owners)(weights)
        expected = [oracle(row[owners.index]) for row in weights]
        assert values == pytest.approx(expected, abs=1e-13), metric


def test_calibration_error_weighs_its_bins() -> None:
    probabilities = np.array([[0.05, 0.95], [0.05, 0.95], [0.35, 0.65]])
    values = expected_calibration_error(probabilities, np.array([1, 0, 1]), Owners(np.arange(3), 3))(
        np.array([[2, 1, 3], [0, 0, 4]])
    )
    assert values == pytest.approx([(3 * abs(2 / 3 - 0.95) + 3 * (1 - 0.65)) / 6, 1 - 0.65])


def test_risk_coverage_of_ties_is_the_exact_sum() -> None:
    """Five tied items with two errors after one right item: the exact mean over the orders of the ties."""
    uncertainty, correct = np.array([0.0, 1, 1, 1, 1, 1]), np.array([True, True, True, True, False, False])
    exact = sum((Fraction(2 * j, 5) / (1 + j) for j in range(1, 6)), Fraction(0)) / 6
    assert area_under_risk_coverage(uncertainty, correct).plain.value == pytest.approx(float(exact), abs=1e-15)
    compressed = area_under_risk_coverage(
        np.array([0.0, 1, 1]), np.array([True, True, False]), Owners(np.arange(3), 3)
    )
    assert compressed(np.array([[1, 3, 2]])) == pytest.approx(float(exact), abs=1e-15)


def test_risk_coverage_of_many_items_keeps_twelve_digits() -> None:
    random = np.random.default_rng(3)
    uncertainty, correct = random.random(200_003), random.random(200_003) < 0.7
    wrong = ~correct[np.argsort(uncertainty)]
    expected = (wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean()
    assert area_under_risk_coverage(uncertainty, correct).plain.value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_of_no_weight_at_all_is_undefined(metric: Callable[..., WeightedMetric]) -> None:
    probabilities, labels, owners, _ = drawn(ties=False)
    assert np.isnan(metric(probabilities, labels, owners)(np.zeros((2, OWNERS), np.int64))).all()


def test_an_undefined_metric_says_why_and_has_no_value_for_any_weights() -> None:
    nothing = np.zeros((0, 2)), np.zeros(0, np.int64)
    for metric in (accuracy, class_auroc, expected_calibration_error, brier_score, negative_log_likelihood):
        assert metric(*nothing).plain == Metric(None, NO_LABEL), metric
    assert area_under_risk_coverage(np.zeros(0), np.zeros(0, bool)).plain == Metric(None, NO_LABEL)
    one_class = class_auroc(np.full((2, 2), 0.5), np.zeros(2, np.int64), Owners(np.arange(2), 2))
    assert one_class.plain == Metric(None, "no item of class 1 among 2")
    assert np.isnan(one_class(np.ones((3, 2), np.int64))).all()
    assert auroc(np.zeros(2), np.zeros(2, bool)).plain == Metric(None, "no positive item among 2")
    impossible = negative_log_likelihood(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0]))
    assert impossible.plain == Metric(None, "probability zero for 1 label")
