"""Bags of small images of which the truth is known."""

from __future__ import annotations

import numpy as np

from miue.bags import BagDataset


def bright_bags(count: int = 24, side: int = 6, channels: int = 1) -> BagDataset:
    """Labeled bags of images: a positive bag holds one whose upper half is brighter."""
    random = np.random.default_rng(0)
    arrays, labels = [], []
    for number in range(count):
        size = int(random.integers(1, 6))
        array = random.integers(0, 120, (size, side, side, channels)).astype(np.uint8)
        if number % 2:
            array[0, : side // 2] += 100
        arrays.append(array)
        labels.append(number % 2)
    return BagDataset.from_arrays(arrays, labels)
