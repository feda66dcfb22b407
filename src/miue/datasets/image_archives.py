"""Images in .npz archives, packed as lossless WebP strips: read with care, since the files come from anyone."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from miue.common.errors import StorageError, not_readable
from miue.common.files import open_file
from miue.common.numpy_files import load_numpy
from miue.io.formats import UNREADABLE, read_member_header


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors that readers raise for a damaged file into one that names it.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        yield
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise not_readable(f"{str(path)!r}", "a whole, readable file", error, "get the file again") from error


class Archive(Mapping[str, np.ndarray]):
    """The arrays of an .npz archive, each read where it is as long as its header states.

    Args:
        opened: by ``np.load``.

    Raises:
        ValueError: a file of a single array.
    """

    def __init__(self, opened: Any) -> None:
        if isinstance(opened, np.ndarray):
            raise ValueError("a single array in place of an archive")
        self._opened = opened

    def __getitem__(self, name: str) -> np.ndarray:
        """Return an array.

        Raises:
            KeyError: there is none of this name.
            ValueError: of another length than its header states; no array at all.
        """
        if f"{name}.npy" not in self._opened.zip.namelist():
            raise KeyError(f"{name} is not a file in the archive")
        size = self._opened.zip.getinfo(f"{name}.npy").file_size
        shape, dtype, stated = read_member_header(self._opened, f"{name}.npy")
        if stated != size and not dtype.hasobject:  # NumPy says what is wrong with objects
            raise ValueError(f"{name} of {size:,} bytes, where shape {shape} of {dtype} makes {stated:,}")
        array: np.ndarray = self._opened[name]
        return array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the arrays."""
        return iter(self._opened.files)

    def __len__(self) -> int:
        """Return how many arrays there are."""
        return len(self._opened.files)


def find_archive(source: Path, name: str, item: str) -> Path:
    """Return the path of an archive in a folder.

    Raises:
        StorageError: it is not there.
    """
    path = source / name
    if not path.exists():
        raise StorageError(
            item=item,
            wanted=name,
            got=f"no such file in {str(source)!r}",
            fix="pass the folder that holds it as --source",
        )
    return path


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Yield the arrays of an archive; opened here because numpy leaves a damaged one open.

    Raises:
        StorageError: no such file, or one that is damaged.
    """
    with reading(path), open_file(path) as file, load_numpy(file) as arrays:
        yield Archive(arrays)


def read_strips(arrays: Mapping[str, Any], name: str, side: int) -> UInt8[np.ndarray, "m side side 3"]:
    """Return the images that ``<name>_webp`` holds: strips, each some images below one another.

    Args:
        arrays: ``<name>_webp`` (bytes) and ``<name>_webp_offsets`` (where each strip begins, and the end).
        name: what the images are of.
        side: pixels of a side.

    Raises:
        ValueError: a strip that is no column of such images.
    """
    content = memoryview(arrays[f"{name}_webp"])
    strips = [_strip(content[start:end], side) for start, end in pairwise(arrays[f"{name}_webp_offsets"])]
    return np.concatenate(strips)


def _strip(content: memoryview, side: int) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        strip = np.asarray(image.convert("RGB"))
    if strip.shape[0] % side or strip.shape[1] != side:
        raise ValueError(f"a strip of {strip.shape[0]}×{strip.shape[1]} pixels, not a column of {side}×{side}")
    return strip.reshape(-1, side, side, 3)
