"""Bags that belong to groups such as patients."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

from miue.bags.dataset import BagDataset
from miue.bags.rows import row_count
from miue.common.errors import DataError


def held_out_groups(
    bags: BagDataset, groups: Shaped[np.ndarray, "B"], fraction: float, seed: int
) -> tuple[BagDataset, BagDataset]:
    """Return bags to learn from and about ``fraction`` of them to validate on, no group on both sides.

    Raises:
        DataError: not one group for each bag, or too few groups to hold out bags of every class.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if groups.shape != (len(bags),):
        raise row_count("groups", f"one for each of {len(bags)} bags", f"shape {groups.shape}")
    labels = bags.labels.values
    classes, counts = np.unique(labels, return_counts=True)
    folds = max(2, min(round(1 / fraction), len(np.unique(groups)), int(counts.min())))
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    if len(np.unique(groups)) >= folds and counts.min() >= folds:
        for kept, held in splitter.split(np.zeros(len(bags)), labels, groups):
            if len(np.unique(labels[kept])) == len(np.unique(labels[held])) == len(classes):
                return bags.subset(kept), bags.subset(held)
    raise DataError(
        item="groups",
        wanted="groups that can be divided with bags of every class on both sides",
        got=f"{len(np.unique(groups))} groups that cannot",
        fix="add groups, or leave groups out",
    )
