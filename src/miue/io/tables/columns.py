"""Columns of tables are found by their names, whatever the case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from miue.bags.column_names import BAG, NAMES, lower_case, names_feature
from miue.common.errors import DataError, first_repeated, missing_column


def may_number_rows(name: str) -> bool:
    """Return whether a column is named as if it numbered rows or parts of the data, and were no feature.

    >>> [name for name in ("tile_id", "row index", "fold_0", "grid", "fold_change") if may_number_rows(name)]
    ['tile_id', 'row index', 'fold_0']
    """
    return re.fullmatch(r"(.*[\W_])?(id|idx|index|fold)([\W_]?\d+)?", lower_case(name)) is not None


def find_column(names: Iterable[str], known: Sequence[str], table: str) -> str | None:
    """Return the first of the known columns that is there, None where none is.

    Args:
        names: the columns of the table, as it writes them.
        known: names for what is looked for, in lower case.
        table: its name, for messages.

    Raises:
        DataError: two columns of this name that differ in case.

    >>> find_column(["Slide_ID", "Label"], ("bag_id", "slide_id"), "labels.csv")
    'Slide_ID'
    """
    present = list(names)
    for word in known:
        same = [name for name in present if lower_case(name) == word]
        if len(same) > 1:
            raise DataError(
                item=f"table {table!r}",
                wanted=f"one column {word!r}",
                got=" and ".join(map(repr, same)),
                fix="keep one of them, or rename the other",
            )
        if same:
            return same[0]
    return None


def columns_by_meaning(
    names: Sequence[str],
    table: str,
    specified: Mapping[str, str],
    features: Sequence[str] = (),
    meanings: Iterable[str] = NAMES,
) -> tuple[dict[str, str], list[str]]:
    """Return the columns of a long table that have a meaning, by what they mean, and those of features.

    Args:
        names: all columns.
        table: its name, for messages.
        specified: the names of columns by what they mean, before those that are found.
        features: those to learn from; all without a meaning if empty.
        meanings: those that are looked for.

    Raises:
        DataError: no bag_id, no features, or a column that is missing or there twice.
    """
    if (twice := first_repeated(filter(None, names))) is not None:
        got, fix = f"{names.count(twice)}", "keep one of them, or rename the others"
        raise DataError(item=f"table {table!r}", wanted=f"one column {twice!r}", got=got, fix=fix)
    by_name = {meaning: find_column(names, NAMES[meaning], table) for meaning in meanings}
    known = {**{meaning: name for meaning, name in by_name.items() if name is not None}, **specified}
    meaningful = {lower_case(name) for name in specified.values()}
    chosen = [
        name if name in names else find_column(names, (lower_case(name),), table) or name for name in features
    ]
    chosen = chosen or [name for name in names if lower_case(name) not in meaningful and names_feature(name)]
    missing = next((name for name in (*specified.values(), *chosen) if name not in names), None)
    if missing is not None or BAG not in known or not chosen:
        wanted = f"a column {BAG!r} and columns of features" if missing is None else f"a column {missing!r}"
        how = f"--id-column NAME, in Python columns={{{BAG!r}: NAME}}"
        fix = f"say which column names the bags ({how}), or call it {BAG!r}"
        if missing is None:
            fix += "; one row per instance: a label table is passed as --labels, beside the folder of features"
        raise missing_column(f"table {table!r}", wanted, names, fix)
    return known, chosen
