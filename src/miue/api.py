"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from miue.errors import ConfigError, DataError, unknown_name
from miue.files import read_json, refuse_existing, write_json
from miue.methods import Method
from miue.model import Model
from miue.training.fit import Run, TrainingSummary, check_labels, fit
from miue.training.together import can_train_together, fit_together, is_faster_together, torch_device

IfExists = Literal["refuse", "resume", "overwrite"]
MEMBERS = ("auto", "together", "in-turn")
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
    members: str = "auto",
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
        members: train the networks of an ensemble "together", "in-turn", or as is faster on the device.

    Raises:
        ConfigError: a name, option or setting that does not exist.
        DataError: bags or labels that cannot be trained on.
        StorageError: ``out`` is taken.
    """
    dataset = bags if isinstance(bags, BagDataset) else BagDataset.from_arrays(bags, labels)
    plan = _Plan.of(dataset, validation, network, method, encoder, options or {}, settings or {})
    trained = build_method(plan.what, plan.contract, plan.how.seed)
    folder = None if out is None else Path(out)
    if folder is not None:
        _open_run(folder, if_exists, plan.description())
        if (folder / "config.json").exists():
            return Model.load(folder)
    run = Run(folder, resume=if_exists == "resume", progress=progress, accelerator=device)
    summaries = _fit_members(trained, plan, run, members)
    return _finished(trained, plan, summaries, distances, folder)


def train_seeds(
    bags: BagDataset,
    seeds: Sequence[int],
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
    members: str = "auto",
) -> list[Model]:
    """Train the same model with several seeds, in one vectorised program where that is faster.

    Seeds go in turn where each holds out validation bags of its own.

    Args:
        bags: a dataset; if it has splits, its train split.
        seeds: one model each, in this order.
        validation: as for ``train``, like all further arguments.
        network: a name of ``miue.NETWORKS``.
        method: a name of ``miue.METHODS``.
        encoder: a name of ``miue.ENCODERS``, or "auto".
        options: of network, encoder and method.
        distances: names of ``miue.DISTANCES``.
        settings: fields of ``TrainingConfig`` but the seed.
        out: folder in which each seed has a run of its name.
        if_exists: what to do where it holds one.
        progress: show a bar with the time left.
        device: "auto", "cpu", "gpu".
        members: "together", "in-turn", or as is faster on the device.

    Raises:
        ConfigError, DataError, StorageError: as ``train`` does; members cannot be trained together.
    """
    given = (validation, network, method, encoder, options or {})
    plans = [_Plan.of(bags, *given, {**(settings or {}), "seed": seed}) for seed in seeds]
    methods = [build_method(plan.what, plan.contract, plan.how.seed) for plan in plans]
    folders = [None if out is None else Path(out) / str(seed) for seed in seeds]
    done: dict[int, Model] = {}
    for number, (plan, folder) in enumerate(zip(plans, folders, strict=True)):
        if folder is not None:
            _open_run(folder, if_exists, plan.description())
            if (folder / "config.json").exists():
                done[number] = Model.load(folder)
    left = [number for number in range(len(plans)) if number not in done]
    built = [methods[number] for number in left]
    summaries: list[list[TrainingSummary]] = []
    runs = [Run(folders[n], resume=if_exists == "resume", progress=progress, accelerator=device) for n in left]
    shared = None if out is None else Path(out) / "together"
    same_bags = len({plan.fingerprints() for plan in plans}) == 1  # not where a share is held out by seed
    single = all(len(one.members()) == 1 for one in built)
    if same_bags and single and _goes_together(built, plans[0].train, runs, members, shared):
        configs = [plans[n].how for n in left]
        found = fit_together(built, plans[0].train, plans[0].validation, configs, runs, shared)
        summaries = [[summary] for summary in found]
    for number, trained, run, position in zip(left, built, runs, range(len(left)), strict=True):
        plan = plans[number]
        how_it_went = summaries[position] if summaries else _fit_members(trained, plan, run, members)
        done[number] = _finished(trained, plan, how_it_went, distances, folders[number])
    if shared is not None:
        shutil.rmtree(shared, ignore_errors=True)
    return [done[number] for number in range(len(plans))]


@dataclass(frozen=True)
class _Plan:
    """All that decides what a training learns."""

    train: BagDataset
    validation: BagDataset
    what: ModelConfig
    how: TrainingConfig
    contract: DataContract

    @classmethod
    def of(
        cls,
        dataset: BagDataset,
        validation: BagDataset | None,
        network: str,
        method: str,
        encoder: str,
        options: Mapping[str, Option],
        settings: Mapping[str, Any],
    ) -> _Plan:
        """Return the plan that names, options and settings describe."""
        how = training_config(settings)
        training_bags, validation_bags = training_sets(dataset, validation, how)
        shape = dataset.instance_shape
        what = model_config(network=network, method=method, encoder=encoder, instance_shape=shape, options=options)
        names = dataset.class_names or tuple(str(c) for c in range(dataset.num_classes))
        contract = DataContract(instance_shape=shape, class_names=names)
        return cls(training_bags, validation_bags, what, how, contract)

    def description(self) -> dict[str, Any]:
        """Return all that must be the same for a run to be resumed."""
        return {
            "model": self.what.model_dump(mode="json"),
            "training": self.how.model_dump(mode="json"),
            "contract": self.contract.model_dump(mode="json"),
            "training_bags": self.fingerprints()[0],
            "validation_bags": self.fingerprints()[1],
        }

    def fingerprints(self) -> tuple[str, str]:
        """Return what tells training and validation bags from others."""
        return fingerprint(self.train), fingerprint(self.validation)


def _fit_members(method: Method, plan: _Plan, run: Run, how_members: str) -> list[TrainingSummary]:
    """Train each member; an ensemble's have folders of their own."""
    members = method.members()
    seeds = member_seeds(method, plan.how.seed)
    configs = [plan.how.model_copy(update={"seed": seed}) for seed in seeds]
    places = [run]
    shared = None if run.folder is None else run.folder / "together"
    if len(members) > 1 and run.folder is not None:
        places = [replace(run, folder=run.folder / "members" / str(i)) for i in range(len(members))]
    elif len(members) > 1:
        places = [run] * len(members)
    if _goes_together(members, plan.train, places, how_members, shared):
        return fit_together(members, plan.train, plan.validation, configs, places, shared)
    trained = zip(members, configs, places, strict=True)
    return [fit(member, plan.train, plan.validation, config, place) for member, config, place in trained]


def _goes_together(
    members: Sequence[Method], bags: BagDataset, runs: Sequence[Run], how_members: str, shared: Path | None
) -> bool:
    """Return whether to train in one program: as begun where a run is resumed, as asked, or as is faster."""
    if how_members not in MEMBERS:
        raise unknown_name("way to train members", how_members, MEMBERS)
    if len(members) < 2 or how_members == "in-turn":
        return False
    if any(run.resume and run.folder is not None and (run.folder / "checkpoints").exists() for run in runs):
        return shared is not None and shared.exists()
    if how_members == "together":
        return True
    return can_train_together(members, bags) and is_faster_together(bags, torch_device(runs[0].accelerator))


def _finished(
    trained: Method,
    plan: _Plan,
    summaries: Sequence[TrainingSummary],
    distances: Sequence[str],
    folder: Path | None,
) -> Model:
    """Return the model with its distances, written where there is a folder."""
    trained.eval()
    best_epochs = [summary.best_epoch for summary in summaries]
    about: dict[str, Any] = {
        "seed": plan.how.seed,
        "training_bags": len(plan.train),
        "validation_bags": len(plan.validation),
        "epochs": sum(summary.epochs for summary in summaries),
        "best_epoch": best_epochs if len(best_epochs) > 1 else best_epochs[0],
        "criterion": float(np.mean([summary.best_criterion for summary in summaries])),
    }
    fitted = _fitted_distances(trained, plan.train, distances, plan.how.seed, about)
    model = Model(trained, plan.what, plan.contract, about, fitted)
    if folder is not None:
        model.write_into(folder)
        shutil.rmtree(folder / "together", ignore_errors=True)
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
    for name in ("checkpoints", "members", "together"):
        shutil.rmtree(folder / name, ignore_errors=True)
