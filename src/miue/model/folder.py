"""The folder of a saved model: what its files say, checked before anything is built from them. No pickle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from miue.calibration import CALIBRATION
from miue.common.errors import ConfigError, ModelError, StorageError, first_few, folder_name, not_readable
from miue.common.records import MODEL_FORMAT, check_files, read_sealed
from miue.common.text import warn_user
from miue.methods import Method
from miue.model.build import build_method, weight_shapes
from miue.model.config import ModelConfig
from miue.model.contract import DataContract
from miue.model.part import changed_code, find_part, other_versions, saved_part
from miue.model.training_bags import FILE as SPLITS
from miue.predictions import TrainingRecord
from miue.scores import FeatureDistance

VERSION = 2
SAVE_AGAIN = "save the model again"

MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "distances.safetensors",
    "calibration.json",
    "validation.json",
    "error_model.json",
)
"""Those that ``Model.save`` writes, the last four where there is something to write.

Not splits.csv, which it writes as well: that names bags and patients of the training, and is never pushed.
"""
CONFIG, WEIGHTS = MODEL_FILES[:2]
COMPANIONS = (*MODEL_FILES[1:], SPLITS)


class RunConfig(BaseModel):
    """What run.json says of a model whose training may not have ended."""

    model_config = ConfigDict(frozen=True)

    model: ModelConfig
    contract: DataContract
    distances: tuple[str, ...] = ()


class SavedConfig(RunConfig):
    """What config.json says of a model; ``files`` has the SHA-256 of each other file that it is read with."""

    training: TrainingRecord
    files: dict[str, str]


Config = TypeVar("Config", bound=RunConfig)


def read_config(folder: Path) -> SavedConfig:
    """Return what config.json in the folder of a model says.

    Raises:
        StorageError: none there, a damaged one, or one of another version.
    """
    path = folder / "config.json"
    if not path.exists():
        unfinished = (folder / "checkpoints").is_dir()
        within = sorted(path.parent.name for path in folder.glob("*/config.json"))
        start = f"choose one of the models in it: {first_few(within)}" if within else "train one with 'miue train'"
        raise StorageError(
            item=f"{str(folder)!r}",
            wanted="a trained model (a folder with config.json and model.safetensors)",
            got="a training that has not ended"
            if unfinished
            else folder_name(folder)
            if folder.is_dir()
            else "no such folder",
            fix="continue it with 'miue train … --resume'" if unfinished else start,
        )
    what, again = "model config", "train again"
    content = read_sealed(path, what=what, format_name=MODEL_FORMAT, version=VERSION, again=again)
    return check_config(SavedConfig, content, f"{what} {str(path)!r}", again)


def check_companions(folder: Path, saved: SavedConfig, *, calibrated: bool = True) -> None:
    """Raise unless the files of a model are those that its config.json lists.

    Args:
        folder: of the model.
        saved: what its config.json says.
        calibrated: compare its calibration, too.

    Raises:
        StorageError: one is missing, was changed, or belongs to another model.
    """
    check_files(folder / CONFIG, saved.files, [name for name in COMPANIONS if name != CALIBRATION], "train again")
    if calibrated:
        check_files(folder / CONFIG, saved.files, [CALIBRATION], "calibrate again")


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
    path, others = folder / WEIGHTS, saved.model.packages_of_others()
    saved.model.parts(trust=trust)
    try:
        wanted = weight_shapes(saved.model, saved.contract, trust=trust)
    except ConfigError as error:
        if not others:
            raise
        raise ModelError(
            item=f"{error.item} of the saved model {str(folder)!r}",
            wanted=error.wanted,
            got=error.got,
            fix=changed_code(others),
        ) from error
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise _other_weights(path, str(error).split("\n")[0]) from error
    for name in sorted(wanted.keys() | shapes.keys()):
        if wanted.get(name) != shapes.get(name):
            got = f"{name} of shape {shapes.get(name)} instead of {wanted.get(name)}"
            raise _other_weights(path, got, changed_code(others) if others else SAVE_AGAIN)
    return shapes


def read_method(folder: Path, saved: SavedConfig, *, trust: bool = False) -> Method:
    """Return the method with its weights.

    Raises:
        ModelError: weights that do not fit the config; a part that is not of miue, without trust or not installed.
    """
    read_shapes(folder, saved, trust=trust)
    method = build_method(saved.model, saved.contract, seed=0, trust=trust)
    method.load_state_dict(load_file(folder / WEIGHTS))
    for package, installed in other_versions(saved.model.packages_of_others()).items():
        saved_with = f"the model {str(folder)!r} was saved with {package}"
        warn_user(f"{saved_with}, and {installed} is installed: predictions may differ")
    return method.eval()


@dataclass(frozen=True)
class InitialWeights:
    """The weights of a saved model, from which the training of another starts; no code of it is run.

    Attributes:
        folder: of the model.
        tensors: its weights by name.
        sha256: of their file.
    """

    folder: Path
    tensors: Mapping[str, Tensor]
    sha256: str

    @classmethod
    def read(cls, folder: Path) -> InitialWeights:
        """Return the weights in the folder of a model.

        Raises:
            StorageError: no trained model there, or a file that is not the one it was saved with.
            ModelError: a damaged file.
        """
        saved = read_config(folder)
        check_files(folder / CONFIG, saved.files, [WEIGHTS], "train again")
        try:
            return cls(folder, load_file(folder / WEIGHTS), saved.files[WEIGHTS])
        except (OSError, SafetensorError) as error:
            raise _other_weights(folder / WEIGHTS, str(error).split("\n")[0]) from error

    def fitting(self, method: Method) -> Mapping[str, Tensor | None]:
        """Return the weight of each name and shape that a method has, by that name, None where there is none.

        A member of an ensemble takes those of the same member, or of a model that is none. What a method fits
        after training is left as it is.

        Raises:
            ConfigError: none fits but biases and what is not learned.
        """
        found: dict[str, Tensor | None] = {}
        learned = 0
        for number, member in enumerate(method.members()):
            matrices = {name for name, one in member.named_parameters() if one.dim() > 1}
            for name, own in _trained(member):
                weight = self.tensors.get(f"ensemble.{number}.{name}", self.tensors.get(name))
                fits = weight is not None and weight.shape == own.shape and not member.is_fitted_at_once
                found[f"{number}.{name}"] = weight if fits else None
                learned += fits and name in matrices
        if not learned:
            raise ConfigError(
                item=f"initial {str(self.folder)!r}",
                wanted="a model of which weights fit the one to train, by name and shape",
                got="none that does",
                fix="choose the network and encoder that it has, or leave it out",
            )
        return found

    def give_to(self, method: Method) -> str:
        """Give a method the weights that fit, and return in a sentence which parts have them, and which not.

        Raises:
            ConfigError: as ``fitting`` does.
        """
        found = self.fitting(method)
        for number, member in enumerate(method.members()):
            given = {name: found[f"{number}.{name}"] for name, _ in _trained(member)}
            member.load_state_dict({name: one for name, one in given.items() if one is not None}, strict=False)
        parts: dict[str, list[bool]] = {}
        for name, weight in found.items():
            part = name.partition(".")[2].removeprefix("network.").split(".")[0]
            parts.setdefault(part, []).append(weight is not None)
        taken = [
            part if all(fit) else f"{part} ({sum(fit)} of {len(fit)} tensors)"
            for part, fit in parts.items()
            if any(fit)
        ]
        others = ", ".join(part for part, fit in parts.items() if not any(fit))
        return (
            f"initial weights: {', '.join(taken)} from {str(self.folder)!r}"
            f"{others and f'; not of it: {others}, which it lacks or has in another shape'}"
        )


def _trained(member: Method) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a method by name, but for those of its own that are fitted after training."""
    fitted = {name for name, _ in member.named_buffers(recurse=False)}
    yield from ((name, tensor) for name, tensor in member.state_dict().items() if name not in fitted)


def read_distances(folder: Path, names: Sequence[str], *, trust: bool) -> dict[str, FeatureDistance]:
    """Return the distances that config.json names, with what was fitted.

    Raises:
        StorageError, ModelError: a damaged file; a part that is not of miue, without trust.
    """
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
        if not part.is_own and set(parts) != set(kind.state_names):
            raise ModelError(
                item=f"distance {name!r} of a saved model",
                wanted=f"the tensors {', '.join(sorted(kind.state_names))}, as its class names them",
                got=", ".join(sorted(parts)) or "none of this name",
                fix=changed_code({part.import_path: ""}),
            )
        loaded[kind.name] = kind.from_state(parts)
    return loaded


def saved_name(distance: FeatureDistance) -> str:
    """Return what config.json calls a distance: the name of one of miue, the import path of another."""
    part = find_part("distance", type(distance))
    return part.import_path or part.name


def _other_weights(path: Path, got: str, fix: str = SAVE_AGAIN) -> ModelError:
    return ModelError(
        item=f"weights {str(path)!r}",
        wanted="the weights that config.json describes",
        got=got,
        fix=fix,
    )
