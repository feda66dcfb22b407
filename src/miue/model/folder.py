"""The folder of a saved model: what its files say, checked before anything is built from them. No pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from miue.common.errors import ConfigError, ModelError, StorageError, first_few, folder_name, not_readable
from miue.common.files import check_format, file_sha256, open_file, read_json
from miue.common.user_warnings import warn_user
from miue.methods import Method
from miue.model.config import ModelConfig, build_method, weight_shapes
from miue.model.contract import DataContract
from miue.model.part import changed_code, find_part, other_versions, saved_part
from miue.predictions.provenance import TrainingRecord
from miue.scores import FeatureDistance

FORMAT = "miue-model"
VERSION = 1
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
    path, others = folder / "model.safetensors", saved.model.packages_of_others()
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
    open_file(path, f"weights {str(path)!r}").close()
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


def read_method(folder: Path, saved: SavedConfig, *, trust: bool = False) -> tuple[Method, str]:
    """Return the method with its weights, and the SHA-256 of their file.

    Raises:
        ModelError: weights that do not fit the config; a part that is not of miue, without trust or not installed.
    """
    path = folder / "model.safetensors"
    try:
        read_shapes(folder, saved, trust=trust)
        method = build_method(saved.model, saved.contract, seed=0, trust=trust)
        method.load_state_dict(load_file(path))
        digest = file_sha256(path)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise _other_weights(path, str(error).split("\n")[0]) from error
    for name, weights in method.named_parameters():
        if not bool(weights.isfinite().all()):
            raise _other_weights(path, f"{name} with NaN or infinity")
    for package, installed in other_versions(saved.model.packages_of_others()).items():
        saved_with = f"the model {str(folder)!r} was saved with {package}"
        warn_user(f"{saved_with}, and {installed} is installed: predictions may differ")
    return method.eval(), digest


def read_distances(folder: Path, names: Sequence[str], *, trust: bool) -> dict[str, FeatureDistance]:
    """Return the distances that config.json names, with what was fitted.

    Raises:
        StorageError, ModelError: a damaged file; a part that is not of miue, without trust.
    """
    if not names:
        return {}
    path = folder / "distances.safetensors"
    open_file(path, f"distances {str(path)!r}").close()
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
