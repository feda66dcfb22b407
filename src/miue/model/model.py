"""A trained model: its method, what it was made of, what data it takes; saved as a folder without pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors.torch import save
from torch import Tensor

from miue.bags import BagDataset, LabelSequence
from miue.calibration import CALIBRATION, Calibration, decide, fit_temperature
from miue.common.errors import DataError, first_few
from miue.common.files import atomic_folder, write_json
from miue.common.folder_kinds import MODEL
from miue.common.records import FILES, MODEL_FORMAT, list_files, sealed
from miue.common.tasks import Shard
from miue.common.tensors import copy_weights, own_torch_state, write_tensors
from miue.common.text import PrintsAsTable, ResultTable
from miue.common.values import checked
from miue.methods import ATTENTION, Method
from miue.model.build import check_saveable
from miue.model.config import KINDS, ModelConfig
from miue.model.contract import DataContract
from miue.model.feature_scores import DistanceScores
from miue.model.folder import (
    COMPANIONS,
    CONFIG,
    VERSION,
    WEIGHTS,
    check_companions,
    read_config,
    read_distances,
    read_method,
    saved_name,
)
from miue.model.predict import OnBad, predict
from miue.model.training_bags import TrainingBags
from miue.predictions import (
    ERROR_MODEL,
    ERROR_PROBABILITY,
    VALIDATION,
    ErrorInputs,
    ErrorModel,
    Predictions,
    PredictionStream,
    PredictionTable,
    Provenance,
    TrainingRecord,
    ValidationQuantiles,
)
from miue.scores import FeatureDistance
from miue.targets import IntervalTarget

if TYPE_CHECKING:
    from miue.evaluation import Evaluation


@dataclass(frozen=True, repr=False)
class Model(PrintsAsTable):
    """A method with its weights, and what is needed to build it again.

    Attributes:
        method: network and uncertainty method.
        config: what it is made of.
        contract: what bags must look like.
        training: how it was trained.
        distances: distance scores of instances to the training instances.
        calibration: what decisions are made by, where the model was calibrated.
        validation: how uncertain it is of its validation bags, where it had any.
        error_model: how probable an error is, where it had validation bags enough.
        weights_sha256: of model.safetensors, as it was read or would be written.
        training_bags: what it was trained on, None where that is not known.
    """

    method: Method
    config: ModelConfig
    contract: DataContract
    training: TrainingRecord
    distances: Mapping[str, FeatureDistance] = field(default_factory=dict)
    calibration: Calibration | None = None
    validation: ValidationQuantiles | None = None
    error_model: ErrorModel | None = None
    weights_sha256: str = ""
    training_bags: TrainingBags | None = None

    made_by: ClassVar[str] = "read it: miue.Model.load(path)"

    def __post_init__(self) -> None:
        if not self.weights_sha256:
            digest = hashlib.sha256(save(copy_weights(self.method))).hexdigest()
            object.__setattr__(self, "weights_sha256", digest)

    @checked()
    def predict(
        self,
        bags: BagDataset | Sequence[np.ndarray | Tensor],
        labels: LabelSequence | None = None,
        *,
        estimator: str | None = None,
        seed: int = 0,
        progress: bool = False,
        device: str = "auto",
        precision: str = "float32",
        on_bad: OnBad | None = None,
    ) -> Predictions:
        """Predict bags and their instances, and decide on each bag if calibrated; labels are not needed.

        Args:
            bags: a dataset, or arrays (n, D) or (n, H, W[, channels]).
            labels: class index of each bag, None where unknown, for ``miue.evaluate``; where ``bags`` are arrays.
            estimator: what instances are predicted from: "residual", "bag-of-one" or "attention"; None for the
                one whose flags were calibrated, else for the method's first.
            seed: of the draws, where the method draws.
            progress: show a bar with the time left.
            device: "auto", "cpu", "gpu".
            precision: of the encoder; "bf16-mixed" is faster where the device has it, and rounds more.
            on_bad: called with each bag that cannot be read, which is left out; if None, the first is an error.

        Raises:
            ModelError: instances of another shape than the model was trained on; a calibration of other weights.
            DataError: a label of a class that the model does not have, or flags calibrated for another estimator.
            ConfigError: an instance estimator that the model does not have, or labels beside a dataset.
        """
        return self.stream(
            bags,
            labels,
            estimator=estimator,
            seed=seed,
            progress=progress,
            device=device,
            precision=precision,
            on_bad=on_bad,
        ).collect()

    @checked()
    def stream(
        self,
        bags: BagDataset | Sequence[np.ndarray | Tensor],
        labels: LabelSequence | None = None,
        *,
        estimator: str | None = None,
        seed: int = 0,
        progress: bool = False,
        device: str = "auto",
        precision: str = "float32",
        on_bad: OnBad | None = None,
        shard: Shard | None = None,
    ) -> PredictionStream:
        """Return predictions that are computed while they are saved: ``model.stream(bags).save(folder)``.

        Memory does not grow with the number of bags. Arguments and errors are those of ``predict``. With a shard,
        a part of the bags is predicted, on which ``merge_predictions`` decides when all are there.
        """
        if self.calibration is not None:
            self.calibration.check_weights(self.weights_sha256)
        dataset = BagDataset.of(bags, labels, known_classes=self.contract.class_names)
        self.check(dataset)
        self._scores.check(dataset)
        rule = None if self.calibration is None else self.calibration.instances
        chosen = estimator or (rule and rule.estimator) or self.method.estimators[0]
        self.method.check_estimator(chosen)
        if rule is not None:
            rule.check_estimator(chosen)
        errors = self._error_model(chosen)
        batches = predict(
            self.method,
            self.contract.labeled(dataset),
            estimator=chosen,
            seed=seed,
            progress=progress,
            device=device,
            precision=precision,
            scores=self._scores if self.distances else None,
            on_bad=on_bad,
            shard=shard,
        )

        def complete(predictions: Predictions) -> Predictions:
            if self.training_bags is not None:
                used = self.training_bags.compare(dataset).part_of()
                parts = np.array([used[name] for name in predictions.bags.bag_ids], object)
                predictions = replace(predictions, bags=replace(predictions.bags, training_parts=parts))
            if self.calibration is None or shard is not None:
                return predictions
            return decide(predictions, self.calibration)

        if errors is not None:
            batches = (errors.add_to(of_bags, of_instances) for of_bags, of_instances in batches)
        if (temperature := self.training.temperature) is not None:
            kept = chosen == ATTENTION  # weights that sum to one over a bag: no probabilities of classes
            batches = (
                (of_bags.tempered(temperature), of_instances if kept else of_instances.tempered(temperature))
                for of_bags, of_instances in batches
            )
        if rule is not None and shard is None:
            batches = ((of_bags, rule.flag(of_instances)) for of_bags, of_instances in batches)
        return PredictionStream(batches, self.provenance().model_copy(update={"estimator": chosen}), complete)

    @cached_property
    def _scores(self) -> DistanceScores:
        return DistanceScores(self.distances)

    def _error_model(self, estimator: str) -> ErrorModel | None:
        """Return the error model, None where there is none or it reads the instances of another estimator.

        Raises:
            DataError: the calibration defers by it, and it reads the instances of another estimator.
        """
        errors = self.error_model
        if errors is None or errors.estimator == estimator:
            return errors
        deferral = None if self.calibration is None else self.calibration.deferral
        if deferral is not None and deferral.measure == ERROR_PROBABILITY:
            raise DataError(
                item=f"the estimator of instances {estimator!r}",
                wanted=f"{errors.estimator!r}, which {ERROR_PROBABILITY} reads, by which bags are deferred",
                got=repr(estimator),
                fix=f"predict with {errors.estimator}, or calibrate by least_confidence",
            )
        return None

    def check(self, bags: BagDataset) -> None:
        """Raise unless the model can take these bags; warn where they may mean something else than in training.

        Raises:
            ModelError: instances of another shape, features in another order, or images of another scale.
        """
        self.contract.check(bags)

    def with_validation(self, validation: BagDataset, *, device: str = "auto") -> Model:
        """Return the model with what its validation bags say: a temperature, usual uncertainties, an error model.

        Too few labeled bags leave the temperature or the error model out, and ``training`` says so. A calibration
        is left out: it held for what the model predicted before.

        Args:
            validation: bags that its weights were not trained on.
            device: "auto", "cpu", "gpu".

        Raises:
            ModelError: instances of another shape.
        """
        without = self.training.model_copy(update={"temperature": None, "without_error_model": ""})
        bare = replace(self, training=without, error_model=None, calibration=None)
        stream = bare.stream(validation, device=device)
        tables, parts = [], []
        for of_bags, of_instances in stream.batches:
            tables.append(of_bags)
            parts.append(ErrorInputs.of(of_bags, of_instances, self.method.negative_class))
        bags, read = PredictionTable.concatenate(tables), ErrorInputs.concatenate(parts)
        said: dict[str, Any] = {}
        target = self.contract.target
        is_class = not isinstance(target, IntervalTarget)
        has_labels = not isinstance(target, IntervalTarget) or not target.has_censoring
        if has_labels and without.settings.get("temperature_scaling") and self.method.takes_temperature:
            said["temperature"] = fit_temperature(bags)
        errors: ErrorModel | None = None
        try:
            errors = (
                None
                if not is_class
                else ErrorModel.fit(bags, read, stream.provenance.estimator, self.contract.class_names)
            )
        except DataError as error:
            said["without_error_model"] = str(error)
        if errors is not None:
            bags = errors.add_to_bags(bags, read.of_bags)
        if (temperature := said.get("temperature")) is not None:
            bags = bags.tempered(temperature)
        training = without.model_copy(update=said)
        quantiles = ValidationQuantiles.of(bags, validation.sizes)
        return replace(bare, training=training, validation=quantiles, error_model=errors)

    @checked()
    def evaluate(
        self,
        bags: BagDataset | Sequence[np.ndarray | Tensor],
        labels: LabelSequence | None = None,
        *,
        device: str = "auto",
        allow_training_bags: bool = False,
    ) -> Evaluation:
        """Predict labeled bags and return the metrics of these predictions.

        Args:
            bags: a dataset, or arrays, as for ``predict``.
            labels: class index of each bag, where ``bags`` are arrays.
            device: "auto", "cpu", "gpu".
            allow_training_bags: evaluate although the model was trained on some of these bags.

        Raises:
            DataError: the model was trained on some of these bags, or on others of their patients.
            ModelError, ConfigError: as ``predict`` does.
        """
        from miue.evaluation import evaluate

        return evaluate(self.predict(bags, labels, device=device), allow_training_bags=allow_training_bags)

    def provenance(self) -> Provenance:
        """Return what its predictions keep of the model."""
        return Provenance(
            network=self.config.network.name,
            method=self.config.method.name,
            encoder=self.config.encoder.name,
            options=self.config.chosen_options(),
            version=_installed(),
            classes=self.contract.class_names,
            target=self.contract.target,
            training=self.training,
            weights_sha256=self.weights_sha256,
            validation=self.validation,
            bag_per=self.contract.bag_per,
        )

    def tables(self) -> tuple[ResultTable]:
        """Return the parts with their options, and what they were made for."""
        parts = {kind: getattr(self.config, kind) for kind in KINDS}
        chosen = self.config.chosen_options()
        options = {
            kind: [f"{name}={value}" for name, value in part.options.items() if f"{kind}.{name}" in chosen]
            for kind, part in parts.items()
        }
        rows = [(kind, part.name, ", ".join(options[kind])) for kind, part in parts.items()]
        weights = f"{sum(weight.numel() for weight in self.method.parameters()):,} weights"
        classes = first_few(self.contract.class_names, 6)
        calibrated = "calibrated" if self.calibration is not None else "not calibrated"
        temperature = self.training.temperature
        at = "no temperature" if temperature is None else f"temperature {temperature:.2f}"
        note = (
            f"instances of shape {self.contract.shape_in_words}; classes {classes}; {weights}; {at}; {calibrated}"
        )
        notes = (note, self.training.warning) if self.training.warning else (note,)
        return (ResultTable(("model", "name", "options"), tuple(rows), notes),)

    @checked()
    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the model's files to the folder ``path``, whole or not at all.

        Raises:
            StorageError: ``path`` is taken, or the disk is full.
            ConfigError: a part that another process could not build again.
        """
        self.check_saveable()
        with atomic_folder(Path(path), MODEL, overwrite=overwrite) as folder:
            self.write_into(folder)

    def check_saveable(self) -> None:
        """Raise unless another process can build the model again.

        Raises:
            ConfigError: a part without an import path, or a module that cannot be built again.
        """
        check_saveable(self.config, self.contract, list(self.distances.values()))

    def write_into(self, folder: Path | str) -> None:
        """Write the model's files beside whatever ``folder`` holds; config.json comes last."""
        folder = Path(folder)
        write_tensors(folder / WEIGHTS, copy_weights(self.method))
        if self.distances:
            state = {f"{name}.{k}": v for name, d in self.distances.items() for k, v in copy_weights(d).items()}
            write_tensors(folder / "distances.safetensors", state)
        if self.calibration is not None:
            self.calibration.save(folder / CALIBRATION)
        if self.validation is not None:
            self.validation.save(folder / VALIDATION)
        if self.error_model is not None:
            self.error_model.save(folder / ERROR_MODEL)
        if self.training_bags is not None:
            self.training_bags.save(folder)
        content = {
            "format": MODEL_FORMAT,
            "version": VERSION,
            "miue": version("miue"),
            "model": self.config.model_dump(mode="json"),
            "contract": self.contract.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json"),
            "distances": [saved_name(distance) for distance in self.distances.values()],
            FILES: list_files(folder, COMPANIONS),
        }
        write_json(folder / CONFIG, sealed(content))

    @classmethod
    @checked()
    @own_torch_state(trains=True)
    def load(cls, path: Path | str, *, trust: bool = False, calibrated: bool = True) -> Model:
        """Return the model saved in the folder ``path``.

        Args:
            path: of the folder.
            trust: whether to import and run parts that are not of miue, named in the folder by import path.
            calibrated: with its calibration, if it has one; False to calibrate it anew.

        Raises:
            StorageError: no model there, a file that is missing, damaged or of another model, or a folder that
                another version of miue wrote.
            ModelError: weights that do not fit the config; a part that is not of miue, without trust or not
                installed.
        """
        folder = Path(path)
        saved = read_config(folder)
        check_companions(folder, saved, calibrated=calibrated)
        return cls(
            read_method(folder, saved, trust=trust),
            saved.model,
            saved.contract,
            saved.training,
            read_distances(folder, saved.distances, trust=trust),
            Calibration.load(folder) if calibrated and CALIBRATION in saved.files else None,
            ValidationQuantiles.load(folder / VALIDATION) if VALIDATION in saved.files else None,
            ErrorModel.load(folder / ERROR_MODEL) if ERROR_MODEL in saved.files else None,
            saved.files[WEIGHTS],
            TrainingBags.load(folder),
        )


@cache
def _installed() -> str:
    """Return the version of miue, which is read from a file."""
    return version("miue")
