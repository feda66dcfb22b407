"""Memory that two processes share: one reads a file into it, the other takes the array from it."""

from __future__ import annotations

import math
import mmap
import os
from tempfile import TemporaryFile
from weakref import finalize

import numpy as np
from jaxtyping import Shaped


class Block:
    """A file in memory without a name, which one array after another is placed in; it grows to hold the largest.

    Args:
        file: its descriptor, which is closed with the block; None for a new file.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = _new_file() if file is None else file
        self._memory: mmap.mmap | bytes = b""
        finalize(self, os.close, self.file)

    def place(self, shape: tuple[int, ...], dtype: np.dtype) -> Shaped[np.ndarray, "..."]:
        """Return an array in the block, to be filled; what was in the block before is lost."""
        needed = math.prod(shape) * dtype.itemsize
        if os.fstat(self.file).st_size < needed:
            os.truncate(self.file, needed)
        return self.view(shape, dtype)

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> Shaped[np.ndarray, "..."]:
        """Return the array that was placed in the block, which is valid until the next one is.

        Raises:
            ValueError: the block has no room for such an array, or its type is none of numbers.
        """
        count = math.prod(shape)
        if len(self._memory) < count * dtype.itemsize:
            self._memory = mmap.mmap(self.file, count * dtype.itemsize)
        return np.frombuffer(self._memory, dtype, count).reshape(shape) if count else np.empty(shape, dtype)

    def holds(self, array: np.ndarray) -> bool:
        """Return whether an array is in the block."""
        return bool(len(self._memory)) and np.may_share_memory(array, np.frombuffer(self._memory, np.uint8))


def _new_file() -> int:
    """Return the descriptor of a new file; on disk where the system has none in memory."""
    if not hasattr(os, "memfd_create"):
        with TemporaryFile() as file:
            return os.dup(file.fileno())
    import fcntl

    memory = os.memfd_create("bags", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # memory that is gone would end who reads it
    return memory
