"""Several folders below one that are read together: what is said of them, and of which split they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from miue.bags.table_columns import SPLIT_NAMES
from miue.common.errors import DataError, first_few


def several_folders(
    folders: Iterable[Path], folder: Path, *, wanted: str, what_they_are: str, fix: str
) -> DataError:
    """Return the error where several folders below ``folder`` are not read together."""
    names = ", ".join(str(below.relative_to(folder)) for below in folders)
    got = f"several such folders: {names}{what_they_are}"
    return DataError(item=repr(str(folder)), wanted=wanted, got=got, fix=fix)


def splits_by_folder(folders: Iterable[Path], folder: Path, *, wanted: str) -> dict[Path, str]:
    """Return the split of each of several folders, such as train and test, that are named after one; else nothing.

    Raises:
        DataError: some are, themselves or by a folder above them and below ``folder``, and others are not; or one
            is named after two.
    """
    named = {one: _splits_named(one.relative_to(folder)) for one in folders}
    if len(named) < 2 or not any(named.values()):
        return {}
    if any(len(splits) != 1 for splits in named.values()):
        what_they_are = ", of which not each is named like one split"
        fix = "pass one of these folders, or put all into folders named train, validation, calibration and test"
        raise several_folders(named, folder, wanted=wanted, what_they_are=what_they_are, fix=fix)
    return {one: splits.pop() for one, splits in named.items()}


def _splits_named(below: Path) -> set[str]:
    return {SPLIT_NAMES.get(word.lower(), "") for word in below.parts} - {""}


def describe_several(
    counts: Mapping[Path, int], folder: Path, splits: Mapping[Path, str], what: str = "bags"
) -> str:
    """Return which folders were read, with how many bags or tables each has, "" where it is one.

    Args:
        counts: bags or tables of each folder.
        folder: that they are below.
        splits: of the folders that are named after one.
        what: is counted.
    """
    if len(counts) < 2:
        return ""
    counted = (f"{one.relative_to(folder)} ({count:,})" for one, count in counts.items())
    named = ", which name their splits," if splits else ""
    return f"{what} of {len(counts):,} folders{named} were read: {first_few(counted)}"
