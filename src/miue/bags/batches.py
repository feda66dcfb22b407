"""The order in which bags are seen, and their packing into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from jaxtyping import Int64

from miue.bags.dataset import BagDataset
from miue.common.seeds import derive_seed

if TYPE_CHECKING:
    from miue.bags.segments import BagBatch

READ_AHEAD = 2  # batches
Group = TypeVar("Group")
Batch = TypeVar("Batch")
RowsOf = Callable[[int], Int64[np.ndarray, "n"] | None]


class PackedBatches:
    """Batches of given bags; each is read when it is asked for.

    Args:
        dataset: the bags.
        groups: positions of the bags of each batch.
        rows_of: returns which instances of a bag are read, None for all.
    """

    def __init__(self, dataset: BagDataset, groups: list[np.ndarray], rows_of: RowsOf | None = None) -> None:
        self.dataset = dataset
        self.groups = groups
        self.rows_of = rows_of

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[BagBatch]:
        """Yield the batches in order; from files or disk, the next two are read while one is used."""
        return read_ahead(self._read, self.groups, 0 if self.in_memory else READ_AHEAD)

    def _read(self, group: np.ndarray) -> BagBatch:
        rows = None if self.rows_of is None else [self.rows_of(bag) for bag in group.tolist()]
        return self.dataset.batch(group, rows=rows)

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
    instances_per_bag: int | None = None,
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
        instances_per_bag: most instances that are read of each bag, drawn without replacement by ``seed``,
            ``epoch`` and its position alone; None reads all.
        rank: of several processes, each of which gets a share of every batch.
        processes: how many there are.
    """
    random = np.random.default_rng(derive_seed(seed, epoch))
    order = _evenly(dataset.labels.values, random) if class_balanced else random.permutation(len(dataset))
    full = len(order) // bags_per_batch * bags_per_batch
    groups = list(order[:full].reshape(-1, bags_per_batch)) if full else [order]
    limit = instances_per_bag
    rows_of = None if limit is None else partial(_draw_rows, dataset.sizes, limit, derive_seed(seed, epoch))
    return PackedBatches(dataset, [group[rank::processes] for group in groups], rows_of)


def _draw_rows(sizes: Int64[np.ndarray, "B"], limit: int, seed: int, bag: int) -> Int64[np.ndarray, "n"] | None:
    """Return ``limit`` instances of a bag in order, None where it holds no more."""
    if sizes[bag] <= limit:
        return None
    random = np.random.default_rng(derive_seed(seed, bag))
    return np.sort(random.choice(sizes[bag], limit, replace=False, shuffle=False))


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
