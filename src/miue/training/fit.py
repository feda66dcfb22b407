"""Train a method on labeled bags until its validation criterion stops improving."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.loggers import Logger

from miue.bags.dataset import BagDataset
from miue.common.devices import lightning_device
from miue.common.errors import ConfigError, one_of_two, out_of_range, unknown_name
from miue.common.nested import read_nested
from miue.common.processes import is_training_of_slurm, training_rank
from miue.common.tasks import LOCAL, Executor
from miue.common.values import Option, check_fields, several
from miue.methods import Method
from miue.networks import encoder_precision
from miue.settings import TrainingConfig, TrainSettings
from miue.training.callbacks import MIN_DELTA, BestWeights, EpochLog, EpochProgress, ReportsShare
from miue.training.checkpoint import SafetensorsCheckpointIO, epochs_in
from miue.training.interrupts import StopAfterBatch, interrupts_after_batches
from miue.training.module import AveragingStrategy, TrainingData, TrainingModule, validation_weights
from miue.training.plan import check_labels
from miue.training.trackers import Tracking, opened_loggers

TRAINER_OPTIONS = (
    "accumulate_grad_batches",
    "benchmark",
    "detect_anomaly",
    "deterministic",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "limit_train_batches",
    "log_every_n_steps",
)
"""Arguments of Lightning's Trainer that may be given; all others decide what miue decides itself: epochs, devices,
validation, checkpoints, and the precision of float32 that evidence needs."""

WITHOUT_UPDATES = ("accumulate_grad_batches", "limit_train_batches")
"""Those with which there is no update where they are 0; Lightning then ends without a word, or in an error."""


@dataclass(frozen=True)
class TrainingSummary:
    """How a training went.

    Attributes:
        epochs: epochs trained, those before a resume included.
        best_epoch: the epoch whose weights were kept.
        best_criterion: its validation NLL + error rate.
        seconds: time of this process alone.
    """

    epochs: int
    best_epoch: int
    best_criterion: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """Where and how a training runs, which does not change what it learns.

    Attributes:
        folder: where checkpoints and log go; None writes nothing.
        resume: continue from the folder's last checkpoint, if there is one.
        progress: show a bar with the time left.
        warn: warn of bags that may be wrong; false where that is done for several trainings at once.
        accelerator: name of a device, as ``torch_device`` takes it.
        devices: how many of this kind on each machine, one process for each.
        nodes: machines; each runs the same command, as torchrun or srun starts it.
        tracking: trackers that log each epoch; they need a folder.
        callbacks: of Lightning, called beside those of the training.
        loggers: of Lightning, beside those of the trackers.
        trainer_options: of ``TRAINER_OPTIONS``.
        executor: where the members of an ensemble are trained.
    """

    folder: Path | None = None
    resume: bool = False
    progress: bool = True
    warn: bool = True
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    tracking: Tracking = field(default_factory=Tracking)
    callbacks: tuple[Callback, ...] = ()
    loggers: tuple[Logger, ...] = ()
    trainer_options: Mapping[str, Option] = field(default_factory=dict)
    executor: Executor = LOCAL

    @classmethod
    def of(cls, settings: TrainSettings, folder: Path | None, *, progress: bool = True) -> Run:
        """Return where and how a training runs by settings; without a folder it writes nothing."""
        loggers = () if settings.logger is None else tuple(several(settings.logger) or (settings.logger,))
        return cls(
            folder,
            progress=progress,
            accelerator=settings.device,
            devices=settings.devices,
            nodes=settings.nodes,
            tracking=Tracking(settings.trackers),
            callbacks=settings.callbacks,
            loggers=loggers,
            trainer_options=settings.trainer_options,
            executor=settings.to_executor(),
        )

    def __post_init__(self) -> None:
        """Raise unless numbers are positive, and callbacks, loggers and options are Lightning's."""
        if isinstance(self.folder, str):
            object.__setattr__(self, "folder", Path(self.folder))
        check_fields(self)
        for name in ("callbacks", "loggers"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("devices", "nodes"):
            if getattr(self, name) < 1:
                raise out_of_range(name, "at least 1", getattr(self, name))
        if self.processes > 1 and not self.executor.is_local:
            raise one_of_two("several devices for each training, and trainings on several processes (--executor)")
        for name in self.trainer_options:
            if name not in TRAINER_OPTIONS:
                raise unknown_name("trainer option", name, TRAINER_OPTIONS)
            if name in WITHOUT_UPDATES and self.trainer_options[name] == 0:
                raise out_of_range(f"trainer option {name!r}", "a number above 0", self.trainer_options[name])
        wanted: tuple[tuple[str, type, tuple[object, ...]], ...] = (
            ("callbacks", Callback, self.callbacks),
            ("logger", Logger, self.loggers),
        )
        for argument, kind, values in wanted:
            for value in values:
                if not isinstance(value, kind):
                    raise ConfigError(
                        item=argument,
                        wanted=f"objects of lightning.pytorch's {kind.__name__}",
                        got=type(value).__name__,
                        fix=f"derive its class from {kind.__name__}, or leave it out",
                    )

    @property
    def processes(self) -> int:
        """Processes that train together."""
        return self.devices * self.nodes

    @property
    def is_extended(self) -> bool:
        """Whether Lightning gets callbacks, loggers or options of the user's."""
        return bool(self.trainer_options or self.callbacks or self.loggers)

    @property
    def is_first(self) -> bool:
        """Whether this is the first of them, which alone writes, logs and shows progress."""
        return training_rank(self.processes) == 0


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
    data = TrainingData(train, validation, config)
    data.check_processes(run.processes)
    best = BestWeights(run.folder / "checkpoints" if run.folder is not None else None, is_first=run.is_first)
    started = time.perf_counter()
    checkpoint = best.last if run.resume and run.folder is not None and best.last.exists() else None
    trained = epochs_in(checkpoint) if checkpoint is not None else 0
    with (
        quiet_lightning(),
        encoder_precision(method, config.precision),
        torch.random.fork_rng(devices=[]),  # every epoch seeds torch's own generator
        interrupts_after_batches() as stop,
        opened_loggers(run.tracking if run.is_first else Tracking(), run.folder, config, trained) as loggers,
    ):
        trainer = _trainer(config, run, best, stop, loggers, max_epochs=max(config.max_epochs, trained))
        module = TrainingModule(method, config, data.bags_of_update, validation_weights(validation, config))
        try:
            trainer.fit(module, data, ckpt_path=checkpoint)
        except SystemExit as ended:  # Lightning's answer to an interrupt
            stop.check()
            raise KeyboardInterrupt from ended
        except MisconfigurationException as error:
            if not run.is_extended:
                raise
            raise _refused(error) from error
        except (RuntimeError, ConnectionError):
            stop.check()  # another process of the training has stopped first
            raise
    best.restore(method)
    method.eval()
    return TrainingSummary(
        trainer.current_epoch, best.best_epoch, best.best_criterion, time.perf_counter() - started
    )


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
    return TrainingSummary(epochs, best.best_epoch, best.best_criterion, 0.0)


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
    callbacks = [
        *run.callbacks,
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
        **lightning_device(run.accelerator, run.devices, run.nodes),
        **run.trainer_options,
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
        if not run.is_extended:
            raise
        raise _refused(error) from error


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
