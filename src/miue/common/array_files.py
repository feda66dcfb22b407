"""Files of arrays: what they claim to hold, HDF5 written whole or not at all, NumPy's without pickles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from miue.common.files import atomic_file, open_file

INFLATES_AT_MOST = 64  # features compress to a half, sparse ones and images with an empty ground to a thirtieth
ROOM = 64 << 20  # bytes that any file may claim: what is small may be as empty as it likes


def can_hold(path: Path, claimed: int) -> bool:
    """Return whether a file, or those below a folder, may become as many bytes as they claim to hold."""
    return claimed <= bytes_in(path) * INFLATES_AT_MOST + ROOM


def bytes_in(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder.

    Raises:
        OSError: no such file.
    """
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())


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


BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""Of an .npy file, of an .npz archive, and of an empty one."""


def load_numpy(file: Path | BinaryIO, mmap_mode: Literal["r"] | None = None) -> Any:
    """Return the array of an .npy file, or the open archive of an .npz file, as ``np.load`` does.

    Args:
        file: or where it is.
        mmap_mode: "r" for an array that is read where it is used.

    Raises:
        ValueError: a file that begins otherwise, which NumPy would take for a pickle; an array of objects.
        StorageError: no such file, or none that may be read.
        Exception: what NumPy raises of a damaged file.
    """
    if isinstance(file, Path):
        open_file(file).close()
    try:
        return np.load(file, mmap_mode=mmap_mode, allow_pickle=False)
    except ValueError as error:
        beginning = _beginning(file)
        if beginning.startswith(BEGINNINGS):
            raise
        raise ValueError(f"a file that begins with {beginning!r}, as none that NumPy writes") from error


def _beginning(file: Path | BinaryIO) -> bytes:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return opened.read(6)
    file.seek(0)
    return file.read(6)
