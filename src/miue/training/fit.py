"""Train a method on labeled bags until its validation criterion stops improving."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import Logger

from miue.bags import BagBatch, BagDataset, PackedBatches, ordered_batches
from miue.bags.segments import as_float
from miue.common.devices import evaluated_on, is_training_of_slurm, lightning_device, torch_device
from miue.common.errors import ConfigError, noting_when
from miue.common.tensors import read_nested
from miue.common.text import tracked
from miue.methods import Method
from miue.model import BATCH_INSTANCES
from miue.networks import encoder_precision, seeded
from miue.settings import TrainingConfig
from miue.training.callbacks import EpochLog, EpochProgress, ReportsShare, StopAfterBatch, interrupts_after_batches
from miue.training.checkpoints import MIN_DELTA, BestWeights, SafetensorsCheckpointIO, epochs_in
from miue.training.module import AveragingStrategy, EpochSums, TrainingData, TrainingModule, validation_weights
from miue.training.run import Run
from miue.training.sets import check_labels
from miue.training.trackers import opened_loggers


@dataclass(frozen=True)
class TrainingSummary:
    """How a training went.

    Attributes:
        epochs: epochs trained, those before a resume included.
        best_epoch: the epoch whose weights were kept.
        best_criterion: its validation NLL + error rate.
    """

    epochs: int
    best_epoch: int
    best_criterion: float


def learn_inputs(method: Method, bags: BagDataset, *, progress: bool) -> None:
    """Fit encoders to their inputs; instances are read once for all members."""
    first, *others = (member.network.encoder for member in method.members())
    batches = ordered_batches(bags, BATCH_INSTANCES)
    shown = progress and not batches.in_memory
    read = tracked(batches, "measuring feature scales", shown=shown, total=len(batches), unit="batches")
    with noting_when(lambda: "in measuring feature scales"):
        first.learn_inputs(as_float(batch.instances) for batch in read)
    for encoder in others:
        encoder.load_state_dict(dict(first.named_buffers()), strict=False)


def fit(
    method: Method, train: BagDataset, validation: BagDataset, config: TrainingConfig, run: Run
) -> TrainingSummary:
    """Train ``method`` in place and leave it with the weights of its best epoch.

    Args:
        method: what is trained.
        train: labeled bags of at least two classes.
        validation: labeled bags.
        config: how it learns.
        run: where and how it runs.

    Raises:
        DataError: a bag without a label, only one class, or a loss that is not finite.
        KeyboardInterrupt: the user stopped it; the last checkpoint is whole.
    """
    check_labels(train, "training", classes_wanted=2)
    check_labels(validation, "validation", classes_wanted=1)
    if method.is_fitted_at_once:
        return _fit_at_once(method, train, validation, config, run)
    data = TrainingData(train, validation, config)
    data.check_processes(run.processes)
    best = BestWeights(run.folder / "checkpoints" if run.folder is not None else None, is_first=run.is_first)
    checkpoint = best.last if run.resume and run.folder is not None and best.last.exists() else None
    trained = epochs_in(checkpoint) if checkpoint is not None else 0
    with (
        quiet_lightning(),
        encoder_precision(method, config.precision),
        torch.random.fork_rng(devices=[]),  # every epoch seeds torch's own generator
        interrupts_after_batches() as stop,
        opened_loggers(run, config, trained) as loggers,
    ):
        trainer = _trainer(config, run, best, stop, loggers, max_epochs=max(config.max_epochs, trained))
        module = TrainingModule(method, config, data.bags_of_update, validation_weights(validation, config))
        try:
            trainer.fit(module, data, ckpt_path=checkpoint)
        except SystemExit as ended:  # Lightning's answer to an interrupt
            stop.check()
            raise KeyboardInterrupt from ended
        except MisconfigurationException as error:
            if not _is_extended(run):
                raise
            raise _refused(error) from error
        except (RuntimeError, ConnectionError):
            stop.check()  # another process of the training has stopped first
            raise
    best.restore(method)
    method.eval()
    return TrainingSummary(trainer.current_epoch, best.best_epoch, best.best_criterion)


def _fit_at_once(
    method: Method, train: BagDataset, validation: BagDataset, config: TrainingConfig, run: Run
) -> TrainingSummary:
    """Fit a method that has no epochs, and return its criterion."""
    fit_to_bags(method, train, config.seed, run.settings.device)
    sums = EpochSums(validation_weights(validation, config))
    with torch.no_grad(), evaluated_on(torch_device("cpu"), method):
        for batch in ordered_batches(validation, BATCH_INSTANCES):
            sums.add_validation(method.bag_log_probabilities(batch), batch)
    sums.add_update(0.0)
    criterion = sums.values(0, "check the features")["criterion"]
    return TrainingSummary(0, 0, criterion)


def read_fitted(method: Method, folder: Path, epochs: int) -> TrainingSummary:
    """Give ``method`` the weights of the best epoch of a training that has ended.

    Args:
        method: as it was trained.
        folder: of the training.
        epochs: how many it took.

    Raises:
        StorageError: a checkpoint that is missing or damaged.
    """
    best = BestWeights(folder / "checkpoints")
    best.load_state_dict(read_nested(best.last)["callbacks"][best.state_key])
    best.restore(method)
    method.eval()
    return TrainingSummary(epochs, best.best_epoch, best.best_criterion)


def _trainer(
    config: TrainingConfig,
    run: Run,
    best: BestWeights,
    stop: StopAfterBatch,
    loggers: Sequence[Logger],
    max_epochs: int,
) -> pl.Trainer:
    """Return Lightning's trainer; the user's callbacks come before those that write log and checkpoint.

    Raises:
        ConfigError: callbacks, loggers or options that Lightning does not take.
    """
    settings = run.settings
    callbacks = [
        *settings.callbacks,
        EarlyStopping("criterion", min_delta=MIN_DELTA, patience=config.stop_patience),
        best,
        stop,
        ReportsShare(),
    ]
    if run.folder is not None and run.is_first:
        callbacks.append(EpochLog(run.folder / "log.csv"))
    if run.progress and run.is_first:
        callbacks.append(EpochProgress(best))
    options: dict[str, Any] = {
        **lightning_device(settings.device, settings.devices, settings.nodes),
        **settings.trainer_options,
    }
    if run.processes > 1:
        options["sync_batchnorm"] = options["accelerator"] == "cuda"  # torch has none for the CPU
        options["strategy"] = AveragingStrategy()
    try:
        return pl.Trainer(
            **options,
            default_root_dir=run.folder,
            max_epochs=max_epochs,
            callbacks=callbacks,
            plugins=[SafetensorsCheckpointIO(), _environment(run.processes)],
            logger=[*loggers, *run.loggers],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            reload_dataloaders_every_n_epochs=1,
        )
    except (TypeError, ValueError, RuntimeError, MisconfigurationException) as error:
        if not _is_extended(run):
            raise
        raise _refused(error) from error


def _is_extended(run: Run) -> bool:
    """Return whether Lightning gets callbacks, loggers or options of the user's."""
    return bool(run.settings.trainer_options or run.settings.callbacks or run.loggers)


def _refused(error: Exception) -> ConfigError:
    """Return the error for what Lightning does not take of a user."""
    return ConfigError(
        item="callbacks, logger or trainer_options",
        wanted="what Lightning's Trainer takes beside the callbacks of miue",
        got=str(error).split("\n")[0],
        fix="change or leave out what this names",
    )


def _environment(processes: int) -> ClusterEnvironment:
    """Return how the processes of a training find each other.

    Lightning takes every job of Slurm for a training of all its tasks, which it sends again when time is up; here
    a training takes part in what the command line says, and goes on with ``--resume``.
    """
    if is_training_of_slurm(processes):
        return SLURMEnvironment(auto_requeue=False)
    if processes > 1 and TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    return LightningEnvironment()


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's banners and its advice about data loaders, which are not torch's here."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning.*")
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def act_after_training(method: Method, bags: BagDataset, seed: int, device: str = "auto") -> None:
    """Call ``fit_after_training`` of each member, in evaluation mode, with the training bags.

    Args:
        method: trained; changed in place, and left on the device that it is on.
        bags: training bags with labels.
        seed: of what is drawn from torch's own generator.
        device: where it is done: "auto", "cpu", "gpu", or torch's name of one.

    Raises:
        ConfigError: a tensor of the method has another name or shape afterwards, so that it could not be loaded,
            or the device is not there.
    """
    for member in method.members():
        if not member.is_fitted_at_once:
            fit_to_bags(member, bags, seed, device)


def fit_to_bags(member: Method, bags: BagDataset, seed: int, device: str) -> None:
    """Call ``fit_after_training`` of one member, as ``act_after_training`` does.

    Raises:
        ConfigError: as there.
    """
    there = torch_device(device)
    batches = _OnDevice(ordered_batches(bags, BATCH_INSTANCES), there)
    before = {name: value.shape for name, value in member.state_dict().items()}
    with seeded(seed), evaluated_on(there, member):
        member.fit_after_training(batches)
    after = {name: value.shape for name, value in member.state_dict().items()}
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            raise ConfigError(
                item=f"tensor {name!r} of method {type(member).__name__!r}",
                wanted=f"shape {_shape(before.get(name))} after training, as its constructor made it",
                got=_shape(after.get(name)),
                fix="register it as a buffer of its final shape in the constructor",
            )


class _OnDevice:
    """Batches that are brought to a device as they are read; they can be iterated over more than once."""

    def __init__(self, batches: PackedBatches, device: torch.device) -> None:
        self.batches, self.device = batches, device

    def __iter__(self) -> Iterator[BagBatch]:
        return (batch.to(self.device) for batch in self.batches)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else str(tuple(shape))
