"""Columns of tables are found by their names, whatever the case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from miue.bags.columns import BAG, NAMES, TEXT, lower_case, names_feature
from miue.common.errors import DataError, first_repeated, missing_column, unknown_name

HOW_TO_CHOOSE = "features=NAME"


def how_to_specify(meaning: str) -> str:
    """Return how a user says which column has a meaning.

    >>> how_to_specify("bag_id"), how_to_specify("x")
    ('id_column=NAME', "columns={'x': NAME}")
    """
    setting = {BAG: "id_column", "label": "label_column", "patient": "patient_column"}.get(meaning)
    return f"{setting}=NAME" if setting else f"columns={{{meaning!r}: NAME}}"


def check_meanings(specified: Iterable[str], meanings: Iterable[str]) -> None:
    """Raise unless each key of ``columns`` is a meaning that a column of this table can have.

    Raises:
        ConfigError: another one, such as a misspelled "patient", whose column would not be read.
    """
    meanings = list(meanings)
    for meaning in specified:
        if meaning not in meanings:
            raise unknown_name("meaning of a column", meaning, meanings)


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
        features: names of those to learn from, or patterns, as ``choose_features`` takes them; all without a
            meaning if empty.
        meanings: those that are looked for.

    Raises:
        DataError: no bag_id, no features, a column that is missing or there twice, or a label among the features.
        ConfigError: ``specified`` has a meaning that there is not.
    """
    check_meanings(specified, NAMES)
    if (twice := first_repeated(filter(None, names))) is not None:
        got, fix = f"{names.count(twice)}", "keep one of them, or rename the others"
        raise DataError(item=f"table {table!r}", wanted=f"one column {twice!r}", got=got, fix=fix)
    by_name = {meaning: find_column(names, NAMES[meaning], table) for meaning in meanings}
    known = {**{meaning: name for meaning, name in by_name.items() if name is not None}, **specified}
    candidates = possible_features(names, specified)
    chosen = choose_features(names, table, features, candidates, known) if features else candidates
    for meaning, name in specified.items():
        if name not in names:
            fix = f"name one that it has ({how_to_specify(meaning)})"
            raise missing_column(f"table {table!r}", f"a column {name!r}", names, fix)
    if BAG not in known or not chosen:
        wanted = f"a column {BAG!r} and columns of features"
        fix = f"say which column names the bags ({how_to_specify(BAG)}), or call it {BAG!r}"
        fix += "; one row per instance: a label table is passed beside the folder of features (labels=TABLE)"
        raise missing_column(f"table {table!r}", wanted, names, fix)
    return known, chosen


def possible_features(names: Iterable[str], specified: Mapping[str, str]) -> list[str]:
    """Return the columns that are features where none are chosen: those without a meaning of their own.

    >>> possible_features(["slide", "label", "f1", "x"], {"bag_id": "slide"})
    ['f1']
    """
    meaningful = {lower_case(name) for name in specified.values()}
    return [name for name in names if lower_case(name) not in meaningful and names_feature(name)]


def choose_features(
    names: Sequence[str], table: str, wanted: Sequence[str], candidates: Sequence[str], known: Mapping[str, str]
) -> list[str]:
    """Return the columns that are wanted as features, each once, in the order in which they are asked for.

    Args:
        names: all columns.
        table: its name, for messages.
        wanted: names of columns, in any case; or patterns of names with ``*``, ``?`` or ``[…]``, which match those
            without a meaning of their own, in the order of the table.
        candidates: the columns that patterns match.
        known: the columns that have a meaning, by what they mean.

    Raises:
        DataError: a name that no column has, a pattern that none matches, or a column of text such as the label.

    >>> columns = ["bag_id", "label", "f_1", "tile", "f_2"]
    >>> choose_features(columns, "t.csv", ["tile", "f_*"], columns[2:], {"label": "label"})
    ['tile', 'f_1', 'f_2']
    """
    chosen: dict[str, None] = {}
    there = set(names)
    for word in wanted:
        exact = word if word in there else find_column(names, (lower_case(word),), table)
        matched = [name for name in candidates if fnmatchcase(name, word)] if exact is None else [exact]
        if not matched:
            is_pattern = any(sign in word for sign in "*?[")
            what = f"columns of features that match {word!r}" if is_pattern else f"a column of features {word!r}"
            raise missing_column(
                f"table {table!r}", what, names, f"name columns that it has ({HOW_TO_CHOOSE}), or a pattern: 'f_*'"
            )
        if exact is not None and (meaning := _text_meaning(exact, known)):
            raise DataError(
                item=f"table {table!r}, column {exact!r}",
                wanted="a feature, as it is named as one",
                got=f"the column {meaning} of the bags",
                fix=f"name columns of features alone ({HOW_TO_CHOOSE})",
            )
        chosen |= dict.fromkeys(matched)
    return list(chosen)


def _text_meaning(name: str, known: Mapping[str, str]) -> str:
    """Return what a column means that holds text and can be no feature; "" where it is no such column."""
    return next((meaning for meaning, own in known.items() if own == name and meaning in TEXT), "")
