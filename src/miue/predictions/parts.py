"""Instances as parts: Parquet files of whole bags, one written while the next is computed, and read one by one.

A part holds, row after row in the order of its bags, ``bag_id``, ``instance``, the parameters of the distribution
(alpha_0 …, or p_0 …, of draws also expected_entropy) and score_…; x, y, label, is_ood and ood_set, where known;
and ``flagged``, true or false, where a calibration of instances was applied.
Numbers are float32 where that loses nothing, as of all that a network computes in float32, else float64: what is
read equals what was written. ``predictions.json`` lists the parts: size, SHA-256, and the rows of each bag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float64
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, Field, model_validator

from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.bags.rows import GroupedRows
from miue.bags.table_columns import check_classes, read_coords, with_named_sets
from miue.common.errors import DataError, StorageError, missing_column
from miue.common.files import make_folder
from miue.common.tables import read_parquet_rows, reading_table
from miue.distributions import PredictiveDistribution
from miue.distributions.measures import MEASURES
from miue.predictions.read_table import read_distribution, read_flagged, read_numbers, read_scores
from miue.predictions.table import PART_ROWS, SCORE_PREFIX, PredictionTable, parameter_columns

FOLDER = "instances"
GROUP_ROWS = 1 << 16  # rows of a group, the least that is read
LOGICAL = ("is_ood", "ood_set", "flagged")
KNOWN = ("label", *LOGICAL)
REPEATED = ("bag_id", "ood_set", "label", "is_ood")  # of few different values
WHOLE = ("instance", "x", "y")
FIX = "put back the file that was written with predictions.json, or predict again"


class Part(BaseModel):
    """A file of instances, as predictions.json lists it.

    Attributes:
        file: its name.
        bytes: its size.
        sha256: of its content.
        bags: the rows of each bag, in order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^part-\d{5,9}\.parquet$")
    bytes: int = Field(ge=1)
    sha256: str
    bags: dict[str, int] = Field(min_length=1)

    @model_validator(mode="after")
    def _bags_have_rows(self) -> Part:
        if min(self.bags.values()) < 1:
            raise ValueError(f"{self.file}: a bag without rows")
        return self

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.bags.values())


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
            if self._bags and self._rows + end - start > PART_ROWS:
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
    table = _to_arrow(PredictionTable.concatenate(tables), bags)
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
    return Part(file=path.name, bytes=path.stat().st_size, sha256=_sha256(path), bags=bags)


def _to_arrow(table: PredictionTable, bags: dict[str, int]) -> Any:
    """Return the columns of a part; those of which nothing is known are left out."""
    numbers = np.repeat(np.arange(len(bags), dtype=np.int32), list(bags.values()))
    columns: dict[str, Any] = {"bag_id": pa.DictionaryArray.from_arrays(numbers, list(bags))}
    if table.instance is not None:
        columns["instance"] = table.instance
    if table.coords is not None and table.coords.known.any():
        columns.update(
            {
                axis: pa.array(v, mask=~table.coords.known)
                for axis, v in zip("xy", table.coords.values.T, strict=True)
            }
        )
    if table.labels.known.any():
        columns["label"] = pa.array(table.labels.values, mask=~table.labels.known)
    if table.is_ood.known.any():
        columns["is_ood"] = pa.array(table.is_ood.values, mask=~table.is_ood.known)
    if (table.ood_sets != "").any():
        columns["ood_set"] = pa.array(table.ood_sets, pa.string())
    for name, values in parameter_columns(table.distribution).items():
        columns[name] = _smallest(values)
    for name, values in table.scores.items():
        columns[name if name in MEASURES else SCORE_PREFIX + name] = _smallest(values)
    if table.flagged is not None:
        columns["flagged"] = table.flagged
    return pa.table(columns)


def _smallest(values: np.ndarray) -> np.ndarray:
    """Return float32 where that loses nothing."""
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    return small if np.array_equal(small, values, equal_nan=True) else values


class Span(NamedTuple):
    """The rows of a bag in its part, from ``start`` on."""

    part: Part
    start: int
    bag: str

    @property
    def end(self) -> int:
        """One more than the last row."""
        return self.start + self.part.bags[self.bag]


class StoredInstances(PredictionTable):
    """Instances in the parts of a folder, of which ``parts``, ``by_bag`` and ``of_bags`` read what they need.

    It is a table like any other: an attribute of all instances, such as ``probabilities``, reads all parts.

    Args:
        folder: where the parts are.
        parts: as predictions.json lists them.
        spans: the rows of the bags to read, in their order; of all if None.
        flag: adds flags to the instances that are read; None to leave them as they are.
    """

    def __init__(
        self,
        folder: Path,
        parts: Sequence[Part],
        spans: Sequence[Span] | None = None,
        flag: Callable[[PredictionTable], PredictionTable] | None = None,
    ) -> None:
        fields = {"_folder": folder, "_listed": tuple(parts), "_checked": set(), "_flag": flag}
        fields["_spans"] = (
            tuple(span for part in parts for span in _spans(part)) if spans is None else tuple(spans)
        )
        for name, value in fields.items():  # of a frozen dataclass
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return sum(span.end - span.start for span in self._spans)

    def __getattr__(self, name: str) -> Any:
        """Return what is known of all instances, for which all parts are read."""
        if name in PredictionTable.__dataclass_fields__:
            return getattr(self._whole, name)
        raise AttributeError(name)

    instance = property(lambda self: self._whole.instance)
    coords = property(lambda self: self._whole.coords)
    flagged = property(lambda self: self._whole.flagged)

    @cached_property
    def _whole(self) -> PredictionTable:
        return PredictionTable.concatenate(list(self.parts()))

    @cached_property
    def head(self) -> PredictionTable:
        """The instances of the first bag."""
        return self._read(self._spans[:1])

    @property
    def uncertainty_names(self) -> list[str]:
        """Names of the measures and extra scores."""
        return self.head.uncertainty_names

    def uncertainty(self, name: str) -> Float64[np.ndarray, "n"]:
        """Return one measure or extra score, higher where less certain."""
        values, row = np.empty(len(self)), 0
        for part in self._uncertainties(name):
            values[row : row + len(part)] = part
            row += len(part)
        return values

    def _uncertainties(self, name: str) -> Iterator[Float64[np.ndarray, "part"]]:
        if name not in self.head.scores:
            yield from (MEASURES[name].of(one).numpy() for one in self.distributions())
            return
        column = name if name in MEASURES else SCORE_PREFIX + name
        for path, read in self._columns([column]):
            yield read_numbers(read[column], column, str(path))

    def distributions(self) -> Iterator[PredictiveDistribution]:
        """Yield the distributions of the instances in order, a file at a time."""
        for path, read in self._columns(parameter_columns(self.head.distribution)):
            yield read_distribution(read, str(path))

    def parts(self) -> Iterator[PredictionTable]:
        """Yield the instances in order, a file at a time."""
        for _, spans in groupby(self._spans, key=lambda span: span.part.file):
            yield self._read(list(spans))

    def known_parts(self) -> Iterator[PredictionTable]:
        """Yield the instances in order, a file at a time, without positions and scores."""
        names = {*KNOWN, *parameter_columns(self.head.distribution)}
        if self._flag is not None:  # which may compare any score
            yield from self.parts()
            return
        for _, spans in groupby(self._spans, key=lambda span: span.part.file):
            yield self._read(list(spans), names.__contains__)

    def by_bag(self) -> Iterator[tuple[str, PredictionTable]]:
        """Yield the id and the instances of each bag, a file at a time."""
        for _, group in groupby(self._spans, key=lambda span: span.part.file):
            spans = list(group)
            table, end = self._read(spans), 0
            for span in spans:
                start, end = end, end + span.end - span.start
                yield span.bag, table.subset(np.arange(start, end))

    def bag_sizes(self) -> dict[str, int]:
        """Return the number of instances of each bag."""
        return {span.bag: span.end - span.start for span in self._spans}

    def rows_of_bags(self) -> GroupedRows:
        """Return the bags in order, and the bag of each instance; nothing is read."""
        sizes = self.bag_sizes()
        return GroupedRows(tuple(sizes), np.repeat(np.arange(len(sizes)), list(sizes.values())))

    def of_bags(self, names: Collection[str]) -> StoredInstances:
        """Return the instances of some bags; nothing is read."""
        wanted = set(names)
        return self._of_spans([span for span in self._spans if span.bag in wanted])

    def in_order(self, names: Sequence[str]) -> StoredInstances:
        """Return the instances bag after bag, the bags in the order of ``names``; nothing is read."""
        place = {name: number for number, name in enumerate(names)}
        return self._of_spans(sorted(self._spans, key=lambda span: place[span.bag]))

    def flagged_by(self, flag: Callable[[PredictionTable], PredictionTable]) -> StoredInstances:
        """Return the instances with flags, which are computed as parts are read."""
        return StoredInstances(self._folder, self._listed, self._spans, flag)

    def _of_spans(self, spans: Sequence[Span]) -> StoredInstances:
        return StoredInstances(self._folder, self._listed, spans, self._flag)

    def _columns(self, names: Collection[str]) -> Iterator[tuple[Path, dict[str, np.ndarray]]]:
        """Yield the numbers of some columns, a file at a time."""
        for _, group in groupby(self._spans, key=lambda span: span.part.file):
            path, read = self._rows(list(group), names.__contains__)
            missing = [name for name in names if name not in read.column_names]
            if missing:
                raise missing_column(f"part {str(path)!r}", f"a column {missing[0]!r}", read.column_names, FIX)
            with reading_table(path, FIX):
                yield path, {name: _array(read.column(name)) for name in names}

    def _read(
        self, spans: Sequence[Span], wanted: Callable[[str], bool] = lambda name: name != "bag_id"
    ) -> PredictionTable:
        """Return the rows of some bags of one part, as predictions of the wanted columns."""
        path, read = self._rows(spans, wanted)
        with reading_table(path, FIX):
            ids = np.repeat(np.array([span.bag for span in spans], object), [s.end - s.start for s in spans])
            table = _to_table(read, str(path), ids)
        return table if self._flag is None else self._flag(table)

    def _rows(self, spans: Sequence[Span], wanted: Callable[[str], bool]) -> tuple[Path, Any]:
        """Return the file of some bags of one part, and the wanted columns of their rows.

        Raises:
            StorageError: a part that is missing, damaged or another one.
        """
        part, path = spans[0].part, self._folder / spans[0].part.file
        if part.file not in self._checked:
            check_part(path, part, self._listed)
            self._checked.add(part.file)
        first, last = min(span.start for span in spans), max(span.end for span in spans)
        read = read_parquet_rows(path, first, last, wanted)
        chosen = np.concatenate([np.arange(span.start, span.end) - first for span in spans])
        return path, read if np.array_equal(chosen, np.arange(last - first)) else read.take(
            pa.array(chosen)
        ).combine_chunks()


def _spans(part: Part) -> Iterator[Span]:
    start = 0
    for bag, rows in part.bags.items():
        yield Span(part, start, bag)
        start += rows


def _to_table(read: Any, name: str, bag_ids: np.ndarray) -> PredictionTable:
    """Return the rows of a part as predictions."""
    columns = {column: _array(read.column(column)) for column in read.column_names if column not in LOGICAL}
    distribution = read_distribution(columns, name)
    count = len(bag_ids)
    labels, flags, sets = Labels.unknown(count), OodFlags.unknown(count), np.full(count, "", object)
    if "label" in columns:
        known = ~np.isnan(columns["label"])
        labels = Labels(np.where(known, columns["label"], 0).astype(np.int64), known)
        check_classes(labels, f"table {name!r}", distribution.num_classes)
    if "is_ood" in read.column_names:
        cells = read.column("is_ood").cast(pa.bool_())
        flags = OodFlags(cells.fill_null(False).to_numpy(), cells.is_valid().to_numpy())
    if "ood_set" in read.column_names:
        sets = _texts(read.column("ood_set"))
    if "ood_set" in read.column_names or flags.out_of_distribution.any():
        flags, sets = with_named_sets(flags, sets, name)
    numbers = (
        read_numbers(columns["instance"], "instance", name).astype(np.int64) if "instance" in columns else None
    )
    return PredictionTable(
        distribution=distribution,
        bag_ids=bag_ids,
        labels=labels,
        is_ood=flags,
        ood_sets=sets,
        instance=numbers,
        scores=read_scores(columns, name, distribution),
        coords=read_coords(columns["x"], columns["y"], name) if {"x", "y"} <= set(columns) else None,
        flagged=read_flagged(read.column("flagged").to_numpy(), name) if "flagged" in read.column_names else None,
    )


def _array(column: Any) -> np.ndarray:
    """Return numbers, NaN where a cell is empty."""
    numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _texts(column: Any) -> np.ndarray:
    """Return texts, of which there are few different ones, "" where a cell is empty."""
    encoded = column.cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    texts: np.ndarray = np.array(encoded.dictionary.to_pylist(), object)[encoded.indices.to_numpy()]
    return texts


def check_part(path: Path, part: Part, listed: Sequence[Part]) -> None:
    """Raise unless a file is the part that predictions.json lists.

    Args:
        path: the file.
        part: as it is listed.
        listed: all parts of these predictions.

    Raises:
        StorageError: it is missing, truncated, a copy of another part, or of other predictions.
    """
    try:
        size = path.stat().st_size
        if size != part.bytes:
            problem = f"{size:,} bytes: it is {'truncated' if size < part.bytes else 'longer'}, or another file"
        else:
            digest = _sha256(path)
            if digest == part.sha256:
                return
            same = next((other.file for other in listed if other.sha256 == digest), None)
            problem = f"a copy of {same!r}" if same else "other bytes: it is damaged, or of another run"
    except FileNotFoundError:
        problem = "no such file"
    except OSError as error:
        problem = error.strerror or str(error)
    raise StorageError(
        item=f"part {str(path)!r}",
        wanted=f"the file of {part.bytes:,} bytes and {part.rows:,} rows that predictions.json lists",
        got=problem,
        fix=FIX,
    )


def check_folder(folder: Path, parts: Sequence[Part]) -> None:
    """Raise unless a folder holds the parts that are listed, each with its size, and no other file.

    Raises:
        StorageError: a part that is missing, truncated, listed twice or not listed.
        DataError: a bag in two parts.
    """
    names = [part.file for part in parts]
    unlisted = sorted({path.name for path in folder.iterdir() if path.suffix == ".parquet"} - set(names))
    twice = sorted({name for name in names if names.count(name) > 1})
    if unlisted or twice:
        raise StorageError(
            item=f"part {str(folder / (unlisted or twice)[0])!r}",
            wanted=f"the {len(parts):,} parts that predictions.json lists, each once",
            got="a file that it does not list" if unlisted else "a part that it lists twice",
            fix="remove the file if it is a copy or of another run" if unlisted else FIX,
        )
    for part in parts:
        path = folder / part.file
        if not path.is_file() or path.stat().st_size != part.bytes:
            check_part(path, part, parts)
    part_of: dict[str, str] = {}
    for part in parts:
        for bag in part.bags:
            if part_of.setdefault(bag, part.file) != part.file:
                raise DataError(
                    item=f"part {str(folder / part.file)!r}, bag {bag!r}",
                    wanted="each bag in one part",
                    got=f"another in {part_of[bag]!r}",
                    fix=FIX,
                )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
