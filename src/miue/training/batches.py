"""The order in which bags are seen, and their packing into batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from miue.bags import BagBatch, BagDataset
from miue.seeds import seed_of


class PackedBatches:
    """Batches of given bags; each is read when it is asked for.

    Args:
        dataset: the bags.
        groups: positions of the bags of each batch.
    """

    def __init__(self, dataset: BagDataset, groups: list[np.ndarray]) -> None:
        self.dataset = dataset
        self.groups = groups

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[BagBatch]:
        for group in self.groups:
            yield self.dataset.batch(group)


def shuffled_batches(dataset: BagDataset, bags_per_batch: int, *, seed: int, epoch: int) -> PackedBatches:
    """Return the batches of one epoch; their order depends on ``seed`` and ``epoch`` alone.

    The last incomplete batch is dropped, unless it is the only one.
    """
    order = np.random.default_rng(seed_of(seed, epoch)).permutation(len(dataset))
    full = len(order) // bags_per_batch * bags_per_batch
    if not full:
        return PackedBatches(dataset, [order])
    return PackedBatches(dataset, list(order[:full].reshape(-1, bags_per_batch)))


def ordered_batches(dataset: BagDataset, max_instances: int) -> PackedBatches:
    """Return batches of consecutive bags with at most ``max_instances`` instances, or one larger bag."""
    groups: list[np.ndarray] = []
    start, held = 0, 0
    for bag, size in enumerate(dataset.sizes.tolist()):
        if bag > start and held + size > max_instances:
            groups.append(np.arange(start, bag))
            start, held = bag, 0
        held += size
    groups.append(np.arange(start, len(dataset)))
    return PackedBatches(dataset, groups)
