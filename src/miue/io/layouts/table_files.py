"""The files of tables of instances, and the columns that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from miue.bags.columns import BAG, NAMES, SPLIT, numbers_rows
from miue.bags.names import TABLES
from miue.common.errors import DataError, MiueError, first_few, repeated
from miue.common.files import refuse_undecodable_name
from miue.common.tables import read_header
from miue.io.columns import find_column, possible_features
from miue.io.layouts.layout import folders_in, read_together

ALIKE = "make the tables of a folder alike, or put this one elsewhere"


def find_tables(folder: Path) -> list[Path]:
    """Return the tables in a folder; where there are none, those in the folders directly below it.

    A table that is named like its folder, or like one beside it, lists the tables there, as DSMIL writes
    ``<data>/<class>.csv`` and ``<data>/<data>.csv`` beside ``<data>/<class>/<slide>.csv``.
    """
    below = [table for one in folders_in(folder) for table in _tables_in(one)]
    lists = {folder.resolve().name, *(table.parent.name for table in below)} if below else set()
    return [table for table in _tables_in(folder) if name_of_bag(table) not in lists] or below


def name_of_bag(file: Path) -> str:
    """Return the id of the bag of a table that is named after it.

    >>> name_of_bag(Path("features/slide-1.csv.gz")), name_of_bag(Path("slide-1.0.PARQUET"))
    ('slide-1', 'slide-1.0')
    """
    ending = next(ending for ending in TABLES if file.name.lower().endswith(ending))
    return file.name[: -len(ending)]


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

        Of a folder, those tables are read that share features with most of them.

        Args:
            path: a table, or a folder of tables.
            columns: names of columns by what they mean, where they are specified.

        Raises:
            StorageError: a table that cannot be read, where it is not that of one bag.
            DataError: tables of a folder with other columns, where they are not of one bag each; tables in
                folders that make no single set of bags.
        """
        if not path.is_dir():
            return cls(str(path), (path,), tuple(read_header(path)))
        tables = find_tables(path)
        headers, bad = _headers(tables)
        features = {file: frozenset(possible_features(header, columns)) for file, header in headers.items()}
        if not any(features.values()):
            for error in bad.values():
                raise error
        usual = max(Counter(features.values()).items(), key=lambda pair: (bool(pair[0]), pair[1], len(pair[0])))[0]
        first = next(file for file in headers if features[file] == usual)
        kept = [file for file in headers if features[file] & usual or features[file] == usual]
        unlike = ((file, _other_columns(file, headers, first)) for file in kept)
        bad |= {file: error for file, error in unlike if error is not None}
        is_named = BAG in columns or find_column(headers[first], NAMES[BAG], str(first)) is not None
        if is_named:
            for error in bad.values():
                raise error
        in_folders: dict[Path, list[str]] = {}
        for file in kept:
            name = str(file) if is_named else name_of_bag(file)
            in_folders.setdefault(file.parent, []).append(name)
        own = find_column(headers[first], NAMES[SPLIT], str(path))
        splits, said = read_together({one: sorted(set(names)) for one, names in in_folders.items()}, path)
        if splits and own is not None:
            raise repeated(
                f"the splits of {str(path)!r}", "names of folders, or a column", "both", "leave one out"
            )
        others = [file.name for file in _tables_in(path) if file not in (*kept, *bad)]
        others += [file.name for file in tables if file not in (*kept, *bad) and file.parent != path]
        others += [one.name for one in folders_in(path) if tables[0].parent == path and _tables_in(one)]
        notes = (said, f"not read: {len(others):,} ({first_few(others)})" if others else "")
        if is_named:
            return cls(str(path), tuple(kept), headers[first], notes=tuple(filter(None, notes)), splits=splits)
        bad_bags = {name_of_bag(file): error for file, error in bad.items()} | _same_names(path, [*kept, *bad])
        files = tuple(file for file in kept if name_of_bag(file) not in bad_bags)
        return cls(str(path), files, headers[first], True, bad_bags, tuple(filter(None, notes)), splits)


def _tables_in(folder: Path) -> list[Path]:
    """Return the tables of a folder by name, links to files that are gone among them."""
    return [
        file
        for file in sorted(folder.iterdir())
        if file.name.lower().endswith(TABLES) and not file.name.startswith(".") and not file.is_dir()
    ]


def may_have_features(table: Path) -> bool:
    """Return whether a table has a column of features, or cannot be read, which is said where it is read."""
    try:
        return bool(possible_features(read_header(table), {}))
    except MiueError:
        return True


def _headers(files: Sequence[Path]) -> tuple[dict[Path, tuple[str, ...]], dict[Path, MiueError]]:
    """Return the columns of the files that can be read, and what is wrong with the others."""
    headers: dict[Path, tuple[str, ...]] = {}
    unreadable: dict[Path, MiueError] = {}
    for file in files:
        refuse_undecodable_name(file)
        try:
            headers[file] = tuple(read_header(file))
        except MiueError as error:
            unreadable[file] = error
    return headers, unreadable


def _other_columns(file: Path, headers: Mapping[Path, Sequence[str]], first: Path) -> DataError | None:
    """Return what is wrong where a table has other columns than the first, but for those that number rows."""
    own, wanted = ({name for name in headers[one] if not numbers_rows(name)} for one in (file, first))
    if own == wanted:
        return None
    got = f"no {first_few(map(repr, sorted(wanted - own)))}" if wanted - own else ""
    got += " and " * bool(wanted - own and own - wanted)
    got += f"also {first_few(map(repr, sorted(own - wanted)))}" if own - wanted else ""
    return DataError(item=f"table {str(file)!r}", wanted=f"the columns of {first.name!r}", got=got, fix=ALIKE)


def _same_names(folder: Path, files: Sequence[Path]) -> dict[str, MiueError]:
    """Return which bags have several tables, and what to do."""
    of_bag: dict[str, list[str]] = {}
    for file in files:
        of_bag.setdefault(name_of_bag(file), []).append(str(file.relative_to(folder)))
    return {
        name: repeated(repr(str(folder)), f"one table of bag {name!r}", " and ".join(sorted({*own})))
        for name, own in of_bag.items()
        if len({*own}) > 1
    }
