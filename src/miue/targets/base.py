"""What a column of labels means: the base class of targets whose classes have an order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from pydantic import BaseModel, ConfigDict, model_serializer

from miue.targets.figures import Figure
from miue.targets.weighted import Weighted

Probabilities = Float64[np.ndarray, "n C"]


@dataclass(frozen=True)
class MetricName:
    """What tables and reports say of a metric.

    Attributes:
        title: what it is called.
        meaning: what a value says.
        better: which side; "" for neither.
        chance: its value for predictions that know nothing of the bag; None where that depends on the labels.
    """

    title: str
    meaning: str
    better: Literal["higher", "lower", ""]
    chance: float | None = None


class Target(BaseModel, ABC):
    """Classes in an order, as grades have it, or intervals of a number or a time, over which a model predicts.

    Networks and methods see classes alone. A target says which class a label is of, what a distribution over its
    classes says of the label, and how good that is.

    Attributes:
        kind: its name.
        class_metrics: those of classification that have a meaning for it.
        own_metrics: what its own metrics are called, by their names.
        headline: those that say the most, in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    class_metrics: ClassVar[tuple[str, ...]]
    own_metrics: ClassVar[Mapping[str, MetricName]]
    headline: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"kind": self.kind, **handler(self)}  # by which it is read, also where defaults are left out

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, in their order."""

    def strata(
        self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], tuple[str, ...]]:
        """Return the number of each label's group, whose shares splits keep, and the names of the groups."""
        return classes, self.class_names

    def parts(self) -> Mapping[str, Int64[np.ndarray, "C"]]:
        """Return, of each of several labels, the binary label that each class says, −1 for an unknown one."""
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

    def bounds(self, sets: Bool[np.ndarray, "n C"]) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return the ends of prediction sets by the names of columns; nothing where classes are no numbers."""
        return {}

    def describe(self, columns: Mapping[str, Float64[np.ndarray, "n"]]) -> list[str]:
        """Return each prediction in words, from its ``columns``; nothing where it is a class by its name."""
        return []

    def figures(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> list[Figure]:
        """Return what a report shows of labeled bags; arguments as of ``metrics``."""
        return []

    @abstractmethod
    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, Weighted]:
        """Return how good predictions of labeled bags are, by the names of ``own_metrics``.

        Args:
            probabilities: of the classes.
            values: labels, of an ordinal target the numbers of the classes.
            observed: false where a label is a lower bound.
        """
