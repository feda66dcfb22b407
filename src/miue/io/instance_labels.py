"""Labels of instances from a table of their own or from arrays, for evaluation alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset, Coords, Labels
from miue.bags.columns import BAG, COORDS, NAMES, read_classes, read_coords
from miue.bags.names import match_names
from miue.common.errors import DataError, repeated
from miue.common.tables import read_header
from miue.common.text import plural
from miue.io.columns import find_column, how_to_specify
from miue.io.label_table import label_arrays_in, read_label_array
from miue.io.layouts.long_table import read_long_table
from miue.io.raw_bags import RawBags

OF_INSTANCES = (BAG, "instance_label", *COORDS)

logger = logging.getLogger(__name__)


def with_instance_labels(bags: BagDataset, path: Path, columns: Mapping[str, str] | None = None) -> BagDataset:
    """Return ``bags`` with the labels of instances that a table has.

    Its columns are bag_id (or slide_id), instance_label, and which instance that is: its number from 0, in the
    order of the bag's file, as ``instance``, or its position in level-0 pixels, as ``x`` and ``y``. Labels are
    used to evaluate, never to train. They are class names, or numbers of classes; an empty one leaves what is
    known. Rows of bags, and of positions, that are not there are passed over, and their number is logged.

    Args:
        bags: whose instances are labeled.
        path: of the table.
        columns: the name of its column of bags under bag_id, where it is not found by its name.

    Raises:
        StorageError, DataError: a table that cannot be read, without instance_label or any of the bags or
            positions, or an instance that is not there or is listed twice.
    """
    columns = columns or {}
    header = read_header(path)
    by_coords = _has_coords_alone(header, str(path))
    has_number = find_column(header, ("instance",), str(path)) is not None
    names_bags = BAG in columns or find_column(header, NAMES[BAG], str(path)) is not None
    if not names_bags or not (by_coords or has_number):
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="columns bag_id, instance_label, and instance (its number from 0) or x and y",
            got=f"columns {', '.join(header)}",
            fix=f"rename the columns, or say which one names the bags ({how_to_specify(BAG)})",
        )
    of_bags = find_column(header, ("label",), str(path)) is not None
    number = ["x"] if by_coords else ["instance"]
    table = read_long_table(path, columns=columns, features=number, meanings=OF_INSTANCES)
    if "instance_label" not in table.of_instances or of_bags:
        raise DataError(
            item=f"table {table.source!r}",
            wanted="a column instance_label",
            got="label, which is that of a bag" if of_bags else "none",
            fix="rename the column to instance_label",
        )
    bag = _bags_of_rows(table, bags)
    cells, order = table.of_instances["instance_label"].copy(), np.asarray(table.order)
    cells[order[bag < 0]] = ""  # they may be of a class that these bags do not have
    labels = read_classes(cells, table.source, "instance_label", bags.class_names)[order]
    positions = _positions_by_coords(table, bags, bag) if by_coords else _positions_by_number(table, bags, bag)
    labels, bag, positions = labels[positions >= 0], bag[positions >= 0], positions[positions >= 0]
    distinct, first, counts = np.unique(positions, return_index=True, return_counts=True)
    if len(distinct) < len(positions):
        row = first[counts.argmax()]
        number = positions[row] - bags.starts[bag[row]]
        item = f"instance {number}, bag {bags.ids[bag[row]]!r} of {table.source!r}"
        raise repeated(item, "one row", int(counts.max()))
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    values[positions[labels.known]], known[positions[labels.known]] = labels.values[labels.known], True
    return replace(bags, instance_labels=Labels(values, known))


def with_instance_labels_of_arrays(bags: BagDataset, folder: Path) -> BagDataset:
    """Return the bags with the labels of instances from arrays of one whole number for each instance.

    Bags without an array keep what is known of them; arrays of other bags are not read.

    Raises:
        DataError: arrays of none of the bags, or one that is damaged, of another length or of other classes.
    """
    files = label_arrays_in(folder)
    places = match_names([path.stem for path in files], bags.ids, str(folder))
    found = [(path, place) for path, place in zip(files, places, strict=True) if place is not None]
    if not found:
        raise DataError(
            item=f"labels of instances {str(folder)!r}",
            wanted=f"arrays of the bags, such as {bags.ids[0]}.npy",
            got=f"those of {len(files)} others, such as {files[0].name}",
            fix="name each array after its bag",
        )
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    for path, place in found:
        start, size = int(bags.starts[place]), int(bags.sizes[place])
        numbers = read_label_array(path).ravel()
        if len(numbers) != size:
            raise DataError(
                item=f"labels {str(path)!r}",
                wanted=f"a label for each of {size:,} instances",
                got=f"{len(numbers):,} numbers",
                fix="write this array again",
            )
        labels = read_classes(numbers, str(path), "label", bags.class_names, bags.num_classes)
        values[start : start + size], known[start : start + size] = labels.values, labels.known
    return replace(bags, instance_labels=Labels(values, known))


def _has_coords_alone(columns: Sequence[str], source: str) -> bool:
    """Return whether a table with these columns names instances by their positions, not by their numbers."""
    number, x, y = (find_column(columns, (name,), source) for name in ("instance", *COORDS))
    return number is None and x is not None and y is not None


def _bags_of_rows(table: RawBags, bags: BagDataset) -> Int64[np.ndarray, "M"]:
    """Return the bag of each row, rows sorted by bag, or -1 where it is not there."""
    rows = np.array([-1 if row is None else row for row in match_names(table.ids, bags.ids, table.source)])
    unmatched = [name for name, row in zip(table.ids, rows, strict=True) if row < 0]
    if len(unmatched) == len(rows):
        raise DataError(
            item=f"table {table.source!r}",
            wanted=f"instances of the bags, such as {bags.ids[0]!r}",
            got=f"those of {len(unmatched):,} others, such as {unmatched[0]!r}",
            fix="write bag_id as the bags are called",
        )
    bag = np.repeat(rows, np.asarray(table.sizes))
    if unmatched:
        unused, others = plural(int((bag < 0).sum()), "row"), plural(len(unmatched), "bag")
        message = "table %r: labels nothing with %s of %s not there, such as %r"
        logger.warning(message, table.source, unused, others, unmatched[0])
    return bag


def _positions_by_number(table: RawBags, bags: BagDataset, bag: Int64[np.ndarray, "M"]) -> Int64[np.ndarray, "M"]:
    """Return the row of ``bags`` that each row of the table labels by its number, -1 where there is none."""
    numbers = np.asarray(table.instances)[:, 0]
    last = np.where(bag < 0, np.inf, bags.sizes[bag] - 1)
    wrong = np.flatnonzero((bag >= 0) & ((numbers != np.floor(numbers)) | (numbers < 0) | (numbers > last)))
    if len(wrong):
        row = wrong[0]
        raise DataError(
            item=f"bag {bags.ids[bag[row]]!r} of {table.source!r}",
            wanted=f"instances from 0 to {bags.sizes[bag[row]] - 1}",
            got=f"{numbers[row]:.7g}",
            fix="number the instances of a bag from 0, in the order of its file",
        )
    return np.where(bag < 0, -1, bags.starts[bag] + numbers.astype(np.int64))


def _positions_by_coords(table: RawBags, bags: BagDataset, bag: Int64[np.ndarray, "M"]) -> Int64[np.ndarray, "M"]:
    """Return the row of ``bags`` that each row of the table labels by its position, -1 where it is not there."""
    source = table.source
    if bags.coords is None:
        raise DataError(
            item=f"table {source!r}",
            wanted="a column instance, since the bags have no positions",
            got="x and y",
            fix="number the instances of a bag from 0, in the order of its file",
        )
    x, y = (table.of_instances[name] for name in COORDS)
    wanted = (read_coords(x, y, source) or Coords.unknown(len(bag)))[table.order]
    owner = bags.bag_of_instance
    located = bags.coords.known[bags.positions]
    instances = bags.positions[located]
    keys = np.column_stack([owner[located], bags.coords.values[instances]])
    asked = np.column_stack([bag, wanted.values])
    group = np.unique(np.concatenate([keys, asked]), axis=0, return_inverse=True)[1].reshape(-1)
    count = np.bincount(group[: len(keys)], minlength=group.max() + 1)
    row_of = np.full(group.max() + 1, -1)
    row_of[group[: len(keys)]] = instances
    groups = group[len(keys) :]
    usable = (bag >= 0) & wanted.known
    several = np.flatnonzero(usable & (count[groups] > 1))
    if len(several):
        row = several[0]
        raise DataError(
            item=f"bag {bags.ids[bag[row]]!r} of {source!r}",
            wanted="positions of one instance each",
            got=f"{count[groups[row]]} instances at {tuple(wanted.values[row].tolist())}",
            fix="name instances by their number, in a column instance",
        )
    positions = np.where(usable, row_of[groups], -1)
    missing = np.flatnonzero((bag >= 0) & (positions < 0))
    if len(missing):
        row = missing[0]
        example = f"{tuple(wanted.values[row].tolist())} in bag {bags.ids[bag[row]]!r}"
        if len(missing) == (bag >= 0).sum():
            start = bags.starts[bag[row]]
            raise DataError(
                item=f"table {source!r}",
                wanted=f"positions of instances, such as {tuple(bags.coords.values[start].tolist())}",
                got=f"none of them; {example}",
                fix="write x and y of the upper left corner of a patch, in level-0 pixels",
            )
        message = "table %r: no instance is at %s of %s, such as %s"
        positioned = plural(int((bag >= 0).sum()), "position")
        logger.warning(message, source, f"{len(missing):,}", positioned, example)
    return positions
