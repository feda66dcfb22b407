"""What a dataset holds, as a table: bags, classes and instances of each split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from miue.common.result_table import ResultTable

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset

CLASSES_SHOWN = 6


def summary_table(bags: BagDataset) -> ResultTable:
    """Return how many bags of each class and how many instances there are in each split."""
    splits, every = np.array(bags.splits, object), np.ones(len(bags), bool)
    rows_of_split = {name or "no split": splits == name for name in dict.fromkeys(bags.splits)}
    if len(rows_of_split) != 1:
        rows_of_split["all"] = every
    names = (bags.class_names or tuple(map(str, range(bags.num_classes))))[:CLASSES_SHOWN]
    known, values = bags.labels.known, bags.labels.values
    counted = [every, *(known & (values == c) for c in range(len(names))), ~known, bags.is_ood.out_of_distribution]
    rows = tuple(
        (name, *(f"{(rows & some).sum():,}" for some in counted), f"{bags.sizes[rows].sum():,}")
        for name, rows in rows_of_split.items()
    )
    note = f"instances of shape {' × '.join(map(str, bags.instance_shape))}"
    if bags.num_classes > len(names):
        note += f"; {bags.num_classes - len(names)} more classes"
    return ResultTable(("split", "bags", *names, "unlabelled", "out of distribution", "instances"), rows, (note,))
