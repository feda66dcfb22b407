"""The 2-D synthetic bags: points of three Gaussian clusters, positive where they hold one of the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miue.bags.concatenate import concatenate
from miue.bags.dataset import BagDataset
from miue.datasets.drawing import Pool, draw_bags, drawn_dataset, with_foreign_instances

CENTRES = ((0.0, 1.5), (-1.5, -0.5), (1.5, -0.5))
FOREIGN_CENTRE = (5.0, -5.0)
VARIANCE = 0.1
POINTS_PER_CLUSTER = 1000
TARGET = 0
SIZES = {"train": 2000, "validation": 500, "test": 500}
SEEDS = {"train": 98, "validation": 97, "test": 96}


def gaussian_bags(
    *, splits: Sequence[str] = tuple(SIZES), ood_ratio: float = 1.0, sizes: dict[str, int] = SIZES
) -> BagDataset:
    """Draw the synthetic bags as the published experiments did.

    Every split draws its own points. The test split holds n in-distribution bags and n foreign ones
    around a fourth, distant centre.

    Reference: the published code of Liu & Ji 2024 (configuration of the synthetic experiment).

    Args:
        splits: which splits to draw.
        ood_ratio: share of each foreign test bag's instances that is foreign, 0 to 1.
        sizes: number of bags of each split.
    """
    parts = []
    for split in splits:
        random = np.random.RandomState(SEEDS[split])
        points = np.concatenate([_cluster(random, centre) for centre in CENTRES])
        pool = Pool(points.astype(np.float32), np.repeat(np.arange(len(CENTRES)), POINTS_PER_CLUSTER))
        count = sizes[split]
        drawn = draw_bags(random, pool.labels == TARGET, 2 * count if split == "test" else count)
        parts.append(drawn_dataset(drawn[:count], pool, TARGET, split=split))
        if split == "test" and ood_ratio:
            foreign = Pool(
                _cluster(random, FOREIGN_CENTRE).astype(np.float32), np.zeros(POINTS_PER_CLUSTER, np.int64)
            )
            replaced = with_foreign_instances(random, drawn[count:], POINTS_PER_CLUSTER, ood_ratio)
            parts.append(drawn_dataset(replaced, pool, TARGET, split=split, ood_set="gaussian", foreign=foreign))
    return concatenate(parts)


def _cluster(random: np.random.RandomState, centre: tuple[float, float]) -> np.ndarray:
    return random.multivariate_normal(centre, np.diag((VARIANCE, VARIANCE)), size=POINTS_PER_CLUSTER)
