"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from miue.bags import BagDataset, LabelSequence, check_dataset
from miue.common.devices import torch_device
from miue.common.errors import (
    ConfigError,
    DataError,
    first_repeated,
    lacking,
    one_of_two,
    out_of_range,
    repeated,
)
from miue.common.files import read_json, write_json
from miue.common.folder_kinds import kind_of
from miue.common.label_folders import label_folders, of_label, open_label_folders
from miue.common.outputs import locked, refuse_existing, refuse_taken
from miue.common.tasks import Task, reporting_part, run_tasks
from miue.common.tensors import own_torch_state
from miue.common.text import say
from miue.common.values import checked
from miue.io import write_splits
from miue.methods import Method
from miue.model import (
    Model,
    PartLike,
    Recipe,
    TrainingBags,
    build_method,
    fit_distances,
    member_seeds,
    read_config,
)
from miue.networks import say_if_slow
from miue.predictions import TrainingRecord
from miue.scores import FeatureDistance
from miue.settings import DEFAULT_DISTANCES, TrainSettings
from miue.training.checkpoints import LAST
from miue.training.fit import TrainingSummary, act_after_training, fit, learn_inputs, read_fitted
from miue.training.job import Job, handed_over, read_job
from miue.training.learner import constant_criterion
from miue.training.notes import (
    keep_in_memory,
    length_in_words,
    question_negative_class,
    say_method,
    say_parts,
    warn_of_bags,
)
from miue.training.run import Run, check_trackers
from miue.training.run_folder import (
    MEMBER,
    MEMBERS,
    RUN,
    IfExists,
    changed_to_resume,
    clear_run,
    is_finished,
    open_run,
    write_model,
)
from miue.training.sets import check_censoring

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
        method: likewise, of ``miue.METHODS``; ``network`` is filled in. "mirel" by default, of times without an
            event "softmax".
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
    run = Run(None if out is None else Path(out), chosen, progress=progress)
    recipe = Recipe.of(chosen, dataset)
    if progress:
        say_method(recipe, chosen)
    return train_job(Job(recipe, dataset, validation), run, if_exists=if_exists)


@checked()
@own_torch_state(trains=True)
def train_job(job: Job, run: Run, *, if_exists: IfExists = "refuse") -> Model:
    """Train what a recipe describes on its bags.

    Args:
        job: what is trained, and on which bags.
        run: where and how it runs; whether it resumes follows from ``if_exists``.
        if_exists: what to do where the folder of ``run`` holds a run.

    Raises:
        ConfigError, DataError, StorageError: as ``train`` does.
    """
    check_dataset(job.bags)
    if job.held_out is not None:
        check_dataset(job.held_out, "validation", HOLD_OUT)
    if (twice := first_repeated(job.bags.ids)) is not None:
        fix = "keep one of them: what is held out would also be trained on"
        raise repeated(f"bag {twice!r}", "each bag once", job.bags.ids.count(twice), fix)
    job.check()
    keep_in_memory(job, run.settings.memory_share, progress=run.progress)
    method = build_method(job.model_config, job.contract, job.training_config.seed)
    check_censoring(method, job.train)
    if job.initial is not None:
        job.initial.fitting(method)
    folder, settings, description = run.folder, run.settings, job.description(run.settings.trainer_options)
    if folder is not None:
        job.check_saveable()
    device = torch_device(settings.device)
    _check_members(method, run)
    check_trackers(settings.trackers, folder)
    run = replace(run, resume=if_exists == "resume", home=folder, description=description)
    writes = folder if run.is_first else None
    with locked(writes) if writes is not None else nullcontext():
        if writes is not None:
            open_run(writes, if_exists, description)
        if folder is not None and is_finished(folder, description):
            return Model.load(folder, trust=not job.is_own)
        if run.progress:
            members = method.members()
            at_once = members[0].is_fitted_at_once
            say(length_in_words(job, len(members), is_fitted_at_once=at_once), err=True)
            say_parts(job)
            say_if_slow(job.training_config.precision, device)
            question_negative_class(job.bags, job.recipe)
        if run.is_first and run.warn:
            warn_of_bags(job)
        if writes is not None and not (writes / "config.json").exists():  # a model stays with the file it lists
            write_splits(writes / "splits.csv", job.parts(), job.bags, job.validation)
        said = _prepare(method, job, progress=run.progress)
        if said and run.progress:
            say(said, err=True)
        if not run.executor.is_local:
            run = _train_members(job, run, len(method.members()))
        summaries = _fit_members(method, job, run)
        if not run.is_first:
            return Model(method.eval(), job.model_config, job.contract, _record(job, summaries, method))
        model = _trained_model(method, job, summaries, settings.device)
        if folder is not None:
            write_model(model, folder, description)
    return model


@checked()
def train_seeds(
    job: Job, seeds: Sequence[int], run: Run, *, if_exists: IfExists = "refuse"
) -> list[TrainingRecord]:
    """Train a job with several seeds, each as one task, and return how each went.

    Args:
        job: what is trained, and on which bags.
        seeds: different ones; the run of each is ``seed_<number>`` in the folder of ``run``.
        run: where and how they run.
        if_exists: what to do where the folder holds runs; a resume trains what is missing, and finished runs
            on to another max_epochs.

    Raises:
        ConfigError: no folder, no seed or one twice, callbacks or a logger, several devices for each training, a
            run to resume that is another, or an argument of another type.
        DataError, StorageError: as ``train_job`` does.
    """
    check_dataset(job.bags)
    if not seeds or len(set(seeds)) < len(seeds):
        raise out_of_range("the seeds", "different numbers, such as [1, 2, 3]", list(seeds))
    if run.folder is None:
        raise _no_folder("several seeds")
    jobs = {f"seed_{seed}": ("seed", seed) for seed in seeds}
    return list(_train_variants(job, jobs, run, if_exists).values())


@checked()
def train_labels(job: Job, run: Run, *, if_exists: IfExists = "refuse") -> dict[str, TrainingRecord]:
    """Train a binary model for each of several labels, each as one task, and return how each went.

    All learn from the same split. A bag whose label is unknown takes no part in the model of that label.

    Args:
        job: what is trained, and on which bags, of several labels each (``BagDataset.with_label_sets``).
        run: where and how they run; its folder gets one for each label, and a list of them.
        if_exists: as for ``train_seeds``.

    Raises:
        ConfigError, DataError, StorageError: as ``train_seeds`` does; a label that all or none of the bags have.
    """
    check_dataset(job.bags)
    names = list(job.bags.by_label())
    if not names:
        raise lacking("the bags", "several labels each", "pass them by with_label_sets")
    if run.folder is None:
        raise _no_folder("several labels")
    shared = job.divided()
    for name in names:
        with of_label(name):
            shared.of_label(name).check()
    with locked(run.folder):
        there = label_folders(run.folder) if if_exists == "overwrite" else {}
        for folder in there.values():
            clear_run(folder)
        resume, overwrite = if_exists == "resume", if_exists == "overwrite"
        folders = open_label_folders(run.folder, names, overwrite=overwrite, resume=resume)
        TrainingBags.of(shared.parts().folds[0], shared.bags).save(run.folder)
        jobs = {folder.name: ("label", name) for name, folder in folders.items()}
        records = _train_variants(shared, jobs, run, "resume")
    return dict(zip(folders, records.values(), strict=True))


def _no_folder(item: str) -> ConfigError:
    return ConfigError(item=item, wanted="a folder for their runs", got="none", fix="pass one")


def _train_variants(
    job: Job, variants: Mapping[str, tuple[str, Any]], run: Run, if_exists: IfExists
) -> dict[str, TrainingRecord]:
    """Train a job with another seed or for another label each, as tasks, and return how each went.

    Args:
        job: what they have in common.
        variants: by the name of its folder, what each has in another way ("seed" or "label") and its value.
        run: where and how they run.
        if_exists: what to do where the folder holds runs.
    """
    if run.processes > 1:
        kind = f"several {next(iter(variants.values()))[0]}s"
        fix = "train one after another, each into a folder of its own"
        raise one_of_two(f"several devices for each training, and {kind}", fix=fix)
    out = run.folder
    assert out is not None
    jobs = {out.resolve() / name: job.variant(**dict([chosen])) for name, chosen in variants.items()}
    for one in jobs.values():
        one.check()
        one.check_saveable()
    check_trackers(run.settings.trackers, out)
    first = next(iter(jobs.values()))
    keep_in_memory(first, run.settings.memory_share, progress=run.progress)
    if run.progress:
        say_parts(first)
        question_negative_class(first.bags, job.recipe)
    warn_of_bags(first)
    with locked(out):
        if if_exists == "refuse":
            refuse_existing(out, RUN, overwrite=False)
        if if_exists == "overwrite":
            for folder in [*([out] if kind_of(out) else []), *jobs]:
                refuse_taken(folder, RUN, overwrite=True)
            for folder in jobs:
                clear_run(folder)
        options = run.settings.trainer_options
        changed = [changed_to_resume(folder, one.description(options)) for folder, one in jobs.items()]
        with handed_over(job, out, run) as path:
            tasks = [
                Task(
                    " ".join(map(str, chosen)),
                    "miue.training.train:train_variant",
                    {"job": path, "folder": str(folder), **dict([chosen])},
                    folder / "config.json",
                    again=bool(of_run),
                    output=folder,
                )
                for folder, chosen, of_run in zip(jobs, variants.values(), changed, strict=True)
            ]
            run_tasks(tasks, run.executor, doing="training", unit="runs", progress=run.progress)
    return {folder.name: read_config(folder).training for folder in jobs}


def train_variant(job: str, folder: str, seed: int | None = None, label: str | None = None) -> None:
    """Train one seed or label, from its last checkpoint where there is one; a task.

    Args:
        job: where the job was handed over.
        folder: of the run.
        seed: of the training, where it is another than that of the job.
        label: that is learned, where bags have several.
    """
    shared, run = read_job(job)
    out, one = Path(folder), shared.variant(seed, label)
    train_job(one, replace(run, folder=out, root=out.parent, warn=False), if_exists="resume")


def _check_members(method: Method, run: Run) -> None:
    """Raise where the members of a method cannot be trained as asked.

    Raises:
        ConfigError: another executor than this process for one network or without a folder; a logger for several
            networks, whose curves would be written over each other.
    """
    count, settings = len(method.members()), run.settings
    if run.loggers and count > 1:
        raise ConfigError(
            item="logger",
            wanted="one network, whose curves it holds",
            got=f"an ensemble of {count}",
            fix="pass trackers=['tensorboard'], which opens a logger for each network",
        )
    if not run.executor.is_local and (count == 1 or run.folder is None or settings.callbacks or run.loggers):
        problems = {"one network": count == 1, "no folder (out)": run.folder is None}
        raise ConfigError(
            item=f"executor {run.executor.kind!r}",
            wanted="an ensemble, a folder to write it to, and neither callbacks nor logger",
            got=next((problem for problem, is_so in problems.items() if is_so), "callbacks or a logger"),
            fix="choose the executor 'local', or train several seeds",
        )


def _train_members(job: Job, run: Run, count: int) -> Run:
    """Train the members of an ensemble as tasks; return the run that reads what they wrote."""
    assert run.folder is not None
    folder = run.folder.resolve()
    with handed_over(job, run.folder, run) as path:
        tasks = [
            Task(
                f"member {number} of {str(run.folder)!r}",
                "miue.training.train:train_member",
                {"job": path, "folder": str(folder), "number": number},
                folder / MEMBERS / str(number) / MEMBER,
            )
            for number in range(count)
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
    shared, run = read_job(job)
    home, description = Path(folder), shared.description(run.settings.trainer_options)
    method = build_method(shared.model_config, shared.contract, shared.training_config.seed)
    _prepare(method, shared, progress=False)
    _fit_member(method, number, shared, replace(run, folder=home, home=home, resume=True, description=description))


def _prepare(method: Method, job: Job, *, progress: bool) -> str:
    """Fit encoders to their inputs, and give initial weights; return which, "" for none."""
    learn_inputs(method, job.train, progress=progress)
    return "" if job.initial is None else job.initial.give_to(method)


def _fit_members(method: Method, job: Job, run: Run) -> list[TrainingSummary]:
    """Train each member that is not trained yet, one after another."""
    members = method.members()
    if len(members) == 1:
        return [fit(members[0], job.train, job.validation, job.training_config, run)]
    summaries = []
    for number in range(len(members)):
        with reporting_part(number, len(members)):
            summaries.append(_fit_member(method, number, job, run))
    return summaries


def _fit_member(method: Method, number: int, job: Job, run: Run) -> TrainingSummary:
    """Train a member of an ensemble in a folder of its own, or read what an earlier run has trained there."""
    member, seed = method.members()[number], member_seeds(method, job.training_config.seed)[number]
    config = job.training_config.model_copy(update={"seed": seed})
    if run.folder is None:
        return fit(member, job.train, job.validation, config, run)
    folder = run.folder / MEMBERS / str(number)
    if run.resume and (folder / MEMBER).exists() and (folder / "checkpoints" / LAST).exists():
        return read_fitted(member, folder, int(read_json(folder / MEMBER, what="member")["epochs"]))
    summary = fit(member, job.train, job.validation, config, replace(run, folder=folder))
    if run.is_first:
        write_json(folder / MEMBER, {"epochs": summary.epochs, "best_epoch": summary.best_epoch, "seed": seed})
    return summary


def _trained_model(method: Method, job: Job, summaries: Sequence[TrainingSummary], device: str) -> Model:
    """Return the model with its distances, what its validation bags say of it, and what it was trained on."""
    act_after_training(method.eval(), job.train, job.training_config.seed, device)
    distances, without_distances = _fit_distances(method, job, device)
    training = _record(job, summaries, method, without_distances)
    model = Model(method, job.model_config, job.contract, training, distances)
    if job.holds_out:
        model = model.with_validation(job.validation, device=device)
    return replace(model, training_bags=TrainingBags.of(job.parts().folds[0], job.bags, job.validation))


def _record(
    job: Job, summaries: Sequence[TrainingSummary], method: Method, without_distances: str = ""
) -> TrainingRecord:
    best_epochs = tuple(summary.best_epoch for summary in summaries)
    config = job.training_config
    record = TrainingRecord(
        seed=config.seed,
        training_bags=len(job.train),
        validation_bags=len(job.validation) if job.holds_out else 0,
        epochs=sum(summary.epochs for summary in summaries),
        best_epoch=best_epochs if len(best_epochs) > 1 else best_epochs[0],
        criterion=float(np.mean([summary.best_criterion for summary in summaries])),
        settings=config.model_dump(mode="json", exclude={"seed"}),
        without_distances=without_distances,
        without_error_model="" if job.holds_out else NONE_HELD_OUT,
        constant_criterion=constant_criterion(job.validation, config),
        initial_weights="" if job.initial is None else job.initial.sha256,
    )
    if not record.warning:
        return record
    network = next(iter(method.members())).network
    others = filter(None, (network.also_try, network.encoder.also_try))
    return record.model_copy(update={"also_try": " or ".join(others)})


def _fit_distances(method: Method, job: Job, device: str) -> tuple[dict[str, FeatureDistance], str]:
    """Return the distances; where the default ones cannot be fitted, none, and why."""
    try:
        return fit_distances(
            method,
            job.train,
            job.recipe.distances,
            seed=job.training_config.seed,
            held_out=job.validation,
            device=device,
        ), ""
    except DataError as error:
        if tuple(job.recipe.distances) != DEFAULT_DISTANCES:
            raise
        return {}, str(error)
