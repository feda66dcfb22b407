"""Every table is read by one reader and written by one writer: separators, encodings and quotes alike."""

from __future__ import annotations

import csv
import gzip
import io
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from miue.bags import BagDataset
from miue.common.csv_text import START_BYTES
from miue.common.errors import MiueError, StorageError
from miue.common.tables import (
    read_columns,
    read_header,
    read_parts,
    read_rows,
    read_text_columns,
    write_rows,
    write_table,
)
from miue.io import load_bags, read_label_table, read_splits, with_instance_labels
from miue.pathology.annotations import write_patch_labels
from miue.predictions.read import read_table

NAMES = ("Größe, 1; a", "b")
Rows = list[tuple[str, ...]]


def bags() -> BagDataset:
    return BagDataset.from_arrays([np.ones((2, 2))] * 2, ids=NAMES)


def labeled(path: Path) -> list[int]:
    return with_instance_labels(bags(), path).instance_labels.values.tolist()


KINDS: dict[str, tuple[Rows, Callable[[Path], Any], Any]] = {
    "label table": (
        [("slide_id", "label"), (NAMES[0], "ja"), (NAMES[1], "nein")],
        lambda path: (read_label_table(path).ids, read_label_table(path).labels),
        (NAMES, ("ja", "nein")),
    ),
    "splits": (
        [("bag_id", "fold_0"), (NAMES[0], "train"), (NAMES[1], "test")],
        lambda path: read_splits(path).folds,
        ({NAMES[0]: "train", NAMES[1]: "test"},),
    ),
    "long table": (
        [("bag_id", "f"), (NAMES[0], "1.5"), (NAMES[1], "2.5")],
        lambda path: (load_bags(path).bags.ids, np.asarray(load_bags(path).bags.instances).tolist()),
        (NAMES, [[1.5], [2.5]]),
    ),
    "instance labels": (
        [("bag_id", "instance", "instance_label"), (NAMES[0], "1", "1"), (NAMES[1], "0", "1")],
        labeled,
        [0, 1, 1, 0],
    ),
    "predictions": (
        [("bag_id", "p_0", "p_1"), (NAMES[0], "0.5", "0.5"), (NAMES[1], "0.25", "0.75")],
        lambda path: tuple(read_table(path).bag_ids),
        NAMES,
    ),
}


def text(rows: Rows, separator: str, quoting: Any = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, quoting=quoting).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_table_is_read_with_any_separator_and_encoding(
    kind: str, separator: str, encoding: str, tmp_path: Path
) -> None:
    rows, read, expected = KINDS[kind]
    (tmp_path / "t.csv").write_bytes(text(rows, separator).encode(encoding))
    assert read(tmp_path / "t.csv") == expected


@pytest.mark.parametrize(
    ("table", "read", "message"),
    [
        (
            "bag_id;label;f1;f2\na;0;1,5;0.25\nb;1;0,5;1,25\n",  # some with a point
            load_bags,
            "'1,5'; write .* a decimal point, as 0.5$",
        ),
        (
            'bag_id,label,f1,f2\na,0,"1,500","12,250"\n',  # which may be thousands
            load_bags,
            "'1,500'; write .* a decimal point, as 0.5$",
        ),
        ("bag_id,label,f1,f2\na,0,1,True\nb,1,0,False\n", load_bags, "'True'; write 1 for true and 0 for false$"),
    ],
)
def test_cells_that_stand_for_numbers_are_refused_with_how_to_write_them(
    table: str, read: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(table)
    with pytest.raises(MiueError, match=f"got {message}"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_numbers_with_decimal_commas_are_those_with_points(
    separator: str, quoting: Literal[0, 1], ending: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(6, 2)) * (1, 1e-9)  # one column with exponents
    rows: Rows = [("bag_id", "label", "barcode", "f1", "f2")]
    rows += [(f"b{i // 2}", str(i // 2 % 2), "1,2", *map(str, pair)) for i, pair in enumerate(values)]
    (tmp_path / "p.csv").write_text(text(rows, separator, quoting))
    commas = [rows[0], *((*row[:3], *(cell.replace(".", ",") for cell in row[3:])) for row in rows[1:])]
    written = text(commas, separator, quoting).encode()
    (tmp_path / f"c{ending}").write_bytes(gzip.compress(written) if ending.endswith("gz") else written)
    points, found = (load_bags(tmp_path / name, features=["f*"]).bags for name in ("p.csv", f"c{ending}"))
    np.testing.assert_array_equal(found.instances, points.instances)
    np.testing.assert_array_equal(found.instances, values.astype(np.float32))
    assert (found.ids, found.labels.values.tolist()) == (points.ids, points.labels.values.tolist())


def test_probabilities_with_decimal_commas_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag_id;label;p_0;p_1\na;0;0,5;0,5\nb;1;0,25;0,75\nc;0;1;0\n")
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv").probabilities[:, 1], [0.5, 0.75, 0])


def test_a_column_of_text_in_parquet_is_named_with_its_cell(tmp_path: Path) -> None:
    cells = {"bag_id": ["a", "b"], "barcode": ["AAAC-1", "AAAG-1"], "f": [0.5, 1.0]}
    parquet.write_table(pa.table(cells), tmp_path / "t.parquet")
    said = r"column 'barcode': expected numbers, got .*'AAA.-1'.*; check .* choose the features \(features=NAME"
    with pytest.raises(StorageError, match=said):
        load_bags(tmp_path / "t.parquet")
    lists = {"bag_id": ["a", "b"], "f": [0.5, 1.0], "pca": [[1.0, 2.0], [3.0, 4.0]]}
    parquet.write_table(pa.table(lists), tmp_path / "t.parquet")
    with pytest.raises(StorageError, match=r"column 'pca': .*list<.*; check .* choose the features"):
        load_bags(tmp_path / "t.parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_read_with_all_cells_quoted_and_a_line_break_in_one(kind: str, tmp_path: Path) -> None:
    rows, read, expected = KINDS[kind]
    noted = [(*row, note) for row, note in zip(rows, ("patient", "two\nlines", ""), strict=True)]
    (tmp_path / "t.csv").write_text(text(noted, ";", csv.QUOTE_ALL), newline="")
    assert "two\nlines" in read_text_columns(tmp_path / "t.csv")["patient"]
    assert read(tmp_path / "t.csv") == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_in_latin_1_is_refused_with_its_line(kind: str, tmp_path: Path) -> None:
    rows, read, _ = KINDS[kind]
    (tmp_path / "t.csv").write_bytes(text(rows, ";").encode("latin-1"))
    with pytest.raises(
        StorageError,
        match=r"t.csv', line 2: expected text in UTF-8.*byte 0xf6, which is not UTF-8; save the table as",
    ):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_may_be_parquet(kind: str, tmp_path: Path) -> None:
    rows, read, expected = KINDS[kind]
    columns = {name: list(cells) for name, *cells in zip(*rows, strict=True)}
    numbers = {"f", "instance", "p_0", "p_1"}
    typed = {name: [float(c) for c in cells] if name in numbers else cells for name, cells in columns.items()}
    parquet.write_table(pa.table(typed), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == expected


def test_labels_of_patches_are_written_as_they_are_read(tmp_path: Path) -> None:
    write_patch_labels(tmp_path / "p.csv", [(name, np.array([0, 1])) for name in NAMES])
    assert labeled(tmp_path / "p.csv") == [0, 1, 0, 1]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_what_is_written_is_read_back_to_the_last_digit(name: str, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).lognormal(0, 30, 200)
    ids = [f'"{row}"; a,\n{row}' if row % 2 else f"0{row}" for row in range(200)]
    write_table(tmp_path / name, {"bag_id": ids, "value": numbers, "known": [None, *range(199)]})
    read = read_columns(tmp_path / name, {"bag_id", "known"})
    assert read["bag_id"].tolist() == ids and np.array_equal(read["value"], numbers)
    assert read["known"].tolist() == ["", *map(str, range(199))]


def test_no_cell_is_quoted_in_a_table_that_needs_no_quotes(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.csv", ("bag_id", "a,b"), [("x", 1), ("y", 2)])
    assert (tmp_path / "t.csv").read_text() == 'bag_id,"a,b"\nx,1\ny,2\n'
    assert read_rows(tmp_path / "t.csv") == [{"bag_id": "x", "a,b": "1"}, {"bag_id": "y", "a,b": "2"}]


def test_a_wide_table_is_read(tmp_path: Path) -> None:
    path, names = tmp_path / "wide.csv", [f"{'feature':>020}_{number}" for number in range(60_000)]
    rows = [[cell] * len(names) for cell in ("0.0123456789012345678", "2")]
    path.write_text("\n".join(map(",".join, (names, *rows))))
    assert START_BYTES / 4 < path.read_text().index("\n") < START_BYTES
    assert read_header(path)[-1] == names[-1]
    parts = list(read_parts(path, {names[-1]: pa.float64()}))
    assert [one for part in parts for one in part.column(0).to_pylist()] == [0.0123456789012345678, 2.0]


HEADER = "a header line with the names of columns in its first 4 MiB"
NO_TABLES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 1, HEADER),
    "newlines": (b"\n" * (16 << 20), 64, HEADER),
    "one line": (b"a," * (8 << 20), 64, HEADER),
    "one long cell": (b'["' + b"a" * 200_000 + b'"]', 1, HEADER),
    "one long quoted cell": (b'"' + b"a\n" * 200_000, 1, HEADER),
    "line of JSON": (b'{"a": 1, "b": 2}', 1, HEADER),
    "rows of commas": (b",,,,,\n" * 200_000 + b"bag_id,label,f,g,h,i\na,0,1,2,3,4\n", 1, "different names"),
    "title": (b"Cohort A,,\nbag_id,label,f\na,0,1\n", 1, "different names"),
    "zip": (b"PK\x03\x04\x14\0\6\0\x08\0", 1, "text in UTF-8"),
    "UTF-16 without a mark": ("bag_id,f\na,1\n".encode("utf-16-le"), 1, "text in UTF-8"),
}
"""What a file holds, how often where it is gzipped, and what was wanted in its place."""


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("what", NO_TABLES)
def test_what_begins_as_no_table_is_refused_at_once_with_little_memory(
    what: str, ending: str, tmp_path: Path
) -> None:
    """Empty lines took quadratic time, a gzipped gigabyte of them over 45 s; a long cell was a traceback."""
    content, times, wanted = NO_TABLES[what]
    path = tmp_path / f"t{ending}"
    path.write_bytes(gzip.compress(content, 1) * times if ending == ".csv.gz" else content)
    began = time.monotonic()
    tracemalloc.start()
    with pytest.raises(MiueError) as caught:
        read_text_columns(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - began < 2 and most < 64 << 20
    assert wanted in caught.value.wanted and str(path) in caught.value.item


def test_a_gzipped_table_is_known_by_its_ending_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "T.CSV.GZ").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_text_columns(tmp_path / "T.CSV.GZ") == {"a": ["1"], "b": ["2"]}
