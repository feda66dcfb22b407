"""Labels that are numbers: the base class of targets whose classes are intervals of them."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.targets.base import Target


class IntervalTarget(Target):
    """Numbers or times, predicted as a distribution over intervals of about equal shares of the training labels.

    Attributes:
        edges: between the intervals, each of which begins one.
        has_censoring: whether a label can be a lower bound, such as the time until which a patient was observed.
    """

    edges: tuple[float, ...]
    has_censoring: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fit(
        cls, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], classes: int
    ) -> IntervalTarget:
        """Return the target whose intervals suit these labels.

        Args:
            values: known labels.
            observed: false where a label is a lower bound.
            classes: how many intervals, fewer where labels repeat.

        Raises:
            DataError: labels that are no such target, or too few different ones.
        """

    @property
    def class_names(self) -> tuple[str, ...]:
        """The intervals in words.

        >>> from miue.targets import Survival
        >>> Survival(edges=(1.0, 2.5)).class_names
        ('below 1', '1 to 2.5', '2.5 and above')
        """
        ends = [f"{edge:.6g}" for edge in self.edges]
        between = (f"{low} to {high}" for low, high in pairwise(ends))
        return (f"below {ends[0]}", *between, f"{ends[-1]} and above")

    def classes_of(self, values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the interval of each number; those outside the training labels are in the first or the last."""
        return np.searchsorted(self.edges, values, side="right").astype(np.int64)

    def strata(
        self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], tuple[str, ...]]:
        """Return thirds or halves of the intervals."""
        names = ("low", "middle", "high") if len(self.class_names) > 2 else ("low", "high")
        return classes * len(names) // len(self.class_names), names


def intervals_for(labels: int) -> int:
    """Return how many intervals suit so many labels: 2 to 10, each of at least ten labels if there are 20.

    >>> [intervals_for(labels) for labels in (5, 60, 1000)]
    [2, 6, 10]
    """
    return min(10, max(2, labels // 10))


def inner_edges(values: Float64[np.ndarray, "n"], classes: int) -> tuple[float, ...]:
    """Return the ends between intervals that have equal shares of some numbers, each end once.

    >>> inner_edges(np.arange(9.0), 3)
    (3.0, 6.0)
    """
    quantiles = np.quantile(values, np.arange(1, classes) / classes, method="higher")
    return tuple(float(edge) for edge in np.unique(quantiles) if edge > values.min())
