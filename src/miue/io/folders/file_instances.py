"""Instances that stay in the files they came in, behind one array."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags.arrays import PartedInstances
from miue.common.working_folder import WorkingFolder
from miue.io.formats import read_rows
from miue.io.formats.base import bag_error


class FileInstances(PartedInstances):
    """All instances of several bag files, one after another; those asked for are read when they are.

    Args:
        paths: the files; relative ones are in the working folder of this moment, wherever the program goes.
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
        self._given, self._home = tuple(paths), WorkingFolder()
        self.statistics = statistics

    @property
    def paths(self) -> list[Path]:
        """The files, by paths that are valid in the present working folder."""
        return [self._home.find(path) for path in self._given]

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a file from ``start`` up to ``stop``.

        Raises:
            DataError: a file that cannot be read, or has got instances of another number or kind since it was
                listed.
        """
        path, size = self._home.find(self._given[part]), int(self.ends[part]) - self._begin(part)
        rows = read_rows(path, start, stop, statistics=self.statistics, size=size)
        if rows.shape[1:] != self.shape[1:] or not np.can_cast(rows.dtype, self.dtype):
            got, listed = (f"{each.dtype} of shape {tuple(each.shape[1:])}" for each in (rows, self))
            wanted = f"instances as they were when the bags were listed, {listed}"
            raise bag_error(path, wanted, got, "give the same command again once nothing writes this file")
        return rows
