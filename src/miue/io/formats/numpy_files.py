"""NumPy's own files: one array, or several by name; read in parts, and written span by span."""

from __future__ import annotations

import lzma
import math
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Shaped

from miue.common.array_files import load_numpy
from miue.common.errors import not_readable
from miue.io.formats.base import OpenFile, bag_error, coords_name, features_name, refuse_bytes, refusing

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


def memory_mapped(path: Path) -> np.ndarray:
    """Return the array of an .npy file, of which nothing is read yet.

    Raises:
        ValueError: objects, or a file of another length than its header states.
        Exception: one of ``UNREADABLE``, where the file is damaged.
    """
    array: np.ndarray = load_numpy(path, "r")
    if not isinstance(array, np.memmap):  # of an archive, which np.load would open as well
        raise ValueError("an archive of arrays in place of one array")
    stated, held = array.offset + array.nbytes, path.stat().st_size
    if stated != held:
        raise ValueError(f"{held:,} bytes where shape {array.shape} of {array.dtype} makes {stated:,}")
    return array


def read_array(path: Path, fix: str) -> np.ndarray:
    """Return the array of an .npy file, memory-mapped.

    Raises:
        StorageError: missing, truncated or damaged.
    """
    try:
        return memory_mapped(path)
    except UNREADABLE as error:
        raise not_readable(
            f"{str(path)!r}", "a whole .npy array", error, f"the file is missing, truncated or damaged; {fix}"
        ) from error


@contextmanager
def open_npy(path: Path) -> Iterator[OpenFile]:
    """Open an array (n, D), (1, n, D), (T, crops, D) or of images, memory-mapped.

    Raises:
        DataError: truncated, longer than its header states, or of pickled objects.
    """
    with refusing(path, "a whole .npy array of numbers", *UNREADABLE):
        array = memory_mapped(path)
    yield OpenFile(format="NumPy", features=array)


@contextmanager
def open_npz(path: Path) -> Iterator[OpenFile]:
    """Open an archive with features and, where it has them, coords in level-0 pixels.

    Raises:
        DataError: truncated, of pickled objects, or without features.
    """
    with opened_archive(path) as archive:
        with refusing(path, "a whole .npz archive of numbers", *UNREADABLE):
            features = Member(path, archive, features_name(path, archive.files))
            where = coords_name(archive.files)
            coords = None if where is None else Member(path, archive, where)
        yield OpenFile(format="NumPy", features=features, coords=None if coords is None else coords.read)


@contextmanager
def opened_archive(path: Path) -> Iterator[Any]:
    """Open an .npz archive as ``np.load`` does, of which nothing is read yet, and close it.

    Raises:
        DataError: damaged, or no archive.
    """
    with ExitStack() as stack:
        with refusing(path, "a whole .npz archive of numbers", *UNREADABLE):
            file = stack.enter_context(path.open("rb"))  # NumPy would leave a damaged one open
            archive: Any = load_numpy(file)
            if isinstance(archive, np.ndarray):
                raise bag_error(path, "an .npz archive", "a single array", "name it .npy")
            stack.enter_context(archive)
        yield archive


def read_member_header(archive: Any, stored: str) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape and type of an array in an .npz archive, and the bytes that its member must have with them.

    Args:
        archive: as ``np.load`` opened it.
        stored: name of the member, with its ending.

    Raises:
        KeyError, ValueError and the others of ``UNREADABLE``: no such member, or one that is no array.
    """
    with archive.zip.open(stored) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        return shape, dtype, member.tell() + math.prod(shape) * dtype.itemsize


def to_texts(names: np.ndarray) -> list[str]:
    """Return the texts of an array that a file holds, whose characters NumPy takes as they are.

    Args:
        names: texts, bytes or whole numbers.

    Raises:
        ValueError: one with a number that is no character of Unicode, or a byte that is no ASCII.

    >>> to_texts(np.array(["slide_1", "slide_2"]))
    ['slide_1', 'slide_2']
    """
    array = names.astype(str)
    if (np.frombuffer(array.tobytes(), np.uint32) > sys.maxunicode).any():
        raise ValueError("a text with a number that is no character")
    texts: list[str] = array.tolist()
    "".join(texts).encode()  # half of a pair of UTF-16 is no character by itself
    return texts


class Member:
    """An array in an archive, with shape and type as its header states, which is read where it is sliced.

    Args:
        path: of the archive.
        archive: while it is open.
        name: of the array.

    Raises:
        DataError: it claims more than the file can hold, or is not as long as its header states.
    """

    def __init__(self, path: Path, archive: Any, name: str) -> None:
        self.path, self.archive, self.name = path, archive, name
        stored = name if name in archive.zip.namelist() else f"{name}.npy"
        size = archive.zip.getinfo(stored).file_size
        refuse_bytes(path, size)  # first: the header itself may claim any length
        self.shape, self.dtype, stated = read_member_header(archive, stored)
        refuse_bytes(path, stated)
        if stated != size:
            got = f"{size:,} bytes where shape {self.shape} of {self.dtype} makes {stated:,}"
            raise bag_error(path, f"an array {name!r} as long as its header states", got)

    def read(self) -> np.ndarray:
        """Return the whole array.

        Raises:
            DataError: it is damaged.
        """
        with refusing(self.path, "a whole .npz archive of numbers", *UNREADABLE):
            array: np.ndarray = self.archive[self.name]
        return array

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.read()[index]


def write_array(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], spans: Iterable[Shaped[np.ndarray, "..."]]
) -> None:
    """Write a .npy file span by span, with plain writes: a full disk is an error of the one that does not fit.

    (A memory map would end the process instead, when its pages reach the disk.)

    Args:
        path: the file.
        dtype: of the array.
        shape: of all spans together.
        spans: consecutive rows of the array, of any numbers.

    Raises:
        OSError: the disk is full, or the file cannot be written.
        ValueError: the spans are not of that shape.
    """
    rows = 0
    with path.open("wb") as file:
        file.write(array_header(dtype, shape))
        for span in spans:
            if span.shape[1:] != shape[1:]:
                raise ValueError(f"rows of shape {span.shape[1:]} in an array of {shape}")
            file.write(bytes_of(np.asarray(span, dtype)))
            rows += len(span)
    if rows != shape[0]:
        raise ValueError(f"{rows} rows in an array of {shape}")


def array_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Return the header of a .npy file; NumPy leaves room in it for more rows, so that its length stays."""
    written = BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue()


def bytes_of(rows: np.ndarray) -> memoryview:
    """Return the bytes of an array, without a copy where they are contiguous."""
    return np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
