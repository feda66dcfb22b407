"""NumPy's own files: one array, or several by name; features of a video's clips among them."""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from miue.readers.base import OpenFile, bag_error, refuse_claim, refusing
from miue.readers.names import coords_name, features_name

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    RuntimeError,  # an encrypted archive, or one of an unknown compression
    OverflowError,
    BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    SyntaxError,  # a header is a Python literal
    TokenError,
)
"""What NumPy raises, from whatever lies below it, where a file of arrays is damaged or holds objects."""


@contextmanager
def open_npy(path: Path) -> Iterator[OpenFile]:
    """Open an array (n, D), (1, n, D), (T, crops, D) or of images, memory-mapped.

    Raises:
        DataError: truncated, or of pickled objects.
    """
    with refusing(path, "a whole .npy array of numbers", *UNREADABLE):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    yield OpenFile(format="NumPy", features=array)


@contextmanager
def open_npz(path: Path) -> Iterator[OpenFile]:
    """Open an archive with features and, where it has them, coords in level-0 pixels.

    Raises:
        DataError: truncated, of pickled objects, or without features.
    """
    with refusing(path, "a whole .npz archive of numbers", *UNREADABLE), path.open("rb") as file:
        opened = _opened(path, np.load(file, allow_pickle=False))  # NumPy would leave a damaged one open
    yield opened


def _opened(path: Path, archive: Any) -> OpenFile:
    if isinstance(archive, np.ndarray):
        raise bag_error(path, "an .npz archive", "a single array", "name it .npy")
    with archive:
        features = _member(path, archive, features_name(path, archive.files))
        where = coords_name(archive.files)
        coords = None if where is None else _member(path, archive, where)
    return OpenFile(format="NumPy", features=features, coords=coords)


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    """Return one array, after its header was checked to claim no more than the file can hold."""
    with archive.zip.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
    refuse_claim(path, _Claim(shape, dtype))
    array: np.ndarray = archive[name]
    return array


class _Claim:
    """Shape and type that a header tells."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype
