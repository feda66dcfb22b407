"""Interrupts that come where Python cannot raise them.

They are Ctrl-C, SIGTERM (``kill``, Slurm or a container) and SIGHUP (a terminal that was closed).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

IMPORTING = "<frozen importlib._bootstrap>"
AGAIN_S = 0.005


class Terminated(KeyboardInterrupt):
    """An interrupt by SIGTERM."""


class HungUp(KeyboardInterrupt):
    """An interrupt by SIGHUP, whose terminal or connection was closed."""


RAISED: dict[int, type[KeyboardInterrupt]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}
"""Signals that interrupt a command, and what each raises."""
if hasattr(signal, "SIGHUP"):  # not on Windows
    RAISED[signal.SIGHUP] = HungUp
OF_PYTHON = dict.fromkeys(RAISED, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}


def signal_of(interrupt: type[BaseException]) -> int | None:
    """Return the signal that raises such an exception, None for one that is no interrupt.

    >>> signal_of(Terminated) == signal.SIGTERM
    True
    """
    return next((number for number, raised in RAISED.items() if raised is interrupt), None)


@contextmanager
def all_interrupts_heard() -> Iterator[None]:
    """Send an interrupt of the block again that came within an import, a destructor or a callback of C code.

    Within an import, libraries take it for a module that is missing, and fail later for another reason; within a
    destructor or a callback, Python drops it. Another handler than Python's own is left in place, and so is a
    signal that is ignored, as ``nohup`` has SIGHUP.
    """
    report = sys.unraisablehook
    replaced = {number: own for number, own in OF_PYTHON.items() if signal.getsignal(number) == own}

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        number = signal_of(dropped.exc_type)
        if number is None:
            report(dropped)
        else:
            _interrupt_again(number)

    sys.unraisablehook = repeat
    for number in replaced:
        signal.signal(number, interrupt_after_imports)
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, handler in replaced.items():
            if signal.getsignal(number) is interrupt_after_imports:
                signal.signal(number, handler)


def interrupt_after_imports(number: int, frame: FrameType | None) -> None:
    """Raise the interrupt of a signal, but within an import send the signal again a moment later."""
    within = frame
    while within is not None:
        if within.f_code.co_filename == IMPORTING:
            _interrupt_again(number)
            return
        within = within.f_back
    raise RAISED[number]


def raises_interrupts(handler: object) -> bool:
    """Return whether a handler raises ``KeyboardInterrupt``, as Python's own of SIGINT and that above do."""
    return handler in (signal.default_int_handler, interrupt_after_imports)


def _interrupt_again(number: int) -> None:
    timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
