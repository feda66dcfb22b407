"""Encoding many instances, a chunk at a time, and the draws of methods that draw, as if each bag were alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from miue.bags import BagBatch, Segments
from miue.bags.names import NUMBERED
from miue.common.seeds import derive_seed
from miue.distributions import PredictiveDistribution
from miue.methods import BatchPrediction, Method
from miue.networks import join

CHUNK_IMAGES = 128  # images encoded at once: their activations stay in a CPU's cache
CHUNK_FEATURES = 4096  # feature vectors encoded, projected and scored at once, likewise
NUMBERS_ON_DEVICE = 1 << 24  # of images encoded at once on an accelerator: 111 of 224 × 224 × 3
BLOCK_INSTANCES = 65_536  # instances whose features are held at once; of a larger bag only what is pooled is kept
COPIED_INSTANCES = 4096  # instances of the copies of a bag that are drawn together
SHARED_NUMBERS = 1 << 26  # numbers (256 MiB) held of what draws share: 65,536 vectors of 1,024

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


def draws_of_each(
    method: Method, names: Sequence[str], batch: BagBatch, estimator: str, seed: int
) -> list[BatchPrediction]:
    """Return each draw of all bags, in main memory; those of a bag are as if it were alone, wherever it lies."""
    drawn = []
    for name, instances in zip(names, batch.segments.split(batch.instances), strict=True):
        drawn += _draws_of_one(method, instances, estimator, _seed_of(name, instances, seed))
    bags, instances_of_draws = map(_concatenated, zip(*drawn, strict=True))
    sizes = torch.from_numpy(batch.segments.lengths)
    draws = len(bags) // len(sizes)
    first = sizes.cumsum(0) - sizes  # of the instances of each bag, in one draw
    place = torch.arange(int(sizes.sum())) + ((draws - 1) * first).repeat_interleave(sizes)
    bag, step = torch.arange(len(sizes)) * draws, sizes.repeat_interleave(sizes)
    return [
        BatchPrediction(bags.subset(bag + draw), instances_of_draws.subset(place + draw * step))
        for draw in range(draws)
    ]


def _draws_of_one(
    method: Method, instances: Shaped[Tensor, "N *shape"], estimator: str, seed: int
) -> list[BatchPrediction]:
    """Return the draws of one bag, some in one after another, in main memory."""
    draws: list[BatchPrediction] = []
    current: Method | None = None
    at_once = max(1, COPIED_INSTANCES // len(instances))
    for member in method.passes(seed):
        if member is not current:
            current, encoded = member, _encoder_of_copies(member, instances)
        for copies in (min(at_once, member.copies - made) for made in range(0, member.copies, at_once)):
            sizes = torch.full((copies,), len(instances), device=instances.device)
            draws.append(member.predict(encoded(copies), Segments(sizes), estimator).cpu())
    return draws


def _concatenated(parts: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
    return type(parts[0]).concatenate(parts)


def _encoder_of_copies(
    member: Method, instances: Shaped[Tensor, "N *shape"]
) -> Callable[[int], Iterable[Float[Tensor, "n D"]]]:
    """Return what yields the features of so many copies of a bag; what they share is computed once."""
    if member.encodes_at_random:
        shared = _shared_encoding(member, instances)
        if shared is not None:
            return partial(encoded_blocks, member.encode_drawn, shared)
    elif fits_a_block(instances):
        features = list(encoded_blocks(member.encode, instances))
        return lambda copies: features if copies == 1 else [torch.cat(features * copies)]
    return partial(encoded_blocks, member.encode, instances)


def _shared_encoding(member: Method, instances: Shaped[Tensor, "N *shape"]) -> Tensor | None:
    """Return what all draws share of encoding a bag, or None if that is too large to be held."""
    if instances.numel() > SHARED_NUMBERS:
        return None
    parts = []
    for chunk in instances.split(chunk_size(instances)):
        parts.append(member.encode_shared(chunk))
        if parts[0][0].numel() * len(instances) > SHARED_NUMBERS:
            return None
    return join(parts)


def _seed_of(name: str, instances: Shaped[Tensor, "n *shape"], seed: int) -> int:
    """Return the seed of a bag: by its name, or by what it holds where its name says its place in a list alone."""
    if NUMBERED.fullmatch(name) is None:
        return derive_seed(seed, *name.encode())
    digest = hashlib.sha256()
    for block in instances.split(CHUNK_FEATURES):  # half precision as single, which it becomes beside such bags
        digest.update((block if block.dtype == torch.uint8 else block.float()).flatten().cpu().numpy())
    return derive_seed(seed, *digest.digest())
