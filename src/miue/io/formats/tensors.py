"""Files of tensors, of torch and of safetensors: features alone or by name; nothing but numbers is ever loaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from os import fstat
from pathlib import Path
from pickle import UnpicklingError
from threading import Lock
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np

from miue.io.formats.base import OpenFile, bag_error, coords_name, features_name, refuse_claim, refusing

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


@contextmanager
def open_safetensors(path: Path) -> Iterator[OpenFile]:
    """Open a file with features and, where it has them, coords in level-0 pixels; memory-mapped.

    Raises:
        DataError: damaged, or without features.
    """
    from safetensors import SafetensorError, safe_open

    with refusing(path, "a whole file of safetensors", OSError, SafetensorError), safe_open(path, "pt") as file:
        opened = _by_name("safetensors", path, list(file.keys()), file.get_tensor)
    yield opened


def _loaded(path: Path) -> Any:
    import torch

    is_archive = is_zipfile(path)
    if is_archive:
        _refuse_inflating(path)
    try:
        with _loading, warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals(_numpy_parts()):
            if is_archive:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            with _WithoutClaims(FileIO(path)) as file:
                content = torch.load(file, map_location="cpu", weights_only=True)
                read, held = file.tell(), path.stat().st_size
    except UnpicklingError as error:  # whose own words advise to run the code of the file
        raise bag_error(
            path,
            "a tensor, a NumPy array or a dictionary of them, as torch.save writes it",
            "another file, or a pickle that would run code or build other objects; nothing of it was loaded",
            "save it again with torch.save; open it with other tools only if you trust its author",
        ) from error
    if read < held:
        raise bag_error(path, "a whole file of torch", f"{held:,} bytes of which it states {read:,}")
    return content


def _refuse_inflating(path: Path) -> None:
    """Raise where the parts of an archive, packed or sharing their bytes, claim more than the file holds."""
    with ZipFile(path) as archive:
        claimed, held = sum(part.file_size for part in archive.infolist()), path.stat().st_size
    if claimed > held:
        raise bag_error(path, "parts stored as they are, as torch writes them", f"{claimed:,} bytes of {held:,}")


def _opened(path: Path, content: Any) -> OpenFile:
    from torch import Tensor

    if isinstance(content, (Tensor, np.ndarray)):
        return OpenFile(format="torch", features=_array(path, content))
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise bag_error(path, "a tensor, or a dictionary with one named 'features'", type(content).__name__)
    arrays = {name: part for name, part in content.items() if isinstance(part, (Tensor, np.ndarray))}
    return _by_name("torch", path, arrays, arrays.__getitem__)


def _by_name(kind: str, path: Path, names: Collection[str], read: Callable[[str], Any]) -> OpenFile:
    """Return the features and coords among named tensors."""
    features = _array(path, read(features_name(path, names)))
    where = coords_name(names)
    coords = None if where is None else _array(path, read(where))
    return OpenFile(format=kind, features=features, coords=None if coords is None else lambda: coords)


def _array(path: Path, part: Any) -> np.ndarray:
    """Return the numbers of a tensor or an array, those that NumPy has no type for as float32."""
    import torch

    with refusing(path, "a dense tensor of plain numbers", TypeError, RuntimeError):
        refuse_claim(path, part)  # first: a tensor may repeat one number without end, and a copy writes it out
        if isinstance(part, np.ndarray):
            return part
        plain = part.detach()
        array: np.ndarray = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return array


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
