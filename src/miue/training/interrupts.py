"""Ctrl-C, SIGTERM or SIGHUP ends a training after the batch under way, wherever in the code it comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from miue.common.interrupts import RAISED, raises_interrupts


class StopAfterBatch(Callback):
    """Raise ``KeyboardInterrupt`` at the end of the batch during which an interrupt came.

    Python raises it wherever it is, and drops it within a destructor or a callback of C code; a flag is not lost.
    """

    def __init__(self) -> None:
        self.requested: type[KeyboardInterrupt] | None = None

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
        if self.requested is not None:
            raise self.requested


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
