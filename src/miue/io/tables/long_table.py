"""Tables in long form, one row per instance: bag_id, label, features, and what else is known of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from miue.bags.coords import Coords
from miue.common.errors import DataError
from miue.io.formats.base import INFLATES_AT_MOST, ROOM
from miue.io.tables.columns import PATIENT_COLUMNS, column_of, numbers_rows, word_of
from miue.predictions.csv import csv_options, open_text, reading_table

ENDINGS = (".csv", ".tsv", ".csv.gz", ".parquet")
BAG = "bag_id"
OF_BAGS = ("label", "patient", "split", "is_ood", "ood_set")
TEXT = (BAG, "instance_label", *OF_BAGS)
COORDS = ("x", "y")
NAMES = {name: (name,) for name in (*TEXT, *COORDS)} | {
    BAG: (BAG, "slide_id"),
    "patient": ("patient", *PATIENT_COLUMNS),
}
NO_FEATURES = {"instance", "fold"}.union(*NAMES.values())
Allocate = Callable[[tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class LongTable:
    """A table's rows, sorted by bag; the bags stand in the order in which they first appear.

    Attributes:
        ids: name of each of the B bags.
        sizes: instances of each.
        features: of all instances, bag after bag.
        feature_names: the columns they come from.
        of_bags: further columns that are the same in all rows of a bag (those of ``OF_BAGS``), as text.
        instance_labels: as text, "" where unknown; None where the table has no such column.
        coords: columns x and y, unknown where both cells are empty; None where the table has none.
        not_finite: what is wrong with bags of which not every feature is a finite number, by their ids.
    """

    ids: tuple[str, ...]
    sizes: Int64[np.ndarray, "B"]
    features: Float32[np.ndarray, "M D"]
    feature_names: tuple[str, ...]
    of_bags: dict[str, tuple[str, ...]]
    instance_labels: np.ndarray | None
    coords: Coords | None
    not_finite: Mapping[str, str]


def is_long_table(path: Path) -> bool:
    """Whether the name of the file is that of a table."""
    return path.is_file() and path.name.lower().endswith(ENDINGS)


def read_long_table(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    allocate: Allocate | None = None,
) -> LongTable:
    """Return the table at ``path``, read twice in parts: first what names the bags, then the features.

    Args:
        path: CSV (comma, semicolon or tab), gzipped CSV or Parquet; columns are found by their names in any case.
        columns: the names of columns that are not found so, by what they mean: bag_id, label, patient.
        features: the columns to learn from; if not given, all but those with a meaning of their own.
        allocate: makes the array (M, D) for the features, such as one on disk; in memory if not given.

    Raises:
        StorageError: missing or unreadable.
        DataError: no bag_id, no features, a column that is missing or there twice, or a label that differs within
            a bag.
    """
    known, chosen = _columns_of(path, columns or {}, features)
    _refuse_claim(path, len(known) + len(chosen))
    cells = _read_known(path, known)
    ids, first, place = np.unique(cells[BAG], return_index=True, return_inverse=True)
    if "" in ids:
        row = int(np.argmax(cells[BAG] == ""))
        raise DataError(
            item=f"table {str(path)!r}, row {row + 1}", wanted="a bag_id", got="nothing", fix="fill it in"
        )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    bag = rank[place]
    by_bag = np.argsort(bag, kind="stable")
    target = np.empty_like(by_bag)
    target[by_bag] = np.arange(len(by_bag))
    array = (allocate or (lambda shape: np.empty(shape, np.float32)))((len(bag), len(chosen)))
    not_finite = _fill(path, chosen, array, target)
    starts = first[order]
    return LongTable(
        ids=tuple(ids[order].tolist()),
        sizes=np.bincount(bag).astype(np.int64),
        features=array,
        feature_names=tuple(chosen),
        of_bags={name: _same_within(path, name, cells[name], bag, starts) for name in OF_BAGS if name in cells},
        instance_labels=cells["instance_label"][by_bag] if "instance_label" in cells else None,
        coords=_coords(path, cells, by_bag) if set(COORDS) <= set(cells) else None,
        not_finite=_by_bag(not_finite, cells[BAG]),
    )


def _columns_of(path: Path, told: Mapping[str, str], features: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the columns with a meaning, by what they mean, and those of features."""
    names = _column_names(path)
    twice = next((name for name in names if name and names.count(name) > 1), None)
    found = {meaning: column_of(names, words, str(path)) for meaning, words in NAMES.items()}
    known = {**{meaning: name for meaning, name in found.items() if name is not None}, **told}
    given = [name if name in names else column_of(names, (word_of(name),), str(path)) or name for name in features]
    meaningful = NO_FEATURES | {word_of(name) for name in told.values()}
    chosen = given or [name for name in names if word_of(name) not in meaningful and not numbers_rows(name)]
    missing = [name for name in (*told.values(), *chosen) if name not in names]
    if twice is None and BAG in known and chosen and not missing:
        return known, chosen
    wanted = f"a column {BAG!r} and columns of features" if not missing else f"a column {missing[0]!r}"
    raise DataError(
        item=f"table {str(path)!r}",
        wanted=wanted if twice is None else f"one column {twice!r}",
        got=f"columns {', '.join(names[:12])}{', …' if names[12:] else ''}",
        fix=f"name the column with the bags {BAG!r}, one row per instance"
        if twice is None
        else "keep one of them, or rename the others",
    )


def _column_names(path: Path) -> list[str]:
    from pyarrow import csv, parquet

    with _readable(path):
        if path.suffix.lower() == ".parquet":
            return list(parquet.read_schema(path).names)
        read, parse = csv_options(path)
        with open_text(path) as stream, csv.open_csv(stream, read_options=read, parse_options=parse) as reader:
            return list(reader.schema.names)


def _refuse_claim(path: Path, columns: int) -> None:
    """Raise where a Parquet file claims more rows than it can hold, before memory is taken for them.

    Raises:
        DataError: it does.
    """
    from pyarrow import parquet

    if path.suffix.lower() != ".parquet":
        return
    rows = parquet.read_metadata(path).num_rows  # readable: its columns were read from it
    claimed, held = rows * columns * np.dtype(np.float32).itemsize, path.stat().st_size
    if claimed > held * INFLATES_AT_MOST + ROOM:
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="rows that the file can hold",
            got=f"{rows:,} rows of {columns:,} columns in {held:,} bytes",
            fix="if it is no fraud, write it without compression and dictionaries",
        )


def _parts(path: Path, columns: Sequence[str], types: dict[str, Any]) -> Iterator[Any]:
    """Yield the table a part of rows at a time, with the given columns and types."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    with _readable(path):
        if path.suffix.lower() == ".parquet":
            schema = pa.schema([(name, types[name]) for name in columns])
            with parquet.ParquetFile(path) as file:
                for part in file.iter_batches(columns=list(columns)):
                    yield pa.Table.from_batches([part]).select(list(columns)).cast(schema, safe=False)
            return
        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            strings_can_be_null=False,
            null_values=["", "NA", "nan", "NaN"],
        )
        read, parse = csv_options(path)
        with (
            open_text(path) as stream,
            csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader,
        ):
            for part in reader:
                yield pa.Table.from_batches([part])


def _readable(path: Path) -> AbstractContextManager[None]:
    wanted = "a readable table of numbers with one header line"
    return reading_table(path, wanted, f"check the file; columns of text are {', '.join(TEXT)} alone")


def _read_known(path: Path, known: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return columns by what they mean, given the name of each."""
    import pyarrow as pa

    types = {name: pa.float64() if meaning in COORDS else pa.string() for meaning, name in known.items()}
    parts: dict[str, list[np.ndarray]] = {meaning: [] for meaning in known}
    for part in _parts(path, list(known.values()), types):
        for meaning, name in known.items():
            values = part.column(name)
            if meaning in COORDS:
                parts[meaning].append(values.to_numpy())
            else:
                parts[meaning].append(values.fill_null("").to_numpy().astype(object))
    if not parts[BAG]:
        raise DataError(item=f"table {str(path)!r}", wanted="at least one row", got="none", fix="check the file")
    return {meaning: np.concatenate(values) for meaning, values in parts.items()}


def _fill(path: Path, names: list[str], array: np.ndarray, target: np.ndarray) -> dict[int, str]:
    """Put each row's features where its bag lies; return rows that are not finite, each with such a column."""
    import pyarrow as pa

    end, found = 0, {}
    for part in _parts(path, names, dict.fromkeys(names, pa.float32())):
        rows = np.stack([part.column(name).to_numpy() for name in names], 1)
        for row in np.flatnonzero(~np.isfinite(rows).all(1)):
            found[end + int(row)] = names[int(np.argmin(np.isfinite(rows[row])))]
        array[target[end : end + len(rows)]] = rows
        end += len(rows)
    return found


def _by_bag(not_finite: Mapping[int, str], bag_of: np.ndarray) -> dict[str, str]:
    rows: dict[str, list[int]] = {}
    for row in not_finite:
        rows.setdefault(str(bag_of[row]), []).append(row)
    return {
        bag: f"no finite number in {len(own)} of {int((bag_of == bag).sum())} rows (row {own[0] + 1}, "
        f"column {not_finite[own[0]]!r})"
        for bag, own in rows.items()
    }


def _same_within(path: Path, name: str, values: np.ndarray, bag: np.ndarray, first: np.ndarray) -> tuple[str, ...]:
    of_bag = values[first]
    differs = np.flatnonzero(values != of_bag[bag])
    if len(differs):
        row = differs[0]
        raise DataError(
            item=f"table {str(path)!r}, row {row + 1}, column {name!r}",
            wanted=f"{of_bag[bag[row]]!r}, as in the other rows of this bag",
            got=repr(values[row]),
            fix=f"give a bag one {name}; what is known of instances goes into instance_label",
        )
    return tuple(of_bag.tolist())


def _coords(path: Path, columns: dict[str, np.ndarray], by_bag: np.ndarray) -> Coords | None:
    """Return where instances lie, from two columns of numbers that are NaN where a cell is empty."""
    x, y = (columns[name] for name in COORDS)
    found = Coords.of_columns(x, y, str(path))
    return None if found is None else found[by_bag]
