"""SpatialData stores as lazyslide writes them: attributes, names and types as its version 0.13 has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
import zarr

SIDE = 256


def lazyslide(
    folder: Path,
    name: str,
    features: np.ndarray,
    corners: np.ndarray,
    *,
    encoders: tuple[str, ...] = ("uni",),
    tiles: str = "tiles",
    zarr_format: Any = 3,
    order: np.ndarray | None = None,
    **of_array: Any,
) -> Path:
    """A store <name>.zarr with a table of features for each encoder, and the outlines of the tiles.

    Args:
        folder: where it is made.
        name: of the slide.
        features: (n, D), of the first encoder; those of the next ones are higher by 1, 2, …
        corners: (n, 2) of the tiles of these features, in level-0 pixels.
        encoders: a table for each.
        tiles: what lazyslide calls them.
        zarr_format: 2 or 3.
        order: of the tiles in the file of their outlines; as the features if None.
        of_array: how Zarr stores the features: chunks, shards, compressors.
    """
    store = folder / f"{name}.zarr"
    root = zarr.open_group(str(store), mode="w", zarr_format=zarr_format)
    spec = {"height": SIDE, "width": SIDE, "mpp": 0.5, "base_level": 0, "base_downsample": 1.002}
    root.attrs.update({"tile_spec": {tiles: spec}, "spatialdata_attrs": {"version": "0.2"}})
    numbers = np.arange(len(features)) * 3 + 7  # numbers of tiles, which are not those of rows
    for more, encoder in enumerate(encoders):
        table = root.create_group(f"tables/{encoder}_{tiles}")
        said = {"region": tiles, "region_key": "library_id", "instance_key": "tile_id"}
        table.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0", **said})
        table.create_array("X", data=features + np.asarray(more, features.dtype), **of_array)
        table.create_array("obs/tile_id", data=numbers)
    shapes = root.create_group(f"shapes/{tiles}")
    shapes.attrs.update({"encoding-type": "ngff:shapes", "coordinateTransformations": [{"type": "identity"}]})
    order = np.arange(len(features)) if order is None else order
    low = np.asarray(corners, np.float64)[order]
    boxes = shapely.box(*low.T, *(low + SIDE).T)
    columns = {
        "tile_id": numbers[order],
        "tissue_id": np.zeros(len(order), int),
        "geometry": shapely.to_wkb(boxes),
    }
    pq.write_table(pa.table(columns), store / "shapes" / tiles / "shapes.parquet")
    return store


def rewrite(file: Path, **changed: Any) -> None:
    """Change values in a JSON file of a store."""
    content = json.loads(file.read_text())
    content.update(changed)
    file.write_text(json.dumps(content))
