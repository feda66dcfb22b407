"""Child processes, and signals that interrupt a program."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of a Python process that imports what this one can, with so many threads."""
    folders = [folder or os.getcwd() for folder in sys.path]  # noqa: PTH109
    limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "OPENBLAS", "MKL")}
    return {**os.environ, **limits, "PYTHONPATH": os.pathsep.join(folders)}


def describe_exit(status: int) -> str:
    """Return how a process ended.

    >>> describe_exit(-9), describe_exit(3)
    ('signal SIGKILL', 'exit status 3')
    """
    names = {int(number): number.name for number in signal.Signals}
    return f"signal {names.get(-status, -status)}" if status < 0 else f"exit status {status}"


def free_memory() -> int:
    """Return the bytes of memory that are free for this process; 0 where the system does not say it."""
    free = 0
    with suppress(OSError):
        kilobytes = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(kilobytes["MemAvailable"].split()[0]) * 1024
        group = Path("/sys/fs/cgroup")
        if (limit := (group / "memory.max").read_text().strip()) != "max":
            counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            taken = int((group / "memory.current").read_text()) - int(counts["inactive_file"])
            free = min(free, max(0, int(limit) - taken))
    return free


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
