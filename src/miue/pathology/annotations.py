"""Tumor outlined on slides, which patches it makes positive, and the table of their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64
from shapely import area, box, intersection, prepare, union_all
from shapely.geometry.base import BaseGeometry
from shapely.strtree import STRtree

from miue.common.errors import DataError, lacking
from miue.common.tables import write_table
from miue.pathology.outlines import SUFFIXES, mended, outlines
from miue.pathology.slides import FilesByName, files_with_endings
from miue.pathology.tile_files import read_grid

LEAST_TUMOR = 0.2  # share of a patch's area; Liu & Ji 2024


@dataclass(frozen=True)
class Groups:
    """What the groups of outlines (or QuPath's classes) mean, by name in any case.

    CAMELYON16 names its tumor "_0" and "_1" (or "Tumor"), and what is cut out of it "_2" (or "Exclusion"). A class
    of QuPath that is derived from another, "Tumor: Positive", means what that one does unless it is named itself.

    Attributes:
        positive: tumor.
        excluded: cut out of it.
        ignored: neither.
    """

    positive: tuple[str, ...] = ("tumor", "tumour", "_0", "_1", "metastases", "metastasis")
    excluded: tuple[str, ...] = ("exclusion", "_2", "normal")
    ignored: tuple[str, ...] = ()

    def meaning(self, group: str) -> str | None:
        """Return "positive", "excluded" or "ignored", or None for an unknown group."""
        meanings = ("positive", "excluded", "ignored")
        known = {name.lower(): meaning for meaning in reversed(meanings) for name in getattr(self, meaning)}
        base = group.lower()
        while base not in known and ": " in base:
            base = base.rpartition(": ")[0]
        return known.get(base)


def read_tumor(path: Path, groups: Groups = Groups(), counts: Counter[str] | None = None) -> BaseGeometry:
    """Return the area of tumor that an annotation outlines, in level-0 pixels.

    Positive polygons are united, and excluded ones subtracted; one of an unknown group is an error, so that none
    is passed over by a misspelled name. Those without a group or class, as regions of interest are, are left out.

    Args:
        path: XML of ASAP or ImageScope, ``.annotations`` of HALO, or GeoJSON of QuPath.
        groups: which are tumor, which are cut out of it, which are neither.
        counts: to which outlines without a group are added, as "unclassified".

    Raises:
        StorageError: the file cannot be read, is not of its kind, or declares entities.
        DataError: a polygon of no known group, an outline of area zero, or no tumor at all.
    """
    areas: dict[str, list[BaseGeometry]] = {"positive": [], "excluded": [], "ignored": []}
    for number, (group, outlined) in enumerate(outlines(path), 1):
        if not group:
            if counts is not None:
                counts["unclassified"] += 1
            continue
        meaning = groups.meaning(group)
        if meaning is None:
            raise DataError(
                item=f"annotation {str(path)!r}",
                wanted=f"polygons of a group among {', '.join((*groups.positive, *groups.excluded))}",
                got=repr(group),
                fix="pass its name with --positive, --exclude or --ignore",
            )
        drawn = mended(outlined)
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
            "give outlines a class; where the slide has no tumor, remove the file and pass --unannotated negative",
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
    """The annotations in a folder: ``<slide>`` and one of ``SUFFIXES`` in any case."""

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


@dataclass(frozen=True)
class Labeling:
    """How patches are labeled.

    Attributes:
        annotations: of the slides.
        least: share of a patch's area that makes it positive.
        groups: which outlines are tumor, and which are cut out of it.
        unannotated_negative: patches of a slide without annotation are negative; else that is an error.
    """

    annotations: AnnotationFiles
    least: float = LEAST_TUMOR
    groups: Groups = field(default_factory=Groups)
    unannotated_negative: bool = False


def patch_labels(features: Path, how: Labeling, counts: Counter[str] | None = None) -> Int64[np.ndarray, "n"]:
    """Return the label of each patch of one file, 1 for tumor, in the file's order.

    Args:
        features: an .h5 file with coords; its name is the slide's.
        how: by which outlines.
        counts: of what was left out, see ``read_tumor``.

    Raises:
        StorageError: a file that cannot be read.
        DataError: no annotation, or one that cannot be used.
    """
    coords, side = read_grid(features)
    outline = how.annotations.of_slide(features.stem)
    if outline is None:
        if not how.unannotated_negative:
            raise lacking(
                f"slide {features.stem!r}",
                f"an annotation {features.stem}.xml or .geojson in {str(how.annotations.folder)!r}",
                "pass --unannotated negative if slides without one have no tumor, or --unannotated skip",
            )
        return np.zeros(len(coords), np.int64)
    share = tumor_share(read_tumor(outline, how.groups, counts), coords, side)
    return is_tumor(share, how.least).astype(np.int64)


def write_patch_labels(path: Path, labels: Iterable[tuple[str, Int64[np.ndarray, "n"]]]) -> None:
    """Write labels of slides, one slide after the other, as CSV; whole or not at all."""
    slides, values = zip(*labels, strict=True)
    sizes = [len(of_slide) for of_slide in values]
    columns = {
        "bag_id": np.repeat(np.array(slides, object), sizes),
        "instance": np.concatenate([np.arange(size) for size in sizes]),
        "instance_label": np.concatenate(values),
    }
    write_table(path, columns)
