"""The files of a long table: one, or those of a folder, of which each holds a bag, or some bags by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miue.bags.column_names import BAG, NAMES
from miue.bags.names import TABLES
from miue.common.errors import DataError, first_few, repeated
from miue.common.tables import read_header, read_parts
from miue.io.tables.columns import find_column, possible_features


def is_table_file(path: Path) -> bool:
    """Whether the name of the file is that of a table."""
    return path.is_file() and path.name.lower().endswith(TABLES)


def find_tables(folder: Path) -> list[Path]:
    """Return the tables in a folder; where there are none, those in the folders directly below it."""
    own = _tables_in(folder)
    below = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    return own or [table for one in below for table in _tables_in(one)]


@dataclass(frozen=True)
class TableFiles:
    """The files that a long table is read from, all with the same columns.

    Attributes:
        source: the file or folder, for messages.
        files: in the order of their paths.
        header: the names of the columns, as the first file has them.
        of_one_bag: whether the rows of a file are those of the bag that it is named after, as in a folder of
            tables without a column that names bags.
        not_read: tables of the folder that have none of these features, such as one of labels.
    """

    source: str
    files: tuple[Path, ...]
    header: tuple[str, ...]
    of_one_bag: bool = False
    not_read: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: Path, columns: Mapping[str, str]) -> TableFiles:
        """Return the files of the table at a path.

        Args:
            path: a table, or a folder of tables.
            columns: names of columns by what they mean, where they are specified.

        Raises:
            StorageError: a table that cannot be read.
            DataError: tables of a folder with other columns, or two of one name.
        """
        if not path.is_dir():
            return cls(str(path), (path,), tuple(read_header(path)))
        headers = {file: read_header(file) for file in find_tables(path)}
        features = {file: frozenset(possible_features(header, columns)) for file, header in headers.items()}
        usual = Counter(features.values()).most_common(1)[0][0]
        kept = [file for file in headers if features[file] & usual or features[file] == usual]
        first = next(file for file in kept if features[file] == usual)
        names_bags = BAG in columns or find_column(headers[first], NAMES[BAG], str(first)) is not None
        for file in kept:
            _refuse_other_columns(file, set(headers[file]), first, set(headers[first]))
        if not names_bags:
            _refuse_same_names(path, kept)
        others = tuple(file.name for file in headers if file not in kept)
        return cls(str(path), tuple(kept), tuple(headers[first]), not names_bags, others)

    def read(self, types: Mapping[str, Any], fix: str) -> Iterator[tuple[Path, Any]]:
        """Yield the tables a part of their rows at a time, each with its file, as ``read_parts`` does."""
        for file in self.files:
            for part in read_parts(file, types, fix):
                yield file, part

    def not_read_note(self) -> tuple[str, ...]:
        """Return which tables of the folder were not read."""
        if not self.not_read:
            return ()
        return (f"tables without these features, which were not read: {first_few(self.not_read)}",)


def name_of_bag(file: Path) -> str:
    """Return the id of the bag of a table that is named after it.

    >>> name_of_bag(Path("features/slide-1.csv.gz")), name_of_bag(Path("slide-1.0.PARQUET"))
    ('slide-1', 'slide-1.0')
    """
    ending = next(ending for ending in TABLES if file.name.lower().endswith(ending))
    return file.name[: -len(ending)]


def _tables_in(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if is_table_file(file) and not file.name.startswith(".")]


def _refuse_other_columns(file: Path, own: set[str], first: Path, wanted: set[str]) -> None:
    if own == wanted:
        return
    missing, more = sorted(wanted - own), sorted(own - wanted)
    got = " and ".join(
        f"{what} {first_few(map(repr, names))}" for what, names in (("no", missing), ("also", more)) if names
    )
    raise DataError(
        item=f"table {str(file)!r}",
        wanted=f"the columns of {first.name!r}",
        got=got,
        fix="make the tables of a folder alike, or put this one elsewhere",
    )


def _refuse_same_names(folder: Path, files: list[Path]) -> None:
    name, count = Counter(map(name_of_bag, files)).most_common(1)[0]
    if count > 1:
        twice = [str(file.relative_to(folder)) for file in files if name_of_bag(file) == name]
        raise repeated(f"{str(folder)!r}", f"one table of bag {name!r}", count, f"keep one of {', '.join(twice)}")
