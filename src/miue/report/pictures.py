"""Pictures of the most uncertain and the most probable instances of each bag, as one small strip per bag."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped
from PIL import Image

from miue.bags.dataset import BagDataset
from miue.common.errors import DataError
from miue.common.text import plural
from miue.report.details import Instances
from miue.report.runs import Comparison

TILE = 40  # pixels at most, of an instance's longer side
GRAYS = 16  # levels kept of a gray picture

Step = Callable[[int], None]


def check_store(comparison: Comparison, instances: Instances, store: BagDataset) -> Int64[np.ndarray, "B"]:
    """Return the row of each bag in the store.

    Raises:
        DataError: a predicted bag is not in the store, or has fewer instances there.
    """
    row_of = {name: row for row, name in enumerate(store.ids)}
    missing = [name for name in comparison.bag_ids if name not in row_of]
    if missing:
        raise DataError(
            item=f"bag {missing[0]!r}",
            wanted="every predicted bag in the store",
            got=f"{plural(len(missing), 'bag')} that it lacks",
            fix="pass the store that was predicted (--store, in Python store)",
        )
    rows = np.array([row_of[name] for name in comparison.bag_ids], np.int64)
    beyond = np.flatnonzero(instances.highest >= store.sizes[rows])
    if len(beyond):
        bag = int(beyond[0])
        raise DataError(
            item=f"instance {instances.highest[bag]} of bag {comparison.bag_ids[bag]!r}",
            wanted=f"one of the {store.sizes[rows[bag]]} instances that the store has of it",
            got="none there",
            fix="pass the store that was predicted (--store, in Python store)",
        )
    return rows


def with_coords_of(instances: Instances, store: BagDataset, rows: Int64[np.ndarray, "B"]) -> Instances:
    """Return the instances with the store's positions in the slide, where they have none of their own."""
    if store.coords is None:
        return instances
    of_store = store.coords[store.starts[rows[instances.bag]] + instances.position]
    own = instances.coords
    return replace(instances, coords=of_store if own is None else own.completed_by(of_store))


def instance_strips(
    instances: Instances,
    store: BagDataset,
    rows: Int64[np.ndarray, "B"],
    *,
    per_bag: int,
    step: Step = lambda done: None,
) -> dict[str, Any]:
    """Return a strip of pictures for each bag: its most uncertain and most probable instances, in their order.

    Args:
        instances: the first of each bag.
        store: image bags.
        rows: of each bag in the store.
        per_bag: pictures of one bag.
        step: called with the number of bags done.
    """
    chosen = np.flatnonzero(instances.place < per_bag)
    ends = np.searchsorted(instances.bag[chosen], np.arange(len(rows) + 1))
    height, width = store.instance_shape[:2]
    scale = min(1.0, TILE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    positions, pictures = [], []
    for bag, row in enumerate(rows.tolist()):
        of_bag = instances.position[chosen[ends[bag] : ends[bag + 1]]]
        images = np.asarray(store.instances[store.starts[row] + of_bag])
        positions.append(of_bag.tolist())
        pictures.append(_strip(images, size) if len(images) else "")
        step(1)
    return {"width": size[0], "height": size[1], "perBag": per_bag, "positions": positions, "pictures": pictures}


def _strip(images: Shaped[np.ndarray, "n H W channels"], size: tuple[int, int]) -> str:
    """Return the images side by side as a PNG data URI."""
    if images.dtype != np.uint8:
        top = max(1e-9, float(images.max()))
        images = np.clip(images.astype(np.float32) / top * 255, 0, 255).astype(np.uint8)
    tiles = [_tile(image, size) for image in images]
    strip = Image.new(tiles[0].mode, (size[0] * len(tiles), size[1]))
    for place, tile in enumerate(tiles):
        strip.paste(tile, (place * size[0], 0))
    strip = strip.quantize(GRAYS if strip.mode == "L" else 64)
    stream = io.BytesIO()
    strip.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def _tile(image: Shaped[np.ndarray, "H W channels"], size: tuple[int, int]) -> Image.Image:
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else np.ascontiguousarray(image[..., :3]))
    return picture if picture.size == size else picture.resize(size, Image.Resampling.BILINEAR)
