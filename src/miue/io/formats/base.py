"""What all readers share: the normal form of a bag file, names of paths and of arrays, and what is refused."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.common.array_files import bytes_in, can_hold
from miue.common.errors import MAY_READ, DataError, MiueError, bytes_asked, first_few, is_denied, memory_shortage
from miue.common.parts import READERS as _READERS
from miue.common.registry import Registry
from miue.common.text import plural, shortened

STORE, TABLES = ".zarr", "tables"
FEATURES = ("features", "feats", "feature", "embeddings", "x")
COORDS = ("coords", "coordinates")
LARGEST_TEXT = 1 << 24  # bytes of a JSON file of metadata: that of a store repeats those of all below


@dataclass(frozen=True)
class OpenFile:
    """A bag file while it is open, as its reader opened it.

    Attributes:
        format: which tool writes such files.
        features: an array (n, D) of vectors, (n, H, W, channels) of images or (D,), one vector, or what is sliced
            as one and has its ``shape`` and ``dtype``.
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
READERS: Registry[OpenBag] = _READERS
"""Which reader opens which ending."""


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
        is_whole: whether its one instance is a whole slide, which has no position.
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
    is_whole: bool = False

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
        fix = "leave the file out (skip_bad=True); if it is no fraud, store it without compression"
        raise bag_error(path, "an array that its file can hold", f"{claimed:,} bytes in a file of {held:,}", fix)


def bag_error(path: Path, wanted: str, got: str, fix: str = "") -> DataError:
    """Return the error that says what is wrong with a bag file."""
    return DataError(
        item=f"bag file {str(path)!r}",
        wanted=wanted,
        got=shortened(got),
        fix=fix or "extract these features again, or leave the file out (skip_bad=True)",
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


def bag_name(path: Path) -> str:
    """Return the id of the bag in a file or folder: its name without the ending that says which reader opens it.

    >>> bag_name(Path("job/slide-1.h5")), bag_name(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('slide-1', 'slide-1')
    """
    file = _store(path)
    return file.name if file.is_dir() and not takes_folders(ending_of(path)) else file.stem


def bag_file_name(path: Path) -> str:
    """Return what a user calls the file of a bag: of a table in a store, the store.

    >>> bag_file_name(Path("job/slide-1.h5")), bag_file_name(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('slide-1.h5', 'slide-1.zarr')
    """
    return _store(path).name if is_table(path) else path.name


def ending_of(path: Path) -> str:
    """Return the ending that says which reader opens a bag: of a table in a store, that of the store.

    >>> ending_of(Path("job/slide-1.H5")), ending_of(Path("job/slide-1.zarr/tables/uni_tiles"))
    ('.h5', '.zarr')
    """
    return _store(path).suffix.lower()


def takes_folders(ending: str) -> bool:
    """Return whether the reader of an ending takes folders: that of SpatialData stores, and any of other packages.

    >>> takes_folders(".zarr"), takes_folders(".h5"), takes_folders("")
    (True, False, False)
    """
    return ending == STORE or (ending in READERS and READERS.path_of_own(ending) is None)


def is_table(path: Path) -> bool:
    """Return whether a path is that of a table in a SpatialData store."""
    return path.parent.name == TABLES and path.parent.parent.suffix.lower() == STORE


def files_below(folder: Path) -> Iterator[Path]:
    """Return all that lies below a folder and is no folder; links to folders are not followed.

    Raises:
        OSError: a folder that cannot be listed.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path))
        else:
            yield Path(entry.path)


def _store(path: Path) -> Path:
    return path.parent.parent if is_table(path) else path


def read_metadata(path: Path, bag: Path) -> dict[str, Any]:
    """Return the object of JSON in a file that lies beside features, nothing where there is none.

    Raises:
        DataError: it is damaged, or longer than such a file is; ``bag`` names the features.
    """
    if not path.is_file():
        return {}
    with refusing(bag, f"JSON in {path.name!r} that can be read", OSError, ValueError, RecursionError):
        if (size := path.stat().st_size) > LARGEST_TEXT:
            raise ValueError(f"{size:,} bytes, more than such a file has")
        content = json.loads(path.read_bytes())
    return content if isinstance(content, dict) else {}


def features_name(path: Path, names: Iterable[str]) -> str:
    """Return the name under which the features are: a known one, or the only one there is.

    Raises:
        DataError: none of the known names, and not one alone.
    """
    present = list(names)
    known = next((name for name in FEATURES if name in present), None)
    others = [name for name in present if name not in (*COORDS, "stitch")]
    if known is None and len(others) != 1:
        raise bag_error(
            path,
            f"features, named {FEATURES[0]!r} or {FEATURES[1]!r}",
            f"{plural(len(present), 'name')}: {first_few(present)}" if present else "nothing",
            "name the features so, in a file for each bag; positions alone are those of which to extract features",
        )
    return known or others[0]


def coords_name(names: Iterable[str]) -> str | None:
    """Return the name under which the coords are, None where there are none."""
    return next((name for name in COORDS if name in names), None)
