"""Interrupts (Ctrl-C) that come where Python cannot raise them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

IMPORTING = "<frozen importlib._bootstrap>"
AGAIN_S = 0.05


def hear_all_interrupts() -> None:
    """Send an interrupt again that came within an import, a destructor or a callback of C code.

    Within an import, libraries take it for a module that is missing, and fail later for another reason; within a
    destructor or a callback, Python drops it. Another handler than Python's own is left in place.
    """
    report = sys.unraisablehook

    def repeat(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            _interrupt_again()
        else:
            report(dropped)

    sys.unraisablehook = repeat
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_after_imports)


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
