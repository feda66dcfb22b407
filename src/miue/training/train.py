"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from miue.bags.batches import ordered_batches
from miue.bags.dataset import BagDataset
from miue.bags.labels import LabelSequence
from miue.common.devices import torch_device
from miue.common.errors import DataError, unknown_name
from miue.common.locks import locked
from miue.io.splits.files import write_splits
from miue.methods import Method
from miue.model.config import Option, build_method, member_seeds
from miue.model.feature_scores import fit_distances
from miue.model.model import Model
from miue.model.predict import BATCH_INSTANCES
from miue.model.training_bags import TrainingBags
from miue.predictions.validation_quantiles import ValidationQuantiles
from miue.scores import FeatureDistance
from miue.training.fit import Run, TrainingSummary, fit
from miue.training.plan import Plan
from miue.training.run_folder import IfExists, open_run
from miue.training.together import can_train_together, fit_together, is_faster_together
from miue.training.trackers import Tracking, check_trackers

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
    trackers: Sequence[str] = (),
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
        if_exists: what to do where ``out`` holds a run; a resume takes the options it was started with, or another
            max_epochs: a larger one trains on, to what it would have become, a smaller one ends it where it is.
        progress: show a bar with the time left.
        device: "auto", "cpu", "gpu", or torch's own such as "cuda:1".
        members: train the networks of an ensemble "together", "in-turn", or as is faster on the device.
        trackers: "tensorboard", "mlflow", "wandb": also told of each epoch; by default they write into ``out``.

    Raises:
        ConfigError: a name, option or setting that does not exist, or a tracker that is not installed.
        DataError: bags or labels that cannot be trained on.
        StorageError: ``out`` is taken, in use by another process, or cannot be written.
    """
    dataset = bags if isinstance(bags, BagDataset) else BagDataset.from_arrays(bags, labels)
    plan = Plan.of(dataset, validation, network, method, encoder, options or {}, distances, settings or {})
    trained = build_method(plan.what, plan.contract, plan.how.seed)
    folder = None if out is None else Path(out)
    tracking = _tracking(trackers, folder, plan)
    torch_device(device)
    run = Run(folder, resume=if_exists == "resume", progress=progress, accelerator=device, tracking=tracking)
    with nullcontext() if folder is None else locked(folder):
        if folder is not None:
            open_run(folder, if_exists, plan.description())
            if (folder / "config.json").exists():
                return Model.load(folder)
        _prepare(trained, plan, dataset, folder)
        summaries = _fit_members(trained, plan, run, members)
        return _finished(trained, plan, summaries, folder, device, dataset)


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
    trackers: Sequence[str] = (),
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
        device: "auto", "cpu", "gpu", or torch's own such as "cuda:1".
        members: "together", "in-turn", or as is faster on the device.
        trackers: as for ``train``; each seed is a tracked run of its own.

    Raises:
        ConfigError, DataError, StorageError: as ``train`` does; members cannot be trained together.
    """
    given = (validation, network, method, encoder, options or {}, distances)
    plans = [Plan.of(bags, *given, {**(settings or {}), "seed": seed}) for seed in seeds]
    methods = [build_method(plan.what, plan.contract, plan.how.seed) for plan in plans]
    folders = [None if out is None else Path(out) / str(seed) for seed in seeds]
    tracked = [_tracking(trackers, None if out is None else Path(out), plan) for plan in plans]
    torch_device(device)
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(nullcontext() if folder is None else locked(folder))
        opened = enumerate(_open_runs(plans, folders, if_exists))
        done = {number: model for number, model in opened if model is not None}
        left = [number for number in range(len(plans)) if number not in done]
        for number in left:
            _prepare(methods[number], plans[number], bags, folders[number])
        runs = {n: Run(folders[n], if_exists == "resume", progress, device, tracked[n]) for n in left}
        shared = None if out is None else Path(out) / "together"
        summaries = _fit_seeds(
            [methods[n] for n in left], [plans[n] for n in left], list(runs.values()), members, shared
        )
        for number in left:
            trained, plan = methods[number], plans[number]
            how_it_went = summaries.pop(0) if summaries else _fit_members(trained, plan, runs[number], members)
            done[number] = _finished(trained, plan, how_it_went, folders[number], device, bags)
        if shared is not None:
            shutil.rmtree(shared, ignore_errors=True)
    return [done[number] for number in range(len(plans))]


def _prepare(method: Method, plan: Plan, bags: BagDataset, folder: Path | None) -> None:
    """Note the part of each bag, and let encoders know their inputs; instances are read once for all members."""
    if folder is not None:
        write_splits(folder / "splits.csv", plan.splits(bags), bags, plan.validation)
    first, *others = (member.network.encoder for member in method.members())
    first.learn_inputs(batch.instances for batch in ordered_batches(plan.train, BATCH_INSTANCES))
    for encoder in others:
        encoder.load_state_dict(dict(first.named_buffers()), strict=False)


def _tracking(names: Sequence[str], home: Path | None, plan: Plan) -> Tracking:
    """Return what is tracked, after checking that it can be."""
    check_trackers(names, home)
    return Tracking(tuple(dict.fromkeys(names)), home or Path(), plan.description())


def _open_runs(
    plans: Sequence[Plan], folders: Sequence[Path | None], if_exists: IfExists
) -> Iterator[Model | None]:
    """Open the folder of each run and yield the model that it holds already."""
    for plan, folder in zip(plans, folders, strict=True):
        if folder is not None:
            open_run(folder, if_exists, plan.description(), shared=folder.parent / "together")
        finished = folder is not None and (folder / "config.json").exists()
        yield Model.load(folder) if finished and folder is not None else None


def _fit_seeds(
    methods: Sequence[Method], plans: Sequence[Plan], runs: Sequence[Run], members: str, shared: Path | None
) -> list[list[TrainingSummary]]:
    """Train all in one program where that goes and is wanted; return nothing where each goes by itself."""
    same_bags = len({plan.fingerprints for plan in plans}) == 1  # not where a share is held out by seed
    single = all(len(method.members()) == 1 for method in methods)
    if not (same_bags and single and _goes_together(methods, plans[0].train, runs, members, shared)):
        return []
    configs = [plan.how for plan in plans]
    found = fit_together(methods, plans[0].train, plans[0].validation, configs, runs, shared)
    return [[summary] for summary in found]


def _fit_members(method: Method, plan: Plan, run: Run, how_members: str) -> list[TrainingSummary]:
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
    resumed = [run.folder for run in runs if run.resume and run.folder is not None]
    if resumed and shared is not None and shared.exists():
        return True
    if any((folder / "checkpoints" / "last.safetensors").exists() for folder in resumed):
        return False
    if how_members == "together":
        return True
    device = torch_device(runs[0].accelerator)
    return can_train_together(members, bags) and is_faster_together(members, bags, device)


def _finished(
    trained: Method,
    plan: Plan,
    summaries: Sequence[TrainingSummary],
    folder: Path | None,
    device: str,
    bags: BagDataset,
) -> Model:
    """Return the model with its distances and the quantiles of its validation bags, written where there is a
    folder."""
    trained.eval()
    best_epochs = [summary.best_epoch for summary in summaries]
    about: dict[str, Any] = {
        "seed": plan.how.seed,
        "training_bags": len(plan.train),
        "validation_bags": len(plan.validation) if plan.holds_out else 0,
        "epochs": sum(summary.epochs for summary in summaries),
        "best_epoch": best_epochs if len(best_epochs) > 1 else best_epochs[0],
        "criterion": float(np.mean([summary.best_criterion for summary in summaries])),
        "settings": plan.how.model_dump(mode="json", exclude={"seed"}),
    }
    fitted = _fitted_distances(trained, plan, about)
    model = Model(trained, plan.what, plan.contract, about, fitted)
    if plan.holds_out:
        predicted = model.predict(plan.validation, device=device).bags
        usual = ValidationQuantiles.of(predicted, plan.validation.sizes)
        model = replace(model, validation=usual)
    model = replace(model, training_bags=TrainingBags.of(plan.splits(bags).folds[0], bags, plan.validation))
    if folder is not None:
        model.write_into(folder)
    return model


def _fitted_distances(method: Method, plan: Plan, about: dict[str, Any]) -> dict[str, FeatureDistance]:
    """Return the distances; where the default ones cannot be fitted, say so in ``about`` and go on."""
    try:
        return fit_distances(method, plan.train, plan.distances, seed=plan.how.seed)
    except DataError as error:
        if plan.distances != DEFAULT_DISTANCES:
            raise
        about["without distances"] = str(error)
        return {}
