"""Instances in the parts of a folder, of which no more is read than what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float64

from miue.bags import GroupedRows, Labels, OodFlags, Slides
from miue.bags.classes import check_classes
from miue.bags.columns import read_coords, whole_numbers, with_named_sets
from miue.common.tables import read_parquet_rows, reading_table, texts_of_column
from miue.distributions import PredictiveDistribution
from miue.predictions.decode import read_distribution, read_flagged, read_scores
from miue.predictions.parts import FIX, Part, check_part
from miue.predictions.table import PredictionTable, parameter_columns, uncertainty_column
from miue.targets import Target

NAMED = ("bag_id", "slide")  # which predictions.json lists
LOGICAL = ("is_ood", "ood_set", "flagged")
KNOWN = ("label", *LOGICAL)


class Span(NamedTuple):
    """The rows of a bag, or of a slide of one, in its part, from ``start`` on."""

    part: Part
    start: int
    end: int
    bag: str
    slides: Mapping[str, int] = {}


class StoredInstances(PredictionTable):
    """Instances in the parts of a folder, of which ``parts``, ``by_bag`` and ``of_bags`` read what they need.

    It is a table like any other: an attribute of all instances, such as ``probabilities``, reads all parts.

    Args:
        folder: where the parts are; a relative one is in the working folder of this moment.
        parts: as predictions.json lists them.
        spans: the rows of the bags to read, in their order; of all if None.
        flag: adds flags to the instances that are read; None to leave them as they are.
        checked: files of parts that are known to be whole, to which those that are read are added.
        target: what labels mean where they are more than classes.
    """

    def __init__(
        self,
        folder: Path,
        parts: Sequence[Part],
        spans: Sequence[Span] | None = None,
        flag: Callable[[PredictionTable], PredictionTable] | None = None,
        checked: set[str] | None = None,
        target: Target | None = None,
    ) -> None:
        listed = tuple(span for part in parts for span in _spans(part)) if spans is None else tuple(spans)
        known = set() if checked is None else checked
        for name, value in (
            ("_folder", folder.absolute()),
            ("_listed", tuple(parts)),
            ("_spans", listed),
            ("_flag", flag),
            ("_checked", known),
            ("target", target),
        ):  # of a frozen dataclass
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
    slides = property(lambda self: self._whole.slides)

    @cached_property
    def _whole(self) -> PredictionTable:
        return PredictionTable.concatenate(list(self.parts()) or [self.head])

    @cached_property
    def head(self) -> PredictionTable:
        """The instances of the first bag; without bags none, of the kind of the others in the folder."""
        if self._spans:
            return self._read(self._spans[:1])
        return self._read([next(_spans(self._listed[0]))]).subset(np.arange(0))

    @property
    def uncertainty_names(self) -> list[str]:
        """Names of the measures and extra scores."""
        return self.head.uncertainty_names

    def uncertainty(self, name: str) -> Float64[np.ndarray, "n"]:
        """Return one measure or extra score, higher where less certain; nothing else is read but distributions."""
        if name not in self.head.scores:
            self._measure(name)  # which refuses one that there is not
        parts = self._parts({*self._parameters, uncertainty_column(name)})
        return np.concatenate([np.zeros(0), *(part.uncertainty(name) for part in parts)])

    def with_score(self, name: str, values: Any) -> PredictionTable:
        """Return what ``PredictionTable.with_score`` does, a table in memory, for which all parts are read."""
        return self._whole.with_score(name, values)

    @property
    def _parameters(self) -> set[str]:
        return set(parameter_columns(self.head.distribution))

    def distributions(self) -> Iterator[PredictiveDistribution]:
        """Yield the distributions of the instances in order, a file at a time."""
        yield from (part.distribution for part in self._parts(self._parameters))

    def parts(self) -> Iterator[PredictionTable]:
        """Yield the instances in order, a file at a time."""
        yield from map(self._read, self._spans_of_files())

    def known_parts(self) -> Iterator[PredictionTable]:
        """Yield the instances in order, a file at a time, without positions and scores."""
        if self._flag is not None:  # which may compare any score
            yield from self.parts()
        else:
            yield from self._parts({*KNOWN, *self._parameters})

    def _parts(self, columns: Collection[str]) -> Iterator[PredictionTable]:
        """Yield some columns of the instances in order, a file at a time, without flags that are computed."""
        for spans in self._spans_of_files():
            yield self._read(spans, columns.__contains__, flag=False)

    def by_bag(self) -> Iterator[tuple[str, PredictionTable]]:
        """Yield the id and the instances of each bag, a file at a time."""
        for spans in self._spans_of_files():
            table, end = self._read(spans), 0
            for span in spans:
                start, end = end, end + span.end - span.start
                yield span.bag, table.subset(np.arange(start, end))

    def bag_sizes(self) -> dict[str, int]:
        """Return the number of instances of each bag."""
        return {span.bag: span.end - span.start for span in self._spans}

    def _flags(self) -> Iterator[tuple[Bool[np.ndarray, "part"] | None, GroupedRows]]:
        """Yield the flags of the instances, of which nothing else is read unless they are computed."""
        if self._flag is not None:
            yield from super()._flags()
            return
        for spans in self._spans_of_files():
            path, read = self._rows(spans, "flagged".__eq__)
            is_there = "flagged" in read.column_names
            flags = read_flagged(read.column("flagged").to_numpy(), str(path)) if is_there else None
            yield flags, _rows_of_bags(spans)

    def rows_of_bags(self) -> GroupedRows:
        """Return the bags in order, and the bag of each instance; nothing is read."""
        return _rows_of_bags(self._spans)

    def of_bags(self, names: Collection[str]) -> StoredInstances:
        """Return the instances of some bags; nothing is read."""
        wanted = set(names)
        return self._of_spans([span for span in self._spans if span.bag in wanted])

    def in_order(self, names: Sequence[str]) -> StoredInstances:
        """Return the instances bag after bag, the bags in the order of ``names``; nothing is read."""
        place = {name: number for number, name in enumerate(names)}
        return self._of_spans(sorted(self._spans, key=lambda span: place[span.bag]))

    def slides_of_bags(self) -> dict[str, dict[str, int]]:
        """Return how many instances of each bag are of each slide, in order; nothing is read."""
        return {span.bag: dict(span.slides) for span in self._spans if span.slides}

    def per_slide(self) -> StoredInstances:
        """Return the instances with the slide of each in place of its bag; nothing is read."""
        return self._of_spans([part for span in self._spans for part in _spans_of_slides(span)])

    def flagged_by(self, flag: Callable[[PredictionTable], PredictionTable]) -> StoredInstances:
        """Return the instances with flags, which are computed as parts are read."""
        return StoredInstances(self._folder, self._listed, self._spans, flag, self._checked, self.target)

    def _spans_of_files(self) -> Iterator[list[Span]]:
        """Yield the rows to read of each file, in order."""
        for _, spans in groupby(self._spans, key=lambda span: span.part.file):
            yield list(spans)

    def _of_spans(self, spans: Sequence[Span]) -> StoredInstances:
        return StoredInstances(self._folder, self._listed, spans, self._flag, self._checked, self.target)

    def _read(
        self,
        spans: Sequence[Span],
        wanted: Callable[[str], bool] = lambda name: name not in NAMED,
        *,
        flag: bool = True,
    ) -> PredictionTable:
        """Return the rows of some bags of one part, as predictions of the wanted columns."""
        path, read = self._rows(spans, wanted)
        with reading_table(path, FIX):
            ids = np.repeat(np.array([span.bag for span in spans], object), [s.end - s.start for s in spans])
            table = replace(_to_table(read, str(path), ids, self.target), slides=_slides(spans))
        return self._flag(table) if self._flag is not None and flag else table

    def _rows(self, spans: Sequence[Span], wanted: Callable[[str], bool]) -> tuple[Path, Any]:
        """Return the file of some bags of one part, and the wanted columns of their rows.

        Raises:
            StorageError: a part that is missing, damaged or another one.
        """
        part, path = spans[0].part, self._folder / spans[0].part.file
        if part.file not in self._checked:
            check_part(path, part)
            self._checked.add(part.file)
        first, last = min(span.start for span in spans), max(span.end for span in spans)
        read = read_parquet_rows(path, first, last, wanted)
        chosen = np.concatenate([np.arange(span.start, span.end) - first for span in spans])
        return path, read if np.array_equal(chosen, np.arange(last - first)) else read.take(
            pa.array(chosen)
        ).combine_chunks()


def _rows_of_bags(spans: Sequence[Span]) -> GroupedRows:
    sizes = [span.end - span.start for span in spans]
    return GroupedRows(tuple(span.bag for span in spans), np.repeat(np.arange(len(sizes)), sizes))


def _spans(part: Part) -> Iterator[Span]:
    start = 0
    for bag, rows in part.bags.items():
        yield Span(part, start, start + rows, bag, part.slides.get(bag, {}))
        start += rows


def _spans_of_slides(span: Span) -> Iterator[Span]:
    end = span.start
    for slide, rows in (span.slides or {span.bag: span.end - span.start}).items():
        start, end = end, end + rows
        yield Span(span.part, start, end, slide or span.bag)


def _slides(spans: Sequence[Span]) -> Slides | None:
    """Return the slide of each row of some bags; None where they hold no slides."""
    if not any(span.slides for span in spans):
        return None
    pairs = [pair for span in spans for pair in (span.slides or {"": span.end - span.start}).items()]
    of_runs = Slides.of([slide for slide, _ in pairs])
    return of_runs[np.repeat(np.arange(len(pairs)), [rows for _, rows in pairs])]


def _to_table(read: Any, name: str, bag_ids: np.ndarray, target: Target | None) -> PredictionTable:
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
        sets = texts_of_column(read.column("ood_set"))
    if "ood_set" in read.column_names or flags.out_of_distribution.any():
        flags, sets = with_named_sets(flags, sets, name)
    numbers = whole_numbers(columns["instance"], name, "instance") if "instance" in columns else None
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
        target=target,
    )


def _array(column: Any) -> np.ndarray:
    """Return numbers, NaN where a cell is empty."""
    numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return numbers
