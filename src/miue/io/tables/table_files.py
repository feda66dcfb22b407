"""The files of a long table: one, or those of a folder, of which each holds a bag, or some bags by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miue.bags.column_names import BAG, NAMES, SPLIT, numbers_rows
from miue.bags.names import TABLES
from miue.common.errors import DataError, MiueError, first_few, repeated
from miue.common.files import refuse_undecodable_name
from miue.common.tables import read_header, read_parts
from miue.io.folders.several import describe_several, several_folders, splits_by_folder
from miue.io.tables.columns import find_column, possible_features


def is_table_file(path: Path) -> bool:
    """Return whether the name of the file is that of a table."""
    return path.is_file() and path.name.lower().endswith(TABLES)


def find_tables(folder: Path) -> list[Path]:
    """Return the tables in a folder; where there are none, those in the folders directly below it.

    A table that is named like its folder, or like one beside it, lists the tables there, as DSMIL writes
    ``<data>/<class>.csv`` and ``<data>/<data>.csv`` beside ``<data>/<class>/<slide>.csv``.
    """
    below = [table for one in _folders_in(folder) for table in tables_in(one)]
    lists = {folder.resolve().name, *(table.parent.name for table in below)} if below else set()
    return [table for table in tables_in(folder) if name_of_bag(table) not in lists] or below


def may_have_features(table: Path) -> bool:
    """Return whether a table has a column of features, or cannot be read, which is said where it is read."""
    try:
        return bool(possible_features(read_header(table), {}))
    except MiueError:
        return True


def most_alike(tables: Sequence[Path]) -> list[Path]:
    """Return the tables with the features that most of them have, none where none has any."""
    headers, _ = _headers(tables)
    features = {header: frozenset(possible_features(header, {})) for header in set(headers.values())}
    first = _usual(headers, features)
    return [] if first is None else [one for one in headers if features[headers[one]] == features[headers[first]]]


@dataclass(frozen=True)
class TableFiles:
    """The files that a long table is read from, all with the same columns.

    Attributes:
        source: the file or folder, for messages.
        files: in the order of their paths.
        header: the names of the columns, as the first file has them.
        of_one_bag: whether the rows of a file are those of the bag that it is named after, as in a folder of
            tables without a column that names bags.
        bad: what is wrong with bags whose tables cannot be used, by their names; only with ``of_one_bag``.
        notes: tables of the folder that are not read, such as one of labels, and the folders of those that are.
        splits: of folders with tables, where they are named after splits, such as train and test.
    """

    source: str
    files: tuple[Path, ...]
    header: tuple[str, ...]
    of_one_bag: bool = False
    bad: Mapping[str, MiueError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    splits: Mapping[Path, str] = field(default_factory=dict)

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Names of columns that the files do not have, and whose one value in each file is that of ``added``."""
        return (*((BAG,) if self.of_one_bag else ()), *((SPLIT,) if self.splits else ()))

    def added(self, file: Path) -> dict[str, str]:
        """Return what is true of all rows of a file by its name and folder: the bag, the split."""
        of_bag = {BAG: name_of_bag(file)} if self.of_one_bag else {}
        return of_bag | ({SPLIT: self.splits[file.parent]} if self.splits else {})

    @classmethod
    def at(cls, path: Path, columns: Mapping[str, str]) -> TableFiles:
        """Return the files of the table at a path.

        Args:
            path: a table, or a folder of tables.
            columns: names of columns by what they mean, where they are specified.

        Raises:
            StorageError: a table that cannot be read, where it is not that of one bag.
            DataError: tables of a folder with other columns, where they are not of one bag each, or hardly two
                with the same; tables in several folders of which some are named like splits, or all, with a
                column of splits.
        """
        if not path.is_dir():
            return cls(str(path), (path,), tuple(read_header(path)))
        tables = find_tables(path)
        for table in tables:
            refuse_undecodable_name(table)
        headers, unreadable = _headers(tables)
        features = {header: frozenset(possible_features(header, columns)) for header in set(headers.values())}
        first = _usual(headers, features)
        if first is None:
            for error in unreadable.values():
                raise error
            first = next(iter(headers))
        header = headers[first]
        is_kept = {file: own == header or bool(features[own] & features[header]) for file, own in headers.items()}
        kept = [file for file in headers if is_kept[file]]
        others = [file for file in headers if not is_kept[file]]
        folders = Counter(file.parent for file in kept)
        splits = _splits_of_folders(folders, path, header)
        _refuse_unlike(path, kept, [file for file in others if features[headers[file]]], headers)
        different = [file for file in kept if headers[file] != header]
        unlike = {
            file: other for file in different if (other := _other_columns(file, headers[file], first, header))
        }
        wrong = {**unreadable, **unlike}
        lists = sorted({*tables_in(path)}.difference(tables))
        below = (*_below_note(path, tables), *_several_note(folders, path, splits))
        notes = (*_not_read_note([*others, *lists]), *below)
        if BAG in columns or find_column(header, NAMES[BAG], str(first)) is not None:
            for error in wrong.values():
                raise error
            return cls(str(path), tuple(kept), header, notes=notes, splits=splits)
        bad = {name_of_bag(file): error for file, error in wrong.items()}
        bad |= _same_names(path, [*kept, *unreadable])
        files = tuple(file for file in kept if name_of_bag(file) not in bad)
        return cls(str(path), files, header, True, bad, notes, splits)

    def read(self, types: Mapping[str, Any], fix: str) -> Iterator[tuple[Path, Any]]:
        """Yield the tables a part of their rows at a time, each with its file, as ``read_parts`` does."""
        for file in self.files:
            for part in read_parts(file, types, fix):
                yield file, part


def name_of_bag(file: Path) -> str:
    """Return the id of the bag of a table that is named after it.

    >>> name_of_bag(Path("features/slide-1.csv.gz")), name_of_bag(Path("slide-1.0.PARQUET"))
    ('slide-1', 'slide-1.0')
    """
    ending = next(ending for ending in TABLES if file.name.lower().endswith(ending))
    return file.name[: -len(ending)]


def tables_in(folder: Path) -> list[Path]:
    """Return the tables of a folder by name, links to files that are gone among them."""
    return [
        file
        for file in sorted(folder.iterdir())
        if file.name.lower().endswith(TABLES) and not file.name.startswith(".") and not file.is_dir()
    ]


def _splits_of_folders(folders: Iterable[Path], path: Path, header: Sequence[str]) -> dict[Path, str]:
    wanted = "tables in it, or in folders directly below it"
    splits = splits_by_folder(folders, path, wanted=wanted)
    column = find_column(header, NAMES[SPLIT], str(path))
    if splits and column is not None:
        what_they_are, fix = f", named like splits, and a column {column!r}", "leave the column out"
        raise several_folders(splits, path, wanted=wanted, what_they_are=what_they_are, fix=fix)
    return splits


def _folders_in(folder: Path) -> list[Path]:
    return [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]


def _headers(files: Sequence[Path]) -> tuple[dict[Path, tuple[str, ...]], dict[Path, MiueError]]:
    """Return the columns of the files that can be read, and what is wrong with the others."""
    headers: dict[Path, tuple[str, ...]] = {}
    unreadable: dict[Path, MiueError] = {}
    for file in files:
        try:
            headers[file] = tuple(read_header(file))
        except MiueError as error:
            unreadable[file] = error
    return headers, unreadable


def _usual(
    headers: Mapping[Path, tuple[str, ...]], features: Mapping[tuple[str, ...], frozenset[str]]
) -> Path | None:
    """Return the first file with the features that most files with features have; None where none has any."""
    counts = Counter(features[header] for header in headers.values() if features[header])
    if not counts:
        return None
    usual = max(counts, key=lambda names: (counts[names], len(names)))
    return next(file for file, header in headers.items() if features[header] == usual)


def _refuse_unlike(
    folder: Path, kept: Sequence[Path], others: Sequence[Path], headers: Mapping[Path, Sequence[str]]
) -> None:
    """Raise where as many tables have features of other names as have these: they are no tables beside."""
    if len(others) < len(kept):
        return
    shown = " and ".join(
        f"{first_few(map(repr, headers[file]))} in {file.name!r}" for file in (kept[0], others[0])
    )
    raise DataError(
        item=repr(str(folder)),
        wanted="tables of the same columns",
        got=f"{len(kept) + len(others)} of which most differ ({shown})",
        fix="put tables of something else elsewhere",
    )


def _other_columns(
    file: Path, header: Sequence[str], first: Path, wanted_header: Sequence[str]
) -> DataError | None:
    """Return what is wrong where a table has other columns than the first, but for those that number rows."""
    own, wanted = ({name for name in names if not numbers_rows(name)} for names in (header, wanted_header))
    if own == wanted:
        return None
    missing, more = sorted(wanted - own), sorted(own - wanted)
    got = " and ".join(
        f"{what} {first_few(map(repr, names))}" for what, names in (("no", missing), ("also", more)) if names
    )
    return DataError(
        item=f"table {str(file)!r}",
        wanted=f"the columns of {first.name!r}",
        got=got,
        fix="make the tables of a folder alike, or put this one elsewhere",
    )


def _same_names(folder: Path, files: Sequence[Path]) -> dict[str, MiueError]:
    """Return which bags have several tables, and what to do."""
    of_bag: dict[str, list[Path]] = {}
    for file in files:
        of_bag.setdefault(name_of_bag(file), []).append(file)
    return {
        name: repeated(
            repr(str(folder)),
            f"one table of bag {name!r}",
            len(own),
            f"keep one of {', '.join(str(file.relative_to(folder)) for file in sorted(own))}",
        )
        for name, own in of_bag.items()
        if len(own) > 1
    }


def _not_read_note(others: Sequence[Path]) -> tuple[str, ...]:
    if not others:
        return ()
    return (f"tables without these features, which were not read: {first_few(file.name for file in others)}",)


def _several_note(counts: Mapping[Path, int], folder: Path, splits: Mapping[Path, str]) -> tuple[str, ...]:
    several = describe_several(counts, folder, splits, "tables")
    return (several,) if several else ()


def _below_note(folder: Path, tables: Sequence[Path]) -> tuple[str, ...]:
    """Return which folders have tables that are not read, as the folder above has some."""
    if tables[0].parent != folder:
        return ()
    below = [one.name for one in _folders_in(folder) if tables_in(one)]
    return (f"tables in folders of {folder.name!r} were not read: {first_few(below)}",) if below else ()
