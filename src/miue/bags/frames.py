"""Data frames (pandas, polars, Arrow): the names of their columns, and these as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miue.common.errors import DataError, first_few
from miue.common.numbers import in_single

NO_NUMBERS = {"M": "dates", "m": "durations", "c": "complex numbers"}
"""Kinds of arrays that NumPy would turn into numbers of another meaning."""
SEVERAL = (list, tuple, dict, np.ndarray)
"""What a cell holds that is no single value."""


def frame_columns(bag: Any) -> tuple[str, ...]:
    """Return the names of the columns of a data frame; none of an array, or where some are no texts.

    >>> frame_columns([[1.0, 2.0]])
    ()
    """
    names = getattr(bag, "column_names", getattr(bag, "columns", ()))  # a table of Arrow, or a data frame
    if callable(names) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(str, names))


def common_feature_names(names: Sequence[tuple[str, ...]], ids: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the features of all bags; none where some bag has none.

    Args:
        names: of each bag.
        ids: of the bags, for messages.

    Raises:
        DataError: a bag whose features have other names, or another order.
    """
    first, *others = names or [()]
    if not all(names):
        return ()
    for name, own in zip(ids[1:], others, strict=True):
        if own != first:
            raise DataError(
                item=f"bag {name!r}",
                wanted="the columns of the bags before it, in their order",
                got=describe_difference(first, own),
                fix="choose the same columns of all bags",
            )
    return first


def check_feature_order(names: Sequence[str], expected: Sequence[str], item: str) -> None:
    """Raise where features are in another order than those before them; nothing where names are not known.

    Raises:
        DataError: the same names in another order.
    """
    if is_reordered(names, expected):
        raise DataError(
            item=item,
            wanted="features in the order of the others",
            got=describe_difference(expected, names),
            fix="put the columns into one order",
        )


def is_reordered(names: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether these are the names that are expected, in another order.

    >>> is_reordered(["b", "a"], ["a", "b"]), is_reordered(["a", "c"], ["a", "b"]), is_reordered([], ["a"])
    (True, False, False)
    """
    return tuple(names) != tuple(expected) and sorted(names) == sorted(expected)


def describe_difference(expected: Sequence[str], names: Sequence[str]) -> str:
    """Return what is different of the names of features.

    >>> describe_difference(["a", "b"], ["b", "a"]), describe_difference(["a", "b"], ["a", "b", "c"])
    ("another order: 'b' where 'a' is expected", "'c' unexpected")
    >>> describe_difference(["a", "b"], ["a", "c"])
    "'b' missing, 'c' unexpected"
    """
    if is_reordered(names, expected):
        own, other = next(pair for pair in zip(names, expected, strict=True) if pair[0] != pair[1])
        return f"another order: {own!r} where {other!r} is expected"
    ours, theirs = set(expected), set(names)
    lacking = [name for name in expected if name not in theirs]
    extra = [name for name in names if name not in ours]
    parts = [
        f"{first_few(map(repr, found))} {what}"
        for found, what in ((lacking, "missing"), (extra, "unexpected"))
        if found
    ]
    return ", ".join(parts)


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
        numbers = _numbers(frame[name], item)
        columns.append(numbers.astype(dtype) if dtype == np.float64 else in_single(numbers, item))
        if len(columns[-1]) != len(columns[0]):
            raise DataError(
                item=item,
                wanted=f"{len(columns[0])} rows, as column {str(names[0])!r} has",
                got=str(len(columns[-1])),
                fix="give as many as there are, in their order",
            )
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
