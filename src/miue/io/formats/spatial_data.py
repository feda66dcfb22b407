"""SpatialData stores of lazyslide: a Zarr folder for each slide, with a table for each encoder.

``<slide>.zarr/tables/<encoder>_<tiles>`` is a table of AnnData: its ``X`` (n, D) has the features, its
``obs/tile_id`` the numbers of the tiles. ``shapes/<tiles>/shapes.parquet`` has the outline of each tile in level-0
pixels, by its number. Such a table is a bag, with the name of its store. Zarr is read in its versions 2 and 3.

A store is a folder that anyone may have made. Codecs other than those named here are refused before Zarr sees
them, as some can run code; so are links, and files that are no plain ones. What is left is read in a process of
its own, as HDF5 is (``miue.io.formats.child``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from miue.common.errors import import_extra
from miue.common.numbers import LARGEST_COORD
from miue.io.formats.base import (
    STORE,
    TABLES,
    OpenFile,
    bag_error,
    files_below,
    is_table,
    read_metadata,
    refuse_bytes,
    refusing,
    scale_in_words,
)

SHAPES, OUTLINES = "shapes", "shapes.parquet"
CODECS = (
    *("bytes", "transpose", "sharding_indexed", "crc32c"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "lzma", "bz2", "shuffle"),
)
FEATURES = "X"


def is_spatial_data(path: Path) -> bool:
    """Return whether a path is that of a SpatialData store of a slide: a Zarr folder with tables or shapes."""
    return path.suffix.lower() == STORE and ((path / TABLES).is_dir() or (path / SHAPES).is_dir())


def feature_tables(store: Path) -> dict[str, str]:
    """Return the tables of a store that hold features of tiles: what each can be asked for by, and its name.

    A table is one of features where it is called after an encoder and the tiles that it describes, as lazyslide
    calls them ("uni_tiles" of "tiles"); see ``_tiles_of``.

    Raises:
        DataError: metadata that cannot be read.
    """
    folder = store / TABLES
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = {}
    for name in names:
        tiles = _tiles_of(folder / name)
        if tiles and name.endswith(f"_{tiles}") and name != f"_{tiles}":
            found[name] = name.removesuffix(f"_{tiles}")
    return found


def table_asked_for(store: Path, feature_key: str) -> Path:
    """Return the table of features of a store, or the store itself where there is none, which is then refused.

    Args:
        store: of a slide.
        feature_key: name of the table, with or without the tiles' ("uni_tiles" or "uni"); "" for the only one.

    Raises:
        DataError: several, and none of them asked for; or metadata that cannot be read.
    """
    if _is_name(feature_key) and (store / TABLES / feature_key).is_dir():
        return store / TABLES / feature_key
    tables = feature_tables(store)
    chosen = [name for name, encoder in tables.items() if not feature_key or encoder == feature_key]
    if len(chosen) > 1:
        raise bag_error(
            store,
            "one table of features, or the name of the one to read",
            f"tables {', '.join(chosen)}",
            f"name one: feature_key={chosen[0]}",
        )
    return store / TABLES / chosen[0] if chosen else store


@contextmanager
def open_spatial_data(path: Path) -> Iterator[OpenFile]:
    """Open a table of features in a SpatialData store, of which the features are read where they are sliced.

    Raises:
        DataError: no such table, one that is damaged, or links, codecs or sizes that a whole one has not.
        ConfigError: Zarr is not installed.
    """
    if not is_table(path):
        tables = sorted((path / TABLES).iterdir()) if (path / TABLES).is_dir() else []
        names = ", ".join(one.name for one in tables if one.is_dir())
        raise bag_error(
            path,
            "a table of features of tiles, of the name that was asked for, if one was",
            f"tables {names}" if names else "no table",
            "extract features of its tiles with lazyslide, or leave the store out (skip_bad=True)",
        )
    features = _array(path, path / FEATURES)
    _refuse_unwritten(path, features)
    store, tiles = path.parent.parent, _tiles_of(path)
    key = _attributes(path).get("instance_key", "tile_id")
    outlines = store / SHAPES / tiles / OUTLINES
    coords: Callable[[], np.ndarray] | None = None
    notes: tuple[str, ...] = ()
    if not tiles or not _is_name(key):
        notes = ("its table does not say which tiles it describes: without coords",)
    elif not outlines.is_file() or not (path / "obs" / key).is_dir():
        notes = (f"no outlines of its tiles by {key!r} ({SHAPES}/{tiles}): without coords",)
    elif not _are_in_pixels(_attributes(outlines.parent)):
        notes = ("outlines of its tiles are not in level-0 pixels: without coords",)
    else:
        coords = partial(_corners, path, outlines, key)
    yield OpenFile(
        format="lazyslide",
        features=features,
        coords=coords,
        patch_size=None if coords is None else _side(_attributes(store), tiles),
        extractor=path.name.removesuffix(f"_{tiles}") if tiles else path.name,
        patch_scale=_scale(_attributes(store), tiles),
        notes=notes,
    )


def _refuse_unwritten(path: Path, features: Any) -> None:
    """Raise where chunks of features were never written, which Zarr reads as zeros."""
    needed, written = features.nchunks, features.nchunks_initialized
    if features.size and written < needed:
        fix = "extract these features again: the extraction was ended before it was done"
        got = f"{written:,} of {needed:,} chunks of shape {features.chunks}"
        raise bag_error(path, f"every row of {FEATURES!r} to be written", got, fix)


def _array(path: Path, folder: Path) -> Any:
    """Return an array of a store, opened; ``path`` names the bag in messages."""
    zarr = import_extra("zarr", f"bag file {str(path)!r}", "zarr")
    zarr.config.set({"threading.max_workers": 1})  # each thread takes of the memory that the process may have
    if not folder.is_dir():
        raise bag_error(path, f"an array {folder.name!r}", "none")
    for file in files_below(folder):
        if file.is_symlink() or not file.is_file():
            raise bag_error(path, "chunks in plain files", f"a link or another kind of file, {file.name!r}")
    _refuse_codecs(path, folder)
    with refusing(path, f"an array {folder.name!r} that Zarr can open", Exception):
        array = zarr.open_array(store=str(folder), mode="r")
    for shape in (array.shape, array.chunks, array.shards or ()):
        refuse_bytes(folder, math.prod(map(int, shape)) * array.dtype.itemsize)
    return array


def _refuse_codecs(path: Path, folder: Path) -> None:
    """Raise unless the chunks of an array are stored by known codecs alone."""
    newer, older = (_json(path, folder / name) for name in ("zarr.json", ".zarray"))
    if not older and newer.get("node_type") != "array":  # as that of sparse rows is none
        raise bag_error(path, f"an array {folder.name!r}, with a number in each place", "no such array")
    named = list(_codecs(newer.get("codecs", [])))
    named += [one for one in (older.get("compressor"), *(older.get("filters") or [])) if one is not None]
    for codec in named:
        name = codec.get("id", codec.get("name")) if isinstance(codec, Mapping) else codec
        if name not in CODECS:
            raise bag_error(path, f"chunks stored by one of {', '.join(CODECS)}", f"by {name!r}")


def _codecs(stated: Any) -> Iterator[Any]:
    """Return the codecs in a list, and those within them, as chunks within a shard have some."""
    for codec in stated if isinstance(stated, list) else [stated]:
        yield codec
        within = codec.get("configuration", {}) if isinstance(codec, Mapping) else {}
        for name in ("codecs", "index_codecs"):
            if isinstance(within, Mapping) and name in within:
                yield from _codecs(within[name])


def _attributes(node: Path) -> Mapping[str, Any]:
    """Return the attributes of a group of a store, those of Zarr 3 or of Zarr 2, none where it has none."""
    attributes = _json(node, node / "zarr.json").get("attributes") or _json(node, node / ".zattrs")
    return attributes if isinstance(attributes, Mapping) else {}


def _json(path: Path, file: Path) -> Mapping[str, Any]:
    """Return what a file of metadata says, nothing where there is none."""
    if file.is_symlink():
        raise bag_error(path, f"metadata {file.name!r} in a plain file", "a link")
    return read_metadata(file, path)


def _tiles_of(table: Path) -> str:
    """Return the name of the tiles that a table describes, "" where neither it nor its own name says one.

    Of a table that AnnData alone wrote, without SpatialData, the name says it, such as "uni_tiles".
    """
    attributes, shapes = _attributes(table), table.parent.parent / SHAPES
    if attributes.get("region") is not None or not shapes.is_dir():
        return _region(attributes)
    outlined = [one.name for one in shapes.iterdir() if (one / OUTLINES).is_file()]
    return max((name for name in outlined if table.name.endswith(f"_{name}")), key=len, default="")


def _region(attributes: Mapping[str, Any]) -> str:
    """Return the name of the tiles that a table describes, "" where it does not say one."""
    region = attributes.get("region", "")
    region = region[0] if isinstance(region, list) and len(region) == 1 else region
    return region if _is_name(region) else ""


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def _are_in_pixels(attributes: Mapping[str, Any]) -> bool:
    """Return whether outlines are where they are: no transformation is stated but the identity."""
    stated = attributes.get("coordinateTransformations") or []
    return all(isinstance(one, Mapping) and one.get("type") == "identity" for one in stated)


def _corners(path: Path, outlines: Path, key: str) -> Float64[np.ndarray, "n 2"]:
    """Return the least x and y of the tile of each row of a table."""
    import pyarrow.parquet as pq
    import shapely

    numbers = _array(path, path / "obs" / key)
    with refusing(path, f"the number of the tile of each row ({key})", Exception):
        of_rows = np.asarray(numbers[...])
    if of_rows.ndim != 1 or of_rows.dtype.kind not in "iu":
        raise bag_error(path, f"the number of the tile of each row ({key})", f"{of_rows.dtype} of {of_rows.shape}")
    what = f"outlines of tiles by {key!r} in {outlines.parent.name}/{OUTLINES}"
    if outlines.is_symlink():
        raise bag_error(path, f"{what}, a plain file", "a link")
    with refusing(path, what, Exception):
        table = pq.ParquetFile(outlines).read([key, "geometry"])
        stored, shapes = table[key].to_numpy(), table["geometry"].to_numpy()
        corners = np.asarray(shapely.bounds(shapely.from_wkb(shapes)), np.float64)[:, :2]
    row_of = {number: row for row, number in enumerate(stored.tolist())}
    if len(row_of) < len(stored):
        raise bag_error(path, f"{what}, each tile once", f"{len(stored):,} outlines of {len(row_of):,} tiles")
    rows = [row_of.get(number, -1) for number in of_rows.tolist()]
    if -1 in rows:
        raise bag_error(path, f"{what}, for every row", f"no tile {of_rows[rows.index(-1)]}")
    return corners.reshape(-1, 2)[np.array(rows, np.int64)]


def _side(attributes: Mapping[str, Any], tiles: str) -> float | None:
    """Return the side of tiles in level-0 pixels as the attributes of a store say it, None where they do not."""
    side, downsample = _tile_spec(attributes, tiles, "base_downsample")
    return None if side is None or downsample is None else float(int(side * downsample))


def _scale(attributes: Mapping[str, Any], tiles: str) -> str:
    """Return the scale of tiles as the attributes of a store say it."""
    return scale_in_words(*_tile_spec(attributes, tiles, "mpp"))


def _tile_spec(attributes: Mapping[str, Any], tiles: str, name: str) -> tuple[float | None, float | None]:
    """Return the side of square tiles, in pixels of their own, and the number ``name``, None where not stated."""
    specified = attributes.get("tile_spec")
    stated = specified.get(tiles) if isinstance(specified, Mapping) else None
    facts = stated if isinstance(stated, Mapping) else {}
    values = [facts.get(key) for key in ("width", "height", name)]
    width, height, other = (
        float(value) if isinstance(value, int | float) and 0 < value < LARGEST_COORD else None for value in values
    )
    return width if width == height else None, other
