"""The normal form of a bag file: features (n, *shape), corners in level-0 pixels, the side of a patch."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.common.claims import bytes_in, can_hold
from miue.common.errors import MAY_READ, DataError, MiueError, is_denied
from miue.common.memory import bytes_asked, memory_shortage
from miue.common.text import shortened
from miue.io.formats.bag_paths import bag_name


@dataclass(frozen=True)
class OpenFile:
    """A bag file while it is open, as its reader opened it.

    Attributes:
        format: which tool writes such files.
        features: an array (n, D) of vectors or (n, H, W, channels) of images, or what is sliced as one and has its
            ``shape`` and ``dtype``.
        coords: a function that reads the (n, 2) corners, in level-0 pixels or µm, not yet checked; None where the
            file has none.
        patch_size: side of a patch in the unit of ``coords``, or None.
        in_microns: whether ``coords`` and ``patch_size`` are in µm.
        extractor: what made the features, "" where the file does not say.
        patch_scale: what a patch shows, as ``scale_in_words`` says it, "" where the file does not say.
        notes: what a user should know of the file.
        statistics: of the images of the instances (n, S), sliced as ``features``; None where the file has none.
    """

    format: str
    features: Any
    coords: Callable[[], np.ndarray] | None = None
    patch_size: float | None = None
    in_microns: bool = False
    extractor: str = ""
    patch_scale: str = ""
    notes: tuple[str, ...] = ()
    statistics: Any = None


OpenBag = Callable[[Path], AbstractContextManager[OpenFile] | OpenFile]
"""What a reader is: opens a path and gives what is in it; as a context manager where something is to be closed."""


@dataclass(frozen=True)
class Contents:
    """What a bag file contains, without its features.

    Attributes:
        path: the file.
        format: which tool writes such files.
        size: instances; 0 for a slide without tissue, which is a valid file.
        instance_shape: (D,) or (H, W, channels); (0,) where there is no instance and no width is known.
        dtype: of the features as they are read.
        coords: corners of the instances in level-0 pixels, where known.
        patch_size: side of a patch in level-0 pixels (the step of the grid), where known.
        extractor: what made the features, "" where the file does not say.
        patch_scale: what a patch shows, as ``scale_in_words`` says it, "" where the file does not say.
        notes: what a user should know of the file.
        statistics: how many image statistics of each instance are stored beside the features, 0 for none.
    """

    path: Path
    format: str
    size: int
    instance_shape: tuple[int, ...]
    dtype: np.dtype
    coords: Int64[np.ndarray, "n 2"] | None
    patch_size: int | None
    extractor: str
    patch_scale: str
    notes: tuple[str, ...]
    statistics: int = 0

    @property
    def id(self) -> str:
        """The name of the file without its ending, or that of a folder: the id of the bag."""
        return bag_name(self.path)


MICRONS_AT_1 = 10.0
"""µm per pixel at a magnification of 1×, as slides are usually scanned: 0.5 at 20×."""


def scale_in_words(pixels: float | None, microns_per_pixel: float | None) -> str:
    """Return how large the picture of a patch is, and how much of the slide it shows; "" where one is unknown.

    Args:
        pixels: side of the picture that was encoded.
        microns_per_pixel: of that picture.

    >>> scale_in_words(256.0, 0.5), scale_in_words(224.0, 256 / 224), scale_in_words(256.0, None)
    ('256 px of 0.5 µm', '224 px of 1.14 µm', '')
    """
    if pixels is None or microns_per_pixel is None:
        return ""
    return f"{pixels:g} px of {microns_per_pixel:.3g} µm"


def scale_at(pixels: float | None, magnification: float | None) -> str:
    """Return the scale of pictures of so many pixels at a magnification, as ``scale_in_words`` says it."""
    return scale_in_words(pixels, MICRONS_AT_1 / magnification if magnification else None)


def scale_over(pixels: float | None, microns: float | None) -> str:
    """Return the scale of pictures of so many pixels that show so many µm, as ``scale_in_words`` says it."""
    return scale_in_words(pixels, microns / pixels if microns and pixels else None)


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
    if not can_hold(path, claimed):
        held = bytes_in(path)
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


def refuse_unequal(path: Path, coords: int, features: int) -> None:
    """Raise unless a bag file has as many coords as features.

    Raises:
        DataError: it has not.
    """
    if coords != features:
        raise bag_error(path, "as many coords as features", f"{coords} coords, {features} features")


@contextmanager
def refusing(path: Path, wanted: str, *errors: type[Exception], fix: str = "") -> Iterator[None]:
    """Turn ``errors`` met while the file is opened into one that names it, and says ``fix``.

    Where memory does not suffice for what the file may hold, the error is left as it is, with the file named.
    """
    try:
        yield
    except MiueError:
        raise
    except errors as error:
        if memory_shortage(error) is not None and can_hold(path, bytes_asked(error)):
            error.add_note(f"in reading {str(path)!r}")
            raise
        if is_denied(error):
            raise bag_error(path, wanted, os.strerror(errno.EACCES), MAY_READ) from error
        said, kind = str(error).split("\n")[0], type(error).__name__
        alone = said and isinstance(error, OSError | ValueError | RuntimeError | TypeError | MemoryError)
        raise bag_error(path, wanted, said if alone else f"{kind}: {said}" if said else kind, fix) from error
