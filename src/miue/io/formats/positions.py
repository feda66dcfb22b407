"""Coords of a bag file in level-0 pixels, and the side of a patch compared with their grid."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped

from miue.bags.coords import LARGEST_COORD, grid_steps
from miue.common.errors import ConfigError
from miue.io.formats.base import OpenFile, bag_error, refuse_unequal, refusing

FEWEST_PAIRS = 8  # neighbors that a grid is recognized by


def check_pixel_width(microns: float | None) -> None:
    """Raise unless a width of level-0 pixels in µm is one, or None.

    Raises:
        ConfigError: not finite, or not above 0.
    """
    if microns is not None and not (isfinite(microns) and microns > 0):
        raise ConfigError(
            item="the pixel width (--mpp)",
            wanted="µm per level-0 pixel, finite and above 0",
            got=f"{microns:g}",
            fix="write 0.25 for a slide scanned at 40×, say",
        )


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
        return None, None, (*file.notes, "coords are in µm and left out; pass --mpp to have level-0 pixels")
    return pixels, None if file.patch_size is None else round(file.patch_size / unit), file.notes


def grid_note(coords: Int64[np.ndarray, "n 2"], patch_size: int) -> str:
    """Return what to know of a patch size that is not the distance of neighbors; "" where it is.

    >>> grid_note(np.stack([np.arange(20) * 512, np.zeros(20, np.int64)], 1), 256)
    'patch size 256, but neighbors are 512 level-0 pixels apart: gaps between patches, or a wrong patch size'
    """
    distances, counts = grid_steps(coords)
    if counts.sum() < FEWEST_PAIRS or 2 * counts.max() < counts.sum():
        return ""
    step = int(distances[counts.argmax()])
    if abs(step - patch_size) <= max(1, patch_size // 100):  # coords in µm are rounded
        return ""
    kind = "patches that overlap" if step < patch_size else "gaps between patches"
    return f"patch size {patch_size}, but neighbors are {step} level-0 pixels apart: {kind}, or a wrong patch size"


def repeats_note(coords: Int64[np.ndarray, "n 2"]) -> str:
    """Return what to know of patches that lie where others do; "" where none does.

    >>> repeats_note(np.array([[0, 0], [256, 0], [0, 0]]))
    'patches that lie where another one of the slide does, so that they count twice'
    """
    if len(np.unique(coords, axis=0)) == len(coords):
        return ""
    return "patches that lie where another one of the slide does, so that they count twice"


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
