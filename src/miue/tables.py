"""Reading CSV tables that may come from anyone: every column as text, then what it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from miue.errors import DataError, StorageError
from miue.ood_flags import UNKNOWN_WORDS, OodFlags


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a CSV file as they read: ids stay text, so that no leading zero is lost.

    Args:
        path: plain or gzipped CSV with a header that holds ``bag_id``.

    Raises:
        StorageError: missing or not a CSV file.
        DataError: no ``bag_id`` column, a repeated column, or no row.
    """
    if not path.is_file():
        raise StorageError(
            item=f"table {str(path)!r}",
            wanted="an existing CSV file",
            got="no such file",
            fix="check the path",
        )
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            header = csv.open_csv(stream).schema.names
        convert = csv.ConvertOptions(
            column_types={name: pa.string() for name in header if name in _TEXT}, strings_can_be_null=False
        )
        table = csv.read_csv(str(path), convert_options=convert)
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            item=f"table {str(path)!r}",
            wanted="a readable CSV file with one header line",
            got=str(error).split("\n")[0],
            fix="check the file",
        ) from error
    if "bag_id" not in header or len(set(header)) < len(header) or not len(table):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="a column 'bag_id', no column twice, and at least one row",
            got=f"{len(table)} rows with columns {', '.join(header)}",
            fix="name the id column bag_id"
            if "bag_id" not in header
            else f"drop one column {twice[0]!r}"
            if twice
            else "give the table of another run, or make this one again: it holds nothing",
        )
    return {name: _column(table.column(name)) for name in header}


TRUE, FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")


def flags_of(values: np.ndarray, name: str, column: str = "is_ood") -> OodFlags:
    """Return which cells of a column say yes and which no; an empty one says neither.

    Args:
        values: the column, text or truth values.
        name: the table, for messages.
        column: its name.

    Raises:
        DataError: a cell that holds something else.
    """
    distinct, places = np.unique(values.astype(str), return_inverse=True)
    for position, text in enumerate(distinct):
        if text.strip().lower() not in (*TRUE, *FALSE, *UNKNOWN_WORDS):
            raise DataError(
                item=cell_of(name, places, position, column),
                wanted="true, false, or empty where unknown",
                got=repr(str(text)),
                fix="write true or false, or empty the cell",
            )
    words = [text.strip().lower() for text in distinct]
    flags = OodFlags.of([None if word in UNKNOWN_WORDS else word in TRUE for word in words])
    return flags[places]


def cell_of(name: str, places: np.ndarray, position: int, column: str) -> str:
    """Return where in a table the first cell with the distinct value number ``position`` is."""
    return f"table {name!r}, row {int(np.argmax(places == position)) + 1}, column {column!r}"


_TEXT = {"bag_id", "patient", "label", "is_ood", "ood_set", "decision", "reason", "label_set"}


def _column(column: Any) -> np.ndarray:
    if pa.types.is_null(column.type):  # a column without a single value
        return np.full(len(column), "", object)
    values: np.ndarray = column.to_numpy()
    return values
