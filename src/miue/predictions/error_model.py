"""How probable it is that a bag is misclassified: what its instances say, beside what the bag network says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from miue.common.errors import DataError
from miue.common.json_record import JsonFormat
from miue.predictions.table import PredictionTable

FILE = "error_model.json"
FORMAT = JsonFormat(
    "miue-error-model",
    1,
    "error_model",
    "error model",
    "train again",
    "save the model again, or remove the file: predictions then lack the error probability",
)

ERROR_PROBABILITY = "error_probability"
"""The score that it adds to bags."""

FEWEST = 5  # bags of each class
_SMALLEST = 1e-9  # probability that log-odds are computed of


class Regression(BaseModel):
    """A logistic regression of the class of a bag on F standardized inputs.

    Attributes:
        center: mean of each input.
        scale: standard deviation of each.
        weights: C × F.
        intercepts: C.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    center: tuple[float, ...] = Field(min_length=1)
    scale: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    intercepts: tuple[float, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _of_one_shape(self) -> Regression:
        if {len(self.center), *map(len, self.weights)} != {len(self.scale)} or min(self.scale) <= 0:
            raise ValueError("a center, a positive scale and a weight of each class for each input are wanted")
        if len(self.weights) != len(self.intercepts):
            raise ValueError("weights and an intercept of each class are wanted")
        return self

    @classmethod
    def fit(cls, inputs: Float64[np.ndarray, "B F"], labels: Int64[np.ndarray, "B"]) -> Regression:
        """Return the regression with scikit-learn's default penalty; bags of every class are needed."""
        from sklearn.linear_model import LogisticRegression

        center, scale = inputs.mean(0), inputs.std(0)
        scale[scale <= _SMALLEST] = 1.0  # an input that is the same for every bag
        fitted = LogisticRegression(max_iter=1000).fit((inputs - center) / scale, labels)
        weights, intercepts = fitted.coef_, fitted.intercept_
        if len(weights) == 1:  # of two classes, one row: class 1 against class 0
            weights, intercepts = np.vstack([0 * weights, weights]), np.append(0.0, intercepts)
        return cls(
            center=_short(center),
            scale=_short(scale),
            weights=tuple(map(_short, weights)),
            intercepts=_short(intercepts),
        )

    def probabilities(self, inputs: Float64[np.ndarray, "B F"]) -> Float64[np.ndarray, "B C"]:
        """Return the probability of each class."""
        standardized = (inputs - np.array(self.center)) / np.array(self.scale)
        logits = (standardized[:, None, :] * np.array(self.weights)).sum(2) + np.array(self.intercepts)
        powers = np.exp(logits - logits.max(1, keepdims=True))
        shares: np.ndarray = powers / powers.sum(1, keepdims=True)
        return shares


class ErrorModel(BaseModel):
    """Two logistic regressions of a bag's class, fitted on validation bags; the error is 1 − their mean P(ŷ).

    Both read the log-odds of each class c ≥ 1 of the bag, log p_c/p_0; one also reads the highest of its
    instances, max_k log q_kc/q_k0. Bag and instances come from one network, but the mean or the attention that
    pools a bag errs where its instances, seen one by one, do not; and the threshold of a regression suits the
    validation bags where that of the network does not. How the two were chosen: results/README.md.

    Reference: Platt 1999 (logistic calibration); Wolpert 1992 (a second model on held-out predictions).

    Attributes:
        estimator: what the instances were predicted from; None where that is not known.
        bags: how many it was fitted to.
        by_bag: reads the C − 1 log-odds of the bag.
        by_both: reads these, then the C − 1 of its instances.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    estimator: str | None
    bags: int = Field(ge=1)
    by_bag: Regression
    by_both: Regression

    @model_validator(mode="after")
    def _of_the_same_classes(self) -> ErrorModel:
        classes = len(self.by_bag.intercepts)
        wanted = (classes, classes - 1, 2 * (classes - 1))
        if (len(self.by_both.intercepts), len(self.by_bag.center), len(self.by_both.center)) != wanted:
            raise ValueError("two regressions of the same classes are wanted, of C − 1 and of 2 (C − 1) inputs")
        return self

    @classmethod
    def fit(cls, bags: PredictionTable, inputs: Float64[np.ndarray, "B F"], estimator: str | None) -> ErrorModel:
        """Return the regressions fitted to the labelled bags that are not known to be out of distribution.

        Args:
            bags: predictions of bags that the weights were not trained on.
            inputs: their ``error_inputs``.
            estimator: what the instances were predicted from.

        Raises:
            DataError: fewer than ``FEWEST`` labelled bags of a class.
        """
        judged, classes = bags.judged, bags.distribution.num_classes
        labels = bags.labels.values[judged]
        counts = np.bincount(labels, minlength=classes)
        if counts.min() < FEWEST:
            raise DataError(
                item="the error probability of bags",
                wanted=f"at least {FEWEST} labelled validation bags of each class",
                got=", ".join(f"{count} of class {number}" for number, count in enumerate(counts)),
                fix="train with more validation bags",
            )
        read = inputs[judged]
        by_bag, by_both = Regression.fit(read[:, : classes - 1], labels), Regression.fit(read, labels)
        return cls(estimator=estimator, bags=len(labels), by_bag=by_bag, by_both=by_both)

    def add_to(self, bags: PredictionTable, inputs: Float64[np.ndarray, "B F"]) -> PredictionTable:
        """Return the bags with the score "error_probability", in [0, 1].

        Args:
            bags: predictions.
            inputs: their ``error_inputs``.
        """
        of_bag = len(self.by_bag.center)
        both = self.by_bag.probabilities(inputs[:, :of_bag]) + self.by_both.probabilities(inputs)
        predicted = both[np.arange(len(bags)), bags.predicted] / 2
        return replace(bags, scores={**bags.scores, ERROR_PROBABILITY: 1 - predicted})

    def save(self, path: Path) -> None:
        """Write the regression to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        FORMAT.write(path, self)

    @classmethod
    def load(cls, path: Path) -> ErrorModel:
        """Return the regression in the file ``path``.

        Raises:
            StorageError: a damaged file, or a newer format.
        """
        return FORMAT.read(path, cls)


def error_inputs(bags: PredictionTable, instances: PredictionTable) -> Float64[np.ndarray, "B F"]:
    """Return the log-odds of each bag against class 0, and the highest of its instances.

    Args:
        bags: predictions.
        instances: of all their instances, bag after bag in the same order.
    """
    starts = _starts(instances)
    return np.hstack([_against_first(bags), np.maximum.reduceat(_against_first(instances), starts)])


def _against_first(table: PredictionTable) -> Float64[np.ndarray, "n F"]:
    log = np.log(np.clip(table.probabilities, _SMALLEST, 1.0))
    odds: np.ndarray = log[:, 1:] - log[:, :1]
    return odds


def _starts(instances: PredictionTable) -> Int64[np.ndarray, "B"]:
    """Return the row of each bag's first instance."""
    ids = instances.bag_ids
    return np.append(0, np.flatnonzero(ids[1:] != ids[:-1]) + 1)


def _short(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{value:.9g}") for value in values)
