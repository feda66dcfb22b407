"""What the numbers of images are."""

from __future__ import annotations

from typing import Literal

import numpy as np

from miue.bags.dataset import BagDataset


def kind_of_pixels(bags: BagDataset) -> Literal["", "bytes", "numbers"]:
    """Return "bytes" or "numbers" of images, "" of features."""
    if len(bags.instance_shape) != 3:
        return ""
    return "bytes" if bags.instances.dtype == np.uint8 else "numbers"
