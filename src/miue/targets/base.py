"""What a column of labels means: the base class of targets whose classes have an order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64
from pydantic import BaseModel, ConfigDict, model_serializer

Probabilities = Float64[np.ndarray, "n C"]


class Target(BaseModel, ABC):
    """Classes in an order, as grades have it, or intervals of a number or a time, over which a model predicts.

    Networks and methods see classes alone. A target says which class a label is of, what a distribution over its
    classes says of the label, and how good that is.

    Attributes:
        kind: its name.
        is_numeric: whether labels are numbers, of which classes are intervals.
        has_censoring: whether a label can be a lower bound, such as the time until which a patient was observed.
        class_metrics: those of classification that have a meaning for it.
        titles: what tables call its own metrics, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    is_numeric: ClassVar[bool] = True
    has_censoring: ClassVar[bool] = False
    class_metrics: ClassVar[tuple[str, ...]] = ("nll",)
    titles: ClassVar[dict[str, str]]

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"kind": self.kind, **handler(self)}  # by which it is read, also where defaults are left out

    @classmethod
    @abstractmethod
    def fit(cls, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"], classes: int) -> Target:
        """Return the target whose intervals suit these labels.

        Args:
            values: known labels.
            observed: false where a label is a lower bound.
            classes: how many intervals, fewer where labels repeat.

        Raises:
            DataError: labels that are no such target, or too few different ones.
        """

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, in their order."""

    @abstractmethod
    def classes_of(self, values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the class of each label."""

    def strata(self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
        """Return the number of each label's group, among ``stratum_names``."""
        return classes * len(self.stratum_names) // len(self.class_names)

    @property
    def stratum_names(self) -> tuple[str, ...]:
        """The groups of labels whose shares splits keep."""
        return ("low", "middle", "high") if len(self.class_names) > 2 else ("low", "high")

    def bounds(self, sets: Bool[np.ndarray, "n C"]) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return the ends of prediction sets by the names of columns; nothing where classes are no numbers."""
        return {}

    @abstractmethod
    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return what a prediction says of the label, by the names of columns in tables.

        Args:
            probabilities: of the classes.
            concentration: Σ alpha of a Dirichlet, None of other distributions.
        """

    @abstractmethod
    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, float | None]:
        """Return how good predictions of labeled bags are, by name; None where a metric is undefined.

        Args:
            probabilities: of the classes.
            values: labels, of an ordinal target the numbers of the classes.
            observed: false where a label is a lower bound.
        """


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


def interval_names(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of the intervals between some numbers, each of which begins an interval.

    >>> interval_names((1.0, 2.5))
    ('below 1', '1 to 2.5', '2.5 and above')
    """
    ends = [f"{edge:.6g}" for edge in edges]
    between = (f"{low} to {high}" for low, high in pairwise(ends))
    return (f"below {ends[0]}", *between, f"{ends[-1]} and above")
