"""Tables in long form, one row per instance: bag_id, label, features, and what else is known of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from miue.errors import DataError, StorageError

ENDINGS = (".csv", ".tsv", ".csv.gz", ".parquet")
BAG = "bag_id"
TEXT = (BAG, "label", "instance_label", "patient", "split")
COORDS = ("x", "y")
NO_FEATURES = (*TEXT, *COORDS, "instance", "fold")
Allocate = Callable[[tuple[int, int]], np.ndarray]


@dataclass(frozen=True)
class LongTable:
    """A table's rows, sorted by bag; the bags stand in the order in which they first appear.

    Attributes:
        ids: name of each of the B bags.
        sizes: instances of each.
        features: of all instances, bag after bag.
        feature_names: the columns they come from.
        of_bags: further columns that are the same in all rows of a bag (label, patient, split), as text.
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
        path: CSV, tab-separated, gzipped CSV or Parquet.
        features: the columns to learn from; if not given, all but those with a meaning of their own.
        allocate: makes the array (M, D) for the features, such as one on disk; in memory if not given.

    Raises:
        StorageError: missing or unreadable.
        DataError: no bag_id, no features, a feature that is not a finite number, or a label that
            differs within a bag.
    """
    names = _column_names(path)
    chosen = list(features) or [name for name in names if name.lower() not in NO_FEATURES and name]
    missing = sorted({BAG, *chosen} - set(names))
    if missing or not chosen:
        raise DataError(
            item=f"table {str(path)!r}",
            wanted=f"a column {BAG!r} and columns of features"
            if missing[:1] in ([], [BAG])
            else f"a column {missing[0]!r}",
            got=f"columns {', '.join(names[:12])}{', …' if names[12:] else ''}",
            fix=f"name the column with the bags {BAG!r}, one row per instance",
        )
    known = [name for name in (*TEXT, *COORDS) if name in names]
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
            name: _same_within(path, name, columns[name], bag, starts)
            for name in ("label", "patient", "split")
            if name in columns
        },
        instance_labels=columns["instance_label"][by_bag] if "instance_label" in columns else None,
        coords=_coords(path, columns, by_bag) if set(COORDS) <= set(columns) else None,
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
            fix="check the file; columns of text are bag_id, label, patient, split and instance_label alone",
        ) from error


def _separator(path: Path, csv: Any) -> Any:
    return csv.ParseOptions(delimiter="\t" if ".tsv" in path.name.lower() else ",")


def _read_known(path: Path, known: list[str]) -> dict[str, np.ndarray]:
    import pyarrow as pa

    types = {name: pa.float64() if name in COORDS else pa.string() for name in known}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in known}
    for part in _parts(path, known, types):
        for name in known:
            values = part.column(name)
            if name in COORDS:
                parts[name].append(values.to_numpy())
            else:
                parts[name].append(values.fill_null("").to_numpy().astype(object))
    if not parts[BAG]:
        raise DataError(item=f"table {str(path)!r}", wanted="at least one row", got="none", fix="check the file")
    return {name: np.concatenate(values) for name, values in parts.items()}


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
