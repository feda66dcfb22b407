"""The normal form of a bag file: features (n, *shape), corners in level-0 pixels, the side of a patch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped

from miue.coords import LARGEST_COORD
from miue.errors import DataError, MiueError

INFLATES_AT_MOST = 1100  # deflate, the best of the compressions met, makes 1032 bytes of one
ROOM = 1 << 20  # what a file may claim beyond that: chunks that were never written hold nothing


@dataclass(frozen=True)
class OpenFile:
    """A bag file while it is open, as its reader found it.

    Attributes:
        format: which tool writes such files.
        features: may be sliced, has ``shape`` and ``dtype``.
        coords: (n, 2) corners, in level-0 pixels or µm, not yet checked; None where the file has none.
        patch_size: side of a patch in the unit of ``coords``, or None.
        in_microns: whether ``coords`` and ``patch_size`` are in µm.
        extractor: what made the features, "" where the file does not say.
        notes: what a user should know of the file.
    """

    format: str
    features: Any
    coords: np.ndarray | None = None
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


def contents_of(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` holds.

    Args:
        path: a file with one of the endings of ``READERS``.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together.
    """
    from miue.readers.hdf5 import patch_size_beside

    with open_bag_file(path) as file:
        size, shape = _size_and_shape(path, file)
        coords, patch_size, notes = _in_pixels(path, file, microns_per_pixel)
        if coords is not None and len(coords) != size:
            raise bag_error(path, "as many coords as features", f"{len(coords)} coords, {size} features")
        if coords is not None and patch_size is None:
            patch_size = patch_size_beside(path)
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


def read_rows(path: Path, start: int, stop: int) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form.

    float16, float32 and bytes stay what they are, all else becomes float32. A leading axis of one is left
    away; the crops of a video's clip, (T, crops, D), are averaged.

    Raises:
        DataError: not a bag file, or a damaged one.
    """
    with open_bag_file(path) as file:
        features = file.features
        shape = tuple(features.shape)
        if len(shape) == 1:
            return np.zeros((0, 0), np.float32)
        crops = _has_crops(features)
        try:
            rows = np.asarray(features[0, start:stop] if _has_leading_one(features) else features[start:stop])
        except (OSError, ValueError, RuntimeError) as error:
            raise bag_error(path, "features that can be read", str(error).split("\n")[0]) from error
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
    from miue.readers.formats import READERS

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
    claimed = int(np.prod(tuple(array.shape), dtype=object)) * array.dtype.itemsize
    held = path.stat().st_size
    if claimed > held * INFLATES_AT_MOST + ROOM:
        raise bag_error(path, "an array that its file can hold", f"{claimed:,} bytes in a file of {held:,}")


def bag_error(path: Path, wanted: str, got: str, fix: str = "") -> DataError:
    """Return the error that says what is wrong with a bag file."""
    return DataError(
        item=f"bag file {str(path)!r}",
        wanted=wanted,
        got=got,
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
    return shape[0], shape[1:]


def _has_leading_one(features: Any) -> bool:
    return len(features.shape) == 3 and features.shape[0] == 1 and features.dtype != np.uint8


def _has_crops(features: Any) -> bool:
    return len(features.shape) == 3 and features.shape[0] != 1 and features.dtype != np.uint8


def _form_notes(file: OpenFile) -> tuple[str, ...]:
    if _has_crops(file.features):
        return (f"the {file.features.shape[1]} crops of each clip are averaged",)
    return ()


def _in_pixels(
    path: Path, file: OpenFile, microns_per_pixel: float | None
) -> tuple[np.ndarray | None, int | None, tuple[str, ...]]:
    """Return coords and patch size in level-0 pixels, and the notes of the file."""
    if file.coords is None:
        return None, None, file.notes
    unit = 1.0 if microns_per_pixel is None or not file.in_microns else microns_per_pixel
    pixels = _whole_pixels(path, np.asarray(file.coords), unit)
    if file.in_microns and microns_per_pixel is None:
        return None, None, (*file.notes, "coords are in µm and left out; pass --mpp to have level-0 pixels")
    return pixels, None if file.patch_size is None else round(file.patch_size / unit), file.notes


def _whole_pixels(path: Path, coords: np.ndarray, unit: float) -> Int64[np.ndarray, "n 2"]:
    """Return coords in pixels of ``unit``, refused where they are no numbers or none that a pixel can have."""
    if coords.size == 0:
        return np.zeros((0, 2), np.int64)
    if coords.ndim == 3 and len(coords) == 1:  # as features (1, n, D) have them
        coords = coords[0]
    if coords.ndim != 2 or coords.shape[1] != 2 or coords.dtype.kind not in "iuf":
        raise bag_error(path, "coords (n, 2) that are numbers", f"{coords.dtype} of shape {coords.shape}")
    with np.errstate(over="ignore"):  # infinity is refused below
        pixels = coords.astype(np.float64) / unit
    beyond = pixels[~(np.abs(pixels) <= LARGEST_COORD)]  # NaN is not
    if len(beyond):
        raise bag_error(path, "finite coords, at most 2^53 pixels from 0", f"{beyond[0]:g}")
    return pixels.round().astype(np.int64)
