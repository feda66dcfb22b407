"""What lies beside a bag file and says more of it: the positions of its patches, and what made its features.

Positions are looked for in the same way whatever tool wrote them, in the places of ``BESIDE`` and ``ABOVE``. They
must be as many as the bag has instances, and are its coords where it has none of its own.

slideflow: ``<slide>.index.npz`` holds the centers of tiles, ``bags_config.json`` names the extractor. slide2vec:
``<slide>.meta.json`` states encoder and side of a tile; rows of ``<slide>.npz`` are joined to
``tiles/<slide>.coordinates.npz`` by ``tile_index``. torchmil: ``features/<extractor>/`` names the extractor.
CLAM, TRIDENT: attributes of ``patches/<slide>.h5`` state the side of a patch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.io.formats.base import (
    READERS,
    Contents,
    bag_error,
    coords_name,
    read_metadata,
    refusing,
    scale_at,
    scale_in_words,
    scale_over,
)
from miue.io.formats.grid import grid_step
from miue.io.formats.hdf5 import positive_number
from miue.io.formats.numpy_files import UNREADABLE, Member, memory_mapped, opened_archive
from miue.io.formats.open import whole_pixels

CENTERED = (".index.npz", ".index.npy")
COORDINATES = ".coordinates.npz"
BESIDE = (*CENTERED, ".position.npy", "_coords.npy")
"""How the name of a file of positions goes on behind the bag's, beside the bag."""
ABOVE = (
    *("coords/{0}.npy", "patches/{0}.h5", "patches/{0}_patches.h5"),
    *("tiles/{0}.coordinates.npz", "tiles/{1}/{0}.coordinates.npz"),
)
"""Where a file of positions is, in one of three folders above the bag {0}, which is in a folder {1}."""
TILE = "tile_index"
CENTERS = "coords of slideflow are centers; corners lie half the step of the grid from them"
NO_CORNERS = "coords of slideflow are centers, and left out where no grid shows how far corners lie from them"
NO_TILES = "no tiles/<slide>.coordinates.npz of slide2vec, which has the positions of patches"
MAGNIFICATION = re.compile(r"([1-9][0-9]{0,2}(?:\.[0-9]{1,3})?)x", re.IGNORECASE)
LARGEST_SIDE = 1 << 31  # of a tile

ReadParts = Callable[[Path, Sequence[str], str], tuple[Mapping[str, Mapping[str, Any]], np.ndarray]]
"""Returns the attributes of datasets of an HDF5 file, and one of these datasets."""


def holds_positions(path: Path) -> bool:
    """Return whether a file holds the positions of the patches of another one, and is no bag itself."""
    names = [path.name.removesuffix(ending) for ending in BESIDE if path.name.endswith(ending)]
    of_bag = any(path.with_name(name + ending).exists() for name in filter(None, names) for ending in READERS)
    return of_bag or path.name.endswith(COORDINATES)


def with_positions_beside(contents: Contents, read_parts: ReadParts) -> Contents:
    """Return what a bag file holds with what the files beside it say of it.

    Args:
        contents: of the bag file alone.
        read_parts: reads an HDF5 file.

    Raises:
        DataError: a file beside that is damaged or no such file as the tool writes, or that lists other patches.
        StorageError: an HDF5 file beside without positions.
    """
    path = contents.path
    if path.is_dir():
        return contents
    where = _file_of_positions(path)
    stated, notes = _stated(path, where)
    own = {name: getattr(contents, name) for name in stated if name != "format"}
    contents = replace(contents, **stated | {name: value for name, value in own.items() if value})
    contents = replace(contents, notes=(*contents.notes, *notes))
    if where is None or contents.is_whole:
        return contents
    positions, side = _positions(where, read_parts)
    coords = whole_pixels(where, positions)
    if (rows := _rows_of_tiles(path, where, len(coords))) is not None:
        coords = coords[rows]
    if len(coords) != contents.size:
        fix = "extract these features again, as they may have been cut off; or move the other file elsewhere"
        wanted = f"features of the {len(coords):,} patches that {str(where)!r} lists"
        raise bag_error(path, wanted, f"{contents.size:,}", fix)
    contents = replace(contents, patch_size=contents.patch_size or side)
    if contents.coords is not None:
        return contents
    if not where.name.endswith(CENTERED):
        return replace(contents, coords=coords)
    step = grid_step(coords)
    if step is None and len(coords):
        return replace(contents, notes=(*contents.notes, NO_CORNERS))
    return replace(contents, coords=coords - (step or 0) // 2, notes=(*contents.notes, CENTERS))


def _file_of_positions(path: Path) -> Path | None:
    """Return the nearest file with the positions of the patches of a bag, None where there is none."""
    places = [path.with_name(path.stem + ending) for ending in BESIDE]
    folders = path.absolute().parents[:3]
    places += [folder / name.format(path.stem, path.parent.name) for folder in folders for name in ABOVE]
    return next((place for place in places if place.is_file() and place != path.absolute()), None)


def _stated(path: Path, where: Path | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the tool that wrote a bag states of it, by the fields of its contents, and notes."""
    if where is not None and where.name.endswith(CENTERED):
        facts = read_metadata(path.with_name("bags_config.json"), path)
        extractor = facts.get("extractor", "")
        name = extractor.get("class", "") if isinstance(extractor, dict) else extractor
        return {"format": "slideflow", "extractor": str(name), "patch_scale": _scale_of_slideflow(facts)}, ()
    if where is not None and where.parent.name == "coords" and path.parent.parent.name == "features":
        return {"format": "torchmil", "extractor": path.parent.name.removeprefix("features_")}, ()
    facts = read_metadata(path.with_name(f"{path.stem}.meta.json"), path)
    if "coordinates_npz_path" not in facts:
        return {}, ()
    side = _size(facts, "tile_size_lv0")
    pixels, spacing = _size(facts, "requested_tile_size_px"), _size(facts, "requested_spacing_um")
    stated = {
        "format": "slide2vec",
        "patch_size": None if side is None else round(side),
        "extractor": str(facts.get("encoder_name") or ""),
        "patch_scale": scale_in_words(pixels, spacing),
    }
    return stated, () if where is not None else (NO_TILES,)


def _scale_of_slideflow(facts: Mapping[str, Any]) -> str:
    """Return the scale of tiles, of which ``tile_um`` is the side in µm or a magnification such as "10x"."""
    pixels, side = _size(facts, "tile_px"), facts.get("tile_um")
    if isinstance(side, str):
        at = MAGNIFICATION.fullmatch(side)
        return scale_at(pixels, float(at[1])) if at else ""
    return scale_over(pixels, _size(facts, "tile_um"))


def _size(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the positive number of that name, None where there is none."""
    value = facts.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < LARGEST_SIDE:
        return None
    return float(value)


def _positions(path: Path, read_parts: ReadParts) -> tuple[np.ndarray, int | None]:
    """Return the (n, 2) positions in a file, and the side of a patch in level-0 pixels, where it is stated."""
    if path.suffix == ".h5":
        attributes, stored = read_parts(path, ("coords",), "coords")
        return stored[:, :2] if stored.ndim == 2 else stored, _side(attributes["coords"])
    if path.suffix == ".npy":
        with refusing(path, "positions of patches that can be read", *UNREADABLE):
            return np.array(memory_mapped(path)), None
    with opened_archive(path) as archive:
        alone = coords_name(archive.files) or ("arr_0" if "arr_0" in archive.files else None)
        if alone is None and not {"x", "y"} <= set(archive.files):
            raise bag_error(path, "arrays named x and y, or coords", ", ".join(archive.files) or "nothing")
        columns = [_member(path, archive, name) for name in ((alone,) if alone else ("x", "y"))]
    return columns[0] if alone else np.stack(columns, 1), None


def _side(attributes: Mapping[str, Any]) -> int | None:
    """Return the side of a patch in level-0 pixels, from the attributes of TRIDENT's or CLAM's coords."""
    if (side := positive_number(attributes, "patch_size_level0")) is not None:
        return round(side)
    size, downsample = positive_number(attributes, "patch_size"), positive_number(attributes, "downsample")
    if downsample is None and positive_number(attributes, "patch_level") is None:  # of level 0
        downsample = 1.0
    return None if size is None or downsample is None else round(size * downsample)


def _rows_of_tiles(path: Path, where: Path, count: int) -> Int64[np.ndarray, "n"] | None:
    """Return which position each row of features has, None where rows and positions are in one order.

    Args:
        path: of the features.
        where: the positions are.
        count: of the positions.
    """
    if path.suffix != ".npz" or where.suffix != ".npz":
        return None
    with opened_archive(path) as archive:
        tiles = _member(path, archive, TILE) if TILE in archive.files else np.zeros(())
    if tiles.ndim != 1:
        return None
    with opened_archive(where) as archive:
        stored = _member(where, archive, TILE) if TILE in archive.files else np.arange(count)
    row_of = {number: row for row, number in enumerate(stored.ravel().tolist())}
    if len(stored) != count or len(row_of) < len(stored):
        raise bag_error(
            where, "a corner for each tile, each tile once", f"{len(row_of):,} tiles, {count:,} corners"
        )
    rows = np.array([row_of.get(number, -1) for number in tiles.ravel().tolist()], np.int64)
    if (rows < 0).any():
        raise bag_error(where, "a corner for each tile of the features", f"no tile {tiles[rows.argmin()]}")
    return rows


def _member(path: Path, archive: Any, name: str) -> np.ndarray:
    with refusing(path, f"an array {name!r} that can be read", *UNREADABLE):
        return Member(path, archive, name).read()
