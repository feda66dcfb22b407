"""Outlines drawn on slides, as the files of other tools hold them: a reader for each kind of file.

They are read from ASAP's XML (CAMELYON16), XML of Aperio ImageScope, ``.annotations`` of HALO, and GeoJSON as
QuPath exports it. Files are untrusted: XML that declares entities or a document type is refused (defusedxml),
GeoJSON is only data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from shapely import affinity, box, get_coordinates, make_valid, union_all
from shapely.errors import ShapelyError
from shapely.geometry import GeometryCollection, LineString, MultiPolygon, Point, Polygon, shape
from shapely.geometry.base import BaseGeometry

from miue.common.errors import StorageError, not_readable
from miue.common.files import open_file
from miue.common.numbers import LARGEST_COORD

SUFFIXES = (".xml", ".geojson", ".json", ".annotations")
OTHERS_OF_QUPATH = re.compile(r"Path(Detection|Cell|Tile|TMACore|Root)Object")
"""Ids of what is no annotation, up to QuPath 0.3."""
RECTANGLES, ELLIPSES = ("1", "Rectangle"), ("2", "Ellipse")
WITHOUT_AREA = ("3", "4", "Arrow", "Ruler", "Pin")
"""Types of regions, by number in ImageScope and by name in HALO; all others are polygons."""
QUARTER = 32  # corners of a quarter of an ellipse
UNREADABLE = (
    OSError,
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    ShapelyError,
)
"""What JSON and shapely raise where a file holds no outlines."""


def outlines(path: Path) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield group and area of each annotation, in level-0 pixels; the group of one without group or class is "".

    Raises:
        StorageError: the file cannot be read, is not of its kind, or declares entities.
    """
    open_file(path, f"annotation {str(path)!r}").close()
    if path.suffix.lower() not in (".xml", ".annotations"):
        yield from _of_geojson(path)
        return
    root = _xml(path)
    if root.tag not in READERS:
        raise StorageError(
            item=f"annotation {str(path)!r}",
            wanted=f"XML of {' or '.join(name for name, _ in READERS.values())}",
            got=f"an element {root.tag!r}",
            fix="export the annotation again",
        )
    kind, read = READERS[root.tag]
    try:
        yield from read(root)
    except (KeyError, ValueError, ShapelyError) as error:
        raise _unreadable(path, f"XML of {kind}", error) from error


def mended(outlined: BaseGeometry) -> BaseGeometry:
    """Return the area; outlines drawn by hand may cross themselves."""
    if outlined.is_valid:
        return outlined
    polygons = getattr(outlined, "geoms", (outlined,))  # make_valid would fill a hole that shares an edge
    return union_all(
        [_filled(one.exterior).difference(union_all(list(map(_filled, one.interiors)))) for one in polygons]
    )


def _xml(path: Path) -> Any:
    """Return the root of an XML file."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, parse

    try:
        return parse(path, forbid_dtd=True).getroot()
    except (OSError, ValueError, ParseError, DefusedXmlException) as error:
        raise _unreadable(path, "XML, without entities or document type", error) from error


def _of_asap(root: Any) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield group and outline of each annotation of ASAP's XML."""
    for drawn in root.iter("Annotation"):
        corners = sorted(drawn.iter("Coordinate"), key=lambda corner: float(corner.attrib["Order"]))
        outline = [(float(corner.attrib["X"]), float(corner.attrib["Y"])) for corner in corners]
        if len(outline) < 3:
            if drawn.attrib.get("Type", "").lower() in ("polygon", "spline"):
                raise ValueError(f"an outline of {len(outline)} corners")
            continue  # a dot or a ruler
        yield drawn.attrib["PartOfGroup"], Polygon(_finite(outline))


def _of_layers(root: Any) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield layer and area of each region of ImageScope or HALO, without the negative regions of the layer.

    A layer without a name is called by its description, else "layer" and its number.
    """
    for number, layer in enumerate(root.iter("Annotation"), 1):
        name = layer.attrib.get("Name", "").strip() or _description(layer)
        name = name or f"layer {layer.attrib.get('Id', number)}"
        drawn = [(region.attrib.get("NegativeROA") == "1", _region(region)) for region in layer.iter("Region")]
        regions = [(is_hole, mended(area)) for is_hole, area in drawn if area is not None]
        holes = union_all([area for is_hole, area in regions if is_hole])
        for is_hole, area in regions:
            left = area.difference(holes)
            if not is_hole and (left.area > 0 or not area.area > 0):  # else a negative region covers it
                yield name, left


def _description(layer: Any) -> str:
    """Return what a layer of ImageScope is said to be, in place of a name."""
    said = [
        one.attrib.get("Value", "") for one in layer.iter("Attribute") if one.attrib.get("Name") == "Description"
    ]
    return said[0].strip() if said else ""


def _region(region: Any) -> BaseGeometry | None:
    """Return the shape of a region, None of one that outlines nothing; the corners are of level 0."""
    kind = region.attrib.get("Type", "")
    corners = [
        (float(corner.attrib["X"]), float(corner.attrib["Y"]))
        for tag in ("Vertex", "V")
        for corner in region.iter(tag)
    ]
    _finite(corners)
    if kind in WITHOUT_AREA or region.attrib.get("HasEndcaps", "0") == "1":
        return None
    if len(corners) == 2 and kind in (*RECTANGLES, *ELLIPSES):
        low, high = np.min(corners, 0), np.max(corners, 0)
        if kind in RECTANGLES:
            return box(*low, *high)
        circle = Point(0, 0).buffer(1, quad_segs=QUARTER)
        width, height = (high - low) / 2
        return affinity.translate(affinity.scale(circle, width, height), *((low + high) / 2))
    if len(corners) < 3:
        raise ValueError(f"a region of {len(corners)} corners")
    is_line = kind == "Polygon" and corners[0] != corners[-1]  # of HALO, whose polygons end where they begin
    return LineString(corners) if is_line else Polygon(corners)


READERS = {"ASAP_Annotations": ("ASAP", _of_asap), "Annotations": ("ImageScope or HALO", _of_layers)}
"""What makes an XML file, and its reader, by the outermost element."""


def _of_geojson(path: Path) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield class and area of each annotation of QuPath's GeoJSON; one of no class is named ''.

    A derived class, written as ``"names": ["Tumor", "Positive"]``, is named as QuPath shows it: "Tumor: Positive".
    """
    try:
        content = json.loads(path.read_bytes())
        features = content if isinstance(content, list) else content.get("features", [content])
        for feature in features:
            properties: dict[str, Any] = feature.get("properties") or {}
            is_other = OTHERS_OF_QUPATH.fullmatch(str(feature.get("id")))
            if properties.get("objectType", "" if is_other else "annotation") != "annotation":
                continue  # detections and cells
            named = properties.get("classification") or {}
            for outlined in _areas(shape(feature["geometry"])):  # of points and lines none
                _finite(get_coordinates(outlined))
                yield ": ".join(map(str, named.get("names", [named.get("name", "")]))), outlined
    except UNREADABLE as error:
        raise _unreadable(path, "GeoJSON as QuPath writes it", error) from error


def _finite(corners: Any) -> Any:
    if not (np.abs(corners) <= LARGEST_COORD).all():  # nor is NaN
        raise ValueError(f"a corner that is not finite, or beyond {LARGEST_COORD:,} pixels")
    return corners


def _filled(ring: BaseGeometry) -> BaseGeometry:
    """Return the area within a ring, which may cross itself."""
    return union_all(list(_areas(make_valid(Polygon(ring)))))


def _areas(drawn: BaseGeometry) -> Iterator[BaseGeometry]:
    """Yield a shape that has an area, or those of a collection, which may hold points and lines as well."""
    if isinstance(drawn, (Polygon, MultiPolygon)):
        yield drawn
    elif isinstance(drawn, GeometryCollection):
        for part in drawn.geoms:
            yield from _areas(part)


def _unreadable(path: Path, wanted: str, error: Exception) -> StorageError:
    return not_readable(f"annotation {str(path)!r}", wanted, error, "export the annotation again")
