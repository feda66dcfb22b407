"""Columns of data frames (pandas, polars, Arrow) as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miue.bags.feature_names import frame_columns
from miue.bags.rows import row_count
from miue.bags.single_precision import in_single
from miue.common.errors import DataError

NO_NUMBERS = {"M": "dates", "m": "durations", "c": "complex numbers"}
"""Kinds of arrays that NumPy would turn into numbers of another meaning."""
SEVERAL = (list, tuple, dict, np.ndarray)
"""What a cell holds that is no single value."""


def check_in_memory(frame: Any, what: str) -> None:
    """Raise where the rows of a data frame are not computed yet, as those of polars' LazyFrame and of Dask.

    Raises:
        DataError: such a frame.
    """
    if (lazy := next((name for name in ("collect", "compute") if hasattr(frame, name)), None)) is not None:
        raise DataError(
            item=what,
            wanted="rows in memory",
            got=f"a {type(frame).__name__}, which is not computed yet",
            fix=f"pass the result of its {lazy}()",
        )


def check_columns(frame: Any, what: str) -> None:
    """Raise where a column of a data frame holds no numbers; what is no data frame is left to others.

    Raises:
        DataError: text, dates, or another kind of value.
    """
    check_in_memory(frame, what)
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
        numbers = _numbers(frame[name], item)
        columns.append(numbers.astype(dtype) if dtype == np.float64 else in_single(numbers, item))
        if len(columns[-1]) != len(columns[0]):
            wanted = f"{len(columns[0])} rows, as column {str(names[0])!r} has"
            raise row_count(item, wanted, str(len(columns[-1])))
    return np.stack(columns, 1)


def _numbers(column: Any, item: str) -> np.ndarray:
    values = np.asarray(column)
    if values.ndim != 1 or (values.dtype == object and any(isinstance(value, SEVERAL) for value in values)):
        raise DataError(
            item=item,
            wanted="one number in each row",
            got="several in a row" if values.ndim == 1 else f"shape {values.shape}",
            fix="make a column of each number, or pass an array (rows, features) and the bag of each row to "
            "BagDataset.from_tensors",
        )
    if values.dtype == object:
        values = np.array([None if type(value).__name__ == "NAType" else value for value in values], object)
    got = NO_NUMBERS.get(values.dtype.kind, "")
    try:
        if not got:
            return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        got = str(error)
    raise DataError(item=item, wanted="numbers", got=got, fix="leave the column out, or correct it")
