"""Interrupts (Ctrl-C) that come where Python cannot raise them."""

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


@contextmanager
def all_interrupts_heard() -> Iterator[None]:
    """Send an interrupt of the block again that came within an import, a destructor or a callback of C code.

    Within an import, libraries take it for a module that is missing, and fail later for another reason; within a
    destructor or a callback, Python drops it. Another handler than Python's own is left in place.
    """
    report, handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            _interrupt_again()
        else:
            report(dropped)

    sys.unraisablehook = repeat
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_after_imports)
    try:
        yield
    finally:
        sys.unraisablehook = report
        if signal.getsignal(signal.SIGINT) is interrupt_after_imports:
            signal.signal(signal.SIGINT, handler)


def interrupt_after_imports(number: int, frame: FrameType | None) -> None:
    """Raise ``KeyboardInterrupt``, but within an import send the signal again a moment later."""
    within = frame
    while within is not None:
        if within.f_code.co_filename == IMPORTING:
            _interrupt_again()
            return
        within = within.f_back
    signal.default_int_handler(number, frame)


def raises_interrupts(handler: object) -> bool:
    """Return whether a handler of SIGINT raises ``KeyboardInterrupt``, as Python's own and that above do."""
    return handler in (signal.default_int_handler, interrupt_after_imports)


def _interrupt_again() -> None:
    timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
