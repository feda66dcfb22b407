"""A trained model: its method, what it was made of, what data it takes; saved as a folder without pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from miue.bags.dataset import BagDataset
from miue.bags.labels import LabelSequence
from miue.calibration import Calibration, decide
from miue.calibration.calibration import FILE as CALIBRATION
from miue.common.errors import (
    ConfigError,
    ModelError,
    StorageError,
    first_few,
    folder_kind,
    not_readable,
)
from miue.common.files import atomic_folder, check_format, read_json, write_json
from miue.common.result_table import PrintsAsTable, ResultTable
from miue.common.weights import copy_weights, write_tensors
from miue.methods import Method
from miue.model.config import DataContract, ModelConfig, build_method, check_saveable, weight_shapes
from miue.model.feature_scores import DistanceScores, check_saveable_distances
from miue.model.part import find_part, saved_part
from miue.model.predict import OnBad, predict
from miue.model.training_bags import TrainingBags
from miue.predictions.folder import Predictions
from miue.predictions.provenance import Provenance, TrainingRecord
from miue.predictions.stream import PredictionStream
from miue.predictions.validation_quantiles import FILE as VALIDATION
from miue.predictions.validation_quantiles import ValidationQuantiles
from miue.scores import FeatureDistance
from miue.tasks import Shard

if TYPE_CHECKING:
    from miue.evaluation import Evaluation

FORMAT = "miue-model"
VERSION = 1


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
    weights_sha256: str = ""
    training_bags: TrainingBags | None = None

    def __post_init__(self) -> None:
        if not self.weights_sha256:
            digest = hashlib.sha256(save(copy_weights(self.method))).hexdigest()
            object.__setattr__(self, "weights_sha256", digest)

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
        if isinstance(bags, BagDataset) and labels is not None:
            raise ConfigError(
                item="labels",
                wanted="None beside a dataset, which has its own",
                got=f"{len(labels)} of them",
                fix="pass bags as arrays, or put the labels into the dataset",
            )
        dataset = bags if isinstance(bags, BagDataset) else BagDataset.from_arrays(bags, labels)
        self.check(dataset)
        DistanceScores(self.distances).check(dataset)
        rule = None if self.calibration is None else self.calibration.instances
        chosen = estimator or (rule and rule.estimator) or self.method.estimators[0]
        if rule is not None:
            rule.check_estimator(chosen)
        batches = predict(
            self.method,
            dataset.with_classes(self.contract.class_names),
            estimator=chosen,
            seed=seed,
            progress=progress,
            device=device,
            precision=precision,
            scores=DistanceScores(self.distances) if self.distances else None,
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

        if rule is not None and shard is None:
            batches = ((of_bags, rule.flag(of_instances)) for of_bags, of_instances in batches)
        return PredictionStream(batches, self.provenance().model_copy(update={"estimator": chosen}), complete)

    def check(self, bags: BagDataset) -> None:
        """Raise unless the model can take these bags.

        Raises:
            ModelError: instances of another shape.
        """
        if bags.instance_shape != tuple(self.contract.instance_shape):
            what = "feature width" if len(self.contract.instance_shape) == 1 else "image shape"
            raise ModelError(
                item="the bags",
                wanted=f"{what} {_shape(self.contract.instance_shape)}, which the model was trained on",
                got=_shape(bags.instance_shape),
                fix="use the feature extractor that made the training bags",
            )

    def evaluate(
        self,
        bags: BagDataset | Sequence[np.ndarray | Tensor],
        labels: LabelSequence | None = None,
        *,
        device: str = "auto",
        allow_training_bags: bool = False,
    ) -> Evaluation:
        """Predict labelled bags and return the metrics of these predictions.

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
            options=self.config.options(),
            version=version("miue"),
            classes=self.contract.class_names,
            training=self.training,
            weights_sha256=self.weights_sha256,
            validation=self.validation,
        )

    def tables(self) -> tuple[ResultTable]:
        """Return the parts with their options, and what they were made for."""
        parts = {kind: getattr(self.config, kind) for kind in ("encoder", "network", "method")}
        rows = [
            (kind, part.name, ", ".join(f"{name}={value}" for name, value in part.options.items()))
            for kind, part in parts.items()
        ]
        weights = f"{sum(weight.numel() for weight in self.method.parameters()):,} weights"
        classes = first_few(self.contract.class_names, 6)
        calibrated = "calibrated" if self.calibration is not None else "not calibrated"
        shape = _shape(self.contract.instance_shape)
        note = f"instances of shape {shape}; classes {classes}; {weights}; {calibrated}"
        return (ResultTable(("model", "name", "options"), tuple(rows), (note,)),)

    def save(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Write the model's files to the folder ``path``, whole or not at all.

        Raises:
            StorageError: ``path`` is taken, or the disk is full.
            ConfigError: a part that another process could not build again.
        """
        self.check_saveable()
        with atomic_folder(Path(path), overwrite=overwrite) as folder:
            self.write_into(folder)

    def check_saveable(self) -> None:
        """Raise unless another process can build the model again.

        Raises:
            ConfigError: a part without an import path, or a module that cannot be built again.
        """
        check_saveable(self.config, self.contract)
        check_saveable_distances([type(distance) for distance in self.distances.values()])

    def write_into(self, folder: Path | str) -> None:
        """Write the model's files beside whatever ``folder`` holds; config.json comes last."""
        folder = Path(folder)
        write_tensors(folder / "model.safetensors", copy_weights(self.method))
        if self.distances:
            state = {f"{name}.{k}": v for name, d in self.distances.items() for k, v in copy_weights(d).items()}
            write_tensors(folder / "distances.safetensors", state)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "miue": version("miue"),
            "model": self.config.model_dump(mode="json"),
            "contract": self.contract.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json"),
            "distances": [_saved_name(distance) for distance in self.distances.values()],
        }
        if self.calibration is not None:
            self.calibration.save(folder / CALIBRATION)
        if self.validation is not None:
            self.validation.save(folder / VALIDATION)
        if self.training_bags is not None:
            self.training_bags.save(folder)
        write_json(folder / "config.json", content)

    @classmethod
    def load(cls, path: Path | str, *, trust: bool = False) -> Model:
        """Return the model saved in the folder ``path``.

        Args:
            path: of the folder.
            trust: whether to import and run parts that are not of miue, named in the folder by import path.

        Raises:
            StorageError: no model there, a damaged one, or a newer format.
            ModelError: weights that do not fit the config; a part that is not of miue, without trust or not
                installed.
        """
        folder = Path(path)
        saved = read_config(folder)
        config, contract = saved.model, saved.contract
        try:
            read_shapes(folder, saved, trust=trust)
            method = build_method(config, contract, seed=0, trust=trust)
            method.load_state_dict(load_file(folder / "model.safetensors"))
            with (folder / "model.safetensors").open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, SafetensorError, RuntimeError) as error:
            raise _other_weights(folder / "model.safetensors", str(error).split("\n")[0]) from error
        distances = _read_distances(folder, saved.distances, trust=trust)
        calibration = Calibration.load(folder) if (folder / CALIBRATION).exists() else None
        quantiles = folder / VALIDATION
        return cls(
            method.eval(),
            config,
            contract,
            saved.training,
            distances,
            calibration,
            ValidationQuantiles.load(quantiles) if quantiles.exists() else None,
            digest,
            TrainingBags.load(folder),
        )


class RunConfig(BaseModel):
    """What run.json says of a model whose training may not have ended."""

    model_config = ConfigDict(frozen=True)

    model: ModelConfig
    contract: DataContract
    distances: tuple[str, ...] = ()


class SavedConfig(RunConfig):
    """What config.json says of a model."""

    training: TrainingRecord


Config = TypeVar("Config", bound=RunConfig)


def read_config(folder: Path) -> SavedConfig:
    """Return what config.json in the folder of a model says.

    Raises:
        StorageError: none there, a damaged one, or a newer format.
    """
    path = folder / "config.json"
    if not path.exists():
        unfinished = (folder / "checkpoints").is_dir()
        raise StorageError(
            item=f"{str(folder)!r}",
            wanted="a trained model (a folder with config.json and model.safetensors)",
            got="a training that has not ended"
            if unfinished
            else folder_kind(folder)
            if folder.is_dir()
            else "no such folder",
            fix="continue it with 'miue train … --resume'" if unfinished else "train one with 'miue train'",
        )
    content = read_json(path, what="model config")
    check_format(content, item=f"model {str(folder)!r}", format_name=FORMAT, version=VERSION, fix="update miue")
    return check_config(SavedConfig, content, f"model config {str(path)!r}", "train the model again")


def check_config(kind: type[Config], content: Mapping[str, Any], item: str, fix: str) -> Config:
    """Return what a config says, after every part of it was checked.

    Args:
        kind: of the config.
        content: of config.json or run.json.
        item: names it in the error.
        fix: what to do where it is damaged.

    Raises:
        StorageError: a part is missing or of another kind.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise not_readable(item, "the parts that miue writes", error, fix) from error


def read_shapes(folder: Path, saved: RunConfig, *, trust: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight in model.safetensors, before memory is taken for what a config claims.

    Raises:
        ModelError: a damaged file, or weights of other shapes than the config describes; a part that is not of
            miue, without trust or not installed.
    """
    path, wanted = folder / "model.safetensors", weight_shapes(saved.model, saved.contract, trust=trust)
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise _other_weights(path, str(error).split("\n")[0]) from error
    for name in sorted(wanted.keys() | shapes.keys()):
        if wanted.get(name) != shapes.get(name):
            raise _other_weights(path, f"{name} of shape {shapes.get(name)} instead of {wanted.get(name)}")
    return shapes


def _other_weights(path: Path, got: str) -> ModelError:
    return ModelError(
        item=f"weights {str(path)!r}",
        wanted="the weights that config.json describes",
        got=got,
        fix="save the model again",
    )


def _read_distances(folder: Path, names: Sequence[str], *, trust: bool) -> dict[str, FeatureDistance]:
    if not names:
        return {}
    path = folder / "distances.safetensors"
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise not_readable(
            f"distances {str(path)!r}", "the distances that config.json names", error, "save the model again"
        ) from error
    loaded = {}
    for name in names:
        part = saved_part("distance", name, name if ":" in name else "", "", trust=trust)
        kind: type[FeatureDistance] = part.make
        prefix = f"{kind.name}."
        parts = {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}
        loaded[kind.name] = kind.from_state(parts)
    return loaded


def _saved_name(distance: FeatureDistance) -> str:
    """Return the name of a distance of miue, the import path of another."""
    part = find_part("distance", type(distance))
    return part.import_path or part.name


def _shape(shape: Sequence[int]) -> str:
    return str(shape[0]) if len(shape) == 1 else " × ".join(map(str, shape))
