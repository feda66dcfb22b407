"""MNIST-bags: bags of handwritten digits, positive where they contain a 9."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from typing_extensions import Unpack

from miue.bags import BagDataset
from miue.datasets.drawing import SEEDS, TARGET, Draw, Pool, draw_bags, splits_with_ood
from miue.datasets.images import has_split, read_images

SIZES = {"train": 500, "validation": 100, "test": 1000}
OOD_SOURCES = ("fmnist", "kmnist")


def mnist_bags(source: Path | str, **draw: Unpack[Draw]) -> BagDataset:
    """Draw MNIST-bags as the published experiments did, label for label.

    Training and validation bags come from MNIST's training images, test bags from its test images.
    The test split holds n in-distribution bags and, for each ``ood``, n more of whose instances the
    given share is replaced. Where an OOD source lacks its training split, its test split is used and
    the set is called so ("kmnist-test").

    Reference: Liu & Ji 2024, Appendix D.2.

    Args:
        source: folder with the image files.
        draw: which bags, among them OOD bags of fmnist and kmnist, see ``Draw``.

    Raises:
        ConfigError: no such split or OOD source.
        StorageError: files are missing or damaged.
    """
    read, read_ood = partial(read_images, Path(source), "mnist"), partial(_ood_images, Path(source))
    return splits_with_ood(read, read_ood, OOD_SOURCES, SIZES, **draw)


def digits_of_test_bags(source: Path | str, *, count: int = SIZES["test"]) -> Int64[np.ndarray, "M"]:
    """Return the digit of every instance of the in-distribution test bags, in their order.

    Args:
        source: folder with the image files.
        count: number of bags.
    """
    pool = read_images(Path(source), "mnist", "test")
    bags = draw_bags(np.random.RandomState(SEEDS["test"]), pool.labels == TARGET, count)
    return pool.labels[np.concatenate([bag.members for bag in bags])]


def _ood_images(source: Path, name: str) -> tuple[str, Pool]:
    """Return the name of the set that an OOD source makes, and its images."""
    split = "train" if has_split(source, name, "train") else "test"
    return (name if split == "train" else f"{name}-test"), read_images(source, name, split)
