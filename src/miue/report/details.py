"""The instances of each bag, for a look into it: those that fit, packed into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from miue.bags.coords import Coords
from miue.common.errors import DataError
from miue.evaluation.evaluate import detection_score
from miue.pathology.export.ranges import highest_value
from miue.predictions.table import PredictionTable
from miue.report.runs import Comparison
from miue.report.summaries import packed


@dataclass(frozen=True)
class Instances:
    """Every instance of every bag that any run predicts, bag after bag.

    Attributes:
        bag: row of each instance's bag.
        position: position of each instance in its bag.
        rows: for each run the row of each instance in its table, −1 where it lacks it; None without instances.
        tables: the instance table of each run.
        probability: for each run the probability of the class in question: of class 1 of two, else of the
            bag's predicted class; NaN where lacking.
        uncertainty: for each run its score of OOD instances; NaN where lacking.
        coords: position of each instance in its slide, None where no run has any.
    """

    bag: Int64[np.ndarray, "N"]
    position: Int64[np.ndarray, "N"]
    rows: tuple[Int64[np.ndarray, "N"] | None, ...]
    tables: tuple[PredictionTable | None, ...]
    probability: tuple[Float64[np.ndarray, "N"] | None, ...]
    uncertainty: tuple[Float64[np.ndarray, "N"] | None, ...]
    coords: Coords | None


def all_instances(comparison: Comparison) -> Instances | None:
    """Return the instances of all runs on common rows, or None where no run has any.

    Raises:
        DataError: an instance twice.
    """
    bag_row = {name: row for row, name in enumerate(comparison.bag_ids)}
    tables = tuple(run.predictions.instances for run in comparison.runs)
    keys = [
        None if table is None else _keys(table, bag_row, run.source)
        for run, table in zip(comparison.runs, tables, strict=True)
    ]
    found = [key for key in keys if key is not None]
    if not found:
        return None
    union = np.unique(np.concatenate(found))
    rows = tuple(None if key is None else _rows(union, key) for key in keys)
    bag, position = union >> 32, union & 0xFFFFFFFF
    probability: list[np.ndarray | None] = []
    uncertainty: list[np.ndarray | None] = []
    for run, table, row, bag_rows in zip(comparison.runs, tables, rows, comparison.rows, strict=True):
        if table is None or row is None:
            probability.append(None)
            uncertainty.append(None)
            continue
        of_class = run.predictions.bags.predicted[bag_rows[bag]] if len(comparison.class_names) > 2 else 1
        there = row >= 0
        probability.append(np.where(there, table.probabilities[row, of_class], np.nan))
        measure = table.uncertainties()[detection_score(table)]
        uncertainty.append(np.where(there, measure[row], np.nan))
    coords = _coords(tables, rows, len(union))
    return Instances(bag, position, rows, tables, tuple(probability), tuple(uncertainty), coords)


def _keys(table: PredictionTable, bag_row: dict[str, int], source: str) -> Int64[np.ndarray, "n"]:
    bag = np.array([bag_row[str(name)] for name in table.bag_ids], np.int64)
    position = table.instance if table.instance is not None else _order_of_appearance(bag)
    keys = (bag << 32) | position
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
        if table is not None and row is not None and table.coords is not None:
            theirs = table.coords[row]
            found = found.completed_by(Coords(theirs.values, theirs.known & (row >= 0)))
    return found if found.known.any() else None


def telling_first(instances: Instances) -> Int64[np.ndarray, "N"]:
    """Return the place of each instance in its bag when the most uncertain and the most probable come first.

    The first run that has the instance decides; the two orders take turns.
    """
    uncertainty, probability = (_first_known(values) for values in (instances.uncertainty, instances.probability))
    ranks = [_rank_in_bag(instances.bag, -values) for values in (uncertainty, probability)]
    return _rank_in_bag(instances.bag, np.minimum(2 * ranks[0], 2 * ranks[1] + 1).astype(np.float64))


def _first_known(columns: Sequence[Float64[np.ndarray, "N"] | None]) -> Float64[np.ndarray, "N"]:
    there = [column for column in columns if column is not None]
    known = there[0]
    for column in there[1:]:
        known = np.where(np.isnan(known), column, known)
    return known


def _rank_in_bag(bag: Int64[np.ndarray, "N"], values: Float64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    order = np.lexsort((values, bag))
    starts = np.searchsorted(bag[order], bag[order], side="left")
    rank = np.empty(len(bag), np.int64)
    rank[order] = np.arange(len(bag)) - starts
    return rank


def instance_details(instances: Instances, place: Int64[np.ndarray, "N"], cap: int, bags: int) -> dict[str, Any]:
    """Return at most ``cap`` instances of each bag, packed, with how many there are in all.

    Args:
        instances: all.
        place: of each in its bag, from ``telling_first``.
        cap: instances kept of each bag.
        bags: B.
    """
    kept = np.flatnonzero(place < cap)
    bag = instances.bag[kept]
    labels, is_ood = np.full(len(kept), -1, np.int64), np.zeros(len(kept), bool)
    for table, rows in zip(instances.tables, instances.rows, strict=True):
        if table is not None and rows is not None:
            row = rows[kept]
            known = (row >= 0) & table.labels.known[row] & (labels < 0)
            labels[known] = table.labels.values[row[known]]
            is_ood |= (row >= 0) & table.is_ood.out_of_distribution[row]
    coords = instances.coords
    return {
        "cap": cap,
        "total": packed(np.bincount(instances.bag, minlength=bags), "i4"),
        "starts": packed(np.searchsorted(bag, np.arange(bags + 1)), "i4"),
        "position": packed(instances.position[kept], "i4"),
        "label": packed(labels, "i2"),
        "isOod": packed(is_ood, "u1"),
        "located": None if coords is None else packed(coords.known[kept], "u1"),
        "x": None if coords is None else packed(coords.values[kept, 0], "i4"),
        "y": None if coords is None else packed(coords.values[kept, 1], "i4"),
        "runs": [
            None
            if p is None or u is None
            else {"probability": packed(p[kept], "f4"), "uncertainty": packed(u[kept], "f4")}
            for p, u in zip(instances.probability, instances.uncertainty, strict=True)
        ],
        "measures": [None if table is None else detection_score(table) for table in instances.tables],
        "highest": [None if t is None else highest_value(t, detection_score(t)) for t in instances.tables],
    }
