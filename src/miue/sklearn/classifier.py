"""A scikit-learn classifier of bags that says how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float64, Int64, Shaped
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from miue.bags import GroupedRows
from miue.bags.cells import is_missing
from miue.bags.classes import likely_negative_class
from miue.common.errors import ConfigError, DataError
from miue.common.text import plural, warn_user
from miue.common.values import Option
from miue.model import DistanceLike, PartLike
from miue.predictions import PredictionTable
from miue.settings import DEFAULT_DISTANCES, TrainingConfig
from miue.sklearn.estimator import BagEstimator, of_bags, uncertainties_of

SETTINGS = tuple(name for name in TrainingConfig.model_fields if name != "seed")
"""Parameters that are fields of ``TrainingConfig``."""


@dataclass(frozen=True, eq=False)
class InstancePredictions:
    """Predictions of the n instances of one bag.

    Attributes:
        predicted: class label of each instance.
        probabilities: expected class probabilities, columns in the order of ``classes_``.
        uncertainties: every measure and distance score by name, higher where less certain.
    """

    predicted: Shaped[np.ndarray, "n"]
    probabilities: Float64[np.ndarray, "n C"]
    uncertainties: Mapping[str, Float64[np.ndarray, "n"]]


class MILUncertaintyClassifier(ClassifierMixin, BagEstimator):
    """Learn from bags with bag labels alone; predict bags and instances with their uncertainty.

    Bags come in the two forms of ``BagEstimator``.

    Args:
        network: name of a network, or a class, factory or module of your own.
        method: name of an uncertainty method, or a class of your own.
        encoder: name of an encoder, or a class, factory or module of your own, or "auto".
        options: "network.hidden", "method.routing" and the like, searched over as ``options__network.hidden``.
        max_epochs: epochs at most; where None, this and others follow from the size of the data.
        learning_rate: of Adam, at the start.
        weight_decay: on weights, not on biases or norms.
        bags_per_update: bags that share one update.
        instances_per_bag: of each bag, instances that an epoch learns from at most, drawn anew; None for all.
        class_balanced: an epoch takes as many bags of each class, not each bag once; validation counts classes.
        augmentation: of images in training, "none" or "rotate-flip" for random quarter turns and mirror images.
        precision: of the encoder in training, "float32" or "bf16-mixed".
        lr_factor: what the learning rate is multiplied with after lr_patience epochs without improvement.
        lr_patience: epochs without improvement before that.
        stop_patience: epochs without improvement before training ends.
        validation_fraction: share of the bags held out to stop by; 0 to train on all.
        temperature_scaling: calibrate the probabilities on the bags held out.
        distances: names of distances to the training instances.
        negative_class: the label whose bags hold background only; None for the first of ``classes_``.
        random_state: seed of weights, bag order and the bags held out.
        device: "auto", "cpu", "gpu".
        verbose: show a bar while training.
    """

    network: PartLike
    method: PartLike
    encoder: PartLike
    options: Mapping[str, Option] | None
    max_epochs: int | None
    learning_rate: float
    weight_decay: float
    bags_per_update: int | None
    instances_per_bag: int | None
    class_balanced: bool
    augmentation: str
    precision: str
    lr_factor: float
    lr_patience: int | None
    stop_patience: int | None
    validation_fraction: float
    temperature_scaling: bool
    distances: Sequence[DistanceLike]
    negative_class: Any
    random_state: int | np.random.RandomState | None
    device: str
    verbose: bool

    @no_type_check  # as scikit-learn wants it, nothing is checked before fit
    def __init__(
        self,
        network: PartLike = "attention",
        method: PartLike = "mirel",
        encoder: PartLike = "auto",
        *,
        options: Mapping[str, Option] | None = None,
        max_epochs: int | None = None,
        learning_rate: float = 1e-4,
        weight_decay: float = 1e-5,
        bags_per_update: int | None = None,
        instances_per_bag: int | None = None,
        class_balanced: bool = False,
        augmentation: str = "none",
        precision: str = "float32",
        lr_factor: float = 0.5,
        lr_patience: int | None = None,
        stop_patience: int | None = None,
        validation_fraction: float = 0.2,
        temperature_scaling: bool = True,
        distances: Sequence[DistanceLike] = DEFAULT_DISTANCES,
        negative_class: Any = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.method = method
        self.encoder = encoder
        self.options = options
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.bags_per_update = bags_per_update
        self.instances_per_bag = instances_per_bag
        self.class_balanced = class_balanced
        self.augmentation = augmentation
        self.precision = precision
        self.lr_factor = lr_factor
        self.lr_patience = lr_patience
        self.stop_patience = stop_patience
        self.validation_fraction = validation_fraction
        self.temperature_scaling = temperature_scaling
        self.distances = distances
        self.negative_class = negative_class
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, bag_ids: Any, groups: Any) -> None:
        labels = _labels(y)
        rows, instances = self._instances(X, bag_ids)
        labels = of_bags(labels, rows, len(instances))
        self.classes_ = _classes(labels)
        self._class_order = order = self._order()
        numbers = np.argsort(order)[np.searchsorted(self.classes_, labels)]
        names = [str(name) for name in self.classes_[order]]
        dataset = self._dataset(instances, rows, groups, numbers, names)
        self._train(dataset, {name: getattr(self, name) for name in SETTINGS})

    def predict(self, X: Any, *, bag_ids: Any = None) -> Shaped[np.ndarray, "B"]:
        """Return the most probable class of each bag."""
        probabilities = self.predict_proba(X, bag_ids=bag_ids)
        labels: np.ndarray = self.classes_[probabilities.argmax(1)]
        return labels

    def predict_proba(self, X: Any, *, bag_ids: Any = None) -> Float64[np.ndarray, "B C"]:
        """Return the expected class probabilities of each bag, columns in the order of ``classes_``."""
        return self._probabilities(self._predictions(X, bag_ids).bags)

    def predict_log_proba(self, X: Any, *, bag_ids: Any = None) -> Float64[np.ndarray, "B C"]:
        """Return the logarithms of ``predict_proba``, minus infinity where a probability is 0."""
        with np.errstate(divide="ignore"):
            logs: np.ndarray = np.log(self.predict_proba(X, bag_ids=bag_ids))
        return logs

    def decision_function(self, X: Any, *, bag_ids: Any = None) -> Float64[np.ndarray, "B *C"]:
        """Return the log-odds of the second of two classes, of more the log-probability of each.

        Scorers and calibrators refuse infinity, so a probability below the smallest number of full precision,
        2e-308, counts as that number.
        """
        logs: np.ndarray = np.log(np.maximum(self.predict_proba(X, bag_ids=bag_ids), np.finfo(np.float64).tiny))
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def predict_instances(self, X: Any, *, bag_ids: Any = None) -> list[InstancePredictions]:
        """Return the predictions of each bag's instances, in the order in which they were passed."""
        table = self._predictions(X, bag_ids).instances
        assert table is not None
        assert table.instance is not None
        probabilities, uncertainties = self._probabilities(table), uncertainties_of(table)
        ends = np.append(np.flatnonzero(table.instance == 0)[1:], len(table))
        spans = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        return [
            InstancePredictions(
                self.classes_[probabilities[span].argmax(1)],
                probabilities[span],
                {name: values[span] for name, values in uncertainties.items()},
            )
            for span in spans
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, bag_ids: Any = None) -> float:
        """Return the accuracy over bags; ``sample_weight`` and ``y`` are given as ``y`` is to ``fit``."""
        from sklearn.metrics import accuracy_score

        labels = _labels(y)
        if bag_ids is not None:
            rows = GroupedRows.of(bag_ids)
            labels = rows.one_of_each(labels, "y")
            if sample_weight is not None:
                sample_weight = rows.one_of_each(np.asarray(sample_weight), "sample_weight")
        return float(accuracy_score(labels, self.predict(X, bag_ids=bag_ids), sample_weight=sample_weight))

    def _order(self) -> Int64[np.ndarray, "C"]:
        """Return the position in ``classes_`` of each class of the model, whose class 0 is the negative one."""
        every = np.arange(len(self.classes_))
        if self.negative_class is None:
            self._question_negative_class()
            return every
        (negative,) = np.nonzero(self.classes_ == self.negative_class)
        if len(negative) != 1:
            raise ConfigError(
                item="negative_class",
                wanted=f"one of {', '.join(map(repr, self.classes_.tolist()))}",
                got=repr(self.negative_class),
                fix="name the class whose bags hold background only; where scikit-learn numbers the classes "
                "(cross_val_predict with predict_proba), give it as its number in sorted order, or pass labels "
                "that are numbers, 0 for that class, which CalibratedClassifierCV needs with ensemble=False",
            )
        return np.concatenate([negative, np.delete(every, negative)])

    def _question_negative_class(self) -> None:
        """Warn where another class than the first sounds negative; ``verbose`` prints it."""
        first = str(self.classes_[0])
        likely = likely_negative_class([str(name) for name in self.classes_])
        if likely and not self.verbose and "method.background" not in (self.options or {}):
            warn_user(
                f"the negative class, whose bags hold background only, is {first!r}, the first of classes_; if it "
                f"is {likely!r}, pass negative_class={likely!r}, else negative_class={first!r}"
            )

    def _probabilities(self, table: PredictionTable) -> Float64[np.ndarray, "n C"]:
        return table.probabilities[:, np.argsort(self._class_order)]


def _labels(y: Any) -> Shaped[np.ndarray, "n"]:
    """Return ``y`` as an array of class labels, none missing."""
    if y is None:
        raise DataError(
            item="y",
            wanted="the class of each bag",
            got="None",
            fix="pass the labels; a classifier requires y to be passed, but the target y is None",
        )
    values = np.asanyarray(y, object).ravel().tolist()  # None where masked
    missing = [is_missing(label) for label in values]
    if any(missing):
        raise DataError(
            item=f"y, entry {missing.index(True)}",
            wanted="a class label",
            got=repr(values[missing.index(True)]),
            fix="leave out what is not labeled; NaN and None are no classes",
        )
    labels: np.ndarray = column_or_1d(y, warn=True)
    plain = np.asarray(values)
    if plain.dtype.kind in "biu" and labels.dtype.kind == "f":  # of nullable numbers scikit-learn makes floats
        labels = plain
    check_classification_targets(labels)
    return labels


def _classes(labels: Shaped[np.ndarray, "B"]) -> Shaped[np.ndarray, "C"]:
    classes: np.ndarray = np.unique(labels)
    if len(classes) < 2:
        raise DataError(
            item="y",
            wanted="bags of two classes or more",
            got=plural(len(classes), "class") if len(classes) else "no bags",
            fix="add bags of another class",
        )
    return classes
