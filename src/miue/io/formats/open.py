"""Open any bag file with the reader of its ending and bring features and coords into their normal form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped

from miue.common.errors import ConfigError
from miue.common.files import open_file
from miue.common.numbers import LARGEST_COORD, in_single
from miue.common.text import plural
from miue.io.formats.base import (
    READERS,
    Contents,
    OpenBag,
    OpenFile,
    bag_error,
    ending_of,
    refuse_claim,
    refuse_unequal,
    refusing,
    takes_folders,
)
from miue.io.formats.images import open_images


def contents_here(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` itself holds, opened in this very process.

    Args:
        path: a file with one of the endings of ``READERS``, a folder of images, or a table in a SpatialData store.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together.
    """
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
            patch_scale=file.patch_scale,
            notes=notes + _form_notes(file),
            statistics=0 if file.statistics is None else int(file.statistics.shape[1]),
        )


def rows_here(
    path: Path, start: int, stop: int, *, statistics: bool = False, size: int | None = None
) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form, read in this very process.

    Args:
        path: a bag file.
        start: first instance.
        stop: one behind the last.
        statistics: return the image statistics that are stored beside the instances, float32.
        size: instances that the file had when it was listed; None where they are not known.

    Raises:
        DataError: not a bag file, a damaged one, or one with another number of instances than ``size``.
    """
    with open_bag_file(path) as file:
        if size is not None and (now := _size_and_shape(path, file)[0]) != size:
            wanted = f"the {plural(size, 'instance')} that it had when the bags were listed"
            raise bag_error(path, wanted, f"{now:,}", "give the same command again once nothing writes this file")
        if statistics:
            with refusing(path, "image statistics that can be read", Exception):
                return np.asarray(file.statistics[start:stop], np.float32)
        features = file.features
        shape = tuple(features.shape)
        if len(shape) == 1:
            return np.zeros((0, 0), np.float32)
        crops = _has_crops(features)
        with refusing(path, "features that can be read", Exception):
            rows = np.asarray(features[0, start:stop] if _has_leading_one(features) else features[start:stop])
    if crops:
        return in_single(rows, f"bag file {str(path)!r}").mean(1)
    rows = rows[..., None] if rows.ndim == 3 else rows
    return rows if _dtype_read(rows.dtype) == rows.dtype else in_single(rows, f"bag file {str(path)!r}")


@contextmanager
def open_bag_file(path: Path) -> Iterator[OpenFile]:
    """Open the bag file at ``path`` with the reader of its ending, or a folder as one of images, and close it.

    Raises:
        DataError: no reader for this ending, or a file that its reader refuses.
        ConfigError: a reader of another package that gives no such file.
    """
    ending = ending_of(path)
    if path.is_dir() and not takes_folders(ending):
        with open_images(path) as images:
            yield images
        return
    reader = READERS.get(ending)
    if reader is None:
        raise bag_error(path, f"a file ending in {', '.join(READERS)}", path.suffix or "no ending")
    if not path.is_dir():
        open_file(path, f"bag file {str(path)!r}").close()
    with ExitStack() as opened:
        file = _read_by(reader, path, opened)
        refuse_claim(path, file.features)
        yield file


def _read_by(reader: OpenBag, path: Path, opened: ExitStack) -> OpenFile:
    """Return what a reader makes of a file; what it opens is closed with ``opened``."""
    ending = ending_of(path)
    if READERS.path_of_own(ending) is not None:
        return opened.enter_context(reader(path))  # type: ignore[arg-type]  # as all of miue
    # a damaged file may make a library raise any error
    with refusing(path, f"a file that its reader can open ({READERS.describe(ending)})", Exception):
        file: object = reader(path)
        if isinstance(file, AbstractContextManager):
            file = opened.enter_context(file)
    if isinstance(file, OpenFile) and isinstance(getattr(file.features, "dtype", None), np.dtype):
        return file
    raise ConfigError(
        item=f"reader of {ending!r}, {READERS.describe(ending)}",
        wanted="a function that returns a miue.io.formats.OpenFile of arrays, or a context manager that gives one",
        got=f"features of type {type(file.features).__name__}"
        if isinstance(file, OpenFile)
        else f"a value of type {type(file).__name__}",
        fix="correct the reader; docs/howto/own_network.md has an example",
    )


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
        return (f"the {file.features.shape[1]} crops of each clip, or tiles of each region, are averaged",)
    return ()


def to_pixels(
    path: Path, file: OpenFile, size: int, microns_per_pixel: float | None
) -> tuple[Int64[np.ndarray, "n 2"] | None, int | None, tuple[str, ...]]:
    """Return coords and patch size in level-0 pixels, and the notes of the file.

    Args:
        path: the file, for messages.
        file: while it is open.
        size: instances.
        microns_per_pixel: of level 0; without it coords in µm are left out.

    Raises:
        DataError: coords that cannot be read, are no numbers, none that a pixel can have, or not one per instance.
    """
    if file.coords is None:
        return None, None, file.notes
    unit = 1.0 if microns_per_pixel is None or not file.in_microns else microns_per_pixel
    with refusing(path, "coords that can be read", Exception):
        stored = np.asarray(file.coords())
    pixels = whole_pixels(path, stored, unit)
    refuse_unequal(path, len(pixels), size)
    if file.in_microns and microns_per_pixel is None:
        return (
            None,
            None,
            (*file.notes, "coords are in µm and left out, without a pixel width"),
        )
    return pixels, None if file.patch_size is None else round(file.patch_size / unit), file.notes


def whole_pixels(path: Path, coords: Shaped[np.ndarray, "..."], unit: float = 1.0) -> Int64[np.ndarray, "n 2"]:
    """Return coords in pixels of ``unit``.

    Raises:
        DataError: they are no numbers, or none that a pixel can have.
    """
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
