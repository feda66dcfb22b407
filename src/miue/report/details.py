"""The instances of each bag, for a look into it: the first of each, as many as fit, packed into arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.bags.coords import Coords
from miue.calibration import describe_flags
from miue.common.errors import DataError
from miue.evaluation.default_measures import detection_score
from miue.predictions.ranges import color_range
from miue.predictions.table import PART_ROWS, PredictionTable
from miue.report.runs import Comparison
from miue.report.summaries import packed


@dataclass(frozen=True)
class Instances:
    """The first instances of every bag that any run predicts, bag after bag.

    Attributes:
        bag: row of each instance's bag.
        position: position of each instance in its bag.
        place: of each instance in its bag, flagged ones first, then the most uncertain and the most probable.
        label: class of each instance, −1 where no run knows it.
        is_out: whether a run knows that it is out of distribution.
        probability: for each run the probability of the class in question: of class 1 of two, else of the
            bag's predicted class; NaN where lacking, None without instances.
        uncertainty: for each run its score of OOD instances; NaN where lacking, None without instances.
        flagged: for each run whether an instance is flagged; None where its instances were not calibrated.
        flags: for each run how many instances of each bag are flagged; None likewise.
        coords: position of each instance in its slide, None where no run has any.
        totals: of each bag, how many instances there are in all.
        highest: of each bag, the highest position of an instance; −1 without any.
    """

    bag: Int64[np.ndarray, "N"]
    position: Int64[np.ndarray, "N"]
    place: Int64[np.ndarray, "N"]
    label: Int64[np.ndarray, "N"]
    is_out: Bool[np.ndarray, "N"]
    probability: tuple[Float64[np.ndarray, "N"] | None, ...]
    uncertainty: tuple[Float64[np.ndarray, "N"] | None, ...]
    flagged: tuple[Bool[np.ndarray, "N"] | None, ...]
    flags: tuple[Int64[np.ndarray, "B"] | None, ...]
    coords: Coords | None
    totals: Int64[np.ndarray, "B"]
    highest: Int64[np.ndarray, "B"]

    def first(self, keep: int) -> Instances:
        """Return at most ``keep`` instances of each bag."""
        kept = np.flatnonzero(self.place < keep)
        return replace(
            self,
            bag=self.bag[kept],
            position=self.position[kept],
            place=self.place[kept],
            label=self.label[kept],
            is_out=self.is_out[kept],
            probability=tuple(None if one is None else one[kept] for one in self.probability),
            uncertainty=tuple(None if one is None else one[kept] for one in self.uncertainty),
            flagged=tuple(None if one is None else one[kept] for one in self.flagged),
            coords=None if self.coords is None else self.coords[kept],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Instances]) -> Instances:
        """Return the instances of all parts, which are of different bags."""

        def chain(columns: Iterable[Sequence[np.ndarray | None]], join: Any = np.concatenate) -> tuple[Any, ...]:
            by_run = [list(of_run) for of_run in zip(*columns, strict=True)]
            return tuple(None if any(one is None for one in of_run) else join(of_run) for of_run in by_run)

        coords = [part.coords for part in parts]
        filled = [Coords.unknown(len(p.bag)) if c is None else c for p, c in zip(parts, coords, strict=True)]
        names = ("bag", "position", "place", "label", "is_out")
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
            probability=chain(part.probability for part in parts),
            uncertainty=chain(part.uncertainty for part in parts),
            flagged=chain(part.flagged for part in parts),
            flags=chain((part.flags for part in parts), lambda counts: np.sum(counts, axis=0)),
            coords=None if all(one is None for one in coords) else Coords.concatenate(filled),
            totals=np.sum([part.totals for part in parts], axis=0),
            highest=np.max([part.highest for part in parts], axis=0),
        )


def most_instances(comparison: Comparison) -> Int64[np.ndarray, "B"]:
    """Return of each bag the largest number of instances that a run has of it; nothing is read."""
    counts = np.zeros(len(comparison.bag_ids), np.int64)
    for run in comparison.runs:
        sizes = run.predictions.instances.bag_sizes() if run.predictions.instances else {}
        counts = np.maximum(counts, [sizes.get(str(name), 0) for name in comparison.bag_ids])
    return counts


def first_instances(comparison: Comparison, keep: int) -> Instances | None:
    """Return at most ``keep`` instances of each bag of all runs on common rows, or None where no run has any.

    Some bags after another are read.

    Raises:
        DataError: an instance twice.
    """
    counts = most_instances(comparison)
    if not counts.any():
        return None
    groups = np.split(np.arange(len(counts)), np.flatnonzero(np.diff(counts.cumsum() // PART_ROWS)) + 1)
    parts = [_instances_of(comparison, bags) for bags in groups if counts[bags].any()]
    return Instances.concatenate([part.first(keep) for part in parts])


def _instances_of(comparison: Comparison, bags: Int64[np.ndarray, "b"]) -> Instances:
    """Return all instances of some bags."""
    bag_row = {str(comparison.bag_ids[row]): int(row) for row in bags}
    tables = tuple(
        None if run.predictions.instances is None else _in_memory(run.predictions.instances.of_bags(bag_row))
        for run in comparison.runs
    )
    keys = [
        None if table is None else _keys(table, bag_row, run.source)
        for run, table in zip(comparison.runs, tables, strict=True)
    ]
    union = np.unique(np.concatenate([key for key in keys if key is not None]))
    rows = tuple(None if key is None else _rows(union, key) for key in keys)
    bag, position = union >> 32, union & 0xFFFFFFFF
    probability: list[np.ndarray | None] = []
    uncertainty: list[np.ndarray | None] = []
    flagged: list[np.ndarray | None] = []
    labels, is_out = np.full(len(union), -1, np.int64), np.zeros(len(union), bool)
    for run, table, row, bag_rows in zip(comparison.runs, tables, rows, comparison.rows, strict=True):
        if table is None or row is None:
            for column in (probability, uncertainty, flagged):
                column.append(None)
            continue
        there = row >= 0
        if not len(table):
            probability.append(np.full(len(union), np.nan))
            uncertainty.append(np.full(len(union), np.nan))
            flagged.append(np.zeros(len(union), bool) if describe_flags(run.predictions.provenance) else None)
            continue
        of_class = run.predictions.bags.class_in_question[bag_rows[bag]]
        probability.append(np.where(there, table.probabilities[row, of_class], np.nan))
        uncertainty.append(np.where(there, table.uncertainty(detection_score(table))[row], np.nan))
        flagged.append(None if table.flagged is None else there & table.flagged[row])
        known = there & table.labels.known[row] & (labels < 0)
        labels[known] = table.labels.values[row[known]]
        is_out |= there & table.is_ood.out_of_distribution[row]
    count, highest = len(comparison.bag_ids), np.full(len(comparison.bag_ids), -1, np.int64)
    np.maximum.at(highest, bag, position)
    return Instances(
        bag,
        position,
        _order_to_show(bag, uncertainty, probability, flagged),
        labels,
        is_out,
        tuple(probability),
        tuple(uncertainty),
        tuple(flagged),
        tuple(None if one is None else np.bincount(bag[one], minlength=count) for one in flagged),
        _coords(tables, rows, len(union)),
        np.bincount(bag, minlength=count),
        highest,
    )


def _in_memory(table: PredictionTable) -> PredictionTable:
    """Return a table whose columns are all read once; stored instances are none where there are no bags."""
    parts = list(table.parts()) if len(table) else []
    return PredictionTable.concatenate(parts) if parts else table


def _keys(table: PredictionTable, bag_row: dict[str, int], source: str) -> Int64[np.ndarray, "n"]:
    ids = table.bag_ids
    firsts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
    rows = np.array([bag_row[str(name)] for name in ids[firsts]], np.int64)
    bag = np.repeat(rows, np.diff(firsts, append=len(ids)))
    position = table.instance if table.instance is not None else _order_of_appearance(bag)
    keys = (bag << 32) | position
    if (keys[1:] > keys[:-1]).all() and position.min(initial=0) >= 0:
        return keys
    distinct, counts = np.unique(keys, return_counts=True)
    if counts.max() > 1 or position.min() < 0:
        at = int(np.flatnonzero(keys == distinct[counts.argmax()])[-1])
        raise DataError(
            item=f"instance {position[at]} of bag {str(table.bag_ids[at])!r} in predictions {source!r}",
            wanted="each instance of a bag once, numbered from 0",
            got=f"{counts.max()} rows" if counts.max() > 1 else "a negative number",
            fix="correct the column 'instance', or drop it: then rows count in their order",
        )
    return keys


def _order_of_appearance(bag: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    order = np.argsort(bag, kind="stable")
    first = np.searchsorted(bag[order], bag[order], side="left")
    place = np.empty(len(bag), np.int64)
    place[order] = np.arange(len(bag)) - first
    return place


def _rows(union: Int64[np.ndarray, "N"], keys: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "N"]:
    rows = np.full(len(union), -1, np.int64)
    rows[np.searchsorted(union, keys)] = np.arange(len(keys))
    return rows


def _coords(
    tables: Sequence[PredictionTable | None], rows: Sequence[Int64[np.ndarray, "N"] | None], count: int
) -> Coords | None:
    """Return the place of each instance as the first run has it that knows it."""
    found = Coords(np.zeros((count, 2), np.int64), np.zeros(count, bool))
    for table, row in zip(tables, rows, strict=True):
        if table and row is not None and table.coords is not None:
            theirs = table.coords[row]
            found = found.completed_by(Coords(theirs.values, theirs.known & (row >= 0)))
    return found if found.known.any() else None


def _order_to_show(
    bag: Int64[np.ndarray, "N"],
    uncertainty: Sequence[Float64[np.ndarray, "N"] | None],
    probability: Sequence[Float64[np.ndarray, "N"] | None],
    flagged: Sequence[Bool[np.ndarray, "N"] | None],
) -> Int64[np.ndarray, "N"]:
    """Return the place of each instance in its bag when the most uncertain and the most probable come first.

    The first run that has the instance decides; the two orders take turns. What a run flags comes before the rest.
    """
    ranks = [_rank_in_bag(bag, -_first_known(values)) for values in (uncertainty, probability)]
    order = np.minimum(2 * ranks[0], 2 * ranks[1] + 1).astype(np.float64)
    any_flag = np.any([np.zeros(len(bag), bool), *(one for one in flagged if one is not None)], axis=0)
    return _rank_in_bag(bag, np.where(any_flag, order - 2 * len(bag) - 1, order))


def _first_known(columns: Sequence[Float64[np.ndarray, "N"] | None]) -> Float64[np.ndarray, "N"]:
    there = [column for column in columns if column is not None]
    known = there[0]
    for column in there[1:]:
        known = np.where(np.isnan(known), column, known)
    return known


def _rank_in_bag(bag: Int64[np.ndarray, "N"], values: Float64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    order = np.lexsort((values, bag))
    first = np.searchsorted(bag, np.arange(bag.max(initial=0) + 1))  # the bags ascend, before and after sorting
    rank = np.empty(len(bag), np.int64)
    rank[order] = np.arange(len(bag)) - first[bag]
    return rank


def describe_scores(comparison: Comparison) -> dict[str, Any]:
    """Return of each run the score of out-of-distribution instances, both ends of its color scale, and by which
    rule instances were flagged with what promise, "" where they were not."""
    tables = [run.predictions.instances for run in comparison.runs]
    return {
        "measures": [None if table is None else detection_score(table) for table in tables],
        "ranges": [None if table is None else color_range(table, detection_score(table)) for table in tables],
        "promises": [describe_flags(run.predictions.provenance) for run in comparison.runs],
    }


def instance_details(instances: Instances, cap: int) -> dict[str, Any]:
    """Return at most ``cap`` instances of each bag, packed, with how many there are in all.

    Args:
        instances: those that may be shown.
        cap: instances kept of each bag.
    """
    shown = instances.first(cap)
    coords = shown.coords
    return {
        "cap": cap,
        "total": packed(shown.totals, "i4"),
        "starts": packed(np.searchsorted(shown.bag, np.arange(len(shown.totals) + 1)), "i4"),
        "position": packed(shown.position, "i4"),
        "label": packed(shown.label, "i2"),
        "isOod": packed(shown.is_out, "u1"),
        "located": None if coords is None else packed(coords.known, "u1"),
        "x": None if coords is None else packed(coords.values[:, 0], "i4"),
        "y": None if coords is None else packed(coords.values[:, 1], "i4"),
        "runs": [
            None
            if p is None or u is None
            else {
                "probability": packed(p, "f4"),
                "uncertainty": packed(u, "f4"),
                "flagged": None if f is None else packed(f, "u1"),
                "flags": None if n is None else packed(n, "i4"),
            }
            for p, u, f, n in zip(shown.probability, shown.uncertainty, shown.flagged, shown.flags, strict=True)
        ],
    }
