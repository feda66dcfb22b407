"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from miue.bags import BagDataset, LabelSequence
from miue.config import (
    DataContract,
    ModelConfig,
    Option,
    TrainingConfig,
    build_method,
    member_seeds,
    model_config,
    training_config,
)
from miue.distance_scores import fit_distances
from miue.distances import FeatureDistance
from miue.errors import ConfigError, DataError
from miue.files import read_json, refuse_existing, write_json
from miue.methods import Method
from miue.model import Model
from miue.training.fit import Run, check_labels, fit

IfExists = Literal["refuse", "resume", "overwrite"]
DEFAULT_DISTANCES = ("knn",)  # the best on shifted validation bags; see results/README.md


def train(
    bags: BagDataset | Sequence[np.ndarray | Tensor],
    labels: LabelSequence | None = None,
    *,
    validation: BagDataset | None = None,
    network: str = "attention",
    method: str = "mirel",
    encoder: str = "auto",
    options: Mapping[str, Option] | None = None,
    distances: Sequence[str] = DEFAULT_DISTANCES,
    settings: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    if_exists: IfExists = "refuse",
    progress: bool = True,
    device: str = "auto",
) -> Model:
    """Train a model on labelled bags.

    Args:
        bags: a dataset, or arrays (n, D) or (n, H, W[, channels]); if it has splits, its train split.
        labels: class index of each bag, where ``bags`` are arrays.
        validation: bags for early stopping; else the validation split, else a stratified share is held out.
        network: a name of ``miue.NETWORKS``.
        method: a name of ``miue.METHODS``.
        encoder: a name of ``miue.ENCODERS``, or "auto" for the one that suits the data.
        options: "network.hidden", "method.routing" and the like.
        distances: names of ``miue.DISTANCES``, fitted after training.
        settings: fields of ``TrainingConfig``, such as seed, max_epochs and learning_rate.
        out: folder for checkpoints, log and the model; None writes nothing.
        if_exists: what to do where ``out`` holds a run.
        progress: show a bar with the time left.
        device: "auto", "cpu", "gpu".

    Raises:
        ConfigError: a name, option or setting that does not exist.
        DataError: bags or labels that cannot be trained on.
        StorageError: ``out`` is taken.
    """
    dataset = bags if isinstance(bags, BagDataset) else BagDataset.from_arrays(bags, labels)
    how = training_config(settings or {})
    training_bags, validation_bags = training_sets(dataset, validation, how)
    shape = dataset.instance_shape
    what = model_config(
        network=network, method=method, encoder=encoder, instance_shape=shape, options=options or {}
    )
    names = dataset.class_names or tuple(str(c) for c in range(dataset.num_classes))
    contract = DataContract(instance_shape=shape, class_names=names)
    trained = build_method(what, contract, how.seed)
    folder = None if out is None else Path(out)
    if folder is not None:
        _open_run(folder, if_exists, _description(what, how, contract, training_bags, validation_bags))
        if (folder / "config.json").exists():
            return Model.load(folder)
    run = Run(folder, resume=if_exists == "resume", progress=progress, accelerator=device)
    about = _fit_members(trained, training_bags, validation_bags, how, run)
    fitted = _fitted_distances(trained, training_bags, distances, how.seed, about)
    model = Model(trained, what, contract, about, fitted)
    if folder is not None:
        model.write_into(folder)
    return model


def _fitted_distances(
    method: Method, bags: BagDataset, names: Sequence[str], seed: int, about: dict[str, Any]
) -> dict[str, FeatureDistance]:
    """Return the distances; where the default ones cannot be fitted, say so in ``about`` and go on."""
    try:
        return fit_distances(method, bags, names, seed=seed)
    except DataError as error:
        if tuple(names) != DEFAULT_DISTANCES:
            raise
        about["without distances"] = str(error)
        return {}


def _fit_members(
    method: Method, train_bags: BagDataset, validation_bags: BagDataset, how: TrainingConfig, run: Run
) -> dict[str, Any]:
    """Train each member by itself and return how that went; an ensemble's members have folders of their own."""
    members = method.members()
    summaries = []
    for number, (member, seed) in enumerate(zip(members, member_seeds(method, how.seed), strict=True)):
        place = run.folder if run.folder is None or len(members) == 1 else run.folder / "members" / str(number)
        config = how.model_copy(update={"seed": seed})
        summary = fit(member, train_bags, validation_bags, config, replace(run, folder=place))
        summaries.append(summary)
    method.eval()
    about: dict[str, Any] = {
        "seed": how.seed,
        "training_bags": len(train_bags),
        "validation_bags": len(validation_bags),
        "epochs": sum(summary.epochs for summary in summaries),
        "best_epoch": summaries[0].best_epoch,
        "criterion": float(np.mean([summary.best_criterion for summary in summaries])),
    }
    if len(members) > 1:
        about["best_epoch"] = [summary.best_epoch for summary in summaries]
    return about


def training_sets(
    dataset: BagDataset, validation: BagDataset | None, config: TrainingConfig
) -> tuple[BagDataset, BagDataset]:
    """Return training and validation bags: as given, by split, or a stratified share held out.

    Raises:
        DataError: a bag without a label, one class only, or a class too small to hold out from.
    """
    bags = dataset.split("train") if "train" in dataset.splits else dataset
    if validation is None and "validation" in dataset.splits:
        validation = dataset.split("validation")
    check_labels(bags, "training", classes_wanted=2)
    if validation is not None:
        return bags, validation
    from sklearn.model_selection import train_test_split

    classes, counts = np.unique(bags.labels.values, return_counts=True)
    if counts.min() < 2:
        raise DataError(
            item=f"class {classes[counts.argmin()]} of the training set",
            wanted="at least 2 bags, one to learn from and one to validate on",
            got=str(counts.min()),
            fix="add bags of this class, or pass validation bags",
        )
    held = max(len(classes), round(config.validation_fraction * len(bags)))
    kept, held_out = train_test_split(
        np.arange(len(bags)), test_size=held, stratify=bags.labels.values, random_state=config.seed
    )
    return bags.subset(np.sort(kept)), bags.subset(np.sort(held_out))


def _description(
    what: ModelConfig, how: TrainingConfig, contract: DataContract, train: BagDataset, validation: BagDataset
) -> dict[str, Any]:
    """Return all that must be the same for a run to be resumed."""
    return {
        "model": what.model_dump(mode="json"),
        "training": how.model_dump(mode="json"),
        "contract": contract.model_dump(mode="json"),
        "training_bags": fingerprint(train),
        "validation_bags": fingerprint(validation),
    }


def fingerprint(bags: BagDataset) -> str:
    """Return what tells one set of bags from another: a digest of ids, sizes and labels."""
    digest = hashlib.sha256("\0".join(bags.ids).encode())
    digest.update(bags.sizes.tobytes())
    digest.update(bags.labels.values.tobytes())
    return digest.hexdigest()[:16]


def _open_run(folder: Path, if_exists: IfExists, description: dict[str, Any]) -> None:
    """Make the run's folder, or check that the one to resume is the same run."""
    path = folder / "run.json"
    if if_exists == "resume" and path.exists():
        before = read_json(path, what="run")
        changed = [key for key in description if before.get(key) != description[key]]
        if changed:
            raise ConfigError(
                item=f"run {str(folder)!r}",
                wanted=f"the same {changed[0]} as when it was started",
                got=f"{description[changed[0]]} instead of {before.get(changed[0])}",
                fix="resume with the options it was started with, or start anew with --overwrite",
            )
        return
    refuse_existing(folder, overwrite=if_exists == "overwrite")
    if folder.exists() and if_exists == "overwrite":
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, description)


def _clear(folder: Path) -> None:
    """Remove the files of a run, and nothing else that may lie beside them."""
    files = (
        "config.json",
        "model.safetensors",
        "distances.safetensors",
        "calibration.json",
        "log.csv",
        "run.json",
    )
    for name in files:
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "members"):
        shutil.rmtree(folder / name, ignore_errors=True)
