"""Files of encoded patches as TRIDENT lays them out: written whole, recognized, and their grid read again.

``features`` (N, D) float32, with the encoder and what was done to the patches as attributes; ``image_statistics``
(N, 27) float32 of the same patches, which TRIDENT does not have; ``coords`` (N, 2) int64, the top left corners in
level-0 pixels, with ``patch_size_level0``, the side of a patch there, as attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from miue.common.array_files import atomic_hdf5
from miue.common.errors import DataError, MiueError, StorageError
from miue.io.formats import STATISTICS, read_hdf5_parts

MOST_PATCHES = 50_000_000  # more than any slide has; a file that claims more is not read


@dataclass(frozen=True)
class Tiles:
    """Where patches lie.

    Attributes:
        coords: top left corners in level-0 pixels.
        step: side of a patch in level-0 pixels.
        patch_px: side of the picture that is encoded.
        attributes: of the file, kept beside the coords.
    """

    coords: Int64[np.ndarray, "n 2"]
    step: int
    patch_px: int
    attributes: Mapping[str, Any]


def write_features(
    path: Path,
    features: Float32[np.ndarray, "n D"],
    statistics: Float32[np.ndarray, "n S"],
    tiles: Tiles,
    attributes: Mapping[str, Any],
) -> None:
    """Write features, image statistics and coords to ``path``, whole or not at all; attributes go to features."""
    with atomic_hdf5(path) as file:
        file.create_dataset("features", data=features)
        file.create_dataset(STATISTICS, data=statistics)
        file.create_dataset("coords", data=tiles.coords)
        file["features"].attrs.update({**attributes, "name": path.stem})
        sides = {"patch_size": tiles.patch_px, "patch_size_level0": tiles.step}
        file["coords"].attrs.update({**tiles.attributes, **sides})


def read_attributes(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of features and of coords.

    Raises:
        StorageError: it cannot be read or has no features.
        DataError: these, or the coords, are stored in other files.
    """
    try:
        attributes, _ = read_hdf5_parts(path, ("features", "coords"))
    except StorageError as error:
        wanted, fix = "a file of features as this command writes it", "choose another --out, or move it away"
        raise StorageError(item=error.item, wanted=wanted, got=error.got, fix=fix) from error
    return attributes["features"], attributes["coords"]


def is_of_slide(attributes: Mapping[str, Any], slide: Path) -> bool:
    """Return whether a file with these attributes of features was made of a slide of this size.

    Another slide of the same name, or one that was cut off, has another. Files without the attribute pass, and so
    does a slide that is not there any more.
    """
    if not slide.is_file() or "slide_bytes" not in attributes:
        return True
    return states(attributes, {"slide_bytes": slide.stat().st_size})


def states(attributes: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the attributes of a file hold all that is wanted; one of several numbers is no such value."""
    return all(
        name in attributes and np.size(attributes[name]) == 1 and bool(np.all(attributes[name] == value))
        for name, value in wanted.items()
    )


def refuse_other_file(path: Path) -> None:
    """Raise unless ``path`` is a file that ``write_features`` wrote, which may be written anew.

    Raises:
        StorageError: a file of another tool, or one that cannot be read.
    """
    try:
        read_hdf5_parts(path, ("features", STATISTICS, "coords"))
    except MiueError as error:
        raise StorageError(
            item=f"{str(path)!r}",
            wanted="a file of features as this command writes it, to replace it",
            got="a file of another kind",
            fix="choose another --out, or move it away",
        ) from error


def read_tiles(path: Path) -> Tiles:
    """Return where the patches of a file lie, and of what size their pictures are: ours, TRIDENT's, or CLAM's.

    Raises:
        StorageError: it cannot be read.
        DataError: coords that are none, are stored in other files, or are of patches whose size it does not say.
    """
    coords, attributes = _read_coords(path)
    step = _step(path, attributes, "of CLAM pass the folder patches; else cut the slide anew, without --tiles")
    try:
        side = int(attributes["patch_size"])
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        wanted = "the attribute patch_size, the side of the picture that is encoded"
        raise _unsized(path, wanted, attributes, "cut the slide anew, without --tiles") from error
    _check_places(path, coords, step)
    if not 0 < side <= 1 << 14:
        raise _no_coords(path, f"pictures of {side} pixels")
    return Tiles(coords, step, side, attributes)


def read_grid(path: Path) -> tuple[Int64[np.ndarray, "n 2"], int]:
    """Return the coords of the patches of a file and their side, both in level-0 pixels.

    Raises:
        StorageError: it cannot be read.
        DataError: coords that are none, are stored in other files, or are of patches whose side it does not say.
    """
    coords, attributes = _read_coords(path)
    fix = "write the attribute patch_size_level0 to the coords; of CLAM's files, pass the folder 'patches'"
    step = _step(path, attributes, fix)
    _check_places(path, coords, step)
    return coords, step


def _read_coords(path: Path) -> tuple[Int64[np.ndarray, "n 2"], dict[str, Any]]:
    every, stored = read_hdf5_parts(path, ("coords",), "coords")
    if stored.ndim != 2 or stored.shape[1] != 2 or not 0 < stored.shape[0] < MOST_PATCHES:
        raise _no_coords(path, f"coords of shape {stored.shape}")
    if stored.dtype.kind not in "iu":
        raise _no_coords(path, f"coords of {stored.dtype}")
    return stored.astype(np.int64), every["coords"]


def _step(path: Path, attributes: Mapping[str, Any], fix: str) -> int:
    """Return the side of a patch in level-0 pixels."""
    try:
        if "patch_size_level0" in attributes:
            return int(attributes["patch_size_level0"])
        return round(int(attributes["patch_size"]) * float(np.ravel(attributes["downsample"])[0]))
    except (KeyError, ValueError, TypeError, OverflowError, IndexError) as error:
        wanted = "the attribute patch_size_level0 (or CLAM's patch_size and downsample)"
        raise _unsized(path, wanted, attributes, fix) from error


def _unsized(path: Path, wanted: str, attributes: Mapping[str, Any], fix: str) -> DataError:
    got = ", ".join(attributes) or "none"
    return DataError(item=f"coords of {str(path)!r}", wanted=wanted, got=got, fix=fix)


def _check_places(path: Path, coords: Int64[np.ndarray, "n 2"], step: int) -> None:
    if coords.min() < 0 or not 0 < step <= 1 << 16:
        raise _no_coords(path, f"a patch at {coords.min(0)}, of {step} level-0 pixels")


def _no_coords(path: Path, got: str) -> DataError:
    return DataError(
        item=f"{str(path)!r}",
        wanted="coords (N, 2), whole numbers from 0, of at least one patch",
        got=got,
        fix="check the file",
    )
