"""The beginning of a CSV file: its encoding, its separator, the names of its columns, and its decimal mark."""

from __future__ import annotations

import codecs
import csv as plain_csv
import io
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from miue.common.errors import StorageError

START_BYTES = 4 << 20
"""Of the beginning of a table, within which its header line ends; no row may be longer either."""
SEPARATORS = "\t,;"  # a table of one column is one of tabs, so that its cells may hold commas
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
ROWS_LOOKED_AT = 1000
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
DECIMAL_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class TextStart:
    """The first bytes of a CSV file as text, and how the file is read.

    Attributes:
        text: from the header line on.
        encoding: of the file.
        separator: of its cells.
    """

    text: str
    encoding: str
    separator: str

    def rows(self, count: int) -> list[list[str]]:
        """Return the cells of the first ``count`` lines that are not empty; those of the header line first.

        Raises:
            csv.Error: a cell that is longer than Python's reader takes.
        """
        lines = plain_csv.reader(io.StringIO(self.text, newline=None), delimiter=self.separator)
        return list(islice(filter(None, lines), count))

    def decimal_mark(self) -> str:
        """Return "," where the first rows write decimals so and none with a point, never between commas."""
        if self.separator == "," or not re.search(r"\d,\d", self.text):
            return "."  # without dividing the text into its cells, which takes long
        try:
            cells = {cell.strip() for row in self.rows(ROWS_LOOKED_AT) for cell in row}
        except plain_csv.Error:
            return "."
        with_comma, with_point = (any(map(mark.fullmatch, cells)) for mark in (DECIMAL_COMMA, DECIMAL_POINT))
        return "," if with_comma and not with_point else "."

    def options(self) -> dict[str, Any]:
        """Return how pyarrow reads the file."""
        # pyarrow knows its own encoding by this name alone, and would transcode "utf-8"
        encoding = "utf8" if self.encoding == "utf-8" else self.encoding
        return {
            "read_options": csv.ReadOptions(encoding=encoding, block_size=START_BYTES),
            "parse_options": csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
        }


def open_text(path: Path) -> Any:
    """Return the bytes of a table as a stream, unpacked where its name says that it is gzipped."""
    return pa.input_stream(str(path), compression="gzip" if path.suffix.lower() == ".gz" else None)


def read_text_start(path: Path) -> TextStart:
    """Return the start of a CSV file, with the separator that its header line has most of.

    Raises:
        StorageError: no text in UTF-8 or UTF-16, or no header line that ends within the first bytes.
        OSError, pyarrow.ArrowException: missing, or what cannot be unpacked.
    """
    with open_text(path) as stream:
        first = stream.read(START_BYTES)
    item = f"table {str(path)!r}"
    encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if first.startswith(mark)), "utf-8")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(first, final=len(first) < START_BYTES)
        text = text.lstrip("\ufeff\r\n")
    except UnicodeDecodeError as error:
        number = 1 + first.count(b"\n", 0, error.start)
        got = f"the byte {first[error.start]:#04x}, which is not {encoding.upper()}"
        raise not_text(f"{item}, line {number}", got) from error
    line, *rest = re.split(r"[\r\n]", text, maxsplit=1)
    if "\0" in line:
        raise not_text(item, "zero bytes")
    unquoted = re.sub(r'"[^"]*"', "", line)
    start = TextStart(text, encoding, max(SEPARATORS, key=unquoted.count))
    try:
        is_table = bool(rest and start.rows(1))
    except plain_csv.Error:
        is_table = False
    if not is_table:
        wanted = f"a header line with the names of columns in its first {START_BYTES >> 20} MiB"
        raise StorageError(item=item, wanted=wanted, got="none", fix="check that it is a table of CSV")
    return start


def not_text(item: str, got: str) -> StorageError:
    """Return the error for a table that is no text, or text in another encoding."""
    wanted = "text in UTF-8, or in UTF-16 with a byte order mark"
    fix = "save the table as UTF-8 (in Excel: Save As, CSV UTF-8)"
    return StorageError(item=item, wanted=wanted, got=got, fix=fix)
