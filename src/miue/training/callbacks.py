"""Lightning callbacks at the end of each epoch: a checkpoint, a line of the log, a step of the progress bar."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, Checkpoint
from rich.console import Console
from rich.progress import Progress, TextColumn
from safetensors import SafetensorError
from torch import Tensor

from miue.common.errors import StorageError
from miue.common.files import remove
from miue.common.tables import read_text_columns, write_rows
from miue.common.tasks import report_share
from miue.common.text import literal
from miue.common.weights import copy_weights, digest, read_tensors, write_tensors
from miue.methods import Method
from miue.training.module import TrainingModule

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
        self.best_criterion = float("inf")
        self.best_epoch = 0
        self.stopped = False
        self._weights: dict[str, Tensor] = {}
        self._sha256 = ""

    @property
    def last(self) -> Path:
        """File to resume from."""
        assert self.folder is not None
        return self.folder / "last.safetensors"

    @property
    def best(self) -> Path:
        """File of the best weights."""
        assert self.folder is not None
        return self.folder / "best.safetensors"

    @property
    def previous(self) -> Path:
        """File of the best weights before, while ``last`` still says that they are the best."""
        assert self.folder is not None
        return self.folder / "previous.safetensors"

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
        except (StorageError, SafetensorError) as error:
            raise self._damaged(error) from error
        if digest(weights) != self._sha256:
            raise self._damaged(ValueError("another content than its checksum in last.safetensors says"))
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


class EpochLog(Callback):
    """One CSV line per epoch, whole after every epoch, continued by a resumed run.

    Args:
        path: the CSV file.
    """

    columns = ("epoch", "train_loss", "validation_nll", "validation_error", "criterion", "learning_rate")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the lines of the epochs that a resumed run does not train again."""
        self.keep_until(trainer.current_epoch)

    def keep_until(self, epoch: int) -> None:
        """Take over the lines of a run that is resumed after ``epoch``.

        Raises:
            StorageError: the file holds something else.
        """
        if epoch and self.path.exists():
            columns = read_text_columns(self.path)
            if tuple(columns) != self.columns or not all(text.isdecimal() for text in columns["epoch"]):
                raise StorageError(
                    item=f"log {str(self.path)!r}",
                    wanted=f"columns {', '.join(self.columns)}, with the number of each epoch",
                    got=f"columns {', '.join(columns)}",
                    fix="remove the log to resume without its first epochs",
                )
            rows = zip(*columns.values(), strict=True)
            self.rows = [dict(zip(columns, row, strict=True)) for row in rows if int(row[0]) <= epoch]

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the line of this epoch and write the file."""
        metrics = {key: float(trainer.callback_metrics[key]) for key in self.columns[1:-1]}
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self.rows.append({"epoch": trainer.current_epoch + 1, **metrics, "learning_rate": rate})
        write_rows(self.path, self.columns, [[str(row[name]) for name in self.columns] for row in self.rows])


class ReportsShare(Callback):
    """Report how much of a training is done to the bar of what it is a part of, such as a cross-validation."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the epochs of a run that is resumed, or 0."""
        report_share(trainer.current_epoch / (trainer.max_epochs or 1))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the epochs that are done."""
        report_share((trainer.current_epoch + 1) / (trainer.max_epochs or 1))


def progress_line(
    epoch: int, epochs: int, loss: float, best: float, best_epoch: int, left: str, width: int
) -> str:
    """Return one line that says how far a training is, without what matters least where there is little room.

    >>> progress_line(21, 80, 0.227, 0.201, 11, "0:05", 60)
    'epoch 21/80 loss .227 best .201 (11) ETA 0:05'
    >>> progress_line(21, 80, 0.227, 0.201, 11, "0:05", 40)
    'epoch 21/80 loss .227 ETA 0:05'
    """
    first, second = (f"{value:.3f}".removeprefix("0") for value in (loss, best))
    parts = [f"epoch {epoch}/{epochs}", f"loss {first}", f"best {second}", f"({best_epoch})", f"ETA {left}"]
    for dropped in ((), (2, 3), (1,)):
        for part in dropped:
            parts[part] = ""
        if len(" ".join(filter(None, parts))) <= width:
            break
    return " ".join(filter(None, parts))[:width]


def format_time(seconds: float) -> str:
    """Return minutes and seconds, with hours where there are any.

    >>> [format_time(seconds) for seconds in (5.2, 65.0, 725.0, 4000.0)]
    ['0:05', '1:05', '12:05', '1:06:40']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class EpochProgress(Callback):
    """A line with the epoch, the criterion, the best one with its epoch, and the most time that can be left."""

    def __init__(self, best: BestWeights) -> None:
        self.best = best
        self.bar = Progress(TextColumn("{task.description}", markup=False), console=Console(stderr=True))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the line."""
        self.first, self.started = trainer.current_epoch, time.perf_counter()
        self.task = self.bar.add_task(f"epoch {trainer.current_epoch}/{trainer.max_epochs}", total=None)
        self.bar.start()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the line again."""
        done, total = trainer.current_epoch + 1, trainer.max_epochs or 0
        criterion = float(trainer.callback_metrics["criterion"])
        best, best_epoch = self.best.best_criterion, self.best.best_epoch
        if criterion < best - MIN_DELTA:
            best, best_epoch = criterion, done
        seconds = (time.perf_counter() - self.started) / (done - self.first)
        if done == self.first + 1 < total:
            most = f"{format_time(seconds)} an epoch, at most {format_time(seconds * (total - self.first))} in all"
            self.bar.console.print(literal(most))
        left = format_time(seconds * (total - done))
        line = progress_line(done, total, criterion, best, best_epoch, left, self.bar.console.width)
        self.bar.update(self.task, description=line)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the line as it is."""
        self.bar.stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self.bar.stop()
