"""Maps of a slide as OME-TIFF: a channel for each class and uncertainty, in a pyramid that QuPath opens.

A map begins where the slide does, at its level-0 pixel (0, 0), and has some pixels for each patch. Values are raw,
in float32; NaN is where no patch lies.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from jaxtyping import Float32

from miue.common.errors import import_extra
from miue.common.files import atomic_file
from miue.pathology.export.heatmap import Canvas
from miue.pathology.export.patches import Patches

TILE = 512
PIXELS_PER_PATCH = 8  # along a side, of small slides
LONGEST = 2048  # pixels of the longer side, as far as a patch has one pixel
MOST = 16_384  # pixels of the longer side of any map
SPARSEST = 256  # pixels of a map for each patch, where it has more than that of LONGEST by LONGEST


@dataclass(frozen=True)
class SlideSize:
    """How large a slide is.

    Attributes:
        size: width and height in level-0 pixels.
        microns_per_pixel: width of a level-0 pixel in µm, where known.
    """

    size: tuple[int, int]
    microns_per_pixel: float | None = None


def write_ome_tiff(
    path: Path, patches: Patches, class_names: Sequence[str], slide: SlideSize | None = None, flags: str = ""
) -> None:
    """Write the maps of a slide, whole or not at all.

    Channels: the probability of each class, each measure and distance score by its column name, and ``flagged`` (1
    or 0) where instances were calibrated; where patches overlap, their mean. The description says how many level-0
    pixels a pixel covers; its width in µm is stated where that of the slide is known.

    Args:
        path: the file.
        patches: what is said of each.
        class_names: C names.
        slide: its size; None where it is unknown: the map then ends with the last patch.
        flags: by which rule patches were flagged and what is promised, in words.

    Raises:
        ConfigError: tifffile is not installed.
        StorageError: the file cannot be written.
    """
    tifffile = import_extra("tifffile", "export of OME-TIFF", "slides")
    values = {f"probability of {name}": patches.probabilities[:, c] for c, name in enumerate(class_names)}
    values |= patches.uncertainties
    if patches.flagged is not None:
        values["flagged"] = patches.flagged.astype(np.float64)
    ends = np.maximum(patches.coords.max(0) + patches.size, 1)
    width, height = (int(ends[0]), int(ends[1])) if slide is None else slide.size
    scale = _scale(patches.size, (width, height), len(patches.coords))
    canvas = Canvas.at_scale(patches, (0, 0, width, height), scale)
    maps = np.stack([canvas.paint(one).astype(np.float32) for one in values.values()])
    levels = list(_smaller(maps))
    flagged = f" Flagged: {flags}" if flags else ""
    covers = f"{1 / scale:g} × {1 / scale:g} level-0 pixels"
    facts: dict[str, Any] = {
        "axes": "CYX",
        "Name": patches.slide,
        "Description": f"One pixel covers {covers} of the slide.{flagged}",
        "Channel": {"Name": list(values)},
        "UUID": str(UUID(bytes=hashlib.sha256(maps.tobytes()).digest()[:16])),
    }
    if slide is not None and slide.microns_per_pixel is not None:
        step = slide.microns_per_pixel / scale
        facts |= {"PhysicalSizeX": step, "PhysicalSizeY": step}
        facts |= {"PhysicalSizeXUnit": "µm", "PhysicalSizeYUnit": "µm"}
    how = {"tile": (TILE, TILE), "compression": "zlib", "photometric": "minisblack"}
    with atomic_file(path) as temporary, tifffile.TiffWriter(temporary, ome=True) as file:
        file.write(maps, subifds=len(levels), metadata=facts, software="miue", **how)
        for smaller in levels:
            file.write(smaller, subfiletype=1, **how)


def _scale(side: int, size: tuple[int, int], patches: int) -> float:
    """Return the pixels of a map for each level-0 pixel; a patch has a whole number, where that is not too many.

    Where a patch lies far from all others, as by a damaged coordinate, nearly all of a map would be empty: it then
    has no more pixels than its patches could need.

    >>> _scale(512, (100_000, 80_000), 9_000), _scale(256, (2_000, 900), 20)
    (0.015625, 0.03125)
    >>> _scale(16, (1_000_000_000, 16), 50), _scale(256, (1 << 30, 1 << 30), 50)
    (1.6384e-05, 1.9073486328125e-06)
    """
    width, height = size
    whole = max(1, min(PIXELS_PER_PATCH, LONGEST * side // max(size)))
    pixels = max(LONGEST**2, SPARSEST * patches)
    return min(whole / side, MOST / max(size), math.sqrt(pixels / width / height))


def _smaller(maps: Float32[np.ndarray, "C H W"]) -> Iterator[Float32[np.ndarray, "C h w"]]:
    """Yield maps of half the size, each pixel the mean of up to four that have a value, until they fit a tile."""
    while max(maps.shape[1:]) > TILE:
        rows, columns = maps.shape[1] % 2, maps.shape[2] % 2
        maps = np.pad(maps, ((0, 0), (0, rows), (0, columns)), constant_values=np.nan)
        blocks = maps.reshape(len(maps), maps.shape[1] // 2, 2, maps.shape[2] // 2, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where no patch lies
            maps = np.nanmean(blocks, (2, 4))
        yield maps
