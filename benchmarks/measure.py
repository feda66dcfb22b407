"""What the benchmarks share: fair medians, a process of one's own, an epoch, the machine's matrix product."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from miue.bags import BagDataset, shuffled_batches
from miue.methods import Method

BAGS_PER_UPDATE = 8
PRODUCTS = 20
SIDE = 1024
PRODUCT_FLOPS = PRODUCTS * 2 * SIDE**3
"""Floating point operations of one call of what `matrix_product` returns."""


def medians(
    *sides: Callable[[], object],
    repetitions: int,
    before: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the median seconds of each side, the sides taking turns after one warm-up each.

    Args:
        sides: what is compared.
        repetitions: how often each runs.
        before: runs before each side, untimed.
        clock: what time is read from.
    """
    seconds: list[list[float]] = [[] for _ in sides]
    for repetition in range(-1, repetitions):
        for times, side in zip(seconds, sides, strict=True):
            if before is not None:
                before()
            started = clock()
            side()
            if repetition >= 0:
                times.append(clock() - started)
    return [statistics.median(times) for times in seconds]


def matrix_product() -> Callable[[], None]:
    """Return a product of square matrices as this machine does it, `PRODUCTS` times."""
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)

    def run() -> None:
        for _ in range(PRODUCTS):
            left @ right

    return run


def optimizer_of(method: Method) -> torch.optim.Optimizer:
    """Return the optimizer of training."""
    return torch.optim.Adam(method.parameters(), lr=1e-4, fused=True)


def packed_epoch_of(method: Method, bags: BagDataset) -> Callable[[], None]:
    """Return one epoch: an update per packed batch of eight bags."""
    method.train()
    optimizer = optimizer_of(method)

    def run() -> None:
        for batch in shuffled_batches(bags, BAGS_PER_UPDATE, seed=1, epoch=0):
            optimizer.zero_grad()
            method.loss(batch, 1).backward()
            optimizer.step()

    return run


def in_own_process(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``task`` returns in a new process.

    Raises:
        EOFError: the process died.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, task, arguments))
    process.start()
    sender.close()  # so that a process that died ends the wait
    found = receiver.recv()
    process.join()
    return found


def _send(sender: Any, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(task(*arguments))


def resident(field: str) -> float:
    """Return MiB of this process: ``VmRSS`` now, ``VmHWM`` at its peak, ``RssAnon`` without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024
