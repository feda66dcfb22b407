"""A folder of bag files and a label table become a dataset; features stay in their files until they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, Labels
from miue.data.file_instances import FileInstances
from miue.data.label_table import LabelTable, key_of
from miue.data.splits import Splits, check_splits
from miue.errors import DataError, MiueError
from miue.progress import tracked
from miue.readers import Contents, contents_of
from miue.readers.discovery import bag_files
from miue.readers.hdf5 import patch_size_beside


@dataclass(frozen=True)
class LeftOut:
    """A bag that is not in the dataset.

    Attributes:
        bag: its id.
        reason: why.
        is_bad: whether something is wrong with it, unlike a file that the label table does not list.
    """

    bag: str
    reason: str
    is_bad: bool = True


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
        paths = _listed(folder, paths, labels, left_out)
    found = []
    for path in tracked(paths, "opening", shown=progress):
        try:
            found.append(_usable(path, microns_per_pixel))
        except MiueError as error:
            left_out.append(LeftOut(path.stem, str(error)))
    found = _alike(found, left_out)
    _refuse_or_skip(folder, found, left_out, skip_bad)
    bags = _dataset(found)
    if labels is not None:
        bags = with_labels(bags, labels, classes)
    return OpenedFolder(bags, tuple(found), tuple(left_out))


def with_labels(bags: BagDataset, labels: LabelTable, classes: Sequence[str] = ()) -> BagDataset:
    """Return ``bags`` with the classes, the patients and the first fold of a table that lists them all.

    Raises:
        DataError: a class that is not among those given, or splits that cannot be used.
    """
    names = labels.class_names(classes)
    row_of = {name: row for row, name in enumerate(labels.ids)}
    rows = [row_of[key_of(name)] for name in bags.ids]
    index = {name: number for number, name in enumerate(names)}
    texts = [labels.labels[row] for row in rows]
    labelled = replace(
        bags,
        labels=Labels.of([index[text] if text else None for text in texts]),
        class_names=names,
        patients=tuple(labels.patients[row] for row in rows) if labels.has_patients else None,
    )
    if not labels.folds:
        return labelled
    first = next(iter(labels.folds.values()))
    labelled = replace(labelled, splits=tuple(first[row] for row in rows))
    check_splits(labelled, labels.source)
    return labelled


def splits_of(labels: LabelTable) -> Splits | None:
    """Return the folds that a label table holds, None where it has none."""
    if not labels.folds:
        return None
    folds = [dict(zip(labels.ids, fold, strict=True)) for fold in labels.folds.values()]
    return Splits(labels.source, tuple({name: s for name, s in fold.items() if s} for fold in folds))


def _listed(folder: Path, paths: list[Path], labels: LabelTable, left_out: list[LeftOut]) -> list[Path]:
    """Return the files that the table lists, in its order; the others, and bags without a file, are left out."""
    file_of = {key_of(path.name): path for path in paths}
    listed = []
    for name in labels.ids:
        if name in file_of:
            listed.append(file_of.pop(name))
        else:
            near = _near(name, file_of)
            hint = f"; there is {near!r}: did the id lose its zeros or gain a '.0'?" if near else ""
            left_out.append(
                LeftOut(name, f"listed in {labels.source!r}, but {str(folder)!r} has no such file{hint}")
            )
    left_out += [
        LeftOut(name, f"a file that {labels.source!r} does not list", is_bad=False) for name in sorted(file_of)
    ]
    return listed


def _near(name: str, others: Iterable[str]) -> str | None:
    """Return the id that ``name`` would be if a spreadsheet had made a number of it."""
    plain = name.removesuffix(".0").lstrip("0")
    return (
        next((other for other in others if other != name and other.lstrip("0") == plain), None) if plain else None
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
    if found.patch_size is None and found.coords is not None and path.suffix.lower() in (".h5", ".hdf5"):
        found = replace(found, patch_size=patch_size_beside(path))
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


def _refuse_or_skip(folder: Path, found: list[Contents], left_out: list[LeftOut], skip_bad: bool) -> None:
    bad = [one for one in left_out if one.is_bad]
    if bad and not skip_bad:
        shown = "; ".join(f"{one.bag}: {one.reason}" for one in bad[:3])
        raise DataError(
            item=f"{str(folder)!r}",
            wanted="bags that can all be used",
            got=f"{len(bad)} that cannot ({shown}{'; …' if bad[3:] else ''})",
            fix="mend them, or pass --skip-bad to go on without them; 'miue inspect FOLDER' lists all",
        )
    if not found:
        reason = left_out[0].reason if left_out else "the folder is empty"
        raise DataError(
            item=f"{str(folder)!r}",
            wanted="at least one bag",
            got=f"none of {len(left_out)} ({reason})",
            fix="check the folder and the ids of the label table",
        )


def _dataset(found: Sequence[Contents]) -> BagDataset:
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
