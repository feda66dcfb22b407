"""The 2-D synthetic bags: points of three Gaussian clusters, positive where they contain one of the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miue.bags import BagDataset, concatenate
from miue.common.values import checked
from miue.datasets.drawing import Pool, check_splits, draw_bags, drawn_dataset, with_ood_instances

CENTERS = ((0.0, 1.5), (-1.5, -0.5), (1.5, -0.5))
OOD_CENTER = (5.0, -5.0)
VARIANCE = 0.1
POINTS_PER_CLUSTER = 1000
TARGET = 0
SIZES = {"train": 2000, "validation": 500, "test": 500}
SEEDS = {"train": 98, "validation": 97, "test": 96}


@checked()
def gaussian_bags(
    *, splits: Sequence[str] = tuple(SIZES), ood_ratio: float = 1.0, sizes: dict[str, int] = SIZES
) -> BagDataset:
    """Draw the synthetic bags as the published experiments did.

    Every split draws its own points. The test split holds n in-distribution bags and n OOD ones
    around a fourth, distant center.

    Reference: the published code of Liu & Ji 2024 (configuration of the synthetic experiment).

    Args:
        splits: which splits to draw.
        ood_ratio: share of OOD instances in each OOD test bag, 0 to 1.
        sizes: number of bags of each split.

    Raises:
        ConfigError: a split that there is not, or without a size.
    """
    check_splits(splits, SEEDS, sizes)
    parts = []
    for split in splits:
        random = np.random.RandomState(SEEDS[split])
        points = np.concatenate([_cluster(random, center) for center in CENTERS])
        pool = Pool(points.astype(np.float32), np.repeat(np.arange(len(CENTERS)), POINTS_PER_CLUSTER))
        count = sizes[split]
        drawn = draw_bags(random, pool.labels == TARGET, 2 * count if split == "test" else count)
        parts.append(drawn_dataset(drawn[:count], pool, TARGET, split=split))
        if split == "test" and ood_ratio:
            ood_pool = Pool(
                _cluster(random, OOD_CENTER).astype(np.float32), np.zeros(POINTS_PER_CLUSTER, np.int64)
            )
            replaced = with_ood_instances(random, drawn[count:], POINTS_PER_CLUSTER, ood_ratio)
            parts.append(drawn_dataset(replaced, pool, TARGET, split=split, ood_set="gaussian", ood_pool=ood_pool))
    return concatenate(parts)


def _cluster(random: np.random.RandomState, center: tuple[float, float]) -> np.ndarray:
    return random.multivariate_normal(center, np.diag((VARIANCE, VARIANCE)), size=POINTS_PER_CLUSTER)
