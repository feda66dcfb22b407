"""What made predictions: the model, its training, the bags that were predicted, and what decided on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from miue.bags.classes import ClassNames
from miue.common.records import JsonFormat
from miue.common.values import Option, Scalar
from miue.predictions.table import PredictionTable
from miue.targets import AnyTarget

WEIGHTED_FOR = "bags that the calibration was weighted for"
SHOWN = 3  # uncertainties in the message of a shift, the clearest first

HARDLY = 0.95
"""A model whose criterion is above this share of that of the class shares has hardly learned."""

VALIDATION = "validation.json"
SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 1.0)
_FORMAT = JsonFormat("miue-validation", 2, "validation", "validation quantiles", "train again")


class TrainingRecord(BaseModel):
    """How a model was trained.

    Attributes:
        seed: of initial weights, bag order and dropout.
        training_bags: how many it was trained on.
        validation_bags: how many it was validated on, 0 where it stopped by its training bags.
        epochs: epochs trained, of an ensemble those of all members.
        best_epoch: the epoch whose weights were kept, of an ensemble one for each member.
        criterion: NLL + error rate of that epoch, of an ensemble the mean; averaged over classes, not over bags,
            where training was class-balanced.
        settings: fields of ``TrainingConfig`` but the seed.
        without_distances: why no distances to the training instances were fitted, "" where they were.
        without_error_model: why no error model was fitted to the validation bags, "" otherwise.
        temperature: T of the probabilities of bags and instances, fitted to the validation bags; None for none.
            ``distribution.tempered(1 / T)`` are the predictions without it.
        constant_criterion: the lowest NLL + error rate on the same bags of any prediction that is the same for
            each, that of the class shares; None where one class alone is there, or it was not written down.
        also_try: an option of the network to try where hardly anything was learned, "" otherwise.
        initial_weights: SHA-256 of the weights that training started from, "" where they were drawn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    seed: int
    training_bags: int = Field(ge=0)
    validation_bags: int = Field(ge=0)
    epochs: int = Field(ge=0)
    best_epoch: int | tuple[int, ...]
    criterion: float
    settings: dict[str, Scalar]
    without_distances: str = ""
    without_error_model: str = ""
    temperature: float | None = Field(default=None, gt=0)
    constant_criterion: float | None = None
    also_try: str = ""
    initial_weights: str = ""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Why predictions lack distances or the error probability, of each a sentence."""
        return tuple(filter(None, (self.without_distances, self.without_error_model)))

    @property
    def criterion_name(self) -> str:
        """What the criterion is: of all bags, or where training was class-balanced, averaged over classes."""
        return "class-balanced NLL + error" if self.settings.get("class_balanced") else "NLL + error"

    @property
    def warning(self) -> str:
        """What is to be said of a model that hardly learned, "" of another."""
        if self.constant_criterion is None or self.criterion < HARDLY * self.constant_criterion:
            return ""
        bags = "validation" if self.validation_bags else "training"
        shares = "equal shares of the classes" if self.settings.get("class_balanced") else "the class shares"
        return (
            f"hardly anything was learned: on the {bags} bags {self.criterion_name} is {self.criterion:.3f}, "
            f"and {shares} as prediction of every bag have {self.constant_criterion:.3f}; train longer, or choose "
            f"another learning_rate, bags_per_update or method{self.also_try and f', or {self.also_try}'}"
        )


class DatasetShift(BaseModel):
    """How new bags differ from the calibration bags.

    Attributes:
        bags: how many new ones were compared; one of each patient where patients are known.
        calibrated: how many calibration bags there were.
        higher: uncertainties that are higher than usual, with the chance of so large a difference among bags of
            one kind, times the number of uncertainties; those of ``calibration.dataset_shift.CHANCE`` or less.
        lower: likewise, that are lower.
        weighted: whether they were compared with the bags that the calibration was weighted for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    bags: int
    calibrated: int
    higher: dict[str, float]
    lower: dict[str, float]
    weighted: bool = False

    def __bool__(self) -> bool:
        return bool(self.higher or self.lower)

    @property
    def reference(self) -> str:
        """Which bags the new ones were compared with."""
        return WEIGHTED_FOR if self.weighted else "calibration bags"

    @property
    def meaning(self) -> str:
        """What a difference means for the guarantees."""
        if self.weighted:
            return "The guarantees of the weighted calibration hold for those bags, not for these"
        return "The guarantees of a calibration hold only for bags like its own"

    def __str__(self) -> str:
        sides = (("higher", self.higher), ("lower", self.lower))
        differing = sorted((chance, name, side) for side, names in sides for name, chance in names.items())
        parts = [f"{name} is {side} (p = {chance:.1g})" for chance, name, side in differing[:SHOWN]]
        parts += [f"{len(differing) - SHOWN} more differ"] if differing[SHOWN:] else []
        count = f"the {self.bags:,} new bags are not like the {self.calibrated:,} {self.reference}"
        return f"{count}: {', '.join(parts)}" if parts else f"no sign that {count}"


class ValidationQuantiles(BaseModel):
    """How uncertain a model is of its validation bags: what a value is usual for, where no calibration says so.

    Attributes:
        bags: how many there were.
        shares: which quantiles, ascending from 0 to 1.
        uncertainties: the quantiles of each measure and score.
        instances: the quantiles of the number of instances in a bag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    bags: int = Field(ge=1)
    shares: tuple[float, ...] = Field(min_length=2)
    uncertainties: dict[str, tuple[float, ...]]
    instances: tuple[float, ...]

    @model_validator(mode="after")
    def _one_value_for_each_share(self) -> ValidationQuantiles:
        for values in (*self.uncertainties.values(), self.instances):
            if len(values) != len(self.shares):
                raise ValueError("a quantile for each share is wanted")
        return self

    @classmethod
    def of(cls, bags: PredictionTable, sizes: Int64[np.ndarray, "n"]) -> ValidationQuantiles:
        """Return the quantiles of these bags; an uncertainty that is not finite everywhere is left out.

        The i-th smallest of n values is the quantile i / (n + 1) (Weibull), which a new value of the same kind
        exceeds with chance 1 − i / (n + 1). Six digits are kept.

        Args:
            bags: their predictions.
            sizes: how many instances each has.
        """
        named = bags.uncertainties()
        return cls(
            bags=len(bags),
            shares=SHARES,
            uncertainties={name: _quantiles(one) for name, one in named.items() if np.isfinite(one).all()},
            instances=_quantiles(sizes),
        )

    def uncertainty(self, name: str, share: float) -> float | None:
        """Return the value up to which the uncertainty of such a share of validation bags is; None if not kept."""
        values = self.uncertainties.get(name)
        return None if values is None else self._at(share, values)

    def size(self, share: float) -> float:
        """Return the number of instances up to which such a share of validation bags has."""
        return self._at(share, self.instances)

    def _at(self, share: float, values: tuple[float, ...]) -> float:
        """Interpolate with as many digits as are kept: a share of 1 - 0.95 is 0.05 within rounding alone."""
        return _rounded(float(np.interp(share, self.shares, values)))

    def save(self, path: Path) -> None:
        """Write the quantiles to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        _FORMAT.write(path, self)

    @classmethod
    def load(cls, path: Path) -> ValidationQuantiles:
        """Return the quantiles in the file ``path``.

        Raises:
            StorageError: a damaged file, or one of another version.
        """
        return _FORMAT.read(path, cls)


class ShardOf(BaseModel):
    """Which part of a prediction these predictions are; the others are alike but for the number.

    Attributes:
        number: which shard, from 1.
        count: how many there are.
        request: digest of all that was to be predicted: bags, seed and estimator.
        run: folder of the model.
        calibration: digest of the calibration that decides once all shards are there, "" where there is none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(ge=1)
    count: int = Field(ge=1)
    request: str
    run: str
    calibration: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


class Provenance(BaseModel):
    """What made predictions, as far as it is known; of the tables of another tool, nothing.

    Attributes:
        network: name of the network.
        method: name of the uncertainty method.
        encoder: name of the encoder.
        options: those of encoder, network and method that differ from the defaults, as "network.hidden".
        version: of miue.
        classes: name of each class, in the order of the probabilities.
        target: what labels mean where they are more than classes.
        training: how the model was trained.
        weights_sha256: of its model.safetensors.
        validation: how uncertain it is of its validation bags.
        estimator: what instances were predicted from.
        bag_per: what all slides of a bag share, such as "patient"; "" where a bag is one.
        bags: path of the bags that were predicted.
        split: which of them.
        calibration: the rules that decided, without the values of the calibration bags; read it with
            ``miue.calibration.applied_calibration``.
        dataset_shift: how the bags differ from the calibration bags.
        notes: what anyone wants to add; a report shows it.
        shard: which part of them these are, None where they are whole.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    network: str | None = None
    method: str | None = None
    encoder: str | None = None
    options: dict[str, Option] | None = None
    version: str | None = None
    classes: ClassNames = ()
    target: AnyTarget | None = None
    training: TrainingRecord | None = None
    weights_sha256: str | None = None
    validation: ValidationQuantiles | None = None
    estimator: str | None = None
    bag_per: str = ""
    bags: str | None = None
    split: str | None = None
    calibration: dict[str, JsonValue] | None = None
    dataset_shift: DatasetShift | None = None
    notes: dict[str, JsonValue] = Field(default_factory=dict)
    shard: ShardOf | None = None

    @property
    def seed(self) -> int | None:
        """Seed of the training."""
        return None if self.training is None else self.training.seed

    @property
    def negative_class(self) -> int | None:
        """The class of the option ``method.background``, whose bags have negative instances only.

        None where the option has its default, or is not known.
        """
        number = (self.options or {}).get("method.background")
        return number if isinstance(number, int) else None

    def to_json(self) -> dict[str, Any]:
        """Return what is known, as JSON values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def facts(self) -> dict[str, Any]:
        """Return what is known, as JSON values by name, those of the training beside the others."""
        known = self.to_json().items()
        return {
            name: one
            for key, value in known
            for name, one in (value if key == "training" else {key: value}).items()
        }


UNKNOWN = Provenance()
"""Of the tables of another tool."""


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    quantiles = np.quantile(np.asarray(values, np.float64), SHARES, method="weibull")
    return tuple(map(_rounded, quantiles.tolist()))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
