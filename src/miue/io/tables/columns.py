"""Columns of tables are found by their names, whatever the case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from miue.common.errors import DataError

PATIENT_COLUMNS = ("case_id", "patient_id", "patient", "case", "submitter_id")


def word_of(name: str) -> str:
    """Return what the name of a column is compared by."""
    return name.strip().lower()


def numbers_rows(name: str) -> bool:
    """Return whether a column is one that pandas and others write to number the rows.

    >>> [name for name in ("Unnamed: 0", "index", "", "__index_level_0__", "area") if numbers_rows(name)]
    ['Unnamed: 0', 'index', '', '__index_level_0__']
    """
    word = word_of(name)
    return word in ("", "index") or word.startswith(("unnamed:", "__index_level_"))


def column_of(names: Iterable[str], known: Sequence[str], where: str) -> str | None:
    """Return the first of the known columns that is there, None where none is.

    Args:
        names: the columns of the table, as it writes them.
        known: names for what is looked for, in lower case.
        where: the table, for messages.

    Raises:
        DataError: two columns of this name that differ in case.

    >>> column_of(["Slide_ID", "Label"], ("bag_id", "slide_id"), "labels.csv")
    'Slide_ID'
    """
    present = list(names)
    for word in known:
        found = [name for name in present if word_of(name) == word]
        if len(found) > 1:
            raise DataError(
                item=f"table {where!r}",
                wanted=f"one column {word!r}",
                got=" and ".join(map(repr, found)),
                fix="keep one of them, or rename the other",
            )
        if found:
            return found[0]
    return None
