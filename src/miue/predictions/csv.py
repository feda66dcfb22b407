"""Reading tables that may come from anyone: which text they are, every column as text, then what it must be."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from miue.bags.ood_flags import UNKNOWN_WORDS, OodFlags
from miue.common.errors import DataError, StorageError

HEADER_BYTES = 1 << 20
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SAVE_AS = "save the table as UTF-8 (in Excel: Save As, CSV UTF-8)"


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a CSV file as they read: ids stay text, so that no leading zero is lost.

    Args:
        path: plain or gzipped CSV with a header that holds ``bag_id``.

    Raises:
        StorageError: missing, not a CSV file, or in another encoding than UTF-8 or UTF-16.
        DataError: no ``bag_id`` column, a repeated column, or no row.
    """
    with reading_table(path, "a readable CSV file with one header line"):
        read, parse = csv_options(path)
        with open_text(path) as stream:
            header = csv.open_csv(stream, read_options=read, parse_options=parse).schema.names
        convert = csv.ConvertOptions(
            column_types={name: pa.string() for name in header if name in _TEXT}, strings_can_be_null=False
        )
        with open_text(path) as stream:
            table = csv.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise pa.ArrowInvalid("bytes that are no text")
    if "bag_id" not in header or len(set(header)) < len(header) or not len(table):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="a column 'bag_id', no column twice, and at least one row",
            got=f"{len(table)} rows with columns {', '.join(header)}",
            fix="name the id column bag_id"
            if "bag_id" not in header
            else f"drop one column {twice[0]!r}"
            if twice
            else "give the table of another run, or make this one again: it holds nothing",
        )
    return {name: _column(table.column(name)) for name in header}


def read_text_columns(path: Path) -> dict[str, list[str]]:
    """Return every column of a table as text, so that ids keep their zeros.

    Args:
        path: text with commas, semicolons or tabs between columns, plain or gzipped, in UTF-8 or UTF-16.

    Raises:
        StorageError: missing, unreadable, or in another encoding.
        DataError: no row, or a column twice.
    """
    with reading_table(path):
        read, parse = csv_options(path)
        parse.newlines_in_values = True
        with open_text(path) as stream:
            names = csv.open_csv(stream, read_options=read, parse_options=parse).schema.names
        convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        with open_text(path) as stream:
            table = csv.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
    if not len(table):
        raise DataError(item=f"table {str(path)!r}", wanted="at least one row", got="none", fix="check the file")
    cells = [(name, table.column(place).to_pylist()) for place, name in enumerate(names)]
    cells = [(name, column) for name, column in cells if name or any(column)]
    kept = [name for name, _ in cells]
    twice = next((name for name in kept if kept.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="columns of different names",
            got=f"{kept.count(twice)} columns {twice!r}",
            fix="keep one of them, or rename the others",
        )
    return dict(cells)


def open_text(path: Path) -> Any:
    """Return the bytes of a table as a stream, unpacked where its name says that it is gzipped."""
    return pa.input_stream(str(path), compression="detect")


def csv_options(path: Path) -> tuple[Any, Any]:
    """Return how a table is read: its encoding, and the separator that its header line has most of.

    UTF-8 with or without a byte order mark is read, and UTF-16 and UTF-32 with one.

    Raises:
        StorageError: a header line in another encoding, or a file that is no text.
    """
    with open_text(path) as stream:
        first = stream.read(HEADER_BYTES)
    encoding = next((name for mark, name in MARKS if first.startswith(mark)), "utf-8")
    if first.startswith(b"PK\x03\x04"):
        raise _not_text(f"table {str(path)!r}", "a zip archive, as Excel's own workbooks are")
    header = re.split(r"[\r\n]", codecs.getincrementaldecoder(encoding)("replace").decode(first), maxsplit=1)[0]
    if "\0" in header:
        raise _not_text(f"table {str(path)!r}", "zero bytes, as of UTF-16 without a byte order mark")
    unquoted = re.sub(r'"[^"]*"', "", header)
    separator = max(",;\t", key=unquoted.count) if re.search(r"[,;\t]", unquoted) else "\t"
    # pyarrow knows its own encoding by this name alone, and would transcode "utf-8"
    read = csv.ReadOptions(encoding="utf8" if encoding == "utf-8" else encoding)
    return read, csv.ParseOptions(delimiter=separator)


@contextmanager
def reading_table(
    path: Path, wanted: str = "a readable table with one header line", fix: str = "check the file"
) -> Iterator[None]:
    """Name the table where reading it fails, and the line where that is for its encoding.

    Args:
        path: the table.
        wanted: what it should be.
        fix: what to do where it is something else.

    Raises:
        StorageError: missing, unreadable, or in another encoding than UTF-8 or UTF-16.
    """
    try:
        yield
    except (OSError, UnicodeError, pa.ArrowException) as error:
        line = _first_undecodable(path)
        if line is not None:
            raise _not_text(f"table {str(path)!r}, {line[0]}", line[1]) from error
        missing = isinstance(error, FileNotFoundError)
        raise StorageError(
            item=f"table {str(path)!r}",
            wanted="an existing file" if missing else wanted,
            got="no such file" if missing else str(error).split("\n")[0],
            fix="check the path" if missing else fix,
        ) from error


def _first_undecodable(path: Path) -> tuple[str, str] | None:
    """Return the first line that is not in the table's encoding and what is wrong there, None if all lines are."""
    try:
        with open_text(path) as stream:
            part = stream.read(HEADER_BYTES)
            encoding = next((name for mark, name in MARKS if part.startswith(mark)), "utf-8")
            decoder, lines = codecs.getincrementaldecoder(encoding)(), 1
            while True:
                lines += decoder.decode(part, final=not part).count("\n")
                if not part:
                    return None
                part = stream.read(HEADER_BYTES)
    except UnicodeDecodeError as error:
        line = lines + error.object[: error.start].count(b"\n")
        got = f"the byte {error.object[error.start]:#04x}, which is not {encoding.upper()}"
        latin = " (the table may be in Latin-1 or Windows-1252)" if encoding == "utf-8" else ""
        return f"line {line}", got + latin
    except (OSError, pa.ArrowException):
        return None


def _not_text(item: str, got: str) -> StorageError:
    return StorageError(
        item=item, wanted="text in UTF-8, or in UTF-16 with a byte order mark", got=got, fix=SAVE_AS
    )


TRUE, FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")


def flags_of(values: np.ndarray, name: str, column: str = "is_ood") -> OodFlags:
    """Return which cells of a column say yes and which no; an empty one says neither.

    Args:
        values: the column, text or truth values.
        name: the table, for messages.
        column: its name.

    Raises:
        DataError: a cell that holds something else.
    """
    distinct, places = np.unique(values.astype(str), return_inverse=True)
    for position, text in enumerate(distinct):
        if text.strip().lower() not in (*TRUE, *FALSE, *UNKNOWN_WORDS):
            raise DataError(
                item=cell_of(name, places, position, column),
                wanted="true, false, or empty where unknown",
                got=repr(str(text)),
                fix="write true or false, or empty the cell",
            )
    words = [text.strip().lower() for text in distinct]
    flags = OodFlags.of([None if word in UNKNOWN_WORDS else word in TRUE for word in words])
    return flags[places]


def cell_of(name: str, places: np.ndarray, position: int, column: str) -> str:
    """Return where in a table the first cell with the distinct value number ``position`` is."""
    return f"table {name!r}, row {int(np.argmax(places == position)) + 1}, column {column!r}"


_TEXT = {"bag_id", "patient", "label", "is_ood", "ood_set", "decision", "reason", "label_set"}


def _column(column: Any) -> np.ndarray:
    if pa.types.is_null(column.type):  # a column without a single value
        return np.full(len(column), "", object)
    values: np.ndarray = column.to_numpy()
    return values
