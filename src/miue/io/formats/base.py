"""The normal form of a bag file: features (n, *shape), corners in level-0 pixels, the side of a patch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped

from miue.common.errors import DataError, MiueError
from miue.common.escapes import shortened

INFLATES_AT_MOST = 64  # features compress to a half, sparse ones and images with an empty ground to a thirtieth
ROOM = 64 << 20  # bytes that any file may claim: what is small may be as empty as it likes


@dataclass(frozen=True)
class OpenFile:
    """A bag file while it is open, as its reader found it.

    Attributes:
        format: which tool writes such files.
        features: may be sliced, has ``shape`` and ``dtype``.
        coords: reads the (n, 2) corners, in level-0 pixels or µm, not yet checked; None where the file has none.
        patch_size: side of a patch in the unit of ``coords``, or None.
        in_microns: whether ``coords`` and ``patch_size`` are in µm.
        extractor: what made the features, "" where the file does not say.
        notes: what a user should know of the file.
    """

    format: str
    features: Any
    coords: Callable[[], np.ndarray] | None = None
    patch_size: float | None = None
    in_microns: bool = False
    extractor: str = ""
    notes: tuple[str, ...] = ()


OpenBag = Callable[[Path], AbstractContextManager[OpenFile]]
"""What a reader is: opens a path, gives what is in it, closes it."""


@dataclass(frozen=True)
class Contents:
    """What a bag file holds, told without reading its features.

    Attributes:
        path: the file.
        format: which tool writes such files.
        size: instances; 0 for a slide without tissue, which is a valid file.
        instance_shape: (D,) or (H, W, channels); (0,) where there is no instance and no width is given.
        dtype: of the features as they are read.
        coords: corners of the instances in level-0 pixels, where known.
        patch_size: side of a patch in level-0 pixels (the step of the grid), where known.
        extractor: what made the features, "" where the file does not say.
        notes: what a user should know of the file.
    """

    path: Path
    format: str
    size: int
    instance_shape: tuple[int, ...]
    dtype: np.dtype
    coords: Int64[np.ndarray, "n 2"] | None
    patch_size: int | None
    extractor: str
    notes: tuple[str, ...]

    @property
    def id(self) -> str:
        """The file's name without its ending: the id of the bag."""
        return self.path.name.removesuffix(self.path.suffix)


def contents_here(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` itself holds, opened in this very process.

    Args:
        path: a file with one of the endings of ``READERS``.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together.
    """
    from miue.io.formats.positions import to_pixels

    with open_bag_file(path) as file:
        size, shape = _size_and_shape(path, file)
        coords, patch_size, notes = to_pixels(path, file, size, microns_per_pixel)
        return Contents(
            path=path,
            format=file.format,
            size=size,
            instance_shape=shape,
            dtype=_dtype_read(file.features.dtype),
            coords=coords,
            patch_size=patch_size,
            extractor=file.extractor,
            notes=notes + _form_notes(file),
        )


def rows_here(path: Path, start: int, stop: int) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form, read in this very process.

    Raises:
        DataError: not a bag file, or a damaged one.
    """
    with open_bag_file(path) as file:
        features = file.features
        shape = tuple(features.shape)
        if len(shape) == 1:
            return np.zeros((0, 0), np.float32)
        crops = _has_crops(features)
        with refusing(path, "features that can be read", OSError, ValueError, RuntimeError, MemoryError):
            rows = np.asarray(features[0, start:stop] if _has_leading_one(features) else features[start:stop])
    if crops:
        return rows.astype(np.float32).mean(1)
    rows = rows[..., None] if rows.ndim == 3 else rows
    return rows.astype(_dtype_read(rows.dtype), copy=False)


@contextmanager
def open_bag_file(path: Path) -> Iterator[OpenFile]:
    """Open the bag file at ``path`` with the reader of its ending, and close it.

    Raises:
        DataError: no reader for this ending, or a file that its reader refuses.
    """
    from miue.io.formats.registry import READERS

    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise bag_error(path, f"a file ending in {', '.join(READERS)}", path.suffix or "no ending")
    if not path.is_file():
        raise bag_error(path, "an existing file", "no such file", "check the path")
    with reader(path) as file:
        refuse_claim(path, file.features)
        yield file


def refuse_claim(path: Path, array: Any) -> None:
    """Raise where an array claims to be larger than its file can hold, before memory is taken for it.

    Raises:
        DataError: it does.
    """
    refuse_bytes(path, int(np.prod(tuple(array.shape), dtype=object)) * array.dtype.itemsize)


def refuse_bytes(path: Path, claimed: int) -> None:
    """Raise where a file claims to hold more bytes than its own could become.

    Raises:
        DataError: it does.
    """
    held = path.stat().st_size
    if claimed > held * INFLATES_AT_MOST + ROOM:
        fix = (
            "leave the file out (--skip-bad goes on and lists it); if it is no fraud, store it without compression"
        )
        raise bag_error(path, "an array that its file can hold", f"{claimed:,} bytes in a file of {held:,}", fix)


def bag_error(path: Path, wanted: str, got: str, fix: str = "") -> DataError:
    """Return the error that says what is wrong with a bag file."""
    return DataError(
        item=f"bag file {str(path)!r}",
        wanted=wanted,
        got=shortened(got),
        fix=fix or "extract these features again, or leave the file out (--skip-bad goes on and lists it)",
    )


@contextmanager
def refusing(path: Path, wanted: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn ``errors`` met while the file is opened into one that names it."""
    try:
        yield
    except MiueError:
        raise
    except errors as error:
        raise bag_error(path, wanted, str(error).split("\n")[0] or type(error).__name__) from error


def _dtype_read(dtype: np.dtype) -> np.dtype:
    kept = dtype in (np.dtype(np.float16), np.dtype(np.uint8))
    return np.dtype(dtype if kept else np.float32)


def _size_and_shape(path: Path, file: OpenFile) -> tuple[int, tuple[int, ...]]:
    features = file.features
    shape, dtype = tuple(features.shape), np.dtype(features.dtype)
    if dtype.kind not in "fiub":
        raise bag_error(path, "features that are numbers", f"type {dtype}")
    if len(shape) == 1:
        if shape[0] == 0:
            return 0, (0,)
        raise bag_error(
            path,
            "features (n, D), one row per instance",
            f"one vector of {shape[0]} numbers",
            "give the features of patches, not those of whole slides",
        )
    if _has_leading_one(features):
        shape = shape[1:]
    elif _has_crops(features):
        shape = (shape[0], shape[2])
    elif len(shape) == 3:
        shape = (*shape, 1)
    if len(shape) not in (2, 4):
        raise bag_error(path, "features (n, D) or images (n, H, W[, channels])", f"shape {shape}")
    if shape[0] and 0 in shape:
        raise bag_error(path, "features of at least one number", f"shape {shape}")
    return shape[0], shape[1:]


def _has_leading_one(features: Any) -> bool:
    return len(features.shape) == 3 and features.shape[0] == 1 and features.dtype != np.uint8


def _has_crops(features: Any) -> bool:
    return len(features.shape) == 3 and features.shape[0] != 1 and features.dtype != np.uint8


def _form_notes(file: OpenFile) -> tuple[str, ...]:
    if _has_crops(file.features):
        return (f"the {file.features.shape[1]} crops of each clip are averaged",)
    return ()
