"""What watches a training: a line of the log and the progress at the end of each epoch, a stop after a batch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn

from miue.common.errors import StorageError
from miue.common.processes import RAISED, raises_interrupts
from miue.common.tables import read_text_columns, write_rows
from miue.common.tasks import report_share
from miue.common.text import literal
from miue.training.checkpoints import BestWeights


class Watcher:
    """Is told when a training begins, when an epoch has ended, and when the training has, also by an error."""

    def begin(self, epoch: int, max_epochs: int) -> None:
        """See how many epochs were trained before, and how many are trained at most."""

    def end_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """See how many epochs have ended, and the values of the last one."""

    def end(self) -> None:
        """See the end."""


class EpochLog(Watcher):
    """One CSV line per epoch, whole after every epoch, continued by a resumed run.

    Args:
        path: the CSV file.
    """

    columns = ("epoch", "train_loss", "validation_nll", "validation_error", "criterion", "learning_rate")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def begin(self, epoch: int, max_epochs: int) -> None:
        """Keep the lines of the epochs that a resumed run does not train again.

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

    def end_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add the line of this epoch and write the file."""
        self.rows.append({**values, "epoch": epoch})
        write_rows(self.path, self.columns, [[str(row[name]) for name in self.columns] for row in self.rows])


class ReportsShare(Watcher):
    """Report how much of a training is done to the bar of what it is a part of, such as a cross-validation."""

    def begin(self, epoch: int, max_epochs: int) -> None:
        """Report the epochs of a run that is resumed, or 0."""
        self.max_epochs = max_epochs
        report_share(epoch / max_epochs)

    def end_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Report the epochs that are done."""
        report_share(epoch / self.max_epochs)


class EpochProgress(Watcher):
    """A line with the epoch, the criterion, the best one with its epoch, and the most time that can be left."""

    def __init__(self, best: BestWeights) -> None:
        self.best = best
        self.bar = Progress(TextColumn("{task.description}", markup=False), console=Console(stderr=True))

    def begin(self, epoch: int, max_epochs: int) -> None:
        """Show the line."""
        self.first, self.total, self.started = epoch, max_epochs, time.perf_counter()
        self.task = self.bar.add_task(f"epoch {epoch}/{max_epochs}", total=None)
        self.bar.start()

    def end_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Write the line again."""
        seconds = (time.perf_counter() - self.started) / (epoch - self.first)
        if epoch == self.first + 1 < self.total:
            most = (
                f"{_duration(seconds)} an epoch, at most {_duration(seconds * (self.total - self.first))} in all"
            )
            self.bar.console.print(literal(most))
        line = f"epoch {epoch}/{self.total} ETA {_duration(seconds * (self.total - epoch))} "
        best = f"best {self.best.best_criterion:.3f} ({self.best.best_epoch})"
        self.bar.update(self.task, description=f"{line}loss {values['criterion']:.3f} {best}")

    def end(self) -> None:
        """Leave the line as it is, and give the terminal back."""
        self.bar.stop()


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class StopAfterBatch:
    """Raises ``KeyboardInterrupt`` at the end of the batch during which an interrupt came.

    Python raises it wherever it is, and drops it within a destructor or a callback of C code; a flag is not lost.
    """

    def __init__(self) -> None:
        self.requested: type[KeyboardInterrupt] | None = None

    def check(self) -> None:
        """Raise where an interrupt came.

        Raises:
            KeyboardInterrupt: so.
        """
        if self.requested is not None:
            raise self.requested


@contextmanager
def interrupts_after_batches() -> Iterator[StopAfterBatch]:
    """Hold back the first interrupt of the block until it is checked; a second one is raised at once.

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
