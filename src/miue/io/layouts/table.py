"""The layout of tables of instances: one, or a folder of them, each a bag or with a column that names bags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from miue.bags.columns import BAG
from miue.bags.names import TABLES
from miue.io.layouts.long_table import read_long_table
from miue.io.layouts.stored import StoredLayout
from miue.io.layouts.table_files import TableFiles, find_tables, may_have_features


class TableLayout(StoredLayout):
    """A table with one row per instance, or a folder of such tables, in it or in folders directly below it."""

    name = "a table of instances"
    takes = ("named_columns", "features")

    @staticmethod
    def matches(path: Path) -> bool:
        """Return whether a path is that of a table, or of a folder with one that has columns of features."""
        if not path.is_dir():
            return path.is_file() and path.name.lower().endswith(TABLES)
        return any(map(may_have_features, find_tables(path)))

    def list(self) -> tuple[str, ...]:
        """Return the ids of the bags, in the order of their first rows."""
        named = self.settings.named_columns
        columns = named if self.settings.labels is None else named_id_column(self.path, named)
        self.raw = read_long_table(self.path, columns=columns, features=self.settings.features)
        return super().list()


def features_of_model(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a model was trained on, where ``path`` is a table that has them all; else none.

    Raises:
        StorageError: a table that cannot be read.
        DataError: a folder of tables with different columns.
    """
    if not names or not is_long_table(path):
        return ()
    return tuple(names) if set(names) <= set(TableFiles.at(path, {}).header) else ()


def named_id_column(path: Path, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the column of ids that is named for a label table, where a table of instances beside it has it, too.

    Raises:
        StorageError: a table that cannot be read.
        DataError: a folder of tables with different columns.
    """
    name = columns.get(BAG)
    if name is None or not is_long_table(path):
        return {}
    return {BAG: name} if name in TableFiles.at(path, {}).header else {}


def is_long_table(path: Path) -> bool:
    """Return whether the bags at ``path`` are a table of instances, or a folder of them."""
    from miue.io.layouts import LAYOUTS

    return next((layout for layout in LAYOUTS if layout.matches(path)), None) is TableLayout
