"""Open any bag file with the reader of its ending and bring features and coords into their normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
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

AS_STORED = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.uint8))
"""Types in which features stay; all others become float32."""


@dataclass(frozen=True)
class Form:
    """How features are stored.

    Attributes:
        size: instances.
        instance_shape: as they are read.
        axis: what the array has beside the axes of features (n, D) or images (n, H, W, channels): "one" in front,
            as (1, n, D), or "crops" of each instance, (n, crops, D), which are averaged; "vector" where it has one
            axis alone, (D,), as the embedding of a whole slide; "" for none.
    """

    size: int
    instance_shape: tuple[int, ...]
    axis: str = ""

    @classmethod
    def of(cls, path: Path, features: Any) -> Form:
        """Return the form of the features of a file.

        Raises:
            DataError: no numbers, no instance's features, or features of no number.
        """
        shape, dtype = tuple(features.shape), np.dtype(features.dtype)
        if dtype.kind not in "fiub":
            raise bag_error(path, "features that are numbers", f"type {dtype}")
        if len(shape) == 1:
            return cls(1, shape, "vector") if shape[0] else cls(0, (0,))
        axis = "" if len(shape) != 3 or dtype == np.uint8 else "one" if shape[0] == 1 else "crops"
        if len(shape) == 3:
            shape = {"": (*shape, 1), "one": shape[1:], "crops": (shape[0], shape[2])}[axis]
        if len(shape) not in (2, 4) or (shape[0] and 0 in shape):
            wanted = "features (n, D) or images (n, H, W[, channels]) of at least one number"
            raise bag_error(path, wanted, f"shape {tuple(features.shape)}")
        return cls(shape[0], shape[1:], axis)


def contents_here(path: Path, microns_per_pixel: float | None = None) -> Contents:
    """Return what the bag file at ``path`` itself holds, opened in this very process.

    Args:
        path: a file with one of the endings of ``READERS``, a folder of images, or a table in a SpatialData store.
        microns_per_pixel: of level 0, for files whose coords are in µm; without it these are left out.

    Raises:
        DataError: not such a file, damaged, or of parts that do not fit together.
    """
    with open_bag_file(path) as file:
        form, coords, notes = Form.of(path, file.features), None, list(file.notes)
        unit = microns_per_pixel or 1.0 if file.in_microns else 1.0
        is_whole = form.axis == "vector"
        if file.coords is not None and not is_whole:  # else those of the patches that it is of
            with refusing(path, "coords that can be read", Exception):
                stored = np.asarray(file.coords())
            coords = whole_pixels(path, stored, unit)
            refuse_unequal(path, len(coords), form.size)
            if file.in_microns and microns_per_pixel is None:
                coords = None
                notes.append("coords are in µm and left out, without a pixel width")
        if form.axis == "crops":
            crops = file.features.shape[1]
            notes.append(f"the {crops} crops of each clip, or tiles of each region, are averaged")
        if is_whole:
            notes.append("one vector, as the embedding of a whole slide: a bag of one instance")
        side = None if coords is None or file.patch_size is None else round(file.patch_size / unit)
        is_kept = file.features.dtype in AS_STORED and form.axis != "crops"
        return Contents(
            path=path,
            format=file.format,
            size=form.size,
            instance_shape=form.instance_shape,
            dtype=np.dtype(file.features.dtype if is_kept else np.float32),
            coords=coords,
            patch_size=side,
            extractor=file.extractor,
            patch_scale=file.patch_scale,
            notes=tuple(notes),
            statistics=0 if file.statistics is None else int(file.statistics.shape[1]),
            is_whole=is_whole,
        )


def rows_here(
    path: Path,
    start: int,
    stop: int,
    *,
    statistics: bool = False,
    size: int | None = None,
    place: Callable[[tuple[int, ...], np.dtype], np.ndarray] | None = None,
) -> Shaped[np.ndarray, "n *shape"]:
    """Return the instances from ``start`` up to ``stop`` in their normal form, read in this very process.

    Args:
        path: a bag file.
        start: first instance.
        stop: one behind the last.
        statistics: return the image statistics that are stored beside the instances, float32.
        size: instances that the file had when it was listed; None where they are not known.
        place: returns an array of a shape and type, into which what need not be converted is read, where its
            library can.

    Raises:
        DataError: not a bag file, a damaged one, or one with another number of instances than ``size``.
    """
    with open_bag_file(path) as file:
        form = Form.of(path, file.features)
        if size not in (None, form.size):
            wanted = f"the {plural(size, 'instance')} that it had when the bags were listed"
            fix = "give the same command again once nothing writes this file"
            raise bag_error(path, wanted, f"{form.size:,}", fix)
        array, span = (file.statistics if statistics else file.features), slice(start, stop)
        chosen = (0, span) if form.axis == "one" and not statistics else (span,)
        is_kept = array.dtype in AS_STORED and not statistics and form.axis != "crops"
        with refusing(path, "features that can be read", Exception):
            if form.axis == "vector" and not statistics:
                rows = np.asarray(array[:])[None][span]
            elif place is not None and is_kept and hasattr(array, "read_direct"):
                rows = place((len(range(form.size)[span]), *array.shape[len(chosen) :]), array.dtype)
                array.read_direct(rows, chosen)
            else:
                rows = np.asarray(array[chosen if len(chosen) > 1 else span])
    if not is_kept:
        rows = in_single(rows, f"bag file {str(path)!r}")
    if statistics:
        return rows
    return (rows.mean(1) if form.axis == "crops" else rows).reshape(len(rows), *form.instance_shape)


@contextmanager
def open_bag_file(path: Path) -> Iterator[OpenFile]:
    """Open the bag file at ``path`` with the reader of its ending, or a folder as one of images, and close it.

    Raises:
        DataError: no reader for this ending, or a file that its reader refuses.
        ConfigError: a reader of another package that gives no such file.
    """
    ending = ending_of(path)
    if path.is_dir() and not takes_folders(ending):
        from miue.io.formats.images import open_images

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
