"""Instances that stay in the files they came in, behind one array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from miue.io.formats import read_rows


class FileInstances:
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
        self.statistics = statistics
        self.paths = paths
        self.ends = np.asarray(sizes, np.int64).cumsum()
        self.shape = (int(self.ends[-1]) if len(paths) else 0, *instance_shape)
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return the instances of a slice of consecutive ones, or those at an array of positions, (n, *shape).

        Raises:
            TypeError: another index.
            IndexError: a position that there is not.
        """
        if isinstance(index, slice) and index.step in (None, 1):
            return self._span(*index.indices(len(self))[:2])
        positions = np.asarray(index)
        if isinstance(index, slice) or positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise TypeError("instances in files are read by slices of consecutive ones, or by positions")
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(f"a position that is none of the {len(self):,} instances")
        found = np.zeros((len(positions), *self.shape[1:]), self.dtype)
        files = np.searchsorted(self.ends, positions, side="right")
        for file in np.unique(files):
            chosen = np.flatnonzero(files == file)
            first = int(positions[chosen].min())
            found[chosen] = self._span(first, int(positions[chosen].max()) + 1)[positions[chosen] - first]
        return found

    def _span(self, start: int, stop: int) -> np.ndarray:
        parts = [np.zeros((0, *self.shape[1:]), self.dtype)]
        file = int(np.searchsorted(self.ends, start, side="right"))
        while start < stop:
            begin = int(self.ends[file - 1]) if file else 0
            end = min(stop, int(self.ends[file]))
            rows = read_rows(self.paths[file], start - begin, end - begin, statistics=self.statistics)
            parts.append(rows.astype(self.dtype, copy=False))
            start, file = end, file + 1
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def __array__(self, dtype: Any = None) -> np.ndarray:
        """Read everything."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)
