"""Several folders below one that are read together: what is said of them, and those of splits, which are not."""

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


def refuse_split_folders(folders: Iterable[Path], folder: Path, *, wanted: str) -> None:
    """Raise if several folders are those of splits, such as train and test, which would be drawn anew.

    Raises:
        DataError: a folder, or one above it but below ``folder``, has the name of a split.
    """
    folders = list(folders)
    words = {word.lower() for one in folders for word in one.relative_to(folder).parts}
    if len(folders) > 1 and not words.isdisjoint(SPLIT_NAMES):
        fix = "pass one of these folders, such as that of the training bags to 'miue train'"
        raise several_folders(folders, folder, wanted=wanted, what_they_are=", named like splits", fix=fix)


def describe_several(counts: Mapping[Path, int], folder: Path, what: str = "bags") -> str:
    """Return which folders were read, with how many bags or tables each has, "" where it is one."""
    counted = (f"{one.relative_to(folder)} ({count:,})" for one, count in counts.items())
    return f"{what} of {len(counts):,} folders were read: {first_few(counted)}" if len(counts) > 1 else ""
