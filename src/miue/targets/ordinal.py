"""Grades: classes in an order."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.common.errors import ConfigError
from miue.targets.base import Probabilities, Target


class Ordinal(Target):
    """Grades, whose numbers are 0, 1, …: an error by two grades counts more than one by one.

    A grade is predicted by the median of the distribution, which has the least expected absolute error.

    Attributes:
        grades: their names in order.
    """

    kind: Literal["ordinal"] = "ordinal"
    grades: tuple[str, ...]
    is_numeric: ClassVar[bool] = False
    titles: ClassVar[dict[str, str]] = {"kappa": "Quadratic kappa", "mae": "Mean absolute error"}
    class_metrics: ClassVar[tuple[str, ...]] = (
        *("accuracy", "auroc", "balanced_accuracy", "ece", "brier", "nll", "aurc", "ue"),
    )

    @classmethod
    def fit(cls, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], classes: int) -> Ordinal:
        """Raise: grades are named, not fitted."""
        raise ConfigError(item="task 'ordinal'", wanted="classes in order", got="numbers", fix="name the classes")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The grades."""
        return self.grades

    def classes_of(self, values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the numbers of the grades."""
        return values.astype(np.int64)

    def strata(self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the grades."""
        return classes

    @property
    def stratum_names(self) -> tuple[str, ...]:
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
    ) -> dict[str, float | None]:
        """Return the mean absolute error in grades, and the quadratically weighted kappa of the median grade.

        Reference: Cohen 1968, "Weighted kappa".
        """
        predicted, labels = median_class(probabilities), values.astype(np.int64)
        squared = (np.subtract.outer(labels, predicted) ** 2).mean()  # as if predictions were drawn at random
        kappa = 1 - float(((labels - predicted) ** 2).mean()) / float(squared) if squared > 0 else None
        return {"kappa": kappa, "mae": float(np.abs(labels - predicted).mean())}


def median_class(probabilities: Probabilities) -> Int64[np.ndarray, "n"]:
    """Return the first class up to which the probabilities sum to at least one half.

    >>> median_class(np.array([[0.4, 0.2, 0.4], [0.5, 0.0, 0.5]])).tolist()
    [1, 0]
    """
    below = probabilities.cumsum(1) < 0.5 - 1e-12
    return np.minimum(below.sum(1), probabilities.shape[1] - 1)
