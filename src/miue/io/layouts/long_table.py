"""Tables in long form, one row per instance: bag_id, label, features, and what else is known of an instance."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import GroupedRows
from miue.bags.cells import row_name
from miue.bags.columns import BAG, COORDS, NAMES, OF_BAGS, TEXT
from miue.common.errors import DataError, MiueError, first_few, lacking
from miue.common.tables import read_parts, texts_of_column
from miue.common.text import plural
from miue.io.columns import HOW_TO_CHOOSE, columns_by_meaning, may_number_rows, possible_features
from miue.io.layouts.table_files import TableFiles, name_of_bag
from miue.io.raw_bags import RawBags

FIX = f"check the file; columns of text are {', '.join(TEXT)} alone, or choose the features ({HOW_TO_CHOOSE})"
LARGE = f", which is infinite or beyond {np.finfo(np.float32).max:.2g}, the most that float32 can hold"


def read_long_table(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    meanings: Iterable[str] = NAMES,
) -> RawBags:
    """Return the bags of a long table or of a folder of tables: bag_id, label, features, and what else it has.

    That is instance_label, patient, split, is_ood, ood_set, x and y. Bags are in the order in which they first
    appear; spaces around a text are no part of it. The table is read twice in parts: first what names the bags,
    then the features.

    Args:
        path: CSV (comma, semicolon or tab), gzipped CSV or Parquet; columns are found by their names in any case.
            Of a folder, each table is a bag that has its name, unless a column names bags.
        columns: the names of columns that are not found so, by what they mean: bag_id, label, patient.
        features: the columns to learn from, by their names or patterns of names (``f_*``), in this order; if not
            specified, all but those with a meaning of their own.
        meanings: which columns to read beside the features, by what they mean.

    Raises:
        StorageError: missing or unreadable.
        DataError: no bag_id, no features, a column that is missing or there twice, or a label that differs within
            a bag.
        ConfigError: ``columns`` has a meaning that there is not.
    """
    import pyarrow as pa

    files = TableFiles.at(path, columns or {})
    source, header = files.source, [*files.header, *files.added_columns]
    known, chosen = columns_by_meaning(header, source, columns or {}, features, meanings)
    taken = set(chosen)
    others = [name for name in possible_features(header, columns or {}) if name not in taken]
    types = {name: pa.float64() if meaning in COORDS else pa.string() for meaning, name in known.items()}
    unusable = dict(files.bad)
    parts = list(_parts_of_facts(files, types, chosen[0], unusable))
    parts_of_features = _parts_of_features(files, chosen, parts, unusable)
    if not parts:
        for error in unusable.values():
            raise error
        raise lacking(f"table {source!r}", "at least one row")
    table = pa.concat_tables([part for _, part in parts])
    place_of = _places(files, parts)
    cells = {meaning: _cells(table.column(name), meaning) for meaning, name in known.items()}
    if len(nameless := np.flatnonzero(cells[BAG] == "")):
        item = f"table {source!r}, {place_of(int(nameless[0]))}"
        raise DataError(item=item, wanted="a bag_id", got="nothing", fix="fill it in")
    grouped = GroupedRows.of(cells[BAG])
    bag, starts = grouped.bag, np.unique(grouped.bag, return_index=True)[1]
    rows = np.argsort(bag, kind="stable")
    values = np.empty((len(bag), len(chosen)), np.float32)
    not_finite = _fill(values, rows, parts_of_features)
    place_in = np.argsort(rows) if not_finite else rows
    too_large = {row for row, column in not_finite.items() if np.isinf(values[place_in[row], column])}
    bad = _without_rows(files, parts) | _by_bag(not_finite, too_large, chosen, cells[BAG], place_of)
    bad |= {name: str(error) for name, error in unusable.items()}
    return RawBags(
        source=source,
        ids=grouped.names,
        sizes=np.bincount(bag).astype(np.int64),
        instances=values,
        of_bags={
            name: _same_within(f"table {source!r}", known[name], cells[name], bag, starts, place_of)
            for name in OF_BAGS
            if name in cells
        },
        of_instances={name: cells[name] for name in ("instance_label", *COORDS) if name in cells},
        order=rows.astype(np.int64),
        columns=known,
        feature_names=tuple(chosen),
        bad=dict(sorted(bad.items())),
        notes=(
            *files.notes,
            *_notes_of_features(chosen, features, others),
            *(["each bag is one row: a bag of one instance"] if len(starts) == len(bag) else []),
        ),
    )


def _parts_of_facts(
    files: TableFiles, types: Mapping[str, Any], feature: str, unusable: dict[str, MiueError]
) -> Iterator[tuple[Path, Any]]:
    """Yield what is known of the instances beside their features, with what a file's name and folder say.

    Args:
        files: of the table.
        types: of the columns to read, by their names.
        feature: a column that is read to count the rows, where there is nothing else to read.
        unusable: what is wrong with bags whose files cannot be read, which are added to it.
    """
    import pyarrow as pa

    stored = {name: kind for name, kind in types.items() if name not in files.added_columns}
    for file in files.files:
        try:
            parts = list(read_parts(file, stored or {feature: pa.float32()}, FIX))
        except MiueError as error:
            if not files.of_one_bag:
                raise
            unusable[name_of_bag(file)] = error
            continue
        for part in parts:
            facts = part.select(list(stored))
            for name, text in files.added(file).items():
                if name in types:
                    facts = facts.append_column(name, pa.repeat(pa.scalar(text), len(part)))
            yield file, facts


def _parts_of_features(
    files: TableFiles, names: Sequence[str], facts: Sequence[tuple[Path, Any]], unusable: dict[str, MiueError]
) -> Iterator[Any]:
    """Yield the features of the instances, as many rows as there are facts; NaN where a bag's file has no more.

    Args:
        files: of the table.
        names: of the features.
        facts: what else is known of the instances, with the file of each part.
        unusable: what is wrong with bags whose files cannot be read, which are added to it.
    """
    import pyarrow as pa

    types = dict.fromkeys(names, pa.float32())
    if not files.of_one_bag:
        yield from (part for file in files.files for part in read_parts(file, types, FIX))
        return
    missing = Counter[Path]()
    for file, part in facts:
        missing[file] += len(part)
    for file in missing:
        try:
            for part in read_parts(file, types, FIX):
                missing[file] -= len(part)
                yield part
        except MiueError as error:
            unusable[name_of_bag(file)] = error
            yield pa.table(dict.fromkeys(names, np.full(missing[file], np.nan, np.float32)))


def _cells(column: Any, meaning: str) -> np.ndarray:
    """Return the M cells of a column: numbers of coords, else texts without the spaces around them."""
    import pyarrow.compute as pc

    return column.to_numpy() if meaning in COORDS else texts_of_column(pc.utf8_trim_whitespace(column))


def _places(files: TableFiles, parts: Sequence[tuple[Path, Any]]) -> Callable[[int], str]:
    """Return what says where a row is, as "line 3", of a folder "line 3 of 's1.csv'"."""
    starts: list[int] = []
    paths: list[Path] = []
    end = 0
    for file, part in parts:
        if file not in paths[-1:]:
            starts.append(end)
            paths.append(file)
        end += len(part)

    def place_of(row: int) -> str:
        number = bisect_right(starts, row) - 1
        of_file = f" of {paths[number].relative_to(files.source).as_posix()!r}" if files.files[1:] else ""
        return f"{row_name(paths[number].name, row - starts[number])}{of_file}"

    return place_of


def _without_rows(files: TableFiles, parts: Sequence[tuple[Path, Any]]) -> dict[str, str]:
    """Return the bags of a folder whose tables have no row, and so no instance."""
    if not files.of_one_bag:
        return {}
    with_rows = {file for file, part in parts if len(part)}
    return {name_of_bag(file): f"no row in {file.name!r}" for file in files.files if file not in with_rows}


def _fill(values: np.ndarray, rows: np.ndarray, parts: Iterable[Any]) -> dict[int, int]:
    """Put each row's features where its bag is; return rows that are not finite, each with such a column."""
    target = np.argsort(rows)
    end = 0
    found: dict[int, int] = {}
    for part in parts:
        numbers = np.stack([column.to_numpy() for column in part.columns], 1)
        finite = np.isfinite(numbers)
        found |= {end + int(row): int(np.argmin(finite[row])) for row in np.flatnonzero(~finite.all(1))}
        values[target[end : end + len(numbers)]] = numbers
        end += len(numbers)
    return found


def _notes_of_features(taken: Sequence[str], specified: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield which columns are taken for features though their names are of what numbers rows, and which are not.

    Args:
        taken: names of the features.
        specified: names or patterns of features that the caller chose.
        others: columns that would be features, had none been chosen.
    """
    if others:
        yield f"{plural(len(taken), 'column')} taken for features; not read: {first_few(map(repr, others))}"
    if found := [repr(name) for name in taken if name not in specified and may_number_rows(name)]:
        yield f"taken for features: {first_few(found)}; if they only number rows, choose the features"


def _by_bag(
    not_finite: Mapping[int, int],
    too_large: set[int],
    features: Sequence[str],
    bag_of: np.ndarray,
    place_of: Callable[[int], str],
) -> dict[str, str]:
    rows: dict[str, list[int]] = {}
    for row in not_finite:
        rows.setdefault(str(bag_of[row]), []).append(row)
    sizes = Counter(bag_of.tolist()) if rows else {}
    return {
        bag: f"no finite number in {len(own)} of {sizes[bag]} rows ({place_of(own[0])}, "
        f"column {features[not_finite[own[0]]]!r}{LARGE if own[0] in too_large else ''})"
        for bag, own in rows.items()
    }


def _same_within(
    table: str, name: str, values: np.ndarray, bag: np.ndarray, first: np.ndarray, place_of: Callable[[int], str]
) -> tuple[str, ...]:
    of_bag = values[first]
    differs = np.flatnonzero(values != of_bag[bag])
    if len(differs):
        row = differs[0]
        raise DataError(
            item=f"{table}, {place_of(row)}, column {name!r}",
            wanted=f"{of_bag[bag[row]]!r}, as in the other rows of this bag",
            got=repr(values[row]),
            fix=f"give a bag one {name}; what is known of instances goes into instance_label",
        )
    return tuple(of_bag.tolist())
