"""Slides are cut into patches: a grid over the tissue, each patch read and encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from miue.bags import image_statistics
from miue.common.errors import DataError, out_of_range
from miue.common.tasks import report_share
from miue.pathology.patch_encoders import PatchEncoder, open_encoder
from miue.pathology.slides import microns_per_pixel, open_slide, stated_widths, thumbnail
from miue.pathology.tile_files import Tiles, is_of_slide, read_attributes, states, write_features

LONGEST = 2048  # pixels of the longer side of the picture in which tissue is sought
LEAST_SATURATION = 0.05  # a slide of glass alone has noise, which Otsu's threshold would split in two
Change = Callable[[np.ndarray], np.ndarray]
"""(n, H, W, 3) bytes → the same."""
Follow = Callable[[Int64[np.ndarray, "n 2"]], Iterator[np.ndarray]]


@dataclass(frozen=True)
class Tiling:
    """How slides are cut.

    Attributes:
        patch_px: side of a patch, in pixels at ``magnification``.
        magnification: such as 20 for 20×, about 0.5 µm per pixel.
        tissue: least share of a patch that is tissue, above 0 up to 1.
        mpp: µm per level-0 pixel of slides that state neither this nor a magnification.
    """

    patch_px: int = 256
    magnification: float = 20.0
    tissue: float = 0.25
    mpp: float | None = None

    def __post_init__(self) -> None:
        if self.patch_px < 8:
            raise out_of_range("patch_px", "patches of at least 8 pixels", self.patch_px)
        if not 0 < self.tissue <= 1:
            raise out_of_range("tissue", "a share of tissue above 0, up to 1", self.tissue)
        if not (isfinite(self.magnification) and self.magnification > 0):
            raise out_of_range("magnification", "a magnification finite and above 0", self.magnification)
        if self.mpp is not None and not (isfinite(self.mpp) and self.mpp > 0):
            raise out_of_range("mpp", "a pixel width in µm finite and above 0", self.mpp)


def cut_tiles(slide: Any, path: Path, tiling: Tiling) -> Tiles:
    """Return the patches of tissue of an opened slide.

    Args:
        slide: opened with OpenSlide.
        path: its file, for messages.
        tiling: size, magnification and share of tissue.

    Raises:
        DataError: no tissue, no room for a patch, an unknown magnification, or one below what is asked for.
    """
    of_slide = level0_magnification(slide, path, tiling.mpp)
    needs_mpp = stated_magnification(slide) is None
    if tiling.magnification > of_slide * 1.01:
        raise _unfit(
            path,
            f"a slide scanned at {tiling.magnification:g}× or more",
            f"{of_slide:g}×",
            f"pass --magnification {of_slide:g} or less",
        )
    step = round(tiling.patch_px * of_slide / tiling.magnification)
    width, height = slide.dimensions
    if min(width, height) < step:
        raise _unfit(
            path,
            f"room for a patch of {step} × {step} level-0 pixels",
            f"a slide of {width} × {height}",
            "lower --patch-px, or pass --skip-bad",
        )
    mask = tissue_mask(thumbnail(slide, LONGEST))
    coords = tissue_grid(mask, (width, height), step, tiling.tissue)
    if not len(coords):
        raise _unfit(
            path,
            f"a patch of {step} level-0 pixels that is tissue to {tiling.tissue:.0%}",
            "none" if mask.any() else "none: no pixel has a color, by which tissue is found",
            "look at the slide; lower --tissue or --patch-px, or pass --skip-bad"
            if mask.any()
            else "look at the slide, which is empty or gray; leave it out, or pass --skip-bad",
        )
    attributes = {
        "level0_magnification": of_slide,
        "target_magnification": tiling.magnification,
        "overlap": 0,
        "level0_width": width,
        "level0_height": height,
        "name": path.stem,
        "tissue": tiling.tissue,
        **({"mpp_option": tiling.mpp} if needs_mpp else {}),
    }
    return Tiles(coords, step, tiling.patch_px, attributes)


def encoded_patches(
    slide: Any, tiles: Tiles, encoder: PatchEncoder, change: Change | None = None, follow: Follow = iter
) -> tuple[Float32[np.ndarray, "n D"], Float32[np.ndarray, "n S"]]:
    """Return the features and the image statistics of patches, read and encoded a batch at a time.

    Args:
        slide: opened with OpenSlide.
        tiles: where they lie.
        encoder: what makes features of them.
        change: what is done to them before.
        follow: yields the corners it gets, and may show how far it is.

    Raises:
        ModelError: the encoder does not take them.
    """
    corners = follow(tiles.coords)
    parts, statistics = [], []
    while chosen := list(islice(corners, encoder.batch)):
        patches = np.stack([read_patch(slide, int(x), int(y), tiles.step, tiles.patch_px) for x, y in chosen])
        changed = patches if change is None else change(patches)
        parts.append(encoder.encode(changed))
        statistics.append(image_statistics(torch.from_numpy(changed)).numpy())
    return np.concatenate(parts), np.concatenate(statistics)


def tile_slide(path: Path, out: Path, tiling: Tiling, encoder: PatchEncoder, follow: Follow = iter) -> int:
    """Cut the slide at ``path``, encode its patches and write them to ``out``; return how many there are.

    Args:
        path: a slide that OpenSlide reads.
        out: the .h5 file.
        tiling: size, magnification and share of tissue.
        encoder: what makes features of patches.
        follow: yields the corners it gets, and may show how far it is.

    Raises:
        StorageError: a slide that cannot be read, or a file that cannot be written.
        DataError: no tissue, an unknown magnification, or one below what is asked for.
    """
    with open_slide(path) as slide:
        attributes = {"encoder": encoder.name, **encoder.attributes, "slide_bytes": path.stat().st_size}
        tiles = cut_tiles(slide, path, tiling)
        features, statistics = encoded_patches(slide, tiles, encoder, follow=follow)
    write_features(out, features, statistics, tiles, attributes)
    return len(features)


def tile_task(slide: str, out: str, tiling: Mapping[str, Any], encoder: Mapping[str, Any]) -> int:
    """Cut a slide and return how many patches it has; arguments of ``Tiling`` and ``open_encoder``."""
    return tile_slide(Path(slide), Path(out), Tiling(**tiling), open_encoder(**encoder), report_corners)


def report_corners(coords: np.ndarray) -> Iterator[np.ndarray]:
    """Yield corners of patches, and report their share to who runs the task."""
    for number, corner in enumerate(coords):
        report_share(number / len(coords))
        yield corner


def level0_magnification(slide: Any, path: Path, mpp: float | None = None) -> float:
    """Return the magnification a slide was scanned at: as it states, else 10 µm over ``mpp``.

    Raises:
        DataError: it states none, and ``mpp`` does not say it.
    """
    stated = stated_magnification(slide)
    if stated is not None:
        return stated
    if mpp is None:
        widths = stated_widths(slide)
        raise _unfit(
            path,
            "a stated magnification or pixel width",
            f"a width of {widths[0]:.4g} µm, that of a printed picture" if widths else "neither",
            "pass --mpp with its µm per pixel: about 0.25 at 40×, 0.5 at 20×",
        )
    return 10 / mpp


def stated_magnification(slide: Any) -> float | None:
    """Return the magnification that a slide states, else 10 µm over its pixel width; None without either."""
    try:
        stated = float(slide.properties["openslide.objective-power"])
    except (KeyError, ValueError):
        stated = 0.0
    if stated > 0:
        return stated
    microns = microns_per_pixel(slide)
    return None if microns is None else 10 / microns


def tissue_mask(picture: UInt8[np.ndarray, "height width 3"]) -> Bool[np.ndarray, "height width"]:
    """Return where the picture is more saturated than Otsu's threshold, and than glass ever is."""
    from skimage.filters import median, threshold_otsu

    saturation = median(saturations(picture))
    if saturation.min() == saturation.max():
        return np.full(saturation.shape, bool(saturation.max() > LEAST_SATURATION))
    mask: np.ndarray = saturation > max(threshold_otsu(saturation), LEAST_SATURATION)
    return mask


def saturations(picture: UInt8[np.ndarray, "height width 3"]) -> Float64[np.ndarray, "height width"]:
    """Return the S of HSV of every pixel, in [0, 1], without H and V, which take ten times as long."""
    red, green, blue = np.moveaxis(picture, 2, 0)
    highest = np.maximum(np.maximum(red, green), blue)
    spread = highest - np.minimum(np.minimum(red, green), blue)
    found: np.ndarray = np.divide(spread, highest, out=np.zeros(spread.shape), where=highest > 0)
    return found


def tissue_grid(
    mask: Bool[np.ndarray, "height width"], size: tuple[int, int], step: int, least: float
) -> Int64[np.ndarray, "n 2"]:
    """Return the top left corners, row by row, of the grid's whole patches that are tissue enough.

    Args:
        mask: tissue over the whole slide.
        size: width and height of the slide in level-0 pixels.
        step: side of a patch in level-0 pixels.
        least: least share of tissue.
    """
    width, height = size
    x, y = np.arange(0, width - step + 1, step), np.arange(0, height - step + 1, step)
    summed = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    left, right = _pixels(x, step, mask.shape[1] / width, mask.shape[1])
    top, bottom = _pixels(y, step, mask.shape[0] / height, mask.shape[0])
    inside = summed[np.ix_(bottom, right)] - summed[np.ix_(top, right)]
    inside = inside - summed[np.ix_(bottom, left)] + summed[np.ix_(top, left)]
    share = inside / ((bottom - top)[:, None] * (right - left)[None])
    rows, columns = np.nonzero(share >= least)
    return np.stack([x[columns], y[rows]], 1).astype(np.int64)


def read_patch(slide: Any, x: int, y: int, step: int, patch_px: int) -> UInt8[np.ndarray, "height width 3"]:
    """Return the patch of ``step`` level-0 pixels at (x, y), read where it costs least, ``patch_px`` wide."""
    from PIL import Image

    level = slide.get_best_level_for_downsample(step / patch_px * 1.001)
    side = max(1, round(step / slide.level_downsamples[level]))
    read = slide.read_region((x, y), level, (side, side))
    whole = Image.new("RGB", read.size, "white")
    whole.paste(read, mask=read.getchannel("A"))  # what was not scanned is glass
    if side != patch_px:
        whole = whole.resize((patch_px, patch_px), Image.Resampling.BOX)
    return np.asarray(whole)


def matches(out: Path, slide: Path, tiling: Tiling, encoder: PatchEncoder) -> bool:
    """Return whether ``out`` was written of this slide, with this tiling and encoder.

    Raises:
        StorageError: it cannot be read.
    """
    of_features, of_coords = read_attributes(out)
    is_encoded_so = states(of_features, {"encoder": encoder.name, **encoder.attributes})
    return is_of_slide(of_features, slide) and is_cut_so(of_coords, tiling) and is_encoded_so


def is_cut_so(attributes: Mapping[str, Any], tiling: Tiling) -> bool:
    """Return whether the attributes of coords are those of this tiling, whose mpp counts where it was used."""
    asked = {"patch_size": tiling.patch_px, "target_magnification": tiling.magnification, "tissue": tiling.tissue}
    of_mpp = {"mpp_option": tiling.mpp} if "mpp_option" in attributes else {}
    return states(attributes, {**asked, **of_mpp})


def _pixels(begin: np.ndarray, step: int, scale: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return first and last pixel of the mask of each patch; of one without a whole pixel, that of its center."""
    first, last = (np.floor(edge * scale + 0.5).astype(int) for edge in (begin, begin + step))
    center = np.minimum(np.floor((begin + step / 2) * scale).astype(int), most - 1)
    is_small = last <= first
    return np.where(is_small, center, first), np.where(is_small, center + 1, np.minimum(last, most))


def _unfit(path: Path, wanted: str, got: str, fix: str) -> DataError:
    return DataError(item=f"slide {str(path)!r}", wanted=wanted, got=got, fix=fix)
