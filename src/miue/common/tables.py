"""The one reader and writer of tables: CSV of any separator and encoding that is read, and Parquet."""

from __future__ import annotations

import csv as plain_csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from miue.common.array_files import can_hold
from miue.common.csv_text import DECIMAL_COMMA, not_text, open_text, read_text_start
from miue.common.errors import DataError, StorageError, first_few, first_repeated, lacking, not_readable
from miue.common.files import atomic_file, open_file

MISSING = ["", "NA", "nan", "NaN"]
TRUTH_VALUES = ("true", "false", "yes", "no", "t", "f", "y", "n")
NAMELESS = "name each in the first line; if that is a title, delete it, so that the names of columns come first"


def read_header(path: Path) -> list[str]:
    """Return the names of a table's columns.

    Args:
        path: CSV (comma, semicolon or tab; UTF-8, or UTF-16 with a byte order mark), gzipped CSV or Parquet.

    Raises:
        StorageError: missing, unreadable, or in another encoding.
        DataError: a header line of numbers.
    """
    with reading_table(path):
        if _is_parquet(path):
            return list(parquet.read_schema(path).names)
        names = read_text_start(path).rows(1)[0]
    refuse_numbers(names, f"table {str(path)!r}")
    return names


def refuse_numbers(names: Sequence[str], item: str) -> None:
    """Raise where the names of columns are numbers: they are the first row of a table without a header line.

    Numbers from 0 on, as pandas names columns without names, are let pass.

    Raises:
        DataError: they are.
    """
    cells = [name.strip() for name in names if name.strip()]
    try:
        numbers = [float(cell.replace(",", ".").replace("_", "?")) for cell in cells]
    except ValueError:
        return
    if sorted(numbers) != list(range(len(cells))):
        fix = "write the names of the columns into a line above it, such as bag_id,label,f_0,f_1"
        got = f"numbers ({first_few(cells)}), as of a row"
        raise DataError(item=item, wanted="a header line with the names of columns", got=got, fix=fix)


def read_parts(path: Path, types: Mapping[str, Any], fix: str = "check the file") -> Iterator[Any]:
    """Yield the table at ``path`` a part of its rows at a time, as pyarrow tables.

    Args:
        path: as for ``read_header``.
        types: the columns to read and the type of each; a cell of text is never missing, but empty.
        fix: what to do where a cell is of another type.

    Raises:
        StorageError: unreadable, or cells of another type.
        DataError: a Parquet file that claims more rows than it can hold.
    """
    names = list(types)
    if _is_parquet(path):
        _refuse_claim(path)
    with reading_table(path, fix):
        if _is_parquet(path):
            with parquet.ParquetFile(path) as file:
                for part in file.iter_batches(columns=names):
                    yield _with_types(path, pa.Table.from_batches([part]).select(names), types, fix)
            return
        start = read_text_start(path)
        convert = csv.ConvertOptions(
            column_types=dict(types),
            include_columns=names,
            strings_can_be_null=False,
            null_values=MISSING,
            decimal_point=start.decimal_mark(),
        )
        with (
            open_text(path) as stream,
            csv.open_csv(stream, **start.options(), convert_options=convert) as reader,
        ):
            for part in reader:
                yield pa.Table.from_batches([part])


def read_text_columns(path: Path) -> dict[str, list[str]]:
    """Return every column of a table as text, so that ids keep their zeros.

    Raises:
        StorageError: missing, unreadable, or in another encoding.
        DataError: no row, or a column twice.
    """
    return {name: column.to_pylist() for name, column in _read(path, None).items()}


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return every row of a table as text by the names of the columns; errors as for ``read_text_columns``."""
    columns = read_text_columns(path)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def read_columns(path: Path, text: Collection[str]) -> dict[str, np.ndarray]:
    """Return every column of a table as its cells read, but those named in ``text`` as text.

    Raises:
        StorageError: missing, unreadable, or in another encoding.
        DataError: no row, or a column twice.
    """
    return {name: _as_array(column) for name, column in _read(path, text).items()}


def texts_of_column(column: Any) -> np.ndarray:
    """Return the texts of a column of pyarrow, equal ones as one object, "" where a cell is empty.

    >>> first, _, third = texts_of_column(pa.chunked_array([["slide_1", None], ["slide_1"]]))
    >>> first is third
    True
    """
    encoded = column.cast(pa.string()).fill_null("").dictionary_encode().unify_dictionaries()
    if not len(encoded):
        return np.zeros(0, object)
    texts: np.ndarray = np.array(encoded.chunk(0).dictionary.to_pylist(), object)
    return texts[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]


def write_table(path: Path, columns: Mapping[str, Any] | pa.Table) -> None:
    """Write columns as CSV in UTF-8, gzipped where the name ends so; whole or not at all.

    Texts are quoted where one of them holds a comma, a quote or a line break.

    Args:
        path: the file.
        columns: values by the name of their column, None where there is none; or a pyarrow table.

    Raises:
        StorageError: the file cannot be written.
    """
    import pyarrow.compute as pc

    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    special = any(
        pc.any(pc.match_substring_regex(column, '[",\r\n]')).as_py()
        for column in table.columns
        if pa.types.is_string(column.type)
    )
    header = io.StringIO()
    plain_csv.writer(header, lineterminator="\n").writerow(table.column_names)
    options = csv.WriteOptions(include_header=False, quoting_style="needed" if special else "none")
    compression = "gzip" if path.suffix == ".gz" else None
    with atomic_file(path) as temporary, pa.output_stream(str(temporary), compression=compression) as stream:
        stream.write(header.getvalue().encode())
        csv.write_csv(table, stream, options)


def write_rows(path: Path, names: Sequence[str], rows: Collection[Sequence[Any]]) -> None:
    """Write rows of cells under the names of their columns, as ``write_table`` does."""
    cells = zip(*rows, strict=True) if rows else [[] for _ in names]
    write_table(path, dict(zip(names, map(list, cells), strict=True)))


def read_parquet_rows(path: Path, start: int, end: int, wanted: Callable[[str], bool]) -> pa.Table:
    """Return the rows from ``start`` to before ``end``; of the others only those in the same groups are read.

    Args:
        path: a Parquet file.
        start: first row.
        end: one more than the last.
        wanted: whether to read the column of a name.

    Raises:
        StorageError: missing, unreadable, or not so many rows.
        DataError: a file that claims more rows than it can hold.
    """
    _refuse_claim(path)
    with reading_table(path), parquet.ParquetFile(path) as file:
        sizes = np.array([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)], np.int64)
        ends = sizes.cumsum()
        if not 0 <= start < end <= ends.max(initial=0):
            raise StorageError(
                item=f"table {str(path)!r}", wanted=f"{end:,} rows", got=f"{sizes.sum():,}", fix="make it again"
            )
        groups = np.flatnonzero((ends > start) & (ends - sizes < end))
        columns = [name for name in file.schema_arrow.names if wanted(name)]
        table = file.read_row_groups(groups.tolist(), columns=columns)
        before = int(ends[groups[0]] - sizes[groups[0]])
        return table.slice(start - before, end - start).combine_chunks()


@contextmanager
def reading_table(path: Path, fix: str = "check the file") -> Iterator[None]:
    """Name the table where reading it fails, and the line where that is for its encoding.

    Raises:
        StorageError: missing, unreadable, or in another encoding than UTF-8 or UTF-16.
    """
    item = f"table {str(path)!r}"
    open_file(path, item).close()
    try:
        yield
    except (OSError, UnicodeError, pa.ArrowException) as error:
        if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
            raise not_text(item, "other bytes after its first lines") from error
        cell = re.search(r"CSV column #(\d+): .*invalid value '(.*?)'", str(error))
        if cell is None:
            raise not_readable(item, "a readable table with one header line", error, fix) from error
        column = f"{item}, column {read_header(path)[int(cell[1])]!r}"
        fix = fix_of_number(cell[2]) or fix
        raise StorageError(item=column, wanted="numbers", got=repr(cell[2]), fix=fix) from error


def fix_of_number(cell: str) -> str:
    """Return how to write a cell that stands for a number, "" for one that does not."""
    if DECIMAL_COMMA.fullmatch(cell):
        return "write numbers with a decimal point, as 0.5"
    return "write 1 for true and 0 for false" if cell.strip().lower() in TRUTH_VALUES else ""


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _read(path: Path, text: Collection[str] | None) -> dict[str, Any]:
    """Return the columns by name; all as text, or those in ``text``; without nameless ones that are empty."""
    names = read_header(path)
    types = {name: pa.string() for name in names if text is None or name in text}
    if _is_parquet(path):
        _refuse_claim(path)
    with reading_table(path):
        if _is_parquet(path):
            table = _with_types(path, parquet.read_table(path), types)
        else:
            start = read_text_start(path)
            mark = "." if text is None else start.decimal_mark()
            convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False, decimal_point=mark)
            with open_text(path) as stream:
                table = csv.read_csv(stream, **start.options(), convert_options=convert)
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise UnicodeError
    item = f"table {str(path)!r}"
    if not len(table):
        raise lacking(item, "at least one row", "check the file, or make it again: it holds nothing")
    cells = [
        (name, column) for name, column in zip(names, table.columns, strict=True) if name or _has_value(column)
    ]
    kept = [name for name, _ in cells]
    if (twice := first_repeated(kept)) is not None:
        raise DataError(
            item=item,
            wanted="columns of different names",
            got=f"{kept.count(twice)} columns {twice!r}",
            fix="keep one of them, or rename the others" if twice else NAMELESS,
        )
    return dict(cells)


def _has_value(column: Any) -> bool:
    return column.null_count < len(column) and (not pa.types.is_string(column.type) or any(column.to_pylist()))


def _as_array(column: Any) -> np.ndarray:
    if pa.types.is_null(column.type):  # a column without a single value
        return np.full(len(column), "", object)
    if pa.types.is_string(column.type):
        return texts_of_column(column)
    values: np.ndarray = column.to_numpy()
    return values


def _with_types(path: Path, table: Any, types: Mapping[str, Any], fix: str = "check the file") -> Any:
    """Return a table of Parquet with some columns in other types; a text that is missing is empty.

    Raises:
        StorageError: a cell that is none of its type.
    """
    for place, name in enumerate(table.column_names):
        column, kind = table.column(place), types.get(name)
        is_text = kind == pa.string()
        try:
            if kind is not None:
                is_written = pa.types.is_decimal(column.type) and is_text
                cells = _as_written(column) if is_written else column.cast(kind, safe=False)
                table = table.set_column(place, name, cells.fill_null("") if is_text else cells)
            if pa.types.is_string(column.type):  # pyarrow takes what a Parquet file calls text for it, unread
                column.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            wanted = "text in UTF-8" if is_text or kind is None else "numbers"
            item = f"table {str(path)!r}, column {name!r}"
            raise not_readable(item, wanted, error, fix) from error
    return table


def _as_written(decimals: Any) -> Any:
    """Return a column of decimals as text, as the same numbers in floating point are: 1 of 1.00, as a class is."""
    digits = {value: format(value, "f") for value in decimals.unique().to_pylist() if value is not None}
    texts = {value: text.rstrip("0").rstrip(".") if "." in text else text for value, text in digits.items()}
    return pa.chunked_array([[texts.get(value) for value in decimals.to_pylist()]], pa.string())


def _refuse_claim(path: Path) -> None:
    """Raise where a Parquet file claims more rows than it can hold, before memory is taken for them."""
    with reading_table(path):
        metadata = parquet.read_metadata(path)
    rows, columns = metadata.num_rows, metadata.num_columns
    if not can_hold(path, rows * columns * np.dtype(np.float32).itemsize):
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="rows that the file can hold",
            got=f"{rows:,} rows of {columns:,} columns in {path.stat().st_size:,} bytes",
            fix="if it is no fraud, write it without compression and dictionaries",
        )
