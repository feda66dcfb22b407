"""Classes of CAMELYON16's patches: outlines of tumor, or a ready table; what nobody has said stays unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, Labels
from miue.common.errors import DataError, StorageError, lacking
from miue.common.text import tracked
from miue.io import with_instance_labels
from miue.pathology.annotations import is_tumor, read_tumor, tumor_share
from miue.pathology.outlines import SUFFIXES
from papers.mirel.camelyon16.slides import PARTLY_OUTLINED, TEST, TRAINING

OUTLINES, TABLE = "annotations", "patch-labels.csv"


def with_patch_labels(
    bags: BagDataset, classes: Mapping[str, int], folder: Path, *, progress: bool = False
) -> BagDataset:
    """Return ``bags`` with the class of each patch where it is known.

    Patches of normal slides are negative. Those of tumor slides are positive from 20 % tumor and else
    negative, but unknown outside the outlines where the challenge says that these are not whole, and unknown
    altogether where there is neither an outline nor a line of the table.

    Args:
        bags: slides, with coords where outlines are to be read.
        classes: class of each slide, by its name.
        folder: with ``annotations`` (<slide>.xml of ASAP) or ``patch-labels.csv``.
        progress: show a bar.

    Raises:
        StorageError: neither is there, or a file that cannot be read.
        DataError: an annotation of a slide that CAMELYON16 does not have, tumor in a slide that is normal or
            in none at all, or features without coords.
    """
    if (folder / OUTLINES).is_dir():
        labeled = _from_outlines(bags, classes, folder / OUTLINES, progress)
    elif (folder / TABLE).is_file():
        labeled = with_instance_labels(bags, folder / TABLE)
    else:
        raise StorageError(
            item=f"{str(folder)!r}",
            wanted=f"{OUTLINES}/ with the challenge's XML files, or {TABLE}, to evaluate patches with",
            got="neither",
            fix=f"copy the XML files of both lesion_annotations folders of the challenge's data into {OUTLINES}/",
        )
    _check_some(bags, labeled.instance_labels, classes, folder)
    values, known = labeled.instance_labels.values.copy(), labeled.instance_labels.known.copy()
    for name, start, size in zip(bags.ids, bags.starts, bags.sizes, strict=True):
        patches = slice(start, start + size)
        if classes[name] == 0:
            if (known[patches] & (values[patches] == 1)).any():
                raise _tumor_in_normal(name, folder / TABLE)
            values[patches], known[patches] = 0, True
        elif name in PARTLY_OUTLINED:
            known[patches] &= values[patches] == 1
    return replace(bags, instance_labels=Labels(values, known))


def _from_outlines(bags: BagDataset, classes: Mapping[str, int], folder: Path, progress: bool) -> BagDataset:
    outlines = _outlines(folder, classes)
    values, known = np.zeros(len(bags.instances), np.int64), np.zeros(len(bags.instances), bool)
    drawn = [bag for bag, name in enumerate(bags.ids) if name in outlines]
    coords, sides, bare = bags.coords, bags.patch_sizes, set(bags.without_coords)
    for bag in tracked(drawn, "outlining", shown=progress):
        name, start, size = bags.ids[bag], bags.starts[bag], bags.sizes[bag]
        if coords is None or name in bare or sides is None or not sides[bag]:
            raise DataError(
                item=f"features of slide {name!r}",
                wanted="coords and the side of a patch, to lay the outlines over",
                got="no coords" if name in bare else "coords alone",
                fix=f"give .h5 files with coords; for CLAM put its patches/ folder beside the features, or make "
                f"{TABLE} with 'miue data patch-labels'",
            )
        patches = slice(start, start + size)
        share = tumor_share(read_tumor(outlines[name]), coords.values[patches], int(sides[bag]))
        values[patches], known[patches] = is_tumor(share), True
    return replace(bags, instance_labels=Labels(values, known))


def _outlines(folder: Path, classes: Mapping[str, int]) -> dict[str, Path]:
    """Return the annotation of each slide, by its official name.

    Raises:
        DataError: one of no slide, of a slide without tumor, or a second one of a slide.
    """
    paths: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = path.stem.lower()
        if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
            continue
        if name not in TRAINING and name not in TEST:
            raise DataError(
                item=f"annotation {str(path)!r}",
                wanted="the name of a slide, such as tumor_001.xml or test_001.xml",
                got=repr(path.stem),
                fix="name it as its slide, or take it out of the folder",
            )
        if name in paths:
            raise DataError(
                item=f"slide {name!r}",
                wanted="one annotation",
                got=f"{paths[name].name} and {path.name}",
                fix="remove one of them",
            )
        if classes.get(name) == 0:
            raise _tumor_in_normal(name, path)
        paths[name] = path
    return paths


def _check_some(bags: BagDataset, labels: Labels, classes: Mapping[str, int], folder: Path) -> None:
    """Raise where slides have tumor, and not one patch of any is known to be tumor: names that do not match."""
    if any(classes.values()) and not (labels.known & (labels.values == 1)).any():
        name = next(name for name in bags.ids if classes[name] == 1)
        raise lacking(
            f"patches of slide {name!r} and all others with tumor",
            f"some that {OUTLINES}/ or {TABLE} in {str(folder)!r} say are tumor",
            "check that they name the slides as the features do, tumor_001, test_001 and so on",
        )


def _tumor_in_normal(name: str, path: Path) -> DataError:
    return DataError(
        item=f"slide {name!r}",
        wanted="no tumor, since its class is normal",
        got=f"tumor in {str(path)!r}",
        fix="check reference.csv and the name of the annotation",
    )
