"""MNIST-bags: bags of handwritten digits, positive where they hold a 9."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.data.drawing import Pool, draw_bags, drawn_dataset, joined, with_foreign_instances
from miue.data.image_files import has_split, read_images

TARGET = 9
SIZES = {"train": 500, "validation": 100, "test": 1000}
SEEDS = {"train": 98, "validation": 97, "test": 96}
OOD_SOURCES = ("fmnist", "kmnist")


def mnist_bags(
    source: Path,
    *,
    splits: Sequence[str] = tuple(SIZES),
    ood: Sequence[str] = (),
    ood_ratio: float = 1.0,
    sizes: dict[str, int] = SIZES,
) -> BagDataset:
    """Draw MNIST-bags as the published experiments did, label for label.

    Training and validation bags come from MNIST's training images, test bags from its test images.
    The test split holds n in-distribution bags and, for each ``ood``, n more of whose instances the
    given share is replaced. Where a foreign source lacks its training split, its test split is used and
    the set is called so ("kmnist-test").

    Reference: Liu & Ji 2024, Appendix apx-dataset.

    Args:
        source: folder with the image files.
        splits: which splits to draw.
        ood: foreign sources of the test split.
        ood_ratio: share of each foreign bag's instances that is foreign, 0 to 1.
        sizes: number of bags of each split.
    """
    parts = []
    for split in splits:
        pool = read_images(source, "mnist", "test" if split == "test" else "train")
        if split != "test":
            random = np.random.RandomState(SEEDS[split])
            parts.append(
                drawn_dataset(draw_bags(random, pool.labels == TARGET, sizes[split]), pool, TARGET, split=split)
            )
        else:
            parts.extend(_test_bags(source, pool, sizes[split], ood, ood_ratio))
    return joined(parts)


def _test_bags(source: Path, pool: Pool, count: int, ood: Sequence[str], ratio: float) -> list[BagDataset]:
    """Return n in-distribution bags, then n foreign ones per source; every source starts from the same state."""
    is_positive = pool.labels == TARGET
    parts = []
    for name in ood:
        random = np.random.RandomState(SEEDS["test"])
        drawn = draw_bags(random, is_positive, 2 * count)
        split = "train" if has_split(source, name, "train") else "test"
        foreign = read_images(source, name, split)
        replaced = with_foreign_instances(random, drawn[count:], len(foreign.instances), ratio)
        set_name = name if split == "train" else f"{name}-test"
        parts.append(drawn_dataset(replaced, pool, TARGET, split="test", ood_set=set_name, foreign=foreign))
    plain = draw_bags(np.random.RandomState(SEEDS["test"]), is_positive, count)
    return [drawn_dataset(plain, pool, TARGET, split="test"), *parts]
