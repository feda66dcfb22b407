"""QuPath GeoJSON: squares or merged regions in level-0 pixels, with what the model says of each.

Origin top left, y downwards, as QuPath has it. Layout: RFC 7946; ``objectType``, ``classification`` and
``measurements`` as QuPath reads and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from miue.common.files import atomic_file
from miue.pathology.export.patches import Patches

COLORS = ((74, 144, 217), (214, 39, 40), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233))
"""Red, green, blue of each class; they begin again after the last."""


@dataclass(frozen=True)
class Selection:
    """Which patches are exported, and as which class.

    A patch gets the most probable of the chosen classes. With a threshold it stays where that probability
    reaches it, without one where no other class is more probable.

    Attributes:
        class_names: name of every class.
        classes: numbers of the chosen classes.
        threshold: least probability, or None.
    """

    class_names: list[str]
    classes: list[int]
    threshold: float | None = None

    def of(self, patches: Patches) -> tuple[Int64[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        """Return the class of each patch, and which patches stay."""
        p = patches.probabilities
        chosen = np.asarray(self.classes, np.int64)[p[:, self.classes].argmax(1)]
        if self.threshold is None:
            return chosen, chosen == p.argmax(1)
        return chosen, p[np.arange(len(p)), chosen] >= self.threshold


def squares(patches: Patches, selection: Selection, origin: tuple[int, int] = (0, 0)) -> Iterator[dict[str, Any]]:
    """Yield one GeoJSON feature, a QuPath detection, per patch that stays.

    Args:
        patches: of one slide.
        selection: which stay.
        origin: level-0 pixel that the viewer calls (0, 0).
    """
    chosen, stays = selection.of(patches)
    for row in np.flatnonzero(stays):
        x, y = (patches.coords[row] - origin).tolist()
        right, bottom = x + patches.size, y + patches.size
        ring = [[x, y], [right, y], [right, bottom], [x, bottom], [x, y]]
        values = {f"probability {name}": p for name, p in zip(selection.class_names, patches.probabilities[row])}  # noqa: B905
        values.update({name: values_of[row] for name, values_of in patches.uncertainties.items()})
        if patches.flagged is not None:
            values["flagged"] = float(patches.flagged[row])
        yield _feature("detection", [ring], int(chosen[row]), selection.class_names, values)


def regions(patches: Patches, selection: Selection, origin: tuple[int, int] = (0, 0)) -> Iterator[dict[str, Any]]:
    """Yield one GeoJSON feature, a QuPath annotation, per connected region of patches of one class.

    Squares that share an edge are one region, squares that touch at a corner are two. Measurements are the
    number of patches, the area in level-0 pixels, mean and highest probability of the class, the mean of each
    uncertainty and, where instances were calibrated, the number of flagged patches.
    """
    import shapely

    chosen, stays = selection.of(patches)
    for number in selection.classes:
        rows = np.flatnonzero(stays & (chosen == number))
        if not len(rows):
            continue
        low = patches.coords[rows] - np.asarray(origin)
        boxes = shapely.box(low[:, 0], low[:, 1], low[:, 0] + patches.size, low[:, 1] + patches.size)
        polygons = shapely.get_parts(shapely.union_all(boxes))
        centers = shapely.points(low + patches.size / 2)
        of_center, of_polygon = shapely.STRtree(polygons).query(centers, predicate="within")
        members = rows[of_center[np.argsort(of_polygon, kind="stable")]]
        ends = np.cumsum(np.bincount(of_polygon, minlength=len(polygons)))
        for polygon, inside in zip(polygons, np.split(members, ends[:-1]), strict=True):
            values = _region_measurements(patches, inside, number, selection.class_names, polygon.area)
            yield _feature("annotation", _rings(polygon), number, selection.class_names, values)


def write_geojson(path: Path | str, features: Iterable[dict[str, Any]], metadata: Mapping[str, Any]) -> int:
    """Write a FeatureCollection, one feature per line as they come, whole or not at all; return their number.

    Args:
        path: the file.
        features: GeoJSON features.
        metadata: what a reader should know, kept as the member "miue", which other readers pass over.

    Raises:
        StorageError: the file cannot be written.
    """
    count = 0
    with atomic_file(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        head = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
        file.write(f'{{"type": "FeatureCollection", "miue": {head}, "features": [')
        for feature in features:
            file.write(",\n" if count else "\n")
            file.write(json.dumps(feature, ensure_ascii=False, allow_nan=False))
            count += 1
        file.write("\n]}\n")
    return count


def _feature(
    kind: str, rings: list[Any], number: int, names: list[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": rings},
        "properties": {
            "objectType": kind,
            "classification": {"name": names[number], "color": list(COLORS[number % len(COLORS)])},
            "measurements": {name: _short(value) for name, value in values.items() if np.isfinite(value)},
        },
    }


def _short(value: float) -> float:
    """Return the value with the digits that float32 holds; whole numbers, such as areas, as they are."""
    return float(value) if float(value).is_integer() else float(f"{value:.7g}")


def _region_measurements(
    patches: Patches, rows: Int64[np.ndarray, "k"], number: int, names: list[str], area: float
) -> dict[str, float]:
    probability = patches.probabilities[rows, number]
    values = {
        "patches": float(len(rows)),
        "area px²": area,
        f"mean probability {names[number]}": float(probability.mean()),
        f"highest probability {names[number]}": float(probability.max()),
    }
    values.update({f"mean {name}": float(u[rows].mean()) for name, u in patches.uncertainties.items()})
    if patches.flagged is not None:
        values["flagged patches"] = float(patches.flagged[rows].sum())
    return values


def _rings(polygon: Any) -> list[Any]:
    """Return the outer ring and the holes as whole numbers, without points in the middle of a straight edge."""
    from shapely.geometry.polygon import orient

    oriented = orient(polygon.simplify(0))
    return [[[round(x), round(y)] for x, y in ring.coords] for ring in (oriented.exterior, *oriented.interiors)]
