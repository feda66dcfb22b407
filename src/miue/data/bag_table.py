"""A long table becomes a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, Labels
from miue.data.label_table import UNKNOWN, LabelTable, split_name
from miue.data.splits import check_splits
from miue.errors import DataError
from miue.readers.long_table import Allocate, read_long_table


def open_table(
    path: Path, *, classes: Sequence[str] = (), features: Sequence[str] = (), allocate: Allocate | None = None
) -> BagDataset:
    """Return the bags of a long table: bag_id, label, features, and instance_label, patient, split, x, y if there.

    Args:
        path: CSV, tab-separated or Parquet.
        classes: their order; the first is the negative one. Sorted if not given, numbers by value.
        features: the columns to learn from; all without another meaning if not given.
        allocate: makes the array for the features.

    Raises:
        StorageError, DataError: as ``read_long_table`` does; a label that is none of the classes.
    """
    table = read_long_table(path, features=features, allocate=allocate)
    count, total = len(table.ids), len(table.features)
    labels, names = Labels.unknown(count), tuple(classes)
    if "label" in table.of_bags:
        texts = tuple("" if text.strip().lower() in UNKNOWN else text.strip() for text in table.of_bags["label"])
        if any(texts):
            names = LabelTable(str(path), table.ids, texts, table.ids, {}).class_names(classes)
            labels = Labels.of([names.index(text) if text else None for text in texts])
    patients = table.of_bags.get("patient")
    splits = tuple(map(split_name, table.of_bags.get("split", ("",) * count)))
    bags = BagDataset(
        instances=table.features,
        starts=table.sizes.cumsum() - table.sizes,
        sizes=table.sizes,
        ids=table.ids,
        labels=labels,
        is_ood=np.zeros(count, bool),
        splits=splits,
        ood_sets=("",) * count,
        instance_labels=_instance_labels(path, table.instance_labels, names, total),
        instance_is_ood=np.zeros(total, bool),
        coords=table.coords,
        class_names=names,
        patients=patients,
    )
    if any(splits):
        check_splits(bags, str(path))
    return bags


def with_instance_labels(bags: BagDataset, path: Path) -> BagDataset:
    """Return ``bags`` with the labels of instances that a table gives: bag_id, instance (from 0), label.

    They are used to evaluate, never to train. Labels are class names, or numbers of classes.

    Raises:
        StorageError, DataError: a table that cannot be read, or an instance that is not there.
    """
    table = read_long_table(path, features=["instance"])
    if "label" in table.of_bags:  # one label for each bag would have been of bags
        raise DataError(
            item=f"table {str(path)!r}",
            wanted="a column instance_label",
            got="label, which is that of a bag",
            fix="rename the column to instance_label",
        )
    row_of = {name: row for row, name in enumerate(bags.ids)}
    values, known = bags.instance_labels.values.copy(), bags.instance_labels.known.copy()
    given = _instance_labels(path, table.instance_labels, bags.class_names, len(table.features))
    ends = table.sizes.cumsum()
    for name, end, size in zip(table.ids, ends, table.sizes, strict=True):
        if name not in row_of:
            continue
        row = row_of[name]
        instance = table.features[end - size : end, 0].astype(np.int64)
        if instance.min() < 0 or instance.max() >= bags.sizes[row]:
            raise DataError(
                item=f"bag {name!r} of {str(path)!r}",
                wanted=f"instances from 0 to {bags.sizes[row] - 1}",
                got=str(instance.max()),
                fix="number the instances of a bag from 0, in the order of its file",
            )
        places = bags.starts[row] + instance
        values[places], known[places] = given.values[end - size : end], given.known[end - size : end]
    return replace(bags, instance_labels=Labels(values, known))


def _instance_labels(path: Path, texts: np.ndarray | None, names: Sequence[str], total: int) -> Labels:
    if texts is None:
        return Labels.unknown(total)
    distinct, places = np.unique(texts.astype(str), return_inverse=True)
    numbers = []
    for text in distinct.tolist():
        word = text.strip()
        if word.lower() in UNKNOWN:
            numbers.append(-1)
        elif word in names:
            numbers.append(list(names).index(word))
        elif word.isdigit() and int(word) < max(2, len(names)):
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
