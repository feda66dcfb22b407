"""Signals that interrupt a program: Ctrl-C, SIGTERM (``kill``, Slurm, a container), SIGHUP (a closed terminal)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """An interrupt by SIGTERM."""


class HungUp(KeyboardInterrupt):
    """An interrupt by SIGHUP, whose terminal or connection was closed."""


RAISED: dict[int, type[KeyboardInterrupt]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
"""Signals that interrupt a command, and what each raises."""
if hasattr(signal, "SIGHUP"):  # not on Windows
    RAISED[signal.SIGHUP] = HungUp


def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raise the interrupt of a signal; a handler."""
    raise RAISED[number]


def raises_interrupts(handler: object) -> bool:
    """Return whether a handler raises ``KeyboardInterrupt``, as Python's own of SIGINT and that above do."""
    return handler in (signal.default_int_handler, raise_interrupt)


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Raise an interrupt within the block where a signal would end the process; one that is ignored stays so."""
    ends = [number for number in RAISED if signal.getsignal(number) == signal.SIG_DFL]
    for number in ends:
        signal.signal(number, raise_interrupt)
    try:
        yield
    finally:
        for number in ends:
            if signal.getsignal(number) is raise_interrupt:
                signal.signal(number, signal.SIG_DFL)
