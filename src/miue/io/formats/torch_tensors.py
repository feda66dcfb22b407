"""Files of torch: a tensor, a NumPy array, or a dictionary of them; nothing but numbers is ever loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from os import fstat
from pathlib import Path
from pickle import UnpicklingError
from threading import Lock
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import numpy as np

from miue.io.formats.base import OpenFile, bag_error, refuse_claim, refusing
from miue.io.formats.names import coords_name, features_name
from miue.io.formats.tensors import as_numpy

MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")
"""The number that torch writes at the start of a file that is no archive, as a pickle holds it."""

_loading = Lock()  # the list of what may be loaded is the process's; one thread would end another's


@contextmanager
def open_torch(path: Path) -> Iterator[OpenFile]:
    """Open a .pt file by torch's loader of weights, which runs no code; NumPy's arrays are allowed besides.

    Raises:
        DataError: truncated, or holding anything but tensors and arrays.
    """
    with refusing(path, "a whole file of torch", Exception):  # a damaged pickle is a program that may raise any
        content = _loaded(path)
    yield _opened(path, content)


def _loaded(path: Path) -> Any:
    import torch

    with path.open("rb") as file:
        if not is_zipfile(file) and not _is_pickle(file):
            raise bag_error(path, "a file of torch", "a file of another kind")
        if not is_zipfile(file) and not _is_of_torch(file):
            got, fix = (
                "a pickle that torch did not write, which can run code; nothing of it was loaded",
                "save it anew",
            )
            raise bag_error(
                path, "a file of torch", got, f"{fix} with torch.save, or an array with numpy.save as .npy"
            )
        if is_zipfile(file):
            _refuse_inflating(path, file)
    try:
        with _loading, warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals(_numpy_parts()):
            if is_zipfile(path):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            with _WithoutClaims(FileIO(path)) as file:
                content = torch.load(file, map_location="cpu", weights_only=True)
                read, held = file.tell(), path.stat().st_size
    except UnpicklingError as error:
        raise bag_error(
            path,
            "a tensor, a NumPy array or a dictionary of them",
            "a pickle that would run code or build other objects; nothing of it was loaded",
            "do not open this file with other tools unless you trust its author; extract the features again (and "
            "leave pickle_protocol alone, of which torch reads one)",
        ) from error
    if read < held:
        raise bag_error(path, "a whole file of torch", f"{held:,} bytes of which it states {read:,}")
    return content


def _refuse_inflating(path: Path, file: BinaryIO) -> None:
    """Raise where the parts of an archive would take more memory than the file, before one of them is read.

    Raises:
        DataError: a part that is compressed, which torch never writes, or parts that share their bytes.
    """
    errors = (BadZipFile, OSError, ValueError, NotImplementedError, EOFError)
    with refusing(path, "a whole file of torch", *errors), ZipFile(file) as archive:
        parts = archive.infolist()
    packed = [part for part in parts if part.compress_type != ZIP_STORED]
    if packed:
        got = f"{packed[0].filename!r}, compressed, of {packed[0].file_size:,} bytes"
        raise bag_error(path, "parts that are stored as they are, as torch writes them", got)
    claimed, held = sum(part.file_size for part in parts), path.stat().st_size
    if claimed > held:
        raise bag_error(path, "parts that their file can hold", f"{claimed:,} bytes in a file of {held:,}")


def _is_pickle(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(1) == b"\x80"


def _is_of_torch(file: BinaryIO) -> bool:
    """Return whether a pickle begins with the number that torch writes first where it makes no archive."""
    file.seek(0)
    return MAGIC in file.read(64)


def _opened(path: Path, content: Any) -> OpenFile:
    from torch import Tensor

    if isinstance(content, (Tensor, np.ndarray)):
        return OpenFile(format="torch", features=_array(path, content))
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise bag_error(path, "a tensor, or a dictionary with one named 'features'", type(content).__name__)
    arrays = {name: part for name, part in content.items() if isinstance(part, (Tensor, np.ndarray))}
    features = _array(path, arrays[features_name(path, arrays)])
    where = coords_name(arrays)
    coords = None if where is None else _array(path, arrays[where])
    return OpenFile(format="torch", features=features, coords=None if coords is None else lambda: coords)


def _array(path: Path, part: Any) -> np.ndarray:
    """Return the array that a tensor of torch, or an array, is."""
    if not isinstance(part, np.ndarray):
        return as_numpy(path, part)
    refuse_claim(path, part)
    return part


def _numpy_parts() -> list[Any]:
    """Return what a pickled array of numbers is made of, under the names that NumPy 1 and 2 give it."""
    reconstruct = np.empty(0).__reduce__()[0]  # whose module NumPy 1 and 2 call otherwise
    kinds = {
        type(np.dtype(name)) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    }
    return [
        np.ndarray,
        np.dtype,
        (reconstruct, "numpy.core.multiarray._reconstruct"),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        *kinds,
    ]


class _WithoutClaims(BufferedReader):
    """A file of which no more is asked than it holds: memory is taken for all that is asked, before it is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, fewer where the file ends."""
        left = max(0, fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))
