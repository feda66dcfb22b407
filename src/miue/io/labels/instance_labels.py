"""Labels of instances from a table of their own, for evaluation alone."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.names import match_names
from miue.bags.table_columns import read_classes
from miue.common.errors import DataError, repeated
from miue.io.tables.long_table import read_long_table

logger = logging.getLogger(__name__)


def with_instance_labels(bags: BagDataset, path: Path) -> BagDataset:
    """Return ``bags`` with the labels of instances that a table has: bag_id, instance (from 0), instance_label.

    They are used to evaluate, never to train. Labels are class names, or numbers of classes; an empty one leaves
    what is known. Rows of bags that are not there are passed over, and their number is logged.

    Raises:
        StorageError, DataError: a table that cannot be read, without instance_label or any of the bags, or an
            instance that is not there or is listed twice.
    """
    table = read_long_table(path, features=["instance"])
    if "instance_label" not in table.of_instances or "label" in table.of_bags:
        raise DataError(
            item=f"table {table.source!r}",
            wanted="a column instance_label",
            got="label, which is that of a bag" if "label" in table.of_bags else "none",
            fix="rename the column to instance_label",
        )
    rows = np.array([-1 if row is None else row for row in match_names(table.ids, bags.ids, table.source)])
    unmatched = [name for name, row in zip(table.ids, rows, strict=True) if row < 0]
    if len(unmatched) == len(rows):
        raise DataError(
            item=f"table {table.source!r}",
            wanted=f"instances of the bags, such as {bags.ids[0]!r}",
            got=f"those of {len(unmatched)} others, such as {unmatched[0]!r}",
            fix="write bag_id as the bags are called",
        )
    bag = np.repeat(rows, np.asarray(table.sizes))
    if unmatched:
        message = "table %r: %s rows are of %s bags that are not there, such as %r, and label nothing"
        logger.warning(message, table.source, f"{(bag < 0).sum():,}", f"{len(unmatched):,}", unmatched[0])
    labels = read_classes(table.of_instances["instance_label"], table.source, "instance_label", bags.class_names)
    labels, numbers, bag = labels[table.order][bag >= 0], np.asarray(table.instances)[bag >= 0, 0], bag[bag >= 0]
    wrong = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= bags.sizes[bag]))
    if len(wrong):
        row = wrong[0]
        raise DataError(
            item=f"bag {bags.ids[bag[row]]!r} of {table.source!r}",
            wanted=f"instances from 0 to {bags.sizes[bag[row]] - 1}",
            got=f"{numbers[row]:.7g}",
            fix="number the instances of a bag from 0, in the order of its file",
        )
    positions = bags.starts[bag] + numbers.astype(np.int64)
    distinct, first, counts = np.unique(positions, return_index=True, return_counts=True)
    if len(distinct) < len(positions):
        row = first[counts.argmax()]
        item = f"instance {int(numbers[row])}, bag {bags.ids[bag[row]]!r} of {table.source!r}"
        raise repeated(item, "one row", int(counts.max()))
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    values[positions[labels.known]], known[positions[labels.known]] = labels.values[labels.known], True
    return replace(bags, instance_labels=Labels(values, known))
