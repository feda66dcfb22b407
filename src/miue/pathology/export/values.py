"""All that is predicted of the patches of a slide: as HDF5 arrays, or as a GeoParquet table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from miue.common.array_files import atomic_hdf5
from miue.common.files import atomic_file
from miue.pathology.export.patches import Patches


def write_slide_arrays(path: Path, patches: Patches, class_names: Sequence[str], flags: str = "") -> None:
    """Write the n patches of a slide as HDF5, laid out as TRIDENT lays out its features; whole or not at all.

    Datasets: ``coords`` (n, 2), top left corners in level-0 pixels, with TRIDENT's attribute
    ``patch_size_level0``; ``probabilities`` (n, C) with the names of the classes as ``classes``; and one of n
    for each measure and distance score, by its column name, higher where less certain, float32. Where instances
    were calibrated, ``flagged`` with the promise as an attribute.

    Args:
        path: the file.
        patches: what is said of each.
        class_names: C names.
        flags: by which rule patches were flagged and what is promised, in words.

    Raises:
        StorageError: the file cannot be written.
    """
    with atomic_hdf5(path) as file:
        file.attrs["slide"] = patches.slide
        coords = file.create_dataset("coords", data=patches.coords, compression="gzip", shuffle=True)
        coords.attrs["patch_size_level0"] = patches.size
        coords.attrs["patch_size_from"] = patches.size_from
        for name, values in {"probabilities": patches.probabilities, **patches.uncertainties}.items():
            small = values.astype(np.float32)
            file.create_dataset(name, data=small, compression="gzip", shuffle=True)
        if patches.flagged is not None:
            file.create_dataset("flagged", data=patches.flagged, compression="gzip").attrs["promise"] = flags
        file["probabilities"].attrs["classes"] = json.dumps(list(class_names))


def write_geo_parquet(path: Path, patches: Patches, class_names: Sequence[str], flags: str = "") -> None:
    """Write the n patches of a slide as GeoParquet 1.1, a row each, whole or not at all.

    geopandas, QGIS, DuckDB and the tools around SpatialData read such tables. Squares are WKB, without a
    coordinate reference system, as positions on a slide have none.

    Columns: ``bag_id``; ``instance``, the number of the patch in its bag; ``x`` and ``y``, its top left corner in
    level-0 pixels; ``geometry``, its square; ``class``, the most probable one; ``p_0`` and so on; each measure and
    distance score, higher where less certain, in float32; ``flagged`` where instances were calibrated. Metadata
    ``miue`` names the classes of ``p_0`` and so on, the side of a patch and the promise of the flags.

    Args:
        path: the file.
        patches: what is said of each.
        class_names: C names.
        flags: by which rule patches were flagged and what is promised, in words.

    Raises:
        StorageError: the file cannot be written.
    """
    low = patches.coords
    high = low + patches.size
    squares = shapely.box(*low.T.astype(np.float64), *high.T.astype(np.float64), ccw=True)
    columns: dict[str, Any] = {
        "bag_id": pa.array([patches.slide] * len(patches), pa.string()),
        "instance": patches.instance,
        "x": low[:, 0],
        "y": low[:, 1],
        "geometry": pa.array(shapely.to_wkb(squares).tolist(), pa.binary()),
        "class": pa.array([class_names[number] for number in patches.probabilities.argmax(1)], pa.string()),
    }
    values = {f"p_{number}": of_class for number, of_class in enumerate(patches.probabilities.T)}
    columns |= {name: one.astype(np.float32) for name, one in {**values, **patches.uncertainties}.items()}
    if patches.flagged is not None:
        columns["flagged"] = patches.flagged
    said = {
        "slide": patches.slide,
        "classes": list(class_names),
        "patch_size_level0": patches.size,
        "patch_size_from": patches.size_from,
        **({"flags": flags} if flags else {}),
    }
    extent = [*low.min(0).tolist(), *high.max(0).tolist()]
    geometry = {"encoding": "WKB", "geometry_types": ["Polygon"], "crs": None, "bbox": extent}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
    metadata = {"geo": json.dumps(geo), "miue": json.dumps(said, ensure_ascii=False)}
    with atomic_file(path) as temporary:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), temporary, compression="zstd")
