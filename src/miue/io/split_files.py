"""Splits are read from the kinds of files in use, written as one, and assigned to bags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.bags.cells import known_text
from miue.bags.columns import PATIENT_COLUMNS, SPLIT_NAMES, lower_case, read_splits_column
from miue.bags.names import match_names, named_twice, strip_endings
from miue.common.array_files import load_numpy
from miue.common.errors import ConfigError, DataError, first_few, missing_column, not_a_folder, not_readable
from miue.common.files import open_file
from miue.common.tables import read_text_columns, write_rows
from miue.common.text import plural
from miue.io.columns import find_column
from miue.io.formats.numpy_files import UNREADABLE, read_member_header, to_texts
from miue.io.label_table import BAG_COLUMNS, fold_columns
from miue.io.loaded import LeftOut, LoadedBags
from miue.io.splits import SPLITS, Splits

TRUE, FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
MOST_BYTES = 1 << 28
"""Of the names in an .npz; those of a million patients take a tenth of it."""


def read_splits(path: Path) -> Splits:
    """Return the splits at ``path``, of any of the kinds in use.

    This tool's and Patho-Bench's: a table with one row per bag, or per patient where no column names bags, and
    columns ``fold_0``, …; CLAM's: columns ``train``, ``val`` and ``test`` with ids below them, or one row per bag
    or patient with truth values (true and false, or 1 and 0), in one file or a folder with ``splits_0.csv``, …;
    MIREL's: an .npz with ``train_patients``, ``val_patients``, ``test_patients``.

    Raises:
        StorageError: missing or unreadable.
        DataError: none of these kinds, or a bag in two splits.
    """
    if path.is_dir():
        return _from_folder(path)
    if path.suffix.lower() == ".npz":
        return Splits(str(path), (_from_npz(path),), of_patients=True)
    columns = read_text_columns(path)
    folds = [read_splits_column(columns[name], str(path)) for name in fold_columns(path, columns).values()]
    if folds:
        column = find_column(columns, (*BAG_COLUMNS, *PATIENT_COLUMNS), str(path))
        if column is None:
            raise _no_id(path, columns)
        by_name = tuple(_by_name(path, list(zip(columns[column], fold, strict=True))) for fold in folds)
        return Splits(str(path), by_name, of_patients=lower_case(column) in PATIENT_COLUMNS)
    return _from_clam([path], str(path))


def write_splits(path: Path, splits: Splits, *sources: BagDataset) -> None:
    """Write ``splits`` as a table with one row per bag: bag_id, patient, label, fold_0, …

    Args:
        path: the file.
        splits: what is written.
        sources: the bags; those of a later source that are called as one of an earlier are not written again.
    """
    rows: dict[str, tuple[str, ...]] = {}
    for bags in sources:
        for row in _split_rows(bags, splits):
            rows.setdefault(row[0], row)
    write_rows(path, ["bag_id", "patient", "label", *(f"fold_{k}" for k in range(len(splits)))], rows.values())


def _split_rows(bags: BagDataset, splits: Splits) -> Iterator[tuple[str, ...]]:
    patients = bags.patient_groups
    folds = [splits.split_bags(bags, fold)[0] for fold in range(len(splits))]
    for row, name in enumerate(bags.ids):
        known = bool(bags.labels.known[row])
        number = int(bags.labels.values[row])
        label = (bags.class_names[number] if bags.class_names else str(number)) if known else ""
        yield (name, patients[row], label, *(fold[row] for fold in folds))


def _from_folder(folder: Path) -> Splits:
    numbered = [(int(m[1]), p) for p in folder.iterdir() if (m := re.fullmatch(r"splits_(\d+)\.csv", p.name))]
    if not numbered:
        raise not_a_folder(folder, "a folder with splits_0.csv, splits_1.csv, … as CLAM writes them")
    return _from_clam([path for _, path in sorted(numbered)], str(folder))


def _from_clam(paths: Sequence[Path], source: str) -> Splits:
    """Return the folds of tables of CLAM, one each."""
    folds = [_fold_of_clam(path, read_text_columns(path)) for path in paths]
    kinds = [of_patients for _, of_patients in folds]
    if len(set(kinds)) > 1:
        of_bags, of_patients = (str(paths[kinds.index(kind)]) for kind in (False, True))
        raise DataError(
            item=f"splits {source!r}",
            wanted="folds of bags alone, or of patients alone",
            got=f"names of bags in {of_bags!r}, of patients in {of_patients!r}",
            fix="write all in one way",
        )
    return Splits(source, tuple(fold for fold, _ in folds), of_patients=kinds[0])


def _fold_of_clam(path: Path, columns: Mapping[str, list[str]]) -> tuple[dict[str, str], bool]:
    """Return the split of each name, and whether the names are those of patients."""
    lower = {lower_case(name): name for name in columns}
    present = {SPLIT_NAMES[word]: lower[word] for word in ("train", "val", "validation", "test") if word in lower}
    if not set(SPLITS) <= set(present):
        wanted = "columns train, val, test (CLAM), or fold_0, … with the id of a bag (Patho-Bench)"
        raise missing_column(f"splits {str(path)!r}", wanted, columns, "name the columns so, empty without bags")
    values = {split: columns[name] for split, name in present.items()}
    words = [text.strip().lower() for column in values.values() for text in column if text.strip()]
    if not set(words) <= {*TRUE, *FALSE} or len(set(words)) == len(words):  # names, each once, not truth values
        pairs = [(text, split) for split, column in values.items() for text in column if known_text(text)]
        return _by_name(path, pairs), False
    others = [name for name in columns if name not in present.values()]
    index = find_column(others, (*BAG_COLUMNS, *PATIENT_COLUMNS), str(path)) or next(iter(others), None)
    if index is None:
        raise _no_id(path, columns)
    pairs = [
        (name, split)
        for row, name in enumerate(columns[index])
        for split, column in values.items()
        if column[row].strip().lower() in TRUE
    ]
    return _by_name(path, pairs), lower_case(index) in PATIENT_COLUMNS


def _from_npz(path: Path) -> dict[str, str]:
    parts = {"train": "train_patients", "validation": "val_patients", "test": "test_patients"}
    try:
        with open_file(path, f"splits {str(path)!r}") as file, load_numpy(file) as arrays:
            names = {split: _read_names(arrays, name) for split, name in parts.items() if name in arrays}
    except (*UNREADABLE, AttributeError) as error:  # a file of one array is no context
        wanted, fix = (
            "an .npz of texts, without pickled objects",
            "save the names as arrays: np.array(names, dtype=str)",
        )
        raise not_readable(f"splits {str(path)!r}", wanted, error, fix) from error
    missing = [name for split, name in parts.items() if split not in names]
    if missing:
        raise DataError(
            item=f"splits {str(path)!r}",
            wanted=f"an array {missing[0]}",
            got=", ".join(parts[split] for split in names) or "none",
            fix=f"name the arrays {', '.join(parts.values())}, empty without bags",
        )
    return _by_name(path, [(name, split) for split, of_split in names.items() for name in of_split])


def _read_names(arrays: np.lib.npyio.NpzFile, name: str) -> list[str]:
    """Return the names in one array of an archive, after its header was checked to claim what is there."""
    _, _, claimed = read_member_header(arrays, f"{name}.npy")
    there = arrays.zip.getinfo(f"{name}.npy").file_size  # type: ignore[union-attr]
    if claimed != there or claimed > MOST_BYTES:
        raise ValueError(
            f"{name} of {claimed:,} bytes, where there are {there:,}, and at most {MOST_BYTES:,} are read"
        )
    names = np.atleast_1d(arrays[name])
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise ValueError(f"{name} of type {names.dtype} and shape {names.shape}, which are no names")
    return to_texts(names)


def _by_name(path: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the split of each name, from pairs of both; one of "" is none."""
    assigned = [(name, split) for name, split in pairs if split]
    listed = [name for name, _ in assigned]
    if (twice := named_twice(listed)) is not None:
        of_name = [split for name, split in assigned if strip_endings(name) == strip_endings(twice)]
        item, got = f"{twice!r} in splits {str(path)!r}", " and ".join(of_name)
        raise DataError(item=item, wanted="one split", got=got, fix="keep it in one")
    return dict(assigned)


def _no_id(path: Path, columns: Iterable[str]) -> DataError:
    wanted = f"a column with the id of the bag, such as {BAG_COLUMNS[0]}"
    return missing_column(f"splits {str(path)!r}", wanted, columns, "name it so")


def assign_splits(loaded: LoadedBags, splits: Path | Splits | None, fold: int, *, skip_bad: bool) -> LoadedBags:
    """Return the bags with the splits specified, else their own.

    Args:
        loaded: the bags, and the folds of their table.
        splits: a file of splits, or splits; None for those of the bags.
        fold: which of the folds.
        skip_bad: leave out names of the splits that no bag has, such as a bag that cannot be used; ``left_out`` of
            the result lists them.

    Raises:
        StorageError, DataError: splits that cannot be read, or not be those of these bags.
        ConfigError: a fold without splits.
    """
    chosen = read_splits(splits) if isinstance(splits, Path) else splits or loaded.folds
    if chosen is None and fold:
        raise ConfigError(
            item=f"fold {fold}",
            wanted="splits with several folds beside it",
            got="none",
            fix="pass the splits, or leave the fold out",
        )
    if chosen is None:
        return loaded
    left_out = list(loaded.left_out)
    if skip_bad:
        chosen, absent = chosen.without_absent(loaded.bags)
        listed = match_names(absent, [entry.bag for entry in left_out], chosen.source)
        reason = f"listed in {chosen.source!r}, but the data have no such one"
        left_out += [LeftOut(name, reason) for name, row in zip(absent, listed, strict=True) if row is None]
    bags = chosen.assign(loaded.bags, fold)
    notes = [*loaded.notes]
    if outside := [name for name, split in zip(bags.ids, bags.splits, strict=True) if not split]:
        notes.append(f"{plural(len(outside), 'bag')} in no split of {chosen.source!r}: {first_few(outside)}")
    of_bags = zip(bags.ids, bags.splits, loaded.bags.splits, strict=True)
    moved = [f"{name} ({own}, now {split or 'in none'})" for name, split, own in of_bags if own not in ("", split)]
    if splits is None and moved:
        had = f"{plural(len(moved), 'bag')} had another, as by a folder's name"
        notes.append(f"splits are those of {chosen.source!r}; {had}: {first_few(moved)}")
    return replace(loaded, bags=bags, left_out=tuple(left_out), notes=tuple(notes))
