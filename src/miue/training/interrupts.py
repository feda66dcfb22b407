"""Ctrl-C ends a training after the batch under way, wherever in the code it comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from miue.common.interrupts import raises_interrupts


class StopAfterBatch(Callback):
    """Raise ``KeyboardInterrupt`` at the end of the batch during which an interrupt came.

    Python raises it wherever it is, and drops it within a destructor or a callback of C code; a flag is not lost.
    """

    def __init__(self) -> None:
        self.is_requested = False

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        """Stop where an interrupt came."""
        self.check()

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *batch: Any) -> None:
        """Stop where an interrupt came."""
        self.check()

    def check(self) -> None:
        """Raise where an interrupt came.

        Raises:
            KeyboardInterrupt: so.
        """
        if self.is_requested:
            raise KeyboardInterrupt


@contextmanager
def interrupts_after_batches() -> Iterator[StopAfterBatch]:
    """Hold back the first interrupt of the block for the callback; a second one is raised at once.

    A handler that does something else than to raise it is left in place, and so is any outside of the main thread.
    """
    stop, before = StopAfterBatch(), signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not raises_interrupts(before):
        yield stop
        return

    def request(number: int, frame: FrameType | None) -> None:
        stop.is_requested = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, request)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
    stop.check()
