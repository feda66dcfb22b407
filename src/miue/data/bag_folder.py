"""A folder of bag files and a label table become a dataset; features stay in their files until they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, Labels
from miue.data.file_instances import FileInstances
from miue.data.label_table import LabelTable
from miue.data.labelling import LeftOut, match, refuse_or_skip, with_labels
from miue.errors import DataError, MiueError
from miue.progress import tracked
from miue.readers import Contents, contents_of
from miue.readers.discovery import bag_files


@dataclass(frozen=True)
class OpenedFolder:
    """The bags of a folder.

    Attributes:
        bags: the dataset.
        contents: what each of its files holds.
        left_out: bags that are not in it.
    """

    bags: BagDataset
    contents: tuple[Contents, ...]
    left_out: tuple[LeftOut, ...]


def open_folder(
    folder: Path,
    labels: LabelTable | None = None,
    *,
    classes: Sequence[str] = (),
    microns_per_pixel: float | None = None,
    skip_bad: bool = False,
    progress: bool = False,
) -> OpenedFolder:
    """Return the bags of ``folder``, with the labels, patients and splits of the table.

    Args:
        folder: files of CLAM, TRIDENT, STAMP or arrays.
        labels: bags that it does not list are left out.
        classes: their order; the first is the negative one. Sorted by name if not given.
        microns_per_pixel: of level 0, for coords in µm.
        skip_bad: leave out files that cannot be used, slides without tissue and bags without a file.
        progress: show a bar while many files are opened.

    Raises:
        DataError: a file that cannot be used, a bag of the table without a file, or no bag left.
    """
    paths = bag_files(folder)
    left_out: list[LeftOut] = []
    if labels is not None:
        listed, left_out = match(labels, [path.name for path in paths], str(folder))
        paths = [paths[place] for place in listed]
    found = []
    for path in tracked(paths, "opening", shown=progress):
        try:
            found.append(_usable(path, microns_per_pixel))
        except MiueError as error:
            left_out.append(LeftOut(path.stem, str(error)))
    found = _alike(found, left_out)
    refuse_or_skip(str(folder), len(found), left_out, skip_bad=skip_bad)
    bags = dataset_of(found)
    if labels is not None:
        bags = with_labels(bags, labels, classes)
    return OpenedFolder(bags, tuple(found), tuple(left_out))


def dataset_of(found: Sequence[Contents]) -> BagDataset:
    """Return the bags of files that are alike, one each, without labels; features stay in the files."""
    sizes = np.array([one.size for one in found], np.int64)
    total = int(sizes.sum())
    dtypes = {one.dtype for one in found}
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)
    located = all(one.coords is not None for one in found)
    return BagDataset(
        instances=FileInstances([one.path for one in found], sizes, found[0].instance_shape, dtype),
        starts=sizes.cumsum() - sizes,
        sizes=sizes,
        ids=tuple(one.id for one in found),
        labels=Labels.unknown(len(found)),
        is_ood=np.zeros(len(found), bool),
        splits=("",) * len(found),
        ood_sets=("",) * len(found),
        instance_labels=Labels.unknown(total),
        instance_is_ood=np.zeros(total, bool),
        coords=np.concatenate([one.coords for one in found if one.coords is not None]) if located else None,
        patch_sizes=np.array([one.patch_size or 0 for one in found], np.int64) if located else None,
    )


def _usable(path: Path, microns_per_pixel: float | None) -> Contents:
    found = contents_of(path, microns_per_pixel)
    if not found.size:
        raise DataError(
            item=f"bag file {str(path)!r}",
            wanted="at least one instance",
            got="none (a slide without tissue?)",
            fix="leave it out (--skip-bad goes on and lists it)",
        )
    return found


def _alike(found: list[Contents], left_out: list[LeftOut]) -> list[Contents]:
    """Return the files whose features are as those of most; the others are left out."""
    kinds = Counter((one.instance_shape, one.extractor) for one in found)
    if len(kinds) < 2:
        return found
    (shape, extractor), count = kinds.most_common(1)[0]
    usual = f"features of shape {shape}" + (f" of {extractor!r}" if extractor else "")
    kept = []
    for one in found:
        if (one.instance_shape, one.extractor) == (shape, extractor):
            kept.append(one)
            continue
        here = f"{one.instance_shape}" + (f" of {one.extractor!r}" if one.extractor else "")
        reason = f"bag file {str(one.path)!r}: expected {usual} as in {count} files, got {here}"
        left_out.append(LeftOut(one.id, f"{reason}; extract all features with one encoder"))
    return kept
