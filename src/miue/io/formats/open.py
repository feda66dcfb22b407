"""Open any bag file with the reader of its ending and bring what it holds into the normal form."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Shaped

from miue.bags.single_precision import in_single
from miue.common.errors import ConfigError
from miue.common.files import open_file
from miue.common.text import plural
from miue.io.formats.bag_paths import ending_of, takes_folders
from miue.io.formats.base import Contents, OpenBag, OpenFile, bag_error, refuse_claim, refusing
from miue.io.formats.image_folder import open_images
from miue.io.formats.positions import to_pixels
from miue.io.formats.registry import READERS


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
    if not callable(reader):
        raise _no_reader(ending, f"a value of type {type(reader).__name__}")
    with ExitStack() as opened:
        file = _read_by(reader, path, opened)
        refuse_claim(path, file.features)
        yield file


def _read_by(reader: OpenBag, path: Path, opened: ExitStack) -> OpenFile:
    """Return what a reader makes of a file; what it opens is closed with ``opened``.

    Raises:
        DataError: a file that the reader of another package cannot read.
        ConfigError: a reader of another package that gives something else than a file.
    """
    ending = ending_of(path)
    if READERS.path_of_own(ending) is not None:
        return opened.enter_context(reader(path))  # type: ignore[arg-type]  # as all of miue
    # a damaged file may make a library raise any error
    with refusing(path, f"a file that its reader can open ({READERS.describe(ending)})", Exception):
        file: object = reader(path)
        if isinstance(file, AbstractContextManager):
            file = opened.enter_context(file)
    wrong = _not_a_file(file)
    if wrong:
        raise _no_reader(ending, wrong)
    return cast(OpenFile, file)


def _no_reader(ending: str, got: str) -> ConfigError:
    return ConfigError(
        item=f"reader of {ending!r}, {READERS.describe(ending)}",
        wanted="a function that returns a miue.io.formats.OpenFile, or a context manager that gives one",
        got=got,
        fix="correct the reader; docs/howto/own_network.md has an example",
    )


def _not_a_file(file: object) -> str:
    """Return what a reader gave instead of a file that can be used, "" where it is one."""
    if inspect.isgenerator(file):
        return "a generator, as without the decorator contextlib.contextmanager"
    if not isinstance(file, OpenFile):
        return f"a value of type {type(file).__name__}"
    dtype = getattr(file.features, "dtype", None)
    if not isinstance(dtype, np.dtype) or not hasattr(file.features, "shape"):
        return f"features of type {type(file.features).__name__}, which is no array"
    if file.coords is not None and not callable(file.coords):
        return f"coords of type {type(file.coords).__name__}, which is no function that reads them"
    if not isinstance(file.notes, tuple):
        return f"notes of type {type(file.notes).__name__}, which is no tuple of texts"
    return ""


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
