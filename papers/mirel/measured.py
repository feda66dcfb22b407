"""What was measured so far, a row for each measurement in a CSV that is written again after each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from miue.common.tables import read_rows, write_rows

Row = Mapping[str, str]


def read_measured(path: Path) -> list[Row]:
    """Return the rows of a file, none where there is none yet."""
    return list(read_rows(path)) if path.exists() else []


def write_measured(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write the rows, whole or not at all; a row may have more than these columns."""
    write_rows(path, columns, [[row[column] for column in columns] for row in rows])
