"""Work of many small steps on all threads: each item on one, since PyTorch would divide each small step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the result of each item, in order; each is computed by one of as many threads as PyTorch uses here.

    A result does not depend on how many threads there are. There are no gradients.

    Raises:
        Exception: what ``work`` raises, of the first item for which it does.

    >>> list(in_threads(lambda rows: rows.sum().item(), torch.arange(6.0).split(2)))
    [1.0, 5.0, 9.0]
    """
    threads = torch.get_num_threads()

    def on_one_thread(item: Item) -> Result:
        torch.set_num_threads(1)
        with torch.no_grad():
            return work(item)

    try:
        if threads == 1 or len(items) < 2:
            yield from map(on_one_thread, items)
            return
        with ThreadPoolExecutor(min(threads, len(items)), "computing") as pool:
            yield from pool.map(on_one_thread, items)
    finally:
        torch.set_num_threads(threads)  # of this thread, and of those that begin later
