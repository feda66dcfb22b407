"""Lightning callbacks: a line of the log and the progress at the end of each epoch, a stop after a batch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import Progress, TextColumn

from miue.common.errors import StorageError
from miue.common.processes import RAISED, raises_interrupts
from miue.common.tables import read_text_columns, write_rows
from miue.common.tasks import report_share
from miue.common.text import literal
from miue.training.checkpoints import MIN_DELTA, BestWeights


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
            most = f"{_duration(seconds)} an epoch, at most {_duration(seconds * (total - self.first))} in all"
            self.bar.console.print(literal(most))
        line = f"epoch {done}/{total} ETA {_duration(seconds * (total - done))} loss {criterion:.3f} "
        self.bar.update(self.task, description=f"{line}best {best:.3f} ({best_epoch})")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the line as it is."""
        self.bar.stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self.bar.stop()


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class StopAfterBatch(Callback):
    """Raise ``KeyboardInterrupt`` at the end of the batch during which an interrupt came.

    Python raises it wherever it is, and drops it within a destructor or a callback of C code; a flag is not lost.
    """

    def __init__(self) -> None:
        self.requested: type[KeyboardInterrupt] | None = None

    def check(self, *hook: Any) -> None:
        """Raise where an interrupt came.

        Raises:
            KeyboardInterrupt: so.
        """
        if self.requested is not None:
            raise self.requested

    on_train_batch_end = on_validation_batch_end = check  # type: ignore[assignment]


@contextmanager
def interrupts_after_batches() -> Iterator[StopAfterBatch]:
    """Hold back the first interrupt of the block for the callback; a second one is raised at once.

    A handler that does something else than to raise it is left in place, and so is any outside of the main thread.
    """
    stop = StopAfterBatch()
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in RAISED if is_main}
    before = {number: handler for number, handler in handlers.items() if raises_interrupts(handler)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = RAISED[number]
        restore()

    for number in before:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
    stop.check()
