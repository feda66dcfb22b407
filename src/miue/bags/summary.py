"""What a dataset holds, as a table: bags, classes and instances of each split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from miue.bags.columns import ItemColumns
from miue.common.text import ResultTable

CLASSES_SHOWN = 6


def summary_table(
    splits: Sequence[str],
    columns: ItemColumns,
    class_names: Sequence[str],
    sizes: Int64[np.ndarray, "B"],
    shape: Sequence[int],
) -> ResultTable:
    """Return how many bags of each class and how many instances there are in each split.

    Args:
        splits: of each bag, "" for none.
        columns: of the bags.
        class_names: of all classes.
        sizes: number of instances of each bag.
        shape: of one instance.
    """
    of_split, every = np.array(splits, object), np.ones(len(sizes), bool)
    rows_of_split = {name or "no split": of_split == name for name in dict.fromkeys(splits)}
    if len(rows_of_split) != 1:
        rows_of_split["all"] = every
    names = class_names[:CLASSES_SHOWN]
    known, values = columns.labels.known, columns.labels.values
    counted = [
        every,
        *(known & (values == c) for c in range(len(names))),
        ~known,
        columns.is_ood.out_of_distribution,
    ]
    rows = tuple(
        (name, *(f"{(rows & some).sum():,}" for some in counted), f"{sizes[rows].sum():,}")
        for name, rows in rows_of_split.items()
    )
    note = f"instances of shape {' × '.join(map(str, shape))}"
    if len(class_names) > len(names):
        note += f"; {len(class_names) - len(names)} more classes"
    return ResultTable(("split", "bags", *names, "unlabeled", "out of distribution", "instances"), rows, (note,))
