"""Grades: classes in an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.targets.base import MetricName, Probabilities, Target
from miue.targets.weighted import Weighted, ratio, weighted_mean


class Ordinal(Target):
    """Grades, whose numbers are 0, 1, …: an error by two grades counts more than one by one.

    A grade is predicted by the median of the distribution, which has the least expected absolute error.

    Attributes:
        grades: their names in order.
    """

    kind: Literal["ordinal"] = "ordinal"
    grades: tuple[str, ...]
    class_metrics: ClassVar[tuple[str, ...]] = (
        *("accuracy", "auroc", "balanced_accuracy", "ece", "brier", "nll", "aurc", "ue"),
    )
    own_metrics: ClassVar[Mapping[str, MetricName]] = {
        "kappa": MetricName(
            "Quadratic kappa",
            "agreement of the median grade with the label, an error by two grades counting four times",
            "higher",
            chance=0.0,
        ),
        "mae": MetricName("Mean absolute error", "mean distance of the prediction from the label", "lower"),
    }
    headline: ClassVar[tuple[str, ...]] = ("kappa", "mae")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The grades."""
        return self.grades

    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return the median grade, by its number, and the mean and standard deviation of the number."""
        numbers = np.arange(probabilities.shape[1])
        mean = probabilities @ numbers
        variance = (probabilities @ numbers**2 - mean**2).clip(0)
        return {"grade": median_class(probabilities).astype(float), "mean_grade": mean, "std": np.sqrt(variance)}

    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, Weighted]:
        """Return the mean absolute error in grades, and the quadratically weighted kappa of the median grade.

        Reference: Cohen 1968, "Weighted kappa".
        """
        predicted = median_class(probabilities).astype(np.float64)
        label, grade, label_squares, grade_squares, squares = (
            weighted_mean(one) for one in (values, predicted, values**2, predicted**2, (values - predicted) ** 2)
        )

        def kappa(weights: Float64[np.ndarray, "draws n"]) -> Float64[np.ndarray, "draws"]:
            by_chance = label_squares(weights) - 2 * label(weights) * grade(weights) + grade_squares(weights)
            return 1 - ratio(squares(weights), by_chance)

        return {"kappa": kappa, "mae": weighted_mean(np.abs(values - predicted))}


def median_class(probabilities: Probabilities) -> Int64[np.ndarray, "n"]:
    """Return the first class up to which the probabilities sum to at least one half.

    >>> median_class(np.array([[0.4, 0.2, 0.4], [0.5, 0.0, 0.5]])).tolist()
    [1, 0]
    """
    below = probabilities.cumsum(1) < 0.5 - 1e-12
    return np.minimum(below.sum(1), probabilities.shape[1] - 1)
