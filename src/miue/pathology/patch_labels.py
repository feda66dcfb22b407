"""Labels of patches from outlines of tumor, as a table: bag_id, instance, instance_label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from miue.common.errors import lacking
from miue.common.tables import write_table
from miue.pathology.annotations import (
    LEAST_TUMOR,
    AnnotationFiles,
    Groups,
    is_tumor,
    read_tumor,
    tumor_share,
)
from miue.pathology.tile_files import read_grid


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
