"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import Logger
from torch import Tensor

from miue.bags.batches import ordered_batches
from miue.bags.dataset import BagDataset, check_dataset
from miue.bags.labels import LabelSequence
from miue.bags.segments import as_float
from miue.common.devices import torch_device
from miue.common.errors import ConfigError, DataError, first_repeated, repeated
from miue.common.files import read_json, write_json
from miue.common.locks import locked
from miue.common.tasks import Task, reporting_part, run_tasks
from miue.common.text import say, tracked
from miue.common.third_party import noting_when
from miue.common.torch_state import own_torch_state
from miue.common.values import checked
from miue.io.splits.files import write_splits
from miue.methods import Method
from miue.model.config import build_method, member_seeds
from miue.model.feature_scores import fit_distances
from miue.model.model import Model
from miue.model.part import PartLike
from miue.model.predict import BATCH_INSTANCES
from miue.model.recipe import Recipe
from miue.model.training_bags import TrainingBags
from miue.networks import say_if_slow
from miue.predictions.provenance import TrainingRecord
from miue.scores import FeatureDistance
from miue.settings import DEFAULT_DISTANCES, TrainingConfig, TrainSettings
from miue.training.after_training import act_after_training
from miue.training.fit import Run, TrainingSummary, fit, read_fitted
from miue.training.job import Job, handed_over, read_job
from miue.training.module import validation_weights
from miue.training.plan import (
    Plan,
    question_negative_class,
    say_parts_used,
    warn_of_large_pixels,
    warn_of_same_bags,
    warn_of_unlabeled,
    warn_of_untrained_classes,
)
from miue.training.run_folder import LAST, MEMBER, MEMBERS, IfExists, is_finished, open_run, write_model
from miue.training.trackers import Tracking, check_trackers

HOLD_OUT = "to hold out a share of the bags, pass settings={'validation_fraction': 0.2}"
NONE_HELD_OUT = (
    "the error probability of bags: expected labeled validation bags, to which it is fitted, got none; hold some "
    "out (validation_fraction above 0)"
)


@checked()
def train(
    bags: BagDataset | Sequence[np.ndarray | Tensor],
    labels: LabelSequence | None = None,
    *,
    validation: BagDataset | None = None,
    network: PartLike | None = None,
    method: PartLike | None = None,
    encoder: PartLike | None = None,
    out: Path | str | None = None,
    if_exists: IfExists = "refuse",
    progress: bool = True,
    settings: TrainSettings | Mapping[str, Any] | None = None,
) -> Model:
    """Train a model on labeled bags.

    Args:
        bags: a dataset, or arrays (n, D) or (n, H, W[, channels]); if it has splits, its train split.
        labels: class index of each bag, where ``bags`` are arrays.
        validation: bags for early stopping, whose classes are matched by name where they have names; else the
            validation split, else a stratified share is held out.
        network: a name of ``miue.NETWORKS``, an import path "package.module:Class", a class or factory, whose
            parameters ``encoder`` (or ``in_features``) and ``num_classes`` are filled in, or a module; a plain
            ``nn.Module`` maps one bag (n, D) to logits (C,). "attention" by default.
        method: likewise, of ``miue.METHODS``; ``network`` is filled in. "mirel" by default.
        encoder: likewise, of ``miue.ENCODERS``; ``instance_shape`` is filled in; or "auto", the default, for the
            one that suits the data, none where a plain module takes features.
        out: folder for checkpoints, log and the model; None writes nothing.
        if_exists: what to do where ``out`` holds a run; a resume takes the settings it was started with, or
            another max_epochs: a larger one trains on, to what it would have become, a smaller one ends it there.
            It may have other distances, which are fitted without training again.
        progress: show a bar with the time left.
        settings: all else, ``TrainSettings`` or its fields by name, such as {"max_epochs": 50, "device": "cpu",
            "options": {"network.hidden": 128}, "distances": ()}. With several devices, each has a process of its
            own, which runs the whole script, and the model that other processes than the first return has no
            distances and is not saved.

    Raises:
        ConfigError: labels beside a dataset; a name, option or setting that does not exist; a part that cannot be
            saved although ``out`` is set; a tracker that is not installed; or a callback, logger or trainer option
            that Lightning refuses.
        DataError: bags or labels that cannot be trained on.
        StorageError: ``out`` is taken, in use by another process, or cannot be written.
    """
    dataset = BagDataset.of(bags, labels)
    chosen = TrainSettings.of(settings, network=network, method=method, encoder=encoder)
    run = Run.of(chosen, None if out is None else Path(out), progress=progress)
    return train_recipe(Recipe.of(chosen), dataset, run, validation=validation, if_exists=if_exists)


@checked()
@own_torch_state(trains=True)
def train_recipe(
    recipe: Recipe,
    bags: BagDataset,
    run: Run,
    *,
    validation: BagDataset | None = None,
    if_exists: IfExists = "refuse",
) -> Model:
    """Train what a recipe describes; ``train`` with all that says what is trained in one argument.

    Args:
        recipe: what is trained.
        bags: labeled; if they have splits, their train split.
        run: where and how it runs; the folder of its trackers and whether it resumes follow from the others.
        validation: bags for early stopping; else the validation split, else a stratified share is held out.
        if_exists: what to do where the folder of ``run`` holds a run.

    Raises:
        ConfigError, DataError, StorageError: as ``train`` does.
    """
    check_dataset(bags)
    if validation is not None:
        check_dataset(validation, "validation", HOLD_OUT)
    if (twice := first_repeated(bags.ids)) is not None:
        fix = "keep one of them: what is held out would also be trained on"
        raise repeated(f"bag {twice!r}", "each bag once", bags.ids.count(twice), fix)
    plan = Plan.of(recipe, bags, validation)
    method = build_method(plan.model_config, plan.contract, plan.training_config.seed)
    folder, description = run.folder, plan.description(run.trainer_options)
    if folder is not None:
        plan.check_saveable()
    torch_device(run.accelerator)
    _check_loggers(run.loggers, method)
    _check_executor(method, run)
    check_trackers(run.tracking.names, folder)
    tracking = run.tracking.of_run(folder or Path(), description)
    run = replace(run, resume=if_exists == "resume", tracking=tracking)
    with locked(folder) if folder is not None and run.is_first else nullcontext():
        if folder is not None and run.is_first:
            open_run(folder, if_exists, description)
        if folder is not None and is_finished(folder, description):
            return Model.load(folder, trust=not plan.is_own)
        if run.progress:
            say(plan.sentence(len(method.members())), err=True)
            say_parts_used(bags, plan)
            say_if_slow(plan.training_config.precision, torch_device(run.accelerator))
            question_negative_class(bags, recipe)
        if run.is_first and run.warn:
            warn_of_large_pixels(plan)
            warn_of_same_bags(plan, bags)
            warn_of_unlabeled(bags)
            warn_of_untrained_classes(plan)
        _prepare(method, plan, bags, folder if run.is_first else None, progress=run.progress)
        if not run.executor.is_local:
            run = _train_members(
                Job(bags, recipe, run.accelerator, tracking.names, run.trainer_options, validation), run, method
            )
        summaries = _fit_members(method, plan, run)
        if not run.is_first:
            return Model(method.eval(), plan.model_config, plan.contract, _record(plan, summaries, method))
        model = _trained_model(method, plan, summaries, bags, run.accelerator)
        if folder is not None:
            write_model(model, folder, description)
    return model


def _prepare(method: Method, plan: Plan, bags: BagDataset, folder: Path | None, *, progress: bool) -> None:
    """Write the part of each bag, and fit encoders to their inputs; instances are read once for all members."""
    if folder is not None and not (folder / "config.json").exists():  # a model stays with the file it lists
        write_splits(folder / "splits.csv", plan.splits(bags), bags, plan.validation)
    first, *others = (member.network.encoder for member in method.members())
    batches = ordered_batches(plan.train, BATCH_INSTANCES)
    shown = progress and not batches.in_memory
    read = tracked(batches, "measuring feature scales", shown=shown, total=len(batches), unit="batches")
    with noting_when(lambda: "in measuring feature scales"):
        first.learn_inputs(as_float(batch.instances) for batch in read)
    for encoder in others:
        encoder.load_state_dict(dict(first.named_buffers()), strict=False)


def _check_loggers(loggers: Sequence[Logger], method: Method) -> None:
    """Raise where the curves of several networks would be written over each other."""
    if loggers and len(method.members()) > 1:
        raise ConfigError(
            item="logger",
            wanted="one network, whose curves it holds",
            got=f"an ensemble of {len(method.members())}",
            fix="pass trackers=['tensorboard'], which opens a logger for each network",
        )


def _train_members(job: Job, run: Run, method: Method) -> Run:
    """Train the members of an ensemble as tasks; return the run that reads what they wrote."""
    assert run.folder is not None
    with handed_over(job, run.folder, run.executor) as path:
        folder = run.folder.resolve()
        tasks = [
            Task(
                f"member {number} of {str(run.folder)!r}",
                "miue.training.train:train_member",
                {"job": path, "folder": str(folder), "number": number},
                folder / MEMBERS / str(number) / MEMBER,
            )
            for number in range(len(method.members()))
        ]
        run_tasks(tasks, run.executor, doing="training", unit="networks", progress=run.progress)
    return replace(run, resume=True)


@own_torch_state(trains=True)
def train_member(job: str, folder: str, number: int) -> None:
    """Train one member of an ensemble; a task.

    Args:
        job: where the job was handed over.
        folder: of the run.
        number: of the member, from 0.
    """
    shared, home = read_job(job), Path(folder)
    plan = Plan.of(shared.recipe, shared.bags, shared.validation)
    method = build_method(plan.model_config, plan.contract, plan.training_config.seed)
    _prepare(method, plan, shared.bags, None, progress=False)
    run = Run(
        home,
        resume=True,
        progress=False,
        accelerator=shared.device,
        tracking=Tracking(shared.trackers, home, plan.description(shared.trainer_options)),
        trainer_options=shared.trainer_options,
    )
    _fit_member(method, number, plan, run)


def _check_executor(method: Method, run: Run) -> None:
    """Raise unless the executor can train the members of this method.

    Raises:
        ConfigError: one network, no folder, or a callback or logger, which stays in this process.
    """
    count = len(method.members())
    if not run.executor.is_local and (count == 1 or run.folder is None or run.callbacks or run.loggers):
        problems = {"one network": count == 1, "no folder (out)": run.folder is None}
        raise ConfigError(
            item=f"executor {run.executor.kind!r}",
            wanted="an ensemble, a folder to write it to, and neither callbacks nor logger",
            got=next((problem for problem, is_so in problems.items() if is_so), "callbacks or a logger"),
            fix="choose the executor 'local', or pass trackers by name; several seeds are trained by --seeds",
        )


def _fit_members(method: Method, plan: Plan, run: Run) -> list[TrainingSummary]:
    """Train each member that is not trained yet, one after another."""
    members = method.members()
    if len(members) == 1:
        return [fit(members[0], plan.train, plan.validation, plan.training_config, run)]
    summaries = []
    for number in range(len(members)):
        with reporting_part(number, len(members)):
            summaries.append(_fit_member(method, number, plan, run))
    return summaries


def _fit_member(method: Method, number: int, plan: Plan, run: Run) -> TrainingSummary:
    """Train a member of an ensemble in a folder of its own, or read what an earlier run has trained there."""
    member, seed = method.members()[number], member_seeds(method, plan.training_config.seed)[number]
    config = plan.training_config.model_copy(update={"seed": seed})
    if run.folder is None:
        return fit(member, plan.train, plan.validation, config, run)
    folder = run.folder / MEMBERS / str(number)
    if run.resume and (folder / MEMBER).exists() and (folder / "checkpoints" / LAST).exists():
        return read_fitted(member, folder, int(read_json(folder / MEMBER, what="member")["epochs"]))
    summary = fit(member, plan.train, plan.validation, config, replace(run, folder=folder))
    if run.is_first:
        write_json(folder / MEMBER, {"epochs": summary.epochs, "best_epoch": summary.best_epoch, "seed": seed})
    return summary


def _trained_model(
    method: Method, plan: Plan, summaries: Sequence[TrainingSummary], bags: BagDataset, device: str
) -> Model:
    """Return the model with its distances, what its validation bags say of it, and what it was trained on."""
    act_after_training(method.eval(), plan.train, plan.training_config.seed, device)
    distances, without_distances = _fit_distances(method, plan, device)
    training = _record(plan, summaries, method, without_distances)
    model = Model(method, plan.model_config, plan.contract, training, distances)
    if plan.holds_out:
        model = model.with_validation(plan.validation, device=device)
    return replace(model, training_bags=TrainingBags.of(plan.splits(bags).folds[0], bags, plan.validation))


def _record(
    plan: Plan, summaries: Sequence[TrainingSummary], method: Method, without_distances: str = ""
) -> TrainingRecord:
    best_epochs = tuple(summary.best_epoch for summary in summaries)
    record = TrainingRecord(
        seed=plan.training_config.seed,
        training_bags=len(plan.train),
        validation_bags=len(plan.validation) if plan.holds_out else 0,
        epochs=sum(summary.epochs for summary in summaries),
        best_epoch=best_epochs if len(best_epochs) > 1 else best_epochs[0],
        criterion=float(np.mean([summary.best_criterion for summary in summaries])),
        settings=plan.training_config.model_dump(mode="json", exclude={"seed"}),
        without_distances=without_distances,
        without_error_model="" if plan.holds_out else NONE_HELD_OUT,
        constant_criterion=_constant_criterion(plan.validation, plan.training_config),
    )
    if not record.warning:
        return record
    network = next(iter(method.members())).network
    others = filter(None, (network.also_try, network.encoder.also_try))
    return record.model_copy(update={"also_try": " or ".join(others)})


def _constant_criterion(bags: BagDataset, config: TrainingConfig) -> float | None:
    """Return entropy and error rate of the class shares, as the criterion counts them; None with one class."""
    counts = bags.labels.counts(bags.num_classes) * validation_weights(bags, config)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum() + 1 - shares.max()) if len(shares) > 1 else None


def _fit_distances(method: Method, plan: Plan, device: str) -> tuple[dict[str, FeatureDistance], str]:
    """Return the distances; where the default ones cannot be fitted, none, and why."""
    try:
        return fit_distances(
            method,
            plan.train,
            plan.recipe.distances,
            seed=plan.training_config.seed,
            held_out=plan.validation,
            device=device,
        ), ""
    except DataError as error:
        if tuple(plan.recipe.distances) != DEFAULT_DISTANCES:
            raise
        return {}, str(error)
