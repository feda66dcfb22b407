"""Splits are read from the kinds of files in use, and written as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from miue.bags.cells import known_text
from miue.bags.column_names import PATIENT_COLUMNS, lower_case
from miue.bags.dataset import BagDataset
from miue.bags.names import find_rows, named_twice
from miue.bags.table_columns import SPLIT_NAMES, read_splits_column
from miue.common.errors import DataError, missing_column, not_a_folder, not_readable
from miue.common.files import open_file
from miue.common.numpy_files import load_numpy
from miue.common.tables import read_text_columns, write_rows
from miue.io.formats.numpy_files import UNREADABLE, read_member_header, to_texts
from miue.io.labels.label_table import BAG_COLUMNS, fold_columns
from miue.io.splits.splits import SPLITS, Splits
from miue.io.tables.columns import find_column

TRUE, FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
MOST_BYTES = 1 << 28
"""Of the names in an .npz; those of a million patients take a tenth of it."""

EMPTY = "leave the {} empty of a split without bags"


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
        column = _id_column(path, columns)
        by_name = tuple(_by_name(path, columns[column], fold) for fold in folds)
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
    """Return the folds of tables of CLAM, one each.

    Raises:
        DataError: a table of another kind, or tables of bags beside some of patients.
    """
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
        fix = f"name the columns so; {EMPTY.format('column')}"
        raise missing_column(f"splits {str(path)!r}", wanted, columns, fix)
    values = {split: columns[name] for split, name in present.items()}
    if _are_counts(path, values, [name for name in columns if name not in present.values()], columns):
        raise DataError(
            item=f"splits {str(path)!r}",
            wanted="names of bags below train, val, test",
            got="numbers of bags of each class, as CLAM writes them beside its splits",
            fix="pass the table of names, such as splits_0.csv",
        )
    index = ""
    if _are_truth_values([text.strip().lower() for column in values.values() for text in column if text.strip()]):
        others = [name for name in columns if name not in present.values()]
        known = find_column(others, (*BAG_COLUMNS, *PATIENT_COLUMNS), str(path))
        if known is None and not others:
            raise _no_id(path, columns)
        index = others[0] if known is None else known
        pairs = [
            (name, split)
            for row, name in enumerate(columns[index])
            for split, column in values.items()
            if column[row].strip().lower() in TRUE
        ]
    else:
        pairs = [(text, split) for split, column in values.items() for text in column if known_text(text)]
    fold = _by_name(path, [name for name, _ in pairs], [split for _, split in pairs])
    return fold, lower_case(index) in PATIENT_COLUMNS


def _are_counts(
    path: Path, values: Mapping[str, list[str]], others: Sequence[str], columns: Mapping[str, list[str]]
) -> bool:
    """Return whether a table says how many bags of each class are in a split: whole numbers beside names.

    CLAM calls it a descriptor. Beside names of bags are line numbers, or truth values, which are 0 and 1.
    """
    cells = [text.strip() for column in values.values() for text in column]
    if not cells or not all(text.isdecimal() for text in cells):
        return False
    if path.stem.endswith("_descriptor"):
        return True
    beside = [text.strip() for text in columns[others[0]]] if len(others) == 1 else []
    return not set(cells) <= {"0", "1"} and bool(beside) and not any(text.isdecimal() for text in beside)


def _are_truth_values(words: Sequence[str]) -> bool:
    """Return whether cells say whether a bag is in a split, and are no names: of these, no two are the same."""
    found = set(words)
    return found <= {*TRUE, *FALSE} and len(found) < len(words)


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
            fix=f"name the arrays {', '.join(parts.values())}; {EMPTY.format('array')}",
        )
    pairs = [(name, split) for split, of_split in names.items() for name in of_split]
    return _by_name(path, [name for name, _ in pairs], [split for _, split in pairs])


def _read_names(arrays: np.lib.npyio.NpzFile, name: str) -> list[str]:
    """Return the names in one array of an archive, after its header was checked to claim what is there.

    Raises:
        ValueError: anything else, as the members of ``UNREADABLE`` that NumPy raises.
    """
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


def _by_name(path: Path, names: Sequence[str], splits: Sequence[str]) -> dict[str, str]:
    assigned = [(name, split) for name, split in zip(names, splits, strict=True) if split]
    listed = [name for name, _ in assigned]
    twice = named_twice(listed)
    if twice is not None:
        splits_of_name = [assigned[row][1] for row in find_rows(twice, listed)]
        raise DataError(
            item=f"{twice!r} in splits {str(path)!r}",
            wanted="one split",
            got=" and ".join(dict.fromkeys(splits_of_name))
            if len(set(splits_of_name)) > 1
            else f"{splits_of_name[0]} twice",
            fix="keep it in one",
        )
    return dict(assigned)


def _id_column(path: Path, columns: Mapping[str, list[str]]) -> str:
    column = find_column(columns, (*BAG_COLUMNS, *PATIENT_COLUMNS), str(path))
    if column is None:
        raise _no_id(path, columns)
    return column


def _no_id(path: Path, columns: Iterable[str]) -> DataError:
    wanted = f"a column with the id of the bag, such as {BAG_COLUMNS[0]}"
    return missing_column(f"splits {str(path)!r}", wanted, columns, "name it so")
