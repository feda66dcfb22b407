"""Digits-bags: real data that comes with scikit-learn, without a download."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miue.bags import BagDataset, concatenate
from miue.common.values import checked
from miue.datasets.drawing import Pool, check_splits, draw_bags, drawn_dataset, with_ood_instances

TARGET = 9
SIZES = {"train": 300, "validation": 80, "calibration": 200, "test": 200}
IMAGES = {"train": 1000, "validation": 300, "test": 497}
SEEDS = {"train": 98, "validation": 97, "calibration": 94, "test": 96}
PATCHES = 3000
_SHUFFLE_SEED = 95


@checked()
def digits_bags(
    *, splits: Sequence[str] | None = None, ood_ratio: float = 1.0, sizes: dict[str, int] = SIZES
) -> BagDataset:
    """Draw bags of 8×8 handwritten digits, which are positive if they contain a 9, and out-of-distribution bags.

    The 1,797 digits are divided into those for training, for validation, and for calibration and test, whose bags
    are thereby exchangeable. The out-of-distribution test bags contain 8×8 patches of the two photographs in
    scikit-learn, in gray.

    Args:
        splits: which splits to draw; by default all that ``sizes`` names.
        ood_ratio: share of out-of-distribution instances in each out-of-distribution test bag, 0 to 1.
        sizes: number of bags of each split.

    Raises:
        ConfigError: a split that there is not, or without a size.
    """
    chosen = list(sizes) if splits is None else splits
    check_splits(chosen, SEEDS, sizes)
    pools = _digit_pools()
    parts = []
    for split in chosen:
        random, pool, count = np.random.RandomState(SEEDS[split]), pools[split], sizes[split]
        drawn = draw_bags(random, pool.labels == TARGET, 2 * count if split == "test" else count)
        parts.append(drawn_dataset(drawn[:count], pool, TARGET, split=split))
        if split == "test" and ood_ratio:
            ood_pool = _photograph_patches(random)
            replaced = with_ood_instances(random, drawn[count:], len(ood_pool.instances), ood_ratio)
            parts.append(
                drawn_dataset(replaced, pool, TARGET, split=split, ood_set="photographs", ood_pool=ood_pool)
            )
    return concatenate(parts)


def _digit_pools() -> dict[str, Pool]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    order = np.random.RandomState(_SHUFFLE_SEED).permutation(len(images))
    pools, start = {}, 0
    for split, count in IMAGES.items():
        chosen = order[start : start + count]
        pools[split] = Pool(images[chosen], digits.target[chosen].astype(np.int64))
        start += count
    return {**pools, "calibration": pools["test"]}


def _photograph_patches(random: np.random.RandomState) -> Pool:
    """Return 8×8 patches at random positions of the photographs, whose sides are first reduced to a quarter."""
    from sklearn.datasets import load_sample_images

    patches: list[np.ndarray] = []
    for photograph in load_sample_images().images:
        gray = photograph.mean(-1)
        height, width = (side // 4 * 4 for side in gray.shape)
        small = gray[:height, :width].reshape(height // 4, 4, width // 4, 4).mean((1, 3))
        rows = random.randint(0, small.shape[0] - 8 + 1, PATCHES // 2)
        columns = random.randint(0, small.shape[1] - 8 + 1, PATCHES // 2)
        patches.extend(small[r : r + 8, c : c + 8] for r, c in zip(rows, columns, strict=True))
    images = np.round(np.stack(patches)).astype(np.uint8)[..., None]
    return Pool(images, np.zeros(len(images), np.int64))
