"""HDF5 files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from miue.common.files import atomic_file


@contextmanager
def atomic_hdf5(path: Path) -> Iterator[Any]:
    """Yield an open ``h5py.File`` whose content takes its place at ``path`` only when the block succeeds.

    HDF5 writes to memory, and the finished bytes to the disk: where HDF5 itself meets a full disk, what it still
    keeps can end the process when it is closed or thrown away.

    Raises:
        StorageError: as ``atomic_file``.
    """
    import h5py

    content = BytesIO()
    with h5py.File(content, "w") as file:
        yield file
    with atomic_file(path) as temporary:
        temporary.write_bytes(content.getvalue())
