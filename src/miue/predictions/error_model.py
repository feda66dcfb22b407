"""How probable it is that a bag, or an instance in it, is misclassified; fitted on validation bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from miue.common.errors import DataError
from miue.common.records import JsonFormat
from miue.predictions.instance_errors import ERROR_PROBABILITY as ERROR_PROBABILITY
from miue.predictions.instance_errors import (
    SMALLEST,
    InstanceErrorModel,
    instance_log_odds,
    log_odds_against,
    short,
)
from miue.predictions.table import PredictionTable

ERROR_MODEL = "error_model.json"
FORMAT = JsonFormat("miue-error-model", 3, "error_model", "error model", "train again")

FEWEST = 5  # bags of each class


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
        scale[scale <= SMALLEST] = 1.0  # an input that is the same for every bag
        fitted = LogisticRegression(max_iter=1000).fit((inputs - center) / scale, labels)
        weights, intercepts = fitted.coef_, fitted.intercept_
        if len(weights) == 1:  # of two classes, one row: class 1 against class 0
            weights, intercepts = np.vstack([0 * weights, weights]), np.append(0.0, intercepts)
        return cls(
            center=short(center),
            scale=short(scale),
            weights=tuple(map(short, weights)),
            intercepts=short(intercepts),
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

    That of an instance follows from its bag's and from curves of instances, see ``InstanceErrorModel``.

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
        of_instances: the errors of instances; None where no class has negative instances only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    estimator: str | None
    bags: int = Field(ge=1)
    by_bag: Regression
    by_both: Regression
    of_instances: InstanceErrorModel | None = None

    @model_validator(mode="after")
    def _of_the_same_classes(self) -> ErrorModel:
        classes = len(self.by_bag.intercepts)
        wanted = (classes, classes - 1, 2 * (classes - 1))
        if (len(self.by_both.intercepts), len(self.by_bag.center), len(self.by_both.center)) != wanted:
            raise ValueError("two regressions of the same classes are wanted, of C − 1 and of 2 (C − 1) inputs")
        curves = self.of_instances
        if curves is not None and (len(curves.curves) != classes - 1 or curves.negative_class >= classes):
            raise ValueError("a curve of instances is wanted for each class but the negative one")
        return self

    @classmethod
    def fit(
        cls,
        bags: PredictionTable,
        read: ErrorInputs,
        estimator: str | None,
        class_names: Sequence[str] = (),
    ) -> ErrorModel:
        """Return the model fitted to the labeled bags that are not known to be out of distribution.

        Args:
            bags: predictions of bags that the weights were not trained on.
            read: what it reads of them.
            estimator: what the instances were predicted from.
            class_names: of the C classes, for messages; numbers if empty.

        Raises:
            DataError: fewer than ``FEWEST`` labeled bags of a class.
        """
        judged, classes = np.flatnonzero(bags.judged), bags.distribution.num_classes
        labels = bags.labels.values[judged]
        counts, names = np.bincount(labels, minlength=classes), list(class_names) or range(classes)
        if counts.min() < FEWEST:
            raise DataError(
                item="the error probability of bags",
                wanted=f"at least {FEWEST} labeled validation bags of each class",
                got=", ".join(f"{n} of class {name}" for n, name in zip(counts, names, strict=True)),
                fix="train with more validation bags",
            )
        inputs = read.of_bags[judged]
        of_instances = None
        if read.negative_class is not None:
            log_odds = [read.of_instances[row] for row in judged]
            of_instances = InstanceErrorModel.fit(labels, log_odds, read.negative_class)
        return cls(
            estimator=estimator,
            bags=len(labels),
            by_bag=Regression.fit(inputs[:, : classes - 1], labels),
            by_both=Regression.fit(inputs, labels),
            of_instances=of_instances,
        )

    def add_to(self, bags: PredictionTable, instances: PredictionTable) -> tuple[PredictionTable, PredictionTable]:
        """Return bags and instances with the score "error_probability", in [0, 1].

        Args:
            bags: predictions.
            instances: of all their instances, bag after bag in the same order.
        """
        sizes = _sizes(instances)
        of_classes = self._probabilities(bag_inputs(bags, instances, sizes))
        if self.of_instances is not None:
            instances = self.of_instances.add_to(instances, of_classes, sizes)
        return _with_errors(bags, of_classes), instances

    def add_to_bags(self, bags: PredictionTable, inputs: Float64[np.ndarray, "B F"]) -> PredictionTable:
        """Return the bags with their error probability, given their ``bag_inputs``."""
        return _with_errors(bags, self._probabilities(inputs))

    def _probabilities(self, inputs: Float64[np.ndarray, "B F"]) -> Float64[np.ndarray, "B C"]:
        """Return the mean of both regressions."""
        of_bag = len(self.by_bag.center)
        return (self.by_bag.probabilities(inputs[:, :of_bag]) + self.by_both.probabilities(inputs)) / 2

    def save(self, path: Path) -> None:
        """Write the error model to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        FORMAT.write(path, self)

    @classmethod
    def load(cls, path: Path) -> ErrorModel:
        """Return the error model in the file ``path``.

        Raises:
            StorageError: a damaged file, or one of another version.
        """
        return FORMAT.read(path, cls)


@dataclass(frozen=True)
class ErrorInputs:
    """What an error model is fitted to, of B bags.

    Attributes:
        of_bags: log-odds of each bag, and the highest of its instances.
        of_instances: sorted log-odds of the instances of each bag against the negative class.
        negative_class: whose bags have negative instances only; None if there is none, and no log-odds.
    """

    of_bags: Float64[np.ndarray, "B F"]
    of_instances: list[np.ndarray]
    negative_class: int | None

    @classmethod
    def of(cls, bags: PredictionTable, instances: PredictionTable, negative_class: int | None = 0) -> ErrorInputs:
        """Return what is read of bags and all their instances, bag after bag in the same order."""
        sizes = _sizes(instances)
        log_odds = [] if negative_class is None else instance_log_odds(instances, negative_class, sizes)
        return cls(bag_inputs(bags, instances, sizes), log_odds, negative_class)

    @classmethod
    def concatenate(cls, parts: Sequence[ErrorInputs]) -> ErrorInputs:
        """Return what is read of all bags of the parts, one after the other."""
        of_instances = [each for part in parts for each in part.of_instances]
        return cls(np.concatenate([part.of_bags for part in parts]), of_instances, parts[0].negative_class)


def bag_inputs(
    bags: PredictionTable, instances: PredictionTable, sizes: Int64[np.ndarray, "B"]
) -> Float64[np.ndarray, "B F"]:
    """Return the log-odds of each bag against class 0, and the highest of its instances.

    Args:
        bags: predictions.
        instances: of all their instances, bag after bag in the same order.
        sizes: number of instances of each bag.
    """
    starts = np.cumsum(sizes) - sizes
    return np.hstack([log_odds_against(bags, 0), np.maximum.reduceat(log_odds_against(instances, 0), starts)])


def _with_errors(bags: PredictionTable, of_classes: Float64[np.ndarray, "B C"]) -> PredictionTable:
    """Return the bags with the probability that the predicted class is wrong, given that of each class."""
    wrong = 1 - of_classes[np.arange(len(bags)), bags.predicted]
    return replace(bags, scores={**bags.scores, ERROR_PROBABILITY: wrong})


def _sizes(instances: PredictionTable) -> Int64[np.ndarray, "B"]:
    """Return the number of instances of each bag, which lie bag after bag; the same bag may follow itself."""
    ids, position = instances.bag_ids, instances.instance
    is_next = ids[1:] != ids[:-1]
    if position is not None:
        is_next |= position[1:] <= position[:-1]
    starts = np.append(0, np.flatnonzero(is_next) + 1)
    return np.diff(np.append(starts, len(ids)))
