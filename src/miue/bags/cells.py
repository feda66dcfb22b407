"""What a single cell of a table says: a word, a number, or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import numpy as np

from miue.common.errors import DataError, first_few
from miue.common.numbers import MOST_EXACT

UNKNOWN_WORDS = (
    *("", "na", "n/a", "nan", "none", "null", "unknown", "#n/a", "<na>", "-nan"),
    *("--", "'--", "not reported", "[not available]", "[not applicable]", "[not evaluated]", "[unknown]"),
)
"""What stands for nothing in a cell, then in clinical tables of TCGA; names of classes can be two of these."""
POSSIBLE_CLASSES = ("none", "unknown")
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


def one_form(name: str) -> str:
    """Return a name with letters with marks in one form (NFC): systems differ in how they write them.

    >>> one_form("Gru\u0308n") == one_form("Gr\u00fcn") == "Gr\u00fcn"
    True
    """
    return normalize("NFC", name)


def known_text(text: str) -> str:
    """Return the text of a cell, "" for the words that stand for nothing; letters with marks are in one form.

    >>> known_text(" tumor "), known_text("NA"), known_text("u\u0308") == "\u00fc"
    ('tumor', '', True)
    """
    return "" if text.strip().lower() in UNKNOWN_WORDS else one_form(text.strip())


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


def refuse_quantities(names: Sequence[str], source: str, how_to_name: str) -> None:
    """Raise where the classes of labels are numbers that measure something, such as ages.

    Numbers are classes where they are two whole numbers, or the whole numbers from 0 or 1 on.

    Args:
        names: of the classes, in order, each once; none that the user named.
        source: of the labels, for messages.
        how_to_name: an option that names classes, likewise.

    Raises:
        DataError: other numbers.

    """
    count, numbers = len(names), [whole_number(name) for name in names]
    counted = (count == 2 and None not in numbers) or numbers in ([*range(count)], [*range(1, count + 1)])
    if count > 1 and all(map(is_number, names)) and not counted:
        raise DataError(
            item=f"the labels of {source}",
            wanted="names of classes, two whole numbers, or the whole numbers from 0 or 1 on",
            got=f"{count:,} numbers ({first_few(names)})",
            fix=f"predict numbers with task=regression; if these are classes, name all with {how_to_name}",
        )


def meaning_of(name: str) -> float | str:
    """Return the number that a name of a class is, else the name without case and the spaces around it."""
    return float(name) if is_number(name) else one_form(name.strip().lower())


def is_number(text: str) -> bool:
    """Return whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
