"""What the numbers of images are."""

from __future__ import annotations

from typing import Literal

import numpy as np

from miue.bags.dataset import BagDataset

SAMPLED_BAGS = 8


def kind_of_pixels(bags: BagDataset) -> Literal["", "bytes", "numbers"]:
    """Return "bytes" or "numbers" of images, "" of features."""
    if len(bags.instance_shape) != 3:
        return ""
    return "bytes" if bags.instances.dtype == np.uint8 else "numbers"


def largest_pixel(bags: BagDataset) -> float:
    """Return the largest absolute value of images of numbers, in a few bags; 0 of bytes and of features."""
    if kind_of_pixels(bags) != "numbers":
        return 0.0
    rows = np.unique(np.linspace(0, len(bags) - 1, min(len(bags), SAMPLED_BAGS), dtype=int)).tolist()
    return max(float(bags.batch([row]).instances.abs().max()) for row in rows)
