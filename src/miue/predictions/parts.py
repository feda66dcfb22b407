"""Instances as parts: Parquet files of whole bags, one written while the next is computed, and read one by one.

A part holds, row after row in the order of its bags, ``bag_id``, ``instance``, the parameters of the distribution
(alpha_0 …, or p_0 …, of draws also expected_entropy) and score_…; x, y, label, is_ood and ood_set, where known;
``slide``, where bags hold several; and ``flagged``, true or false, where a calibration of instances was applied.
Numbers are float32 where that loses nothing, as of all that a network computes in float32, else float64: what is
read equals what was written. ``predictions.json`` lists the parts: size, SHA-256, and the rows of each bag.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, Field

from miue.common.files import file_sha256, make_folder
from miue.common.records import check_files
from miue.predictions.table import PART_ROWS, PredictionTable, parameter_columns, uncertainty_column

FOLDER, MAIN = "instances", "predictions.json"
AGAIN = "predict again"
FIX = f"put back the file that was written with {MAIN}, or {AGAIN}"
GROUP_ROWS = 1 << 16  # rows of a group, the least that is read
REPEATED = ("bag_id", "slide", "ood_set", "label", "is_ood")  # of few different values
WHOLE = ("instance", "x", "y")


class Part(BaseModel):
    """A file of instances, as predictions.json lists it.

    Attributes:
        file: its name.
        bytes: its size.
        sha256: of its content.
        bags: the rows of each bag, in order.
        slides: the rows of each slide of each bag, likewise, where bags hold several.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^part-\d{5,9}\.parquet$")
    bytes: int = Field(ge=1)
    sha256: str
    bags: dict[str, int] = Field(min_length=1)
    slides: dict[str, dict[str, int]] = {}

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.bags.values())


def check_part(path: Path, part: Part) -> None:
    """Raise unless a file is the part that predictions.json lists.

    Raises:
        StorageError: it is missing, truncated, or another file.
    """
    name = f"{path.parent.name}/{path.name}"
    check_files(path.parent.with_name(MAIN), {name: part.sha256}, [name], AGAIN)


def check_folder(folder: Path, parts: Sequence[Part]) -> None:
    """Raise unless a folder holds the parts that are listed, each with its size, and no other file of instances.

    Raises:
        StorageError: a part that is missing, truncated or not listed.
    """
    listed = {part.file for part in parts}
    unlisted = [f"{folder.name}/{path.name}" for path in folder.glob("*.parquet") if path.name not in listed]
    check_files(folder.with_name(MAIN), {}, unlisted, AGAIN)
    for part in parts:
        path = folder / part.file
        if not path.is_file() or path.stat().st_size != part.bytes:
            check_part(path, part)


class PartWriter:
    """Writes instances, bag after bag, to the parts of a folder, in a thread of its own.

    At most one part is written while the next is gathered, so that memory does not grow with the number of bags.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.parts: list[Part] = []
        self._folder = folder
        self._tables: list[PredictionTable] = []
        self._bags: dict[str, int] = {}
        self._rows = 0
        self._pool = ThreadPoolExecutor(1, "writing")
        self._writing: Future[Part] | None = None

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        with self._pool:
            if kind is None:
                self._close_part()
                self._wait()

    def add(self, instances: PredictionTable) -> None:
        """Add whole bags, each with all its instances in adjacent rows.

        Raises:
            OSError: a part could not be written.
        """
        ids = instances.bag_ids
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])).tolist()
        first = 0
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            if self._rows + end - start > PART_ROWS:
                self._take(instances, first, start)
                self._close_part()
                first = start
            self._bags[str(ids[start])] = end - start
            self._rows += end - start
        self._take(instances, first, len(ids))

    def _take(self, table: PredictionTable, start: int, end: int) -> None:
        if end > start:
            whole = end - start == len(table)
            self._tables.append(table if whole else table.subset(np.arange(start, end)))

    def _close_part(self) -> None:
        self._wait()
        if self._tables:
            path = self._folder / f"part-{len(self.parts):05d}.parquet"
            self._writing = self._pool.submit(_write_part, path, self._tables, self._bags)
            self._tables, self._bags, self._rows = [], {}, 0

    def _wait(self) -> None:
        if self._writing is not None:
            self.parts.append(self._writing.result())
            self._writing = None


def _write_part(path: Path, tables: Sequence[PredictionTable], bags: dict[str, int]) -> Part:
    instances = PredictionTable.concatenate(tables)
    table = _to_arrow(instances, bags)
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    parquet.write_table(
        table,
        path,
        row_group_size=GROUP_ROWS,
        compression="zstd",
        use_dictionary=[name for name in REPEATED if name in table.column_names],
        use_byte_stream_split=floats,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in WHOLE if name in table.column_names},
    )
    size, slides = path.stat().st_size, instances.slides_of_bags()
    return Part(file=path.name, bytes=size, sha256=file_sha256(path), bags=bags, slides=slides)


def _to_arrow(table: PredictionTable, bags: dict[str, int]) -> Any:
    """Return the columns of a part; those of which nothing is known are left out."""
    numbers = np.repeat(np.arange(len(bags), dtype=np.int32), list(bags.values()))
    columns: dict[str, Any] = {"bag_id": pa.DictionaryArray.from_arrays(numbers, list(bags))}
    is_known = {
        "slide": True,
        "instance": True,
        **dict.fromkeys("xy", table.coords is not None and table.coords.known.any()),
        "label": table.labels.known.any(),
        "is_ood": table.is_ood.known.any(),
        "ood_set": (table.ood_sets != "").any(),
    }
    columns |= {name: column for name, column in table.known_columns().items() if is_known[name]}
    scores = {uncertainty_column(name): values for name, values in table.scores.items()}
    for name, values in {**parameter_columns(table.distribution), **scores}.items():
        columns[name] = _smallest(values)
    if table.flagged is not None:
        columns["flagged"] = table.flagged
    return pa.table(columns)


def _smallest(values: np.ndarray) -> np.ndarray:
    """Return float32 where that loses nothing."""
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    return small if np.array_equal(small, values, equal_nan=True) else values
