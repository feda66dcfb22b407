"""The Python interface: from bags to a trained model in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import Tensor

from miue.bags.batches import ordered_batches
from miue.bags.dataset import BagDataset
from miue.bags.labels import LabelSequence
from miue.common.devices import torch_device
from miue.common.errors import ConfigError, DataError
from miue.common.locks import locked
from miue.io.splits.files import write_splits
from miue.methods import Method
from miue.model.config import Option, build_method, member_seeds
from miue.model.feature_scores import DistanceLike, fit_distances
from miue.model.model import Model
from miue.model.part import PartLike
from miue.model.predict import BATCH_INSTANCES
from miue.model.training_bags import TrainingBags
from miue.predictions.validation_quantiles import ValidationQuantiles
from miue.scores import FeatureDistance
from miue.training.after_training import act_after_training
from miue.training.fit import Run, TrainerOption, TrainingSummary, fit
from miue.training.plan import Plan
from miue.training.run_folder import IfExists, open_run
from miue.training.trackers import Tracking, check_trackers

DEFAULT_DISTANCES = ("knn",)  # the best on shifted validation bags; see results/README.md


def train(
    bags: BagDataset | Sequence[np.ndarray | Tensor],
    labels: LabelSequence | None = None,
    *,
    validation: BagDataset | None = None,
    network: PartLike = "attention",
    method: PartLike = "mirel",
    encoder: PartLike = "auto",
    options: Mapping[str, Option] | None = None,
    distances: Sequence[DistanceLike] = DEFAULT_DISTANCES,
    settings: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    if_exists: IfExists = "refuse",
    progress: bool = True,
    device: str = "auto",
    trackers: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    logger: Logger | Sequence[Logger] | None = None,
    trainer_options: Mapping[str, TrainerOption] | None = None,
) -> Model:
    """Train a model on labelled bags.

    Args:
        bags: a dataset, or arrays (n, D) or (n, H, W[, channels]); if it has splits, its train split.
        labels: class index of each bag, where ``bags`` are arrays.
        validation: bags for early stopping; else the validation split, else a stratified share is held out.
        network: a name of ``miue.NETWORKS``, an import path "package.module:Class", a class or factory, whose
            parameters ``encoder`` (or ``in_features``) and ``num_classes`` are filled in, or a module; a plain
            ``nn.Module`` maps one bag (n, D) to logits (C,).
        method: likewise, of ``miue.METHODS``; ``network`` is filled in.
        encoder: likewise, of ``miue.ENCODERS``; ``instance_shape`` is filled in; or "auto" for the one that suits
            the data, none where a plain module takes features.
        options: "network.hidden", "method.routing" and the like.
        distances: names of ``miue.DISTANCES`` or classes, fitted after training.
        settings: fields of ``TrainingConfig``, such as seed, max_epochs and learning_rate.
        out: folder for checkpoints, log and the model; None writes nothing.
        if_exists: what to do where ``out`` holds a run; a resume takes the options it was started with, or another
            max_epochs: a larger one trains on, to what it would have become, a smaller one ends it where it is.
        progress: show a bar with the time left.
        device: "auto", "cpu", "gpu", or torch's own such as "cuda:1".
        trackers: "tensorboard", "mlflow", "wandb": loggers of Lightning by name, which write into ``out``.
        callbacks: Lightning's, called in the training of each network; their state is part of its checkpoints.
        logger: one of Lightning's loggers or several, which get the values of each epoch.
        trainer_options: arguments of Lightning's Trainer, such as gradient_clip_val; see ``TRAINER_OPTIONS``.

    Raises:
        ConfigError: a name, option or setting that does not exist, a part that cannot be saved where ``out`` is
            given, a tracker that is not installed, or a callback, logger or trainer option that Lightning refuses.
        DataError: bags or labels that cannot be trained on.
        StorageError: ``out`` is taken, in use by another process, or cannot be written.
    """
    dataset = bags if isinstance(bags, BagDataset) else BagDataset.from_arrays(bags, labels)
    plan = Plan.of(
        dataset,
        validation,
        network,
        method,
        encoder,
        options or {},
        distances,
        settings or {},
        trainer_options or {},
    )
    trained = build_method(plan.what, plan.contract, plan.how.seed)
    if out is not None:
        plan.check_saveable()
    folder = None if out is None else Path(out)
    torch_device(device)
    loggers = () if logger is None else (logger,) if isinstance(logger, Logger) else tuple(logger)
    _check_loggers(loggers, trained)
    run = Run(
        folder,
        resume=if_exists == "resume",
        progress=progress,
        accelerator=device,
        tracking=_tracking(trackers, folder, plan),
        callbacks=tuple(callbacks),
        loggers=loggers,
        trainer_options=plan.trainer_options,
    )
    with nullcontext() if folder is None else locked(folder):
        if folder is not None:
            open_run(folder, if_exists, plan.description())
            if (folder / "config.json").exists():
                return Model.load(folder, trust=not plan.is_own)
        _prepare(trained, plan, dataset, folder)
        summaries = _fit_members(trained, plan, run)
        return _finished(trained, plan, summaries, folder, device, dataset)


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


def _check_loggers(loggers: Sequence[Logger], method: Method) -> None:
    """Raise where the curves of several networks would be written over each other."""
    if loggers and len(method.members()) > 1:
        raise ConfigError(
            item="logger",
            wanted="one network, whose curves it holds",
            got=f"an ensemble of {len(method.members())}",
            fix="pass trackers=['tensorboard'], which opens a logger for each network",
        )


def _fit_members(method: Method, plan: Plan, run: Run) -> list[TrainingSummary]:
    """Train each member, one after another; those of an ensemble have folders of their own."""
    members = method.members()
    seeds = member_seeds(method, plan.how.seed)
    summaries = []
    for number, (member, seed) in enumerate(zip(members, seeds, strict=True)):
        if run.folder is None or len(members) == 1:
            place = run
        else:
            place = replace(run, folder=run.folder / "members" / str(number))
        config = plan.how.model_copy(update={"seed": seed})
        summaries.append(fit(member, plan.train, plan.validation, config, place))
    return summaries


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
    act_after_training(trained.eval(), plan.train, plan.how.seed)
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
