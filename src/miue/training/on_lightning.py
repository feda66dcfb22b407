"""Training on Lightning: on several devices, with trackers, and with callbacks, loggers and options of the user's.

Its import takes longer than that of torch, so that a training that needs none of these has a loop of its own.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.optim import Optimizer

from miue.bags import BagBatch, PackedBatches
from miue.common.devices import average_gradients, is_training_of_slurm, lightning_device, take_from_first
from miue.common.errors import ConfigError
from miue.common.files import remove
from miue.common.tensors import write_nested
from miue.training.checkpoints import KEY, read_state
from miue.training.learner import Learner, TrainingData
from miue.training.run import Run
from miue.training.trackers import opened_loggers
from miue.training.watchers import StopAfterBatch


def train_on_lightning(learner: Learner, stop: StopAfterBatch, run: Run) -> None:
    """Train until the criterion stops improving, or the last epoch has ended.

    Raises:
        ConfigError: callbacks, loggers or options that Lightning does not take.
        KeyboardInterrupt: the user stopped it.
    """
    between = BetweenEpochs(learner, stop)
    with quiet_lightning(), opened_loggers(run, learner.config, learner.epoch) as loggers:
        trainer = _trainer(run, between, loggers)
        try:
            checkpoint = None if learner.state is None else learner.best.last
            trainer.fit(TrainingModule(learner), LightningData(learner.data), ckpt_path=checkpoint)
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


class TrainingModule(pl.LightningModule):
    """What Lightning asks of a learner."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner, self.method = learner, learner.method

    def configure_optimizers(self) -> Optimizer:
        """Return Adam, whose schedule is the learner's."""
        return self.learner.begin(self.device)

    def on_train_epoch_start(self) -> None:
        """Begin it."""
        self.learner.begin_epoch()

    def training_step(self, batch: BagBatch, batch_idx: int) -> Tensor:
        """Return the loss of one update."""
        return self.learner.loss(batch)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Let all processes make the same update."""
        average_gradients(self.parameters())

    def on_validation_epoch_start(self) -> None:
        """Let all processes validate the network that the first one writes, with its running statistics."""
        take_from_first(self.buffers())

    def validation_step(self, batch: BagBatch, batch_idx: int) -> None:
        """Add up NLL and errors of labeled bags."""
        self.learner.validate(batch)

    def on_validation_epoch_end(self) -> None:
        """Log the values of the epoch under its number."""
        values = self.learner.end_epoch()
        self.log_dict({**values, "step": float(self.learner.epoch)}, batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the schedule, which Lightning does not step."""
        checkpoint["schedule"] = self.learner.schedule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on after the epochs of a checkpoint that Lightning did not write."""
        if "loops" not in checkpoint:
            progress: Any = self.trainer.fit_loop.epoch_progress.current
            progress.ready = progress.started = progress.processed = progress.completed = self.learner.epoch


class LightningData(pl.LightningDataModule):
    """What Lightning asks of the bags."""

    def __init__(self, data: TrainingData) -> None:
        super().__init__()
        self.data = data

    def setup(self, stage: str) -> None:
        """Take the share of this process."""
        assert self.trainer is not None
        self.data.rank = self.trainer.global_rank

    def train_dataloader(self) -> PackedBatches:
        """Return the batches of the epoch that begins."""
        assert self.trainer is not None
        return self.data.updates(self.trainer.current_epoch)

    def val_dataloader(self) -> PackedBatches:
        """Return the validation bags in order."""
        return self.data.validation()

    def transfer_batch_to_device(self, batch: BagBatch, device: torch.device, dataloader_idx: int) -> BagBatch:
        """Move a packed batch."""
        return batch.to(device)


class BetweenEpochs(Checkpoint):
    """Stops a training, and writes its state at the end of an epoch, after the callbacks of the user."""

    def __init__(self, learner: Learner, stop: StopAfterBatch) -> None:
        self.learner, self.best, self.stop = learner, learner.best, stop

    @property
    def state_key(self) -> str:
        """The name of the state in a checkpoint."""
        return KEY

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Do not train on where the run that is resumed had already stopped."""
        trainer.should_stop = self.best.stopped

    def on_train_batch_end(self, *arguments: Any) -> None:
        """Stop after the batch in which an interrupt came."""
        self.stop.check()

    on_validation_batch_end = on_train_batch_end  # type: ignore[assignment]

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop where patience has ended or a callback wants it, and write the state to resume from."""
        self.best.stopped = trainer.should_stop = trainer.should_stop or self.best.stopped
        if trainer.strategy.broadcast(self.learner.has_ended or self.best.is_due):  # as the first process says
            self.best.save(trainer.save_checkpoint)

    def state_dict(self) -> dict[str, Any]:
        """Return that of the best weights."""
        return self.best.state_dict()


class AveragingStrategy(DDPStrategy):
    """Several processes whose gradients the module averages itself, once for each update.

    torch's own wrapper waits for a gradient of every parameter from every process, and a process has none for the
    attention if all its bags hold one instance.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is; all processes made it from the same seed."""


class SafetensorsCheckpointIO(CheckpointIO):
    """Write and read Lightning's nested checkpoint as one safetensors file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path`` atomically.

        Raises:
            ConfigError: a callback's state cannot be written without pickle.
        """
        try:
            write_nested(Path(path), checkpoint)
        except TypeError as error:
            raise ConfigError(
                item="the checkpoint, to which callbacks add their state",
                wanted="dicts, lists, numbers, strings and tensors",
                got=str(error),
                fix="let each callback keep such a state, or none",
            ) from error

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint at ``path``, which the loop without Lightning may have written.

        Raises:
            StorageError: the file is missing, damaged, or holds something else.
        """
        return {"pytorch-lightning_version": lightning.__version__, **read_state(Path(path))}

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        remove(Path(path))


def _trainer(run: Run, between: BetweenEpochs, loggers: Sequence[Logger]) -> pl.Trainer:
    """Return Lightning's trainer; the user's callbacks come before what writes log and checkpoint.

    Raises:
        ConfigError: callbacks, loggers or options that Lightning does not take.
    """
    settings = run.settings
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
            max_epochs=between.learner.max_epochs,
            callbacks=[*settings.callbacks, between],
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
