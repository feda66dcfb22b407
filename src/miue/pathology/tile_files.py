"""Files of encoded patches as TRIDENT lays them out: written whole, recognised, and their grid read again.

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

from miue.common.errors import DataError, MiueError, StorageError
from miue.common.hdf5_files import atomic_hdf5
from miue.io.formats.hdf5 import STATISTICS
from miue.io.formats.isolated import read_hdf5_parts

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


def refuse_foreign(path: Path) -> None:
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
    """Return where the patches of a file lie: one of ours, of TRIDENT's, or CLAM's of patches.

    Raises:
        StorageError: it cannot be read.
        DataError: coords that are none, are stored in other files, or are of patches whose size it does not say.
    """
    every, stored = read_hdf5_parts(path, ("coords",), "coords")
    if stored.ndim != 2 or stored.shape[1] != 2 or not 0 < stored.shape[0] < MOST_PATCHES:
        raise _no_coords(path, f"coords of shape {stored.shape}")
    if stored.dtype.kind not in "iu":
        raise _no_coords(path, f"coords of {stored.dtype}")
    coords, attributes = stored.astype(np.int64), every["coords"]
    try:
        side = int(attributes["patch_size"])
        step = (
            int(attributes["patch_size_level0"])
            if "patch_size_level0" in attributes
            else _clam_step(attributes, side)
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DataError(
            item=f"coords of {str(path)!r}",
            wanted="the attributes patch_size and patch_size_level0 (or CLAM's downsample)",
            got=f"{', '.join(attributes) or 'none'}",
            fix="cut the slide anew, without --tiles",
        ) from error
    if coords.min() < 0 or not 0 < side <= 1 << 14 or not 0 < step <= 1 << 16:
        raise _no_coords(path, f"a patch at {coords.min(0)}, sides {side} and {step}")
    return Tiles(coords, step, side, attributes)


def _clam_step(attributes: Mapping[str, Any], side: int) -> int:
    return round(side * float(np.ravel(attributes["downsample"])[0]))


def _no_coords(path: Path, got: str) -> DataError:
    return DataError(
        item=f"{str(path)!r}",
        wanted="coords (N, 2), whole numbers from 0, of at least one patch",
        got=got,
        fix="check the file",
    )
