"""The state that a training resumes from and its best weights, as safetensors, without pickle."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from miue.common.errors import StorageError
from miue.common.files import remove
from miue.common.tensors import (
    copy_weights,
    damaged_checkpoint,
    digest,
    read_nested,
    read_tensors,
    write_tensors,
)
from miue.methods import Method

LAST, BEST, PREVIOUS = "last.safetensors", "best.safetensors", "previous.safetensors"
PARTS = ("epoch", "state_dict", "optimizer_states", "lr_schedulers", "callbacks", "schedule")
"""What a checkpoint holds, by the names of Lightning, which may have written it or go on from it."""
SECONDS = 15.0  # between two checkpoints; those of an epoch that takes longer are not left out
KEY = "BestWeights"  # among the states of callbacks
MIN_DELTA = 1e-6  # an epoch improves when its criterion falls by more than this


class BestWeights:
    """The weights of the best epoch, and, where there is a folder, the state to resume from.

    Both are written at the end of an epoch, ``SECONDS`` after the last time, and at the end of the training.
    ``best.safetensors`` is written before ``last.safetensors``, and until both are, what it replaces is kept as
    ``previous.safetensors``: a training that is killed between the two resumes from the epoch before.

    Args:
        folder: where checkpoints go; None keeps the best weights in memory alone.
        patience: epochs without improvement before training ends.
        is_first: whether this is the first process of a training, which writes.
    """

    def __init__(self, folder: Path | None, patience: int, *, is_first: bool = True) -> None:
        self.folder, self.patience = folder, patience
        self.writes = is_first and folder is not None
        self.last, self.best, self.previous = ((folder or Path()) / name for name in (LAST, BEST, PREVIOUS))
        self.best_criterion = float("inf")
        self.best_epoch = 0
        self.stopped = False
        self._weights: dict[str, Tensor] = {}
        self._sha256, self._is_written, self._saved = "", True, time.monotonic()

    def add(self, epoch: int, criterion: float, method: Method) -> None:
        """Keep the weights if they are the best so far; training stops where patience has ended.

        Args:
            epoch: how many have ended.
            criterion: of the last one.
            method: as it ended.
        """
        if criterion < self.best_criterion - MIN_DELTA:
            self.best_criterion, self.best_epoch = criterion, epoch
            self._weights, self._is_written = copy_weights(method), False
        self.stopped = epoch - self.best_epoch >= self.patience

    @property
    def is_due(self) -> bool:
        """Whether it is time to save."""
        return self.folder is not None and time.monotonic() - self._saved >= SECONDS

    def save(self, write: Callable[[Path], None]) -> None:
        """Write the best weights, if there are others, and the state to resume from, where there is a folder."""
        if self.folder is None:
            return
        if not self._is_written:
            self._sha256, self._is_written = digest(self._weights), True
            if self.writes:
                if self.best.exists():
                    self.best.replace(self.previous)
                write_tensors(self.best, self._weights)
        write(self.last)  # all processes of a training meet here, and the first one writes
        if self.writes:
            remove(self.previous)
        self._saved = time.monotonic()

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


def read_state(path: Path) -> dict[str, Any]:
    """Return the state of a training at the end of an epoch.

    Raises:
        StorageError: the file is missing, damaged, or holds something else.
    """
    content = read_nested(path)
    if not isinstance(content, dict) or not set(PARTS) <= set(content):
        raise damaged_checkpoint(path, f"one without {', '.join(PARTS)}")
    return content


def epochs_in(path: Path) -> int:
    """Return how many epochs a run had finished when the checkpoint at ``path`` was written.

    Raises:
        StorageError: as ``read_state`` does.
    """
    return int(read_state(path)["epoch"]) + 1
