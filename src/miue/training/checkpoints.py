"""The state that a training resumes from and its best weights, as safetensors, without pickle."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import CheckpointIO
from safetensors import SafetensorError
from torch import Tensor

from miue.common.errors import ConfigError, StorageError
from miue.common.files import remove
from miue.common.tensors import (
    copy_weights,
    damaged_checkpoint,
    digest,
    read_nested,
    read_tensors,
    write_nested,
    write_tensors,
)
from miue.methods import Method
from miue.training.module import TrainingModule

LAST, BEST, PREVIOUS = "last.safetensors", "best.safetensors", "previous.safetensors"
PARTS = ("epoch", "state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")
"""What Lightning reads of a checkpoint."""
MIN_DELTA = 1e-6  # an epoch improves when its criterion falls by more than this


class BestWeights(Checkpoint):
    """Keep the weights of the best epoch, and, where there is a folder, the state to resume from.

    ``best.safetensors`` is written before ``last.safetensors``, and until both are, what it replaces is kept as
    ``previous.safetensors``: a training that is killed between the two resumes from the epoch before.

    Args:
        folder: where checkpoints go; None keeps the best weights in memory alone.
        is_first: whether this is the first process of a training, which writes.
    """

    def __init__(self, folder: Path | None, *, is_first: bool = True) -> None:
        self.folder = folder
        self.writes = is_first and folder is not None
        self.last, self.best, self.previous = ((folder or Path()) / name for name in (LAST, BEST, PREVIOUS))
        self.best_criterion = float("inf")
        self.best_epoch = 0
        self.stopped = False
        self._weights: dict[str, Tensor] = {}
        self._sha256 = ""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Do not train on where the run that is resumed had already stopped."""
        trainer.should_stop = self.stopped

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the weights if they are the best so far, then write the state to resume from."""
        assert isinstance(pl_module, TrainingModule)
        criterion = float(trainer.callback_metrics["criterion"])
        if criterion < self.best_criterion - MIN_DELTA:
            self.best_criterion, self.best_epoch = criterion, trainer.current_epoch + 1
            self._weights = copy_weights(pl_module.method)
            self._sha256 = digest(self._weights)
            if self.writes:
                if self.best.exists():
                    self.best.replace(self.previous)
                write_tensors(self.best, self._weights)
        self.stopped = trainer.should_stop
        if self.folder is not None:
            trainer.save_checkpoint(self.last)  # all processes of a training meet here, and the first one writes
        if self.writes:
            remove(self.previous)

    def best_weights(self) -> dict[str, Tensor]:
        """Return the weights of the best epoch.

        Raises:
            StorageError: a run was resumed whose file of them is missing or damaged.
        """
        if self._weights:
            return self._weights
        try:
            weights = read_tensors(self.best)
            if digest(weights) != self._sha256:
                raise ValueError("another content than its checksum in last.safetensors says")
        except (StorageError, SafetensorError, ValueError) as error:
            raise self._damaged(error) from error
        return weights

    def restore(self, method: Method) -> None:
        """Give ``method`` the weights of the best epoch.

        Raises:
            StorageError: a run was resumed whose file of them is missing, damaged, or of another model.
        """
        try:
            method.load_state_dict(self.best_weights())
        except RuntimeError as error:
            raise self._damaged(error) from error

    def _take_back(self) -> None:
        """Give up the best weights of an epoch that has to be trained again."""
        with suppress(StorageError, OSError, SafetensorError):
            if digest(read_tensors(self.previous)) == self._sha256:
                self.previous.replace(self.best)
        remove(self.previous)

    def _damaged(self, error: Exception) -> StorageError:
        return StorageError(
            item=f"weights {str(self.best)!r}",
            wanted="the weights of the best epoch, as training wrote them",
            got=str(error).split("\n")[0],
            fix="start the run again with --overwrite",
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive a resume."""
        return {
            "best_criterion": self.best_criterion,
            "best_epoch": self.best_epoch,
            "stopped": self.stopped,
            "best_sha256": self._sha256,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what survived."""
        self.best_criterion = state_dict["best_criterion"]
        self.best_epoch = state_dict["best_epoch"]
        self.stopped = state_dict["stopped"]
        self._sha256 = state_dict["best_sha256"]
        if self.writes:
            self._take_back()
            self._weights = self.best_weights()  # a file that is damaged is named before hours of training


def epochs_in(path: Path) -> int:
    """Return how many epochs a run had finished when Lightning's checkpoint at ``path`` was written.

    Raises:
        StorageError: the file is missing or damaged.
    """
    return int(read_nested(path)["epoch"]) + 1


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
        """Return the checkpoint at ``path``.

        Raises:
            StorageError: the file is missing, damaged, or holds something else.
        """
        content = read_nested(Path(path))
        if not isinstance(content, dict) or not set(PARTS) <= set(content):
            raise damaged_checkpoint(Path(path), f"one without {', '.join(PARTS)}")
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        remove(Path(path))
