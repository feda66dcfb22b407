"""Outlines of tumor drawn on slides, and which patches they make positive.

Two kinds of file are read: CAMELYON16's ASAP XML, and GeoJSON as QuPath exports it. Files from outside are
untrusted: XML that declares entities or a document type is refused (defusedxml), GeoJSON is only data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from shapely import area, box, get_coordinates, intersection, make_valid, prepare, union_all
from shapely.errors import ShapelyError
from shapely.geometry import GeometryCollection, MultiPolygon, Polygon, shape
from shapely.geometry.base import BaseGeometry
from shapely.strtree import STRtree

from miue.bags.coords import LARGEST_COORD
from miue.common.errors import DataError, StorageError, lacking, not_readable
from miue.common.files import files_with_endings
from miue.pathology.files_by_name import FilesByName

LEAST_TUMOR = 0.2  # share of a patch's area; Liu & Ji 2024
SUFFIXES = (".xml", ".geojson", ".json", ".annotations")
OTHERS_OF_QUPATH = re.compile(
    r"Path(Detection|Cell|Tile|TMACore|Root)Object"
)  # ids of what is no annotation, up to 0.3
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


@dataclass(frozen=True)
class Groups:
    """What the groups of outlines (or QuPath's classes) mean, by name in any case.

    CAMELYON16 names its tumor "_0" and "_1" (or "Tumor"), and what is cut out of it "_2" (or "Exclusion").

    Attributes:
        positive: tumor.
        excluded: cut out of it.
        ignored: neither.
    """

    positive: tuple[str, ...] = ("tumor", "tumour", "_0", "_1", "metastases")
    excluded: tuple[str, ...] = ("exclusion", "_2", "normal")
    ignored: tuple[str, ...] = ()

    def meaning(self, group: str) -> str | None:
        """Return "positive", "excluded" or "ignored", or None for an unknown group."""
        for meaning in ("positive", "excluded", "ignored"):
            if group.lower() in [name.lower() for name in getattr(self, meaning)]:
                return meaning
        return None


def read_tumor(path: Path, groups: Groups = Groups()) -> BaseGeometry:
    """Return the area of tumor that an annotation outlines, in level-0 pixels.

    Positive polygons are united, and excluded ones subtracted; one of an unknown group is an error, so that none
    is passed over by a misspelled name.

    Args:
        path: ASAP XML, or GeoJSON of QuPath.
        groups: which are tumor, which are cut out of it, which are neither.

    Raises:
        StorageError: the file cannot be read, is not of its kind, or declares entities.
        DataError: a polygon of no known group, an outline of area zero, or no tumor at all.
    """
    read = _asap if path.suffix.lower() in (".xml", ".annotations") else _geojson
    areas: dict[str, list[BaseGeometry]] = {"positive": [], "excluded": [], "ignored": []}
    for number, (group, outlined) in enumerate(read(path), 1):
        meaning = groups.meaning(group)
        if meaning is None:
            raise DataError(
                item=f"annotation {str(path)!r}",
                wanted=f"polygons of a group among {', '.join((*groups.positive, *groups.excluded))}",
                got=repr(group) if group else "one without a group or class",
                fix="pass its name with --positive, --exclude or --ignore"
                if group
                else "give it one, or remove it",
            )
        drawn = _mended(outlined)
        if not drawn.area > 0 and meaning != "ignored":
            raise DataError(
                item=f"annotation {str(path)!r}, outline {number} ({group})",
                wanted="an outline around an area",
                got="one of area 0",
                fix="draw it again, or remove it where it outlines nothing",
            )
        areas[meaning].append(drawn)
    if not areas["positive"]:
        raise lacking(
            f"annotation {str(path)!r}",
            "a polygon of tumor",
            "remove the file where the slide has no tumor, and pass --unannotated negative",
        )
    tumor = union_all(areas["positive"]).difference(union_all(areas["excluded"]))
    if not tumor.area > 0:
        raise DataError(
            item=f"annotation {str(path)!r}",
            wanted="some tumor outside of what is excluded",
            got="none: all of it is cut out",
            fix="correct the outlines, or name the groups with --positive, --exclude and --ignore",
        )
    return tumor


def tumor_share(tumor: BaseGeometry, coords: Int64[np.ndarray, "n 2"], side: int) -> np.ndarray:
    """Return the share (n,) of each patch's area that is tumor.

    Args:
        tumor: polygons in level-0 pixels.
        coords: top left corners in level-0 pixels.
        side: of a patch in level-0 pixels.

    >>> tumor_share(box(0, 0, 5, 10), np.array([[0, 0], [10, 0]]), 10).tolist()
    [0.5, 0.0]
    """
    patches = box(coords[:, 0], coords[:, 1], coords[:, 0] + side, coords[:, 1] + side)
    parts = list(tumor.geoms) if hasattr(tumor, "geoms") else [tumor]
    share = np.zeros(len(coords))
    tree = STRtree(patches)
    for part in parts:
        prepare(part)
        inside = tree.query(part, predicate="contains")
        crossed = np.setdiff1d(tree.query(part, predicate="intersects"), inside)
        share[inside] = side**2
        share[crossed] += area(intersection(patches[crossed], part))
    return share / side**2


def is_tumor(share: np.ndarray, least: float = LEAST_TUMOR) -> Bool[np.ndarray, "n"]:
    """Return which patches are positive: at least ``least`` of their area is tumor, to a billionth of it."""
    return np.asarray(share >= least - 1e-9)


class AnnotationFiles(FilesByName):
    """The annotations in a folder: ``<slide>.xml``, ``<slide>.geojson`` or ``<slide>.json`` in any case."""

    @classmethod
    def at(cls, folder: Path) -> AnnotationFiles:
        """Return the annotations of a folder, which is looked through once for all slides.

        Raises:
            StorageError: no such folder, or one that may not be read.
        """
        named = files_with_endings(folder, SUFFIXES, "a folder of annotations", "check --annotations")
        return cls.index(folder, sorted(named, key=lambda file: SUFFIXES.index(file.suffix.lower())))

    def of_slide(self, slide: str) -> Path | None:
        """Return the annotation of a slide, None if there is none.

        Raises:
            DataError: two of them.
        """
        files = self.named(slide)
        if len(files) > 1:
            raise DataError(
                item=f"slide {slide!r}",
                wanted="one annotation",
                got=", ".join(file.name for file in files),
                fix="remove all but one",
            )
        return files[0] if files else None

    def of_others(self, slides: Collection[str]) -> list[str]:
        """Return the names of the annotations that are of none of the slides, sorted."""
        read = {file for slide in slides for file in self.named(slide)}
        every = (file for files in self.by_name[0].values() for file in files)
        return sorted(file.name for file in every if file not in read and not file.name.startswith("."))


def _asap(path: Path) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield group and outline of each annotation of ASAP's XML."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, parse

    try:
        root = parse(path, forbid_dtd=True).getroot()
        if next(root.iter("Region"), None) is not None:
            raise StorageError(
                item=f"annotation {str(path)!r}",
                wanted="ASAP's XML, or GeoJSON as QuPath writes it",
                got="regions of Aperio ImageScope or HALO",
                fix="convert it to one of these",
            )
        for drawn in root.iter("Annotation"):
            corners = sorted(drawn.iter("Coordinate"), key=lambda corner: float(corner.attrib["Order"]))
            outline = [(float(corner.attrib["X"]), float(corner.attrib["Y"])) for corner in corners]
            if len(outline) < 3:
                if drawn.attrib.get("Type", "").lower() in ("polygon", "spline"):
                    raise ValueError(f"an outline of {len(outline)} corners")
                continue  # a dot or a ruler
            yield drawn.attrib["PartOfGroup"], Polygon(_finite(outline))
    except (OSError, KeyError, ValueError, ParseError, DefusedXmlException, ShapelyError) as error:
        raise _unreadable(path, "ASAP's XML, without entities or document type", error) from error


def _geojson(path: Path) -> Iterator[tuple[str, BaseGeometry]]:
    """Yield class and area of each annotation of QuPath's GeoJSON; one of no class is named ''."""
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
                yield str(named.get("name", "")), outlined
    except UNREADABLE as error:
        raise _unreadable(path, "GeoJSON as QuPath writes it", error) from error


def _finite(corners: Any) -> Any:
    if not (np.abs(corners) <= LARGEST_COORD).all():  # nor is NaN
        raise ValueError(f"a corner that is not finite, or beyond {LARGEST_COORD:,} pixels")
    return corners


def _mended(outlined: BaseGeometry) -> BaseGeometry:
    """Return the area; outlines drawn by hand may cross themselves."""
    if outlined.is_valid:
        return outlined
    polygons = getattr(outlined, "geoms", (outlined,))  # make_valid would fill a hole that shares an edge
    return union_all(
        [_filled(one.exterior).difference(union_all(list(map(_filled, one.interiors)))) for one in polygons]
    )


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
