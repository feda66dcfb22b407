"""Encoding many instances: a chunk at a time, whose activations stay in a CPU's cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from miue.networks import join

CHUNK_IMAGES = 128  # images encoded at once: their activations stay in a CPU's cache
CHUNK_FEATURES = 4096  # feature vectors encoded, projected and scored at once, likewise
NUMBERS_ON_DEVICE = 1 << 24  # of images encoded at once on an accelerator: 111 of 224 × 224 × 3
BLOCK_INSTANCES = 65_536  # instances whose features are held at once; of a larger bag only what is pooled is kept

Encode = Callable[[Tensor], Tensor]
"""Returns the features (n, D) of instances (n, …)."""


def encode_in_chunks(encode: Encode, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
    """Return the features of all instances, a cache-sized chunk at a time."""
    return join([encode(chunk) for chunk in instances.split(chunk_size(instances))])


def encoded_blocks(
    encode: Encode, instances: Shaped[Tensor, "N *shape"], copies: int = 1
) -> Iterator[Float[Tensor, "n D"]]:
    """Yield the features of all instances, a block at a time; those of vectors are used while in a CPU's cache.

    Args:
        encode: encodes a chunk.
        instances: what is encoded.
        copies: how often they are encoded, one copy after another.
    """
    size = chunk_size(instances)
    at_once = min(BLOCK_INSTANCES, size) if instances.dim() == 2 else BLOCK_INSTANCES
    for block in torch.arange(copies * len(instances)).split(at_once):
        yield join([encode(_of_copies(instances, rows)) for rows in block.split(size)])


def chunk_size(instances: Shaped[Tensor, "N *shape"]) -> int:
    """Return how many instances are encoded at once."""
    are_images, is_on_cpu = instances.dim() > 2, instances.device.type == "cpu"
    size = CHUNK_IMAGES if are_images else CHUNK_FEATURES
    if is_on_cpu:
        return size
    most = NUMBERS_ON_DEVICE // math.prod(instances.shape[1:]) if are_images else size * 64
    return max(1, min(size * 64, most))


def fits_a_block(instances: Shaped[Tensor, "N *shape"]) -> bool:
    """Return whether the features of all instances may be held at once."""
    return len(instances) <= BLOCK_INSTANCES


def _of_copies(instances: Shaped[Tensor, "N *shape"], rows: Tensor) -> Shaped[Tensor, "n *shape"]:
    """Return some consecutive rows of all copies, without a copy of them where they are of one."""
    first, last = rows[0].item() % len(instances), rows[-1].item() % len(instances)
    if last - first == len(rows) - 1:
        return instances[first : last + 1]
    return instances[(rows % len(instances)).to(instances.device)]
