"""The order in which bags are seen, and their packing into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from miue.bags.dataset import BagDataset
from miue.bags.segments import BagBatch
from miue.common.seeds import derive_seed

READ_AHEAD = 2  # batches
Group = TypeVar("Group")
Batch = TypeVar("Batch")


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
        """Yield the batches in order; from files or disk, the next two are read while one is used."""
        return read_ahead(self.dataset.batch, self.groups, 0 if self.in_memory else READ_AHEAD)

    @property
    def in_memory(self) -> bool:
        """Whether reading a batch waits for nothing but memory."""
        return type(self.dataset.instances) is np.ndarray


def read_ahead(read: Callable[[Group], Batch], groups: Iterable[Group], ahead: int) -> Iterator[Batch]:
    """Yield what ``read`` returns for each group, ``ahead`` of them being read by a thread of their own."""
    if not ahead:
        yield from map(read, groups)
        return
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(1, "reading") as pool:
        try:
            for group in groups:
                waiting.append(pool.submit(read, group))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def shuffled_batches(
    dataset: BagDataset,
    bags_per_batch: int,
    *,
    seed: int,
    epoch: int,
    class_balanced: bool = False,
    rank: int = 0,
    processes: int = 1,
) -> PackedBatches:
    """Return the batches of one epoch; their order depends on ``seed`` and ``epoch`` alone.

    The last incomplete batch is dropped, unless it is the only one.

    Args:
        dataset: the bags.
        bags_per_batch: bags of an update.
        seed: of the order.
        epoch: likewise.
        class_balanced: draw as many bags of each class, not each bag once; for that all labels have to be known.
        rank: of several processes, each of which gets a share of every batch.
        processes: how many there are.
    """
    random = np.random.default_rng(derive_seed(seed, epoch))
    order = _evenly(dataset.labels.values, random) if class_balanced else random.permutation(len(dataset))
    full = len(order) // bags_per_batch * bags_per_batch
    groups = list(order[:full].reshape(-1, bags_per_batch)) if full else [order]
    return PackedBatches(dataset, [group[rank::processes] for group in groups])


def _evenly(labels: Int64[np.ndarray, "n"], random: np.random.Generator) -> Int64[np.ndarray, "n"]:
    """Return n positions in random order, of each class as many, give or take one.

    Of a frequent class some are left out. Those of a rare class are repeated, each as often as the others, give or
    take once.
    """
    classes = random.permutation(np.unique(labels))
    shares = np.diff(np.linspace(0, len(labels), len(classes) + 1).round().astype(int))
    drawn = []
    for label, share in zip(classes, shares, strict=True):
        members = np.flatnonzero(labels == label)
        rounds = [random.permutation(members) for _ in range(-(-share // len(members)))]
        drawn.append(np.concatenate(rounds)[:share])
    return random.permutation(np.concatenate(drawn))


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
