"""A CSV file as text: its encoding, its separator, its header line, and the first line that is no text."""

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

HEADER_BYTES = 1 << 20
CELL_BYTES = 32  # of a number as it is written, with room
SEPARATORS = ",;\t|"
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
ROWS_LOOKED_AT = 1000
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
DECIMAL_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
SAVE_AS = "save the table as UTF-8 (in Excel: Save As, CSV UTF-8)"
BLANK_LINE = re.compile(r'[ ,;\t|"]*(?:\r\n|\r|\n)')
"""A line of empty cells, as spreadsheets write an empty row above a table."""
COMMENT = re.compile(r"#[^\r\n]*(?:\r\n|\r|\n)")
"""A line above the names of columns, as cBioPortal and other exports have them."""
NAMED_SEPARATOR = re.compile(r"sep=(.)", re.IGNORECASE)
"""The first line that Excel reads as the name of the separator."""


def open_text(path: Path) -> Any:
    """Return the bytes of a table as a stream, unpacked where its name says that it is gzipped."""
    return pa.input_stream(str(path), compression="gzip" if path.suffix.lower() == ".gz" else "detect")


@dataclass(frozen=True)
class TextStart:
    """The first bytes of a CSV file, and how the file is read.

    Attributes:
        text: the first bytes as text, from the header line on, with a mark where they are not in the encoding.
        encoding: of the file.
        separator: of its cells.
        lines_before: how many lines to pass over.
    """

    text: str
    encoding: str
    separator: str
    lines_before: int

    def header(self) -> list[str]:
        """Return the names of the columns; the rows, which take much longer, are not looked at.

        Raises:
            UnicodeError: names in another encoding.
            pyarrow.ArrowInvalid: no line.
        """
        lines = plain_csv.reader(io.StringIO(self.text, newline=None), delimiter=self.separator)
        names = next((line for line in lines if line), None)
        if names is None:
            raise pa.ArrowInvalid("Empty CSV file")
        if any("\ufffd" in name for name in names):
            raise UnicodeError(f"names that are not in {self.encoding.upper()}")
        return names

    def decimal_mark(self) -> str:
        """Return what the first rows write before decimals: "," as many languages do, or "."; "." where unclear.

        A table whose only such numbers are like 1,234 or 12,500 may mean thousands.
        """
        is_quoted = self.separator == ","  # where it holds a comma
        if not re.search(r'"[-+]?\d+,\d' if is_quoted else r"\d,\d", self.text):
            return "."  # without dividing the text into its cells, which takes long
        lines = plain_csv.reader(io.StringIO(self.text, newline=None), delimiter=self.separator)
        try:
            cells = {cell.strip() for line in islice(lines, ROWS_LOOKED_AT) for cell in line}
        except plain_csv.Error:  # a quote that does not end
            return "."
        with_comma = any(DECIMAL_COMMA.fullmatch(cell) and not THOUSANDS.fullmatch(cell) for cell in cells)
        return "," if with_comma and not any(map(DECIMAL_POINT.fullmatch, cells)) else "."

    def options(self) -> dict[str, Any]:
        """Return how pyarrow reads the file."""
        # pyarrow knows its own encoding by this name alone, and would transcode "utf-8"
        encoding = "utf8" if self.encoding == "utf-8" else self.encoding
        row = CELL_BYTES * len(self.header())
        return {
            "read_options": csv.ReadOptions(
                encoding=encoding, skip_rows=self.lines_before, block_size=max(row, HEADER_BYTES)
            ),
            "parse_options": csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
        }


def read_text_start(path: Path) -> TextStart:
    """Return the start of a CSV file, with the separator that its header line has most of.

    A line before the header that names the separator, as "sep=;" for Excel, is passed over, and so are empty rows
    and lines that begin with "#".

    Raises:
        StorageError: a header line in another encoding, or a file that is no text.
    """
    with open_text(path) as stream:
        first = part = stream.read(HEADER_BYTES)
        while part and not re.search(rb"[\r\n]", first.lstrip(b'\r\n\0 ,;\t|"')):  # a longer header line
            first += (part := stream.read(HEADER_BYTES))
    encoding = _encoding(first)
    if first.startswith(b"PK\x03\x04"):
        raise not_text(f"table {str(path)!r}", "a zip archive, as Excel's own workbooks are")
    text = codecs.getincrementaldecoder(encoding)("replace").decode(first).lstrip("\ufeff")
    text, before = _without_comments(*_without_blank_lines(text))
    header = _first_line(text)
    if "\0" in header:
        raise not_text(f"table {str(path)!r}", "zero bytes, as of UTF-16 without a byte order mark")
    named = None if before else NAMED_SEPARATOR.fullmatch(header)
    if named:
        text, before = _without_blank_lines(text[len(header) :])  # the first is the rest of this line
        return TextStart(text, encoding, named[1], before)
    unquoted = re.sub(r'"[^"]*"', "", header)
    separator = max(SEPARATORS, key=unquoted.count) if any(map(unquoted.count, SEPARATORS)) else "\t"
    return TextStart(text, encoding, separator, before)


def _without_blank_lines(text: str) -> tuple[str, int]:
    """Return a text from its first line with a value on, and how many lines are before it."""
    count = 0
    while blank := BLANK_LINE.match(text):
        text, count = text[blank.end() :], count + 1
    return text, count


def _without_comments(text: str, before: int) -> tuple[str, int]:
    """Return a text from its first line that does not begin with "#" on, and how many lines are before it.

    A single line that begins so, with as many separators as the next, holds the names of the columns itself.
    """
    rest, count, comments = text, before, 0
    while comment := COMMENT.match(rest):
        rest, blank = _without_blank_lines(rest[comment.end() :])
        count, comments = count + 1 + blank, comments + 1
    if not rest or (comments == 1 and _separators(text) == _separators(rest)):
        return text, before
    return rest, count


def _separators(text: str) -> list[int]:
    """Return how many of each separator the first line has."""
    return list(map(_first_line(text).count, SEPARATORS))


def _first_line(text: str) -> str:
    return re.split(r"[\r\n]", text, maxsplit=1)[0]


def _encoding(first: bytes) -> str:
    return next((name for mark, name in MARKS if first.startswith(mark)), "utf-8")


def first_undecodable(path: Path) -> tuple[str, str] | None:
    """Return the first line that is not in the table's encoding and what is wrong there, None if all lines are."""
    try:
        with open_text(path) as stream:
            part = stream.read(HEADER_BYTES)
            encoding = _encoding(part)
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
    except (OSError, UnicodeEncodeError, pa.ArrowException):  # of a name that pyarrow cannot open
        return None


def not_text(item: str, got: str) -> StorageError:
    """Return the error for a table that is no text, or text in another encoding."""
    return StorageError(
        item=item, wanted="text in UTF-8, or in UTF-16 with a byte order mark", got=got, fix=SAVE_AS
    )
