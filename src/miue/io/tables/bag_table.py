"""A long table becomes a dataset."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from miue.bags.dataset import BagDataset
from miue.bags.labels import Labels
from miue.bags.names import places_of
from miue.bags.ood_flags import with_named_sets
from miue.common.errors import DataError
from miue.io.labels.join import LeftOut, refuse_or_skip
from miue.io.labels.label_table import LabelTable, known_patients, known_text, split_name
from miue.io.splits.splits import check_splits
from miue.io.tables.long_table import Allocate, LongTable, read_long_table
from miue.predictions.csv import flags_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedTable:
    """The bags of a long table.

    Attributes:
        bags: the dataset.
        left_out: bags that are not in it.
    """

    bags: BagDataset
    left_out: tuple[LeftOut, ...]


def open_table(
    path: Path,
    *,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    allocate: Allocate | None = None,
    skip_bad: bool = False,
) -> OpenedTable:
    """Return the bags of a long table: bag_id, label, features, and what else it tells.

    That is instance_label, patient, split, is_ood, ood_set, x and y. A bag whose patient is not told is its own.

    Args:
        path: CSV or Parquet.
        classes: their order; the first is the negative one. Sorted if not given, numbers by value.
        columns: as for ``read_long_table``.
        features: the columns to learn from; all without another meaning if not given.
        allocate: makes the array for the features.
        skip_bad: leave out bags with features that are not finite.

    Raises:
        StorageError, DataError: as ``read_long_table`` does; a bag that cannot be used; a label that is none of
            the classes.
        ConfigError: a split that is none.
    """
    table = read_long_table(path, columns=columns, features=features, allocate=allocate)
    left_out = [LeftOut(name, reason) for name, reason in table.not_finite.items()]
    refuse_or_skip(str(path), len(table.ids) - len(left_out), left_out, skip_bad=skip_bad)
    count, total = len(table.ids), len(table.features)
    labels, names = Labels.unknown(count), tuple(classes)
    if "label" in table.of_bags:
        texts = tuple(map(known_text, table.of_bags["label"]))
        if any(texts):
            names = LabelTable(str(path), table.ids, texts, table.ids, {}).class_names(classes)
            labels = Labels.of([names.index(text) if text else None for text in texts])
    nothing = ("",) * count
    splits = tuple(map(split_name, table.of_bags.get("split", nothing)))
    flags = flags_of(np.array(table.of_bags.get("is_ood", nothing), object), str(path))
    is_ood, ood_sets = with_named_sets(flags, table.of_bags.get("ood_set", nothing), str(path))
    bags = BagDataset.packed(
        table.features,
        table.sizes,
        table.ids,
        labels=labels,
        is_ood=is_ood,
        splits=splits,
        ood_sets=tuple(ood_sets.tolist()),
        instance_labels=_instance_labels(path, table.instance_labels, names, total),
        coords=table.coords,
        class_names=names,
        patients=known_patients(table.of_bags.get("patient", nothing), table.ids),
    )
    if left_out:
        bags = bags.subset([row for row, name in enumerate(table.ids) if name not in table.not_finite])
    if any(splits):
        check_splits(bags, str(path))
    return OpenedTable(bags, tuple(left_out))


def with_instance_labels(bags: BagDataset, path: Path) -> BagDataset:
    """Return ``bags`` with the labels of instances that a table gives: bag_id, instance (from 0), label.

    They are used to evaluate, never to train. Labels are class names, or numbers of classes; an empty one leaves
    what is known. Rows of bags that are not there are passed over, and their number is logged.

    Raises:
        StorageError, DataError: a table that cannot be read, without instance_label or any of the bags, or an
            instance that is not there or stands there twice.
    """
    table = read_long_table(path, features=["instance"])
    if table.instance_labels is None or "label" in table.of_bags:  # one label for each bag would have been of bags
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="a column instance_label",
            got="label, which is that of a bag" if "label" in table.of_bags else "none",
            fix="rename the column to instance_label",
        )
    rows = _rows_of_bags(path, table, bags)
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    given = _instance_labels(path, table.instance_labels, bags.class_names, len(table.features))
    ends = table.sizes.cumsum()
    for name, row, end, size in zip(table.ids, rows, ends, table.sizes, strict=True):
        if row is None:
            continue
        part = slice(end - size, end)
        item = f"bag {name!r} of {str(path)!r}"
        places = bags.starts[row] + _numbers_in_bag(item, table.features[part, 0], int(bags.sizes[row]))
        told = given.known[part]
        values[places[told]], known[places[told]] = given.values[part][told], True
    return replace(bags, instance_labels=Labels(values, known))


def _rows_of_bags(path: Path, table: LongTable, bags: BagDataset) -> list[int | None]:
    """Return which bag each bag of the table is; say how many rows are of none."""
    rows = places_of(table.ids, bags.ids, str(path))
    strangers = [name for name, row in zip(table.ids, rows, strict=True) if row is None]
    if len(strangers) == len(rows):
        raise DataError(
            item=f"table {str(path)!r}",
            wanted=f"instances of the bags, such as {bags.ids[0]!r}",
            got=f"those of {len(strangers)} others, such as {strangers[0]!r}",
            fix="write bag_id as the bags are called",
        )
    if strangers:
        count = sum(int(size) for size, row in zip(table.sizes, rows, strict=True) if row is None)
        message = "table %r: %s rows are of %s bags that are not there, such as %r, and label nothing"
        logger.warning(message, str(path), f"{count:,}", f"{len(strangers):,}", strangers[0])
    return rows


def _numbers_in_bag(item: str, numbers: Float32[np.ndarray, "n"], size: int) -> Int64[np.ndarray, "n"]:
    """Return the numbers of instances, each one of the bag's and there once."""
    wrong = numbers[(numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= size)]
    if len(wrong):
        raise DataError(
            item=item,
            wanted=f"instances from 0 to {size - 1}",
            got=f"{wrong[0]:.7g}",
            fix="number the instances of a bag from 0, in the order of its file",
        )
    distinct, counts = np.unique(numbers.astype(np.int64), return_counts=True)
    if len(distinct) < len(numbers):
        raise DataError(
            item=f"instance {distinct[counts.argmax()]}, {item}",
            wanted="one row",
            got=f"{counts.max()}",
            fix="keep one of them",
        )
    return numbers.astype(np.int64)


def _instance_labels(path: Path, texts: np.ndarray | None, names: Sequence[str], total: int) -> Labels:
    if texts is None:
        return Labels.unknown(total)
    distinct, places = np.unique(texts.astype(str), return_inverse=True)
    numbers = []
    for text in distinct.tolist():
        word = known_text(text)
        if not word:
            numbers.append(-1)
        elif word in names:
            numbers.append(list(names).index(word))
        elif word.isdecimal() and int(word) < max(2, len(names)):
            numbers.append(int(word))
        else:
            raise DataError(
                item=f"table {str(path)!r}, instance_label {text!r}",
                wanted=f"one of {', '.join(names)}, its number, or empty" if names else "a class number, or empty",
                got=repr(text),
                fix="use the names of the bags' classes",
            )
    found = np.array(numbers, np.int64)[places]
    return Labels(np.maximum(found, 0), found >= 0)
