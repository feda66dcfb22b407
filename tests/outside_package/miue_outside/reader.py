"""A reader: one line of numbers for each instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from miue.io.formats import OpenFile, refusing


@contextmanager
def open_bagl(path: Path) -> Iterator[OpenFile]:
    """Open a file of lines."""
    with refusing(path, "a line of numbers for each instance", ValueError):
        features = np.loadtxt(path, dtype=np.float32, ndmin=2)
    yield OpenFile(format="lines of numbers", features=features)
