"""What processes that this one starts have in common."""

from __future__ import annotations

import os
import signal
import sys


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
