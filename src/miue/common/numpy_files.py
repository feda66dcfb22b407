"""NumPy's own files, opened without its advice to load pickles where one is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from miue.common.files import open_file

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
