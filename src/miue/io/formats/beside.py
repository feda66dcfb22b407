"""Positions of patches that a tool writes in a file of its own, beside the features or in a folder next to theirs.

slideflow: ``<slide>.index.npz`` (or ``.npy``) beside ``<slide>.pt`` holds the centers of tiles, and
``bags_config.json`` names the extractor. slide2vec: ``<slide>.meta.json`` beside ``tile_embeddings/<slide>.pt``
states encoder and side of a tile, and ``tiles/<slide>.coordinates.npz`` holds the corners; rows of
``<slide>.npz`` are joined to them by ``tile_index``; where tiles of some class alone were encoded, they are in
``tile_embeddings/<class>`` and ``tiles/<class>``. torchmil:
``coords/<bag>.npy`` lies next to ``features/<extractor>/``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags.coords import grid_step
from miue.common.text import shortened
from miue.io.formats.arrays import UNREADABLE, Member, memory_mapped, opened_archive
from miue.io.formats.base import OpenFile, bag_error, refusing, scale_at, scale_in_words, scale_over

INDICES = (".index.npz", ".index.npy")
COORDINATES = ".coordinates.npz"
TILE = "tile_index"
CENTERS = "coords of slideflow are centers; corners lie half the step of the grid from them"
NO_CORNERS = "coords of slideflow are centers, and left out where no grid shows how far corners lie from them"
NO_TILES = "no tiles/<slide>.coordinates.npz of slide2vec, which has the positions of patches"
UNREAD = "the extractor and scale of slideflow in {path!r} cannot be read ({wrong}), and are left out"
FIX_OF_META = "write it again with slide2vec; if another tool wrote it, move it elsewhere"
MAGNIFICATION = re.compile(r"([1-9][0-9]{0,2}(?:\.[0-9]{1,3})?)x", re.IGNORECASE)
LARGEST_SIDE = 1 << 31  # of a tile
LARGEST_TEXT = 1 << 20  # bytes of a JSON file that says what features are


def holds_positions(path: Path) -> bool:
    """Return whether a file holds the positions of the patches of another one, and is no bag itself."""
    for ending in INDICES:
        if path.name.endswith(ending) and path.name != ending:
            name = path.name.removesuffix(ending)
            return path.with_name(f"{name}.pt").exists()
    if path.name.endswith(COORDINATES):
        return path.with_name(path.name.removesuffix("npz") + "meta.json").exists()
    return False


def with_positions_beside(path: Path, file: OpenFile) -> OpenFile:
    """Return the file with the positions that another file holds for it, if it has none of its own.

    Args:
        path: the file of features.
        file: while it is open.

    Raises:
        DataError: a file beside that is damaged, or no such file as the tool writes.
    """
    if file.coords is not None:
        return file
    for known in (_of_slideflow, _of_slide2vec, _of_torchmil):
        found = known(path, file)
        if found is not None:
            return found
    return file


def _of_slideflow(path: Path, file: OpenFile) -> OpenFile | None:
    places = [path.with_name(path.stem + ending) for ending in INDICES] if path.suffix == ".pt" else []
    index = next((one for one in places if one.exists()), None)
    if index is None:
        return None
    config = path.with_name("bags_config.json")
    facts, wrong = _facts(config)
    unread = (UNREAD.format(path=str(config), wrong=wrong),) if wrong else ()
    extractor = facts.get("extractor", "")
    name = extractor.get("class", "") if isinstance(extractor, dict) else extractor
    coords, note = _corners(_positions(index, "arr_0"))
    return replace(
        file,
        format="slideflow",
        coords=None if coords is None else lambda: coords,
        extractor=file.extractor or str(name),
        patch_scale=_scale_of_slideflow(facts),
        notes=(*file.notes, note, *unread),
    )


def _scale_of_slideflow(facts: Mapping[str, Any]) -> str:
    """Return the scale of tiles, of which ``tile_um`` is the side in µm or a magnification such as "10x"."""
    pixels, side = facts.get("tile_px"), facts.get("tile_um")
    if not isinstance(pixels, int) or not 0 < pixels < LARGEST_SIDE:
        return ""
    if isinstance(side, str):
        at = MAGNIFICATION.fullmatch(side)
        return scale_at(float(pixels), float(at[1])) if at else ""
    if not isinstance(side, int | float) or not 0 < side < LARGEST_SIDE:
        return ""
    return scale_over(float(pixels), float(side))


def _of_slide2vec(path: Path, file: OpenFile) -> OpenFile | None:
    meta = path.with_name(f"{path.stem}.meta.json")
    facts, wrong = _facts(meta)
    if wrong:
        raise bag_error(
            meta, "JSON that says where slide2vec put the patches of these features", wrong, FIX_OF_META
        )
    stated = facts.get("coordinates_npz_path")
    if not isinstance(stated, str) or not stated.endswith(".npz"):
        return None
    name, kind = path.stem + COORDINATES, path.parent
    places = (kind.parent / "tiles" / name, kind.parent.parent / "tiles" / kind.name / name, Path(stated))
    where = next((one for one in places if one.is_file()), None)
    tiles = _tiles_of_rows(path)
    pixels, spacing = _size(facts, "requested_tile_size_px"), _size(facts, "requested_spacing_um")
    return replace(
        file,
        format="slide2vec",
        coords=None if where is None else lambda: _corners_of_tiles(where, tiles),
        patch_size=_size(facts, "tile_size_lv0"),
        extractor=file.extractor or str(facts.get("encoder_name") or ""),
        patch_scale=scale_in_words(pixels, spacing),
        notes=file.notes if where is not None else (*file.notes, NO_TILES),
    )


def _tiles_of_rows(path: Path) -> np.ndarray | None:
    """Return the number of the tile of each row of features, None of a file that does not say it."""
    if path.suffix != ".npz":
        return None
    with opened_archive(path) as archive, refusing(path, "numbers of tiles that can be read", *UNREADABLE):
        return Member(path, archive, TILE).read() if TILE in archive.files else None


def _corners_of_tiles(path: Path, tiles: np.ndarray | None) -> np.ndarray:
    """Return the corners of the tiles of these numbers, of all in their order without numbers.

    Raises:
        DataError: damaged, or without such a tile.
    """
    corners = _positions(path, "x", "y")
    if tiles is None or tiles.ndim != 1 or len(corners) == 0:
        return corners
    with opened_archive(path) as archive:
        is_numbered = TILE in archive.files
    stored = _positions(path, TILE) if is_numbered else np.arange(len(corners))
    row_of = {number: row for row, number in enumerate(stored.tolist())}
    if len(stored) != len(corners) or len(row_of) < len(stored):
        raise bag_error(
            path, "a corner for each tile, each tile once", f"{len(row_of):,} tiles, {len(corners):,} corners"
        )
    rows = [row_of.get(number, -1) for number in tiles.tolist()]
    if -1 in rows:
        raise bag_error(path, "a corner for each tile of the features", f"no tile {tiles[rows.index(-1)]}")
    found: np.ndarray = corners[rows]
    return found


def _size(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the positive number of that name, None where there is none."""
    value = facts.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < LARGEST_SIDE:
        return None
    return float(value)


def _of_torchmil(path: Path, file: OpenFile) -> OpenFile | None:
    folder = path.parent.parent
    where = folder.parent / "coords" / path.name
    if folder.name != "features" or path.suffix != ".npy" or not where.is_file():
        return None
    return replace(
        file,
        format="torchmil",
        coords=lambda: _positions(where),
        extractor=file.extractor or path.parent.name.removeprefix("features_"),
    )


def _facts(path: Path) -> tuple[Mapping[str, Any], str]:
    """Return what a JSON file says of features, nothing where there is none; and what is wrong with it, or ""."""
    try:
        if (size := path.stat().st_size) > LARGEST_TEXT:
            return {}, f"{size:,} bytes, more than such a file has"
        facts = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        return {}, error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        return {}, shortened(f"no JSON: {error}")
    return (facts, "") if isinstance(facts, dict) else ({}, f"JSON of type {type(facts).__name__}")


def _positions(path: Path, *names: str) -> np.ndarray:
    """Return the (n, 2) positions in a file, in one array or in two of these names.

    Raises:
        DataError: damaged, or without such arrays.
    """
    with refusing(path, "positions of patches that can be read", *UNREADABLE):
        if path.suffix == ".npy":
            return np.array(memory_mapped(path))
        with opened_archive(path) as archive:
            if not set(names) <= set(archive.files):
                raise bag_error(path, f"arrays named {' and '.join(names)}", ", ".join(archive.files) or "nothing")
            columns = [Member(path, archive, name).read() for name in names]
    return columns[0] if len(columns) == 1 else np.stack(columns, 1)


def _corners(centers: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Return the corners of tiles, from their centers, and what to know of them; None where no grid is known."""
    if centers.ndim != 2 or centers.shape[1] != 2 or centers.dtype.kind not in "iuf" or not len(centers):
        return centers, CENTERS  # refused with all other coords, or of a slide without tissue
    step = grid_step(np.nan_to_num(centers).round().astype(np.int64))
    if step is None:
        return None, NO_CORNERS
    corners: np.ndarray = np.asarray(centers, np.float64) - step // 2
    return corners, CENTERS
