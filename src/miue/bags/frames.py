"""Columns of data frames (pandas, polars, Arrow) as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miue.bags.feature_names import frame_columns
from miue.bags.rows import row_count
from miue.common.errors import DataError

NO_NUMBERS = {"M": "dates", "m": "durations", "c": "complex numbers"}
"""Kinds of arrays that NumPy would turn into numbers of another meaning."""


def check_columns(frame: Any, what: str) -> None:
    """Raise where a column of a data frame holds no numbers; what is no data frame is left to others.

    Raises:
        DataError: text, dates, or another kind of value.
    """
    for name in frame_columns(frame):
        read_columns(frame, [name], np.float64, what)


def read_columns(frame: Any, names: Sequence[Any], dtype: type[np.floating], what: str) -> np.ndarray:
    """Return columns of a data frame as numbers (rows, columns), NaN where a cell is empty.

    Args:
        frame: a data frame, or a dictionary of columns.
        names: of the columns.
        dtype: of the numbers.
        what: the data frame, for messages.

    Raises:
        DataError: text, dates, or another kind of value; or columns of several lengths.

    >>> read_columns({"a": [1, 2], "b": [0.5, None]}, ["b", "a"], np.float32, "the data frame").tolist()
    [[0.5, 1.0], [nan, 2.0]]
    """
    columns: list[np.ndarray] = []
    for name in names:
        item = f"{what}, column {str(name)!r}"
        with np.errstate(over="ignore"):  # infinity, which is refused
            columns.append(_numbers(frame[name], item).astype(dtype))
        if len(columns[-1]) != len(columns[0]):
            wanted = f"{len(columns[0])} rows, as column {str(names[0])!r} has"
            raise row_count(item, wanted, str(len(columns[-1])))
    return np.stack(columns, 1)


def _numbers(column: Any, item: str) -> np.ndarray:
    values = np.asarray(column)
    got = NO_NUMBERS.get(values.dtype.kind, "")
    try:
        if not got:
            return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        got = str(error)
    raise DataError(item=item, wanted="numbers", got=got, fix="leave the column out, or correct it")
