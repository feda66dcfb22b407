"""Tables in long form, one row per instance: bag_id, label, features, and what else is known of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from miue.errors import DataError, StorageError
from miue.readers.columns import PATIENT_COLUMNS, column_of, word_of

ENDINGS = (".csv", ".tsv", ".csv.gz", ".parquet")
BAG = "bag_id"
OF_BAGS = ("label", "patient", "split", "is_ood", "ood_set")
TEXT = (BAG, "instance_label", *OF_BAGS)
COORDS = ("x", "y")
NAMES = {name: (name,) for name in (*TEXT, *COORDS)} | {"patient": ("patient", *PATIENT_COLUMNS)}
NO_FEATURES = {"", "instance", "fold"}.union(*NAMES.values())
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
        coords: columns x and y; None where the table lacks them.
    """

    ids: tuple[str, ...]
    sizes: Int64[np.ndarray, "B"]
    features: Float32[np.ndarray, "M D"]
    feature_names: tuple[str, ...]
    of_bags: dict[str, tuple[str, ...]]
    instance_labels: np.ndarray | None
    coords: Int64[np.ndarray, "M 2"] | None


def is_long_table(path: Path) -> bool:
    """Whether the name of the file is that of a table."""
    return path.is_file() and path.name.lower().endswith(ENDINGS)


def read_long_table(path: Path, *, features: Sequence[str] = (), allocate: Allocate | None = None) -> LongTable:
    """Return the table at ``path``, read twice in parts: first what names the bags, then the features.

    Args:
        path: CSV, tab-separated, gzipped CSV or Parquet; columns are found by their names in any case.
        features: the columns to learn from; if not given, all but those with a meaning of their own.
        allocate: makes the array (M, D) for the features, such as one on disk; in memory if not given.

    Raises:
        StorageError: missing or unreadable.
        DataError: no bag_id, no features, a column twice, a feature that is not a finite number, or a label
            that differs within a bag.
    """
    known, chosen = _columns_of(path, features)
    columns = _read_known(path, known)
    ids, first, place = np.unique(columns[BAG], return_index=True, return_inverse=True)
    if "" in ids:
        row = int(np.argmax(columns[BAG] == ""))
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
    _fill(path, chosen, array, target)
    starts = first[order]
    return LongTable(
        ids=tuple(ids[order].tolist()),
        sizes=np.bincount(bag).astype(np.int64),
        features=array,
        feature_names=tuple(chosen),
        of_bags={
            name: _same_within(path, name, columns[name], bag, starts) for name in OF_BAGS if name in columns
        },
        instance_labels=columns["instance_label"][by_bag] if "instance_label" in columns else None,
        coords=_coords(path, columns, by_bag) if set(COORDS) <= set(columns) else None,
    )


def _columns_of(path: Path, features: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the columns with a meaning, by what they mean, and those of features."""
    names = _column_names(path)
    twice = next((name for name in names if name and names.count(name) > 1), None)
    found = {meaning: column_of(names, words, str(path)) for meaning, words in NAMES.items()}
    known = {meaning: name for meaning, name in found.items() if name is not None}
    given = [name if name in names else column_of(names, (word_of(name),), str(path)) or name for name in features]
    chosen = given or [name for name in names if word_of(name) not in NO_FEATURES]
    missing = [name for name in chosen if name not in names]
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
    import pyarrow as pa
    from pyarrow import csv, parquet

    with _readable(path, pa):
        if path.suffix.lower() == ".parquet":
            return list(parquet.read_schema(path).names)
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            csv.open_csv(stream, parse_options=_separator(path, csv)) as reader,
        ):
            return list(reader.schema.names)


def _parts(path: Path, columns: Sequence[str], types: dict[str, Any]) -> Iterator[Any]:
    """Yield the table a part of rows at a time, with the given columns and types."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    with _readable(path, pa):
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
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            csv.open_csv(stream, parse_options=_separator(path, csv), convert_options=convert) as reader,
        ):
            for part in reader:
                yield pa.Table.from_batches([part])


@contextmanager
def _readable(path: Path, pa: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            item=f"table {str(path)!r}",
            wanted="a readable table of numbers with one header line",
            got="no such file" if isinstance(error, FileNotFoundError) else str(error).split("\n")[0],
            fix=f"check the file; columns of text are {', '.join(TEXT)} alone",
        ) from error


def _separator(path: Path, csv: Any) -> Any:
    return csv.ParseOptions(delimiter="\t" if ".tsv" in path.name.lower() else ",")


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


def _fill(path: Path, names: list[str], array: np.ndarray, target: np.ndarray) -> None:
    """Put each row's features where its bag lies."""
    import pyarrow as pa

    end = 0
    for part in _parts(path, names, dict.fromkeys(names, pa.float32())):
        rows = np.stack([part.column(name).to_numpy() for name in names], 1)
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0]
            raise DataError(
                item=f"table {str(path)!r}, row {end + row + 1}, column {names[column]!r}",
                wanted="a finite number",
                got=f"none, in {len(set(bad[:, 0].tolist()))} rows of this part of the table",
                fix="fill these cells, or drop the rows",
            )
        array[target[end : end + len(rows)]] = rows
        end += len(rows)


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


def _coords(path: Path, columns: dict[str, np.ndarray], by_bag: np.ndarray) -> np.ndarray:
    coords = np.stack([columns[name] for name in COORDS], 1)[by_bag]
    if not np.isfinite(coords).all():
        raise DataError(
            item=f"table {str(path)!r}, columns x and y",
            wanted="finite numbers",
            got="empty cells",
            fix="fill them in",
        )
    return coords.round().astype(np.int64)
