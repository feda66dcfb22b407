"""scikit-learn estimators of numbers and of times: a distribution over intervals for each bag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Float64
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from miue.bags import GroupedRows
from miue.common.errors import DataError
from miue.common.values import Option
from miue.model import DistanceLike, PartLike
from miue.settings import DEFAULT_DISTANCES
from miue.sklearn.estimator import BagEstimator, of_bags
from miue.targets import concordance


class MILUncertaintyRegressor(RegressorMixin, BagEstimator):
    """Learn a number from bags; predict it with its 90 % interval.

    Bags come in the two forms of ``BagEstimator``; ``miue.targets.Regression`` says how numbers are predicted.

    Args:
        network: name of a network, or a class, factory or module of your own.
        method: name of an uncertainty method, or a class of your own.
        encoder: name of an encoder, or a class, factory or module of your own, or "auto".
        options: "network.hidden" and the like, searched over as ``options__network.hidden``.
        settings: fields of ``TrainingConfig``, searched over as ``settings__learning_rate``.
        intervals: how many a number is predicted over; None for 2 to 10 by the number of bags.
        distances: names of distances to the training instances.
        random_state: seed of weights, bag order and the bags held out.
        device: "auto", "cpu", "gpu".
        verbose: show a bar while training.
    """

    task = "regression"
    settings: Mapping[str, Any] | None
    intervals: int | None

    @no_type_check  # as scikit-learn wants it, nothing is checked before fit
    def __init__(
        self,
        network: PartLike = "attention",
        method: PartLike = "softmax",
        encoder: PartLike = "auto",
        *,
        options: Mapping[str, Option] | None = None,
        settings: Mapping[str, Any] | None = None,
        intervals: int | None = None,
        distances: Sequence[DistanceLike] = DEFAULT_DISTANCES,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.method = method
        self.encoder = encoder
        self.options = options
        self.settings = settings
        self.intervals = intervals
        self.distances = distances
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, bag_ids: Any, groups: Any) -> None:
        rows, instances = self._instances(X, bag_ids)
        values, observed = (of_bags(part, rows, len(instances)) for part in self._labels(y))
        bags = self._dataset(instances, rows, groups, None, ())
        self._train(
            bags.with_outcomes(values, observed, task=self.task, intervals=self.intervals), self.settings or {}
        )

    def _labels(self, y: Any) -> tuple[Float64[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Return the numbers, and of each whether it was observed.

        Raises:
            DataError: y is no list of finite numbers.
        """
        values = _numbers(y)
        if values.ndim != 1:
            raise DataError(
                item="y", wanted="a number of each bag", got=f"shape {values.shape}", fix="pass a list"
            )
        return values, np.ones(len(values), bool)

    def predict(self, X: Any, *, bag_ids: Any = None) -> Float64[np.ndarray, "B"]:
        """Return the expected number of each bag."""
        return self.predict_columns(X, bag_ids=bag_ids)["value"]

    def predict_columns(self, X: Any, *, bag_ids: Any = None) -> dict[str, Float64[np.ndarray, "B"]]:
        """Return what is predicted of each bag by name: value, std, low and high of the 90 % interval, …."""
        return self._predictions(X, bag_ids).bags.predicted_values()

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, bag_ids: Any = None) -> float:
        """Return R² over bags; ``y`` and ``sample_weight`` are given as ``y`` is to ``fit``."""
        predicted, rows = self.predict(X, bag_ids=bag_ids), None if bag_ids is None else GroupedRows.of(bag_ids)
        values = of_bags(self._labels(y)[0], rows, len(predicted))
        weights = None if sample_weight is None else of_bags(np.asarray(sample_weight), rows, len(predicted))
        return float(r2_score(values, predicted, sample_weight=weights))


class MILSurvivalEstimator(MILUncertaintyRegressor):
    """Learn the time until an event from bags, some of which were observed without one; predict the risk.

    Parameters are those of ``MILUncertaintyRegressor``; ``miue.targets.Survival`` says how times are predicted.
    """

    task = "survival"

    def _labels(self, y: Any) -> tuple[Float64[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Return the times, and of each whether an event ended it.

        Args:
            y: two columns, time and event (1, or 0 where observation ended); or a structured array of a column of
                truth values and one of numbers.

        Raises:
            DataError: y is neither.
        """
        names = getattr(getattr(y, "dtype", None), "names", None)
        if names:
            times = [name for name in names if y[name].dtype.kind != "b"]
            events = [name for name in names if y[name].dtype.kind == "b"]
            y = np.stack([y[times[0]], y[events[0]]], 1) if len(times) == len(events) == 1 else None
        values = _numbers(y)
        if values.ndim != 2 or values.shape[1] != 2 or not np.isin(values[:, 1], (0, 1)).all():
            wanted = "two columns: the time of each bag, and 1 for an event or 0 for the end of observation"
            raise DataError(
                item="y", wanted=wanted, got=f"shape {values.shape}", fix="pass np.stack([time, event], 1)"
            )
        return values[:, 0], values[:, 1] == 1

    def predict(self, X: Any, *, bag_ids: Any = None) -> Float64[np.ndarray, "B"]:
        """Return the risk of each bag, higher where the event is expected earlier."""
        return self.predict_columns(X, bag_ids=bag_ids)["risk"]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, bag_ids: Any = None) -> float:
        """Return Harrell's concordance over bags, NaN where no two can be compared; arguments as in regression."""
        risk, rows = self.predict(X, bag_ids=bag_ids), None if bag_ids is None else GroupedRows.of(bag_ids)
        times, events = (of_bags(part, rows, len(risk)) for part in self._labels(y))
        weights = np.ones(len(risk))
        if sample_weight is not None:
            weights = of_bags(np.asarray(sample_weight, np.float64), rows, len(risk))
        return float(concordance(risk, times, events)(weights[None])[0])


def _numbers(y: Any) -> Float64[np.ndarray, "*n"]:
    """Return ``y`` as finite numbers.

    Raises:
        DataError: it holds something else.
    """
    try:
        values: np.ndarray = np.asarray(y, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            item="y", wanted="numbers", got=str(error), fix="leave out bags without a label"
        ) from error
    if not values.ndim or not np.isfinite(values).all():
        got = "no list" if not values.ndim else "NaN or infinity"
        raise DataError(item="y", wanted="finite numbers", got=got, fix="leave out bags without a label")
    return values
