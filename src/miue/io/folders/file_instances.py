"""Instances that stay in the files they came in, behind one array."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags.arrays import PartedInstances
from miue.io.formats import read_rows


class FileInstances(PartedInstances):
    """All instances of several bag files, one after another; those asked for are read when they are.

    Args:
        paths: the files.
        sizes: instances of each.
        instance_shape: of every instance.
        dtype: that they are returned in.
        statistics: read the image statistics stored beside the instances.
    """

    def __init__(
        self,
        paths: list[Path],
        sizes: np.ndarray,
        instance_shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        statistics: bool = False,
    ) -> None:
        super().__init__(sizes, instance_shape, dtype)
        self.paths = paths
        self.statistics = statistics

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a file from ``start`` up to ``stop``.

        Raises:
            DataError: a file that cannot be read, or has got another number of instances since it was listed.
        """
        size = int(self.ends[part]) - self._begin(part)
        return read_rows(self.paths[part], start, stop, statistics=self.statistics, size=size)
