"""Musk 1 and 2: molecules as bags of their shapes, the oldest benchmark of learning from bags."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.common.array_files import load_numpy
from miue.common.errors import DataError, not_readable
from miue.common.files import open_file
from miue.datasets.images import Archive
from miue.io.formats import UNREADABLE, to_texts


def musk_bags(source: Path, number: int) -> BagDataset:
    """Return the 92 bags of Musk 1 or the 102 of Musk 2; 166 raw features, class 1 for a musk.

    Reference: Dietterich, Lathrop and Lozano-Pérez 1997, "Solving the multiple instance problem with
    axis-parallel rectangles".

    Args:
        source: folder with musk.npz: arrays musk1_features, musk1_bag_index, musk1_bag_labels, musk1_bag_names.
        number: 1 or 2.

    Raises:
        StorageError: no such file, or a damaged one.
        DataError: arrays that do not fit together.
    """
    path = source / "musk.npz"
    names = [f"musk{number}_{part}" for part in ("features", "bag_index", "bag_labels", "bag_names")]
    try:
        with open_file(path) as file, load_numpy(file) as arrays:
            features, bag, labels, ids = map(Archive(arrays).__getitem__, names)
            if features.ndim != 2 or {array.ndim for array in (bag, labels, ids)} != {1}:
                raise ValueError(f"arrays of shapes {features.shape}, {bag.shape}, {labels.shape}, {ids.shape}")
            names_of_bags = to_texts(ids)
    except UNREADABLE as error:
        raise not_readable(
            f"{str(path)!r}",
            f"an archive with {', '.join(names)}",
            error,
            "pass the folder with musk.npz as --source",
        ) from error
    if len(features) != len(bag) or len(labels) != len(ids) or set(bag.tolist()) != set(range(len(ids))):
        raise DataError(
            item=f"{str(path)!r}",
            wanted="a bag for each instance, and a label and a name for each bag",
            got=f"{len(features)} instances, {len(bag)} indices, {len(labels)} labels, {len(ids)} names",
            fix="get the file again",
        )
    arrays_of_bags = [features[bag == index].astype(np.float32) for index in range(len(ids))]
    return BagDataset.from_arrays(
        arrays_of_bags, labels.astype(np.int64), ids=names_of_bags, class_names=["non-musk", "musk"]
    )
