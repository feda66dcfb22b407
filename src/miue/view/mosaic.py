"""Instances without a place of their own: in their order, row by row, and their images where a store has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from miue.bags import BagDataset
from miue.bags.images import to_pixels
from miue.common.errors import DataError

WIDER = 1.4  # how much wider than high a mosaic is
SMALLEST = 64  # pixels of an instance
MOST_PIXELS = 1 << 24


@dataclass(frozen=True, eq=False)
class Mosaic:
    """The n instances of a bag in rows.

    Attributes:
        count: of the instances.
        side: of the square of an instance, in pixels.
        store: of their images; None where there are none.
        rows: of the instances in the store.
    """

    count: int
    side: int = SMALLEST
    store: BagDataset | None = None
    rows: Int64[np.ndarray, "n"] | None = None

    @classmethod
    def of_images(cls, bag: str, instances: Int64[np.ndarray, "n"], store: BagDataset) -> Mosaic:
        """Return the images of some instances of a bag; small ones are enlarged, many large ones reduced.

        Raises:
            DataError: the store lacks the bag, or one of the instances.
        """
        rows = store_rows(bag, instances, store)
        fitting = math.isqrt(MOST_PIXELS // max(1, len(rows)))
        return cls(len(rows), min(fitting, max(SMALLEST, *store.instance_shape[:2])), store, rows)

    @property
    def columns(self) -> int:
        """How many instances a row has."""
        return max(1, round(math.sqrt(self.count * WIDER)))

    @property
    def places(self) -> Int64[np.ndarray, "n 2"]:
        """The top left corner of each instance."""
        number = np.arange(self.count)
        return np.stack([number % self.columns, number // self.columns], 1) * self.side

    def draw(self) -> Any:
        """Return the images as one picture (of Pillow)."""
        from PIL import Image

        assert self.store is not None and self.rows is not None
        height = -(-self.count // self.columns) * self.side
        drawn = Image.new("RGB", (self.columns * self.side, height), "white")
        pixels = to_pixels(np.asarray(self.store.instances[self.rows]))
        is_small = max(pixels.shape[1:3]) < self.side
        how = Image.Resampling.NEAREST if is_small else Image.Resampling.BILINEAR
        for image, (x, y) in zip(pixels, self.places.tolist(), strict=True):
            of_image = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else np.ascontiguousarray(image))
            scale = self.side / max(of_image.size)
            size = (max(1, round(of_image.width * scale)), max(1, round(of_image.height * scale)))
            drawn.paste(of_image.resize(size, how), (x, y))
        return drawn


def store_rows(bag: str, instances: Int64[np.ndarray, "n"], store: BagDataset) -> Int64[np.ndarray, "n"]:
    """Return the rows of some instances of a bag among all instances of the store.

    Raises:
        DataError: the store lacks the bag, or one of the instances.
    """
    row = store.ids.index(bag) if bag in store.ids else None
    size = 0 if row is None else int(store.sizes[row])
    if row is None or instances.max(initial=-1) >= size:
        wanted, got = f"its {len(instances):,} instances in the store", f"{size:,}"
        raise DataError(item=f"bag {bag!r}", wanted=wanted, got=got, fix="pass the bags that were predicted")
    found: Int64[np.ndarray, "n"] = store.starts[row] + instances
    return found
