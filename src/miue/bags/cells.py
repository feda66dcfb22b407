"""What a single cell of a table says: a word, a number, or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

UNKNOWN_WORDS = ("", "na", "n/a", "nan", "none", "null", "unknown", "#n/a", "<na>", "-nan")
"""What stands for nothing in a cell; names of classes can be two of these."""
FAILED_FORMULAS = ("#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NULL!")
"""What a spreadsheet leaves in a cell of which it could not compute the formula."""
POSSIBLE_CLASSES = ("none", "unknown")
MOST_EXACT = 2**53  # up to which float64 holds every whole number


_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")


def is_missing(value: Any) -> bool:
    """Return whether a value means nothing: None, NaN, pandas' NA or NaT, what NumPy masks, or no text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in _MISSING_TYPES


def name_of(value: Any) -> str:
    """Return the name that a value of a list or a data frame is: a whole number as it is written without a point.

    A column of whole numbers of which one is missing is one of floating point numbers in pandas.

    >>> name_of(7.0), name_of("7.0")
    ('7', '7.0')
    """
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def known_text(text: str) -> str:
    """Return the text of a cell, "" for the words that stand for nothing.

    >>> known_text(" tumor "), known_text("NA")
    ('tumor', '')
    """
    return "" if text.strip().lower() in UNKNOWN_WORDS else text.strip()


def row_name(table: str, row: int) -> str:
    """Return where a row of a table is: its line in a text file (the heading is line 1), else its number from 1.

    Args:
        table: name of the file.
        row: from 0.

    >>> row_name("labels.csv", 0), row_name("labels.parquet", 0)
    ('line 2', 'row 1')
    """
    return f"row {row + 1}" if table.lower().endswith(".parquet") else f"line {row + 2}"


def cell_name(table: str, places: np.ndarray, position: int, column: str) -> str:
    """Return where in a table the first cell with the distinct value number ``position`` is."""
    return f"table {table!r}, {row_name(table, int(np.argmax(places == position)))}, column {column!r}"


def whole_number(text: str) -> int | None:
    """Return the whole number that a cell holds, None where it holds none.

    >>> whole_number("3.0"), whole_number("3.5"), whole_number("x")
    (3, None, None)
    """
    if not is_number(text) or not float(text).is_integer() or abs(float(text)) > MOST_EXACT:
        return None
    return int(float(text))


def sorted_names(names: Iterable[str]) -> list[str]:
    """Return names of classes in order; numbers by value.

    >>> sorted_names(["b", "a"]), sorted_names(["10", "9"])
    (['a', 'b'], ['9', '10'])
    """
    in_order = sorted(set(names))
    if all(map(is_number, in_order)):
        in_order.sort(key=float)
    return in_order


def alike_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that differ in case, in spaces around them, or in how a number is written; None without.

    >>> alike_names(["a", "b"]), alike_names(["a", "b", "A "]), alike_names(["1", "1.0"])
    (None, ('A ', 'a'), ('1', '1.0'))
    """
    by_word = sorted(names, key=lambda name: (str(meaning_of(name)), name))
    return next((pair for pair in pairwise(by_word) if meaning_of(pair[0]) == meaning_of(pair[1])), None)


def meaning_of(name: str) -> float | str:
    """Return the number that a name of a class is, else the name without case and the spaces around it."""
    return float(name) if is_number(name) else name.strip().lower()


def is_number(text: str) -> bool:
    """Return whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
